'use strict';
/* A group of three servers per test, whose leader is killed with kill -9. */

const { connect } = require('node:net');
const { Server, runTest, waitUntil } = require('./server');

const NAME = 'shop';

/* Sends one command on a connection of its own; resolves to the raw reply, '' if there is none. */
function ask(port, ...words) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(`${words.join(' ')}\r\n`));
    const done = (reply) => { socket.destroy(); resolve(reply); };
    socket.on('error', () => done(''));
    socket.on('close', () => done(''));
    socket.on('data', (reply) => done(String(reply)));
  });
}

/* The server that takes writes, or undefined. */
async function leaderOf(servers) {
  for (const server of servers) {
    if ((await ask(server.port, 'SET', 'probe', '1')) === '+OK\r\n') return server;
  }
  return undefined;
}

async function groupOf(servers) {
  const [first, ...others] = servers;
  first.flags = [...first.flags, '--group', NAME];
  await first.start();
  await waitUntil('a leader', () => leaderOf([first]));
  for (const server of others) {
    server.flags = [...server.flags, '--group', NAME, '--join', `127.0.0.1:${first.port}`];
    await server.start();
  }
  // A follower counts only voters that are committed.
  for (const { port } of servers) {
    await waitUntil('three voters', async () => /voters\r\n:3\r\n/.test(await ask(port, 'GROUP', 'INFO')));
  }
}

/* Declares a test that gets the servers of a group, the leader first: `work(servers)`. */
function groupTest(name, work, flags = []) {
  const servers = [1, 2, 3].map(() => new Server(undefined, flags));
  runTest(name, servers, async () => {
    await groupOf(servers);
    await work(servers);
  });
}

module.exports = { NAME, ask, groupTest, leaderOf };
