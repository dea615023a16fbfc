'use strict';
/*
 * Socket.IO on two servers that share one Sheaf: broadcasts, rooms, acknowledgements and requests between the
 * servers, through channels and patterns (the usual adapter) and through shard channels (the sharded one).
 */

const assert = require('node:assert/strict');
const { createServer } = require('node:http');
const { createAdapter, createShardedAdapter } = require('@socket.io/redis-adapter');
const Redis = require('ioredis');
const current = require('redis');
const four = require('redis4');
const { Server } = require('socket.io');
const { io: connectTo } = require('socket.io-client');
const { serverTest, waitUntil } = require('./server');

const MESSAGES = 200;
// The adapter keeps a timer, and with it the process, for this time after an answer.
const ANSWER_MS = 10_000;

const nodeRedis = (library, options = {}) => async (port) => {
  const client = library.createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: false }, ...options });
  client.on('error', () => {});
  await client.connect();
  return [client, () => (client.close ?? client.quit).call(client)];
};
const ioredis = async (port) => {
  const client = new Redis({ port, retryStrategy: null });
  client.on('error', () => {});
  return [client, () => client.quit()];
};

const VARIANTS = [
  ['channels, ioredis', createAdapter, ioredis],
  ['channels, node-redis 4', createAdapter, nodeRedis(four)],
  ['channels, node-redis 6, RESP3', createAdapter, nodeRedis(current, { RESP: 3 })],
  ['shard channels, node-redis 4', createShardedAdapter, nodeRedis(four)],
];

/* One application server: an HTTP server with Socket.IO. */
async function application(port, adapter, connect) {
  const [[publisher, closePublisher], [subscriber, closeSubscriber]] = [await connect(port), await connect(port)];
  const http = createServer();
  const io = new Server(http, { adapter: adapter(publisher, subscriber) });
  io.on('connection', (socket) => {
    socket.on('join', async (room, done) => { await socket.join(room); done(); });
    socket.on('say', (room, text) => socket.to(room).emit('said', text));
  });
  await new Promise((resolve) => { http.listen(0, '127.0.0.1', resolve); });
  const close = async () => {
    await io.close();
    await closePublisher();
    await closeSubscriber();
  };
  return { io, url: `http://127.0.0.1:${http.address().port}`, close };
}

/* A browser, the messages that it received, and the servers whose room it hears. */
async function browser(url, answer) {
  const socket = connectTo(url, { transports: ['websocket'], reconnection: false });
  const [told, heard] = [[], new Set()];
  socket.onAny((event, ...values) => {
    if (event === 'ready') return heard.add(values[0]);
    const reply = typeof values.at(-1) === 'function' ? values.pop() : null;
    told.push([event, ...values]);
    reply?.(answer);
  });
  await new Promise((resolve, reject) => { socket.once('connect', resolve).once('connect_error', reject); });
  return { socket, told, heard, join: (room) => socket.emitWithAck('join', room) };
}

for (const [variant, adapter, connect] of VARIANTS) {
  serverTest(`socket.io over ${variant}`, async (server) => {
    const applications = [
      await application(server.port, adapter, connect),
      await application(server.port, adapter, connect),
    ];
    const [first, second] = applications;
    const browsers = await Promise.all([first, first, second, second].map(({ url }, index) => browser(url, index)));
    const [a, b, c, d] = browsers;
    try {
      await waitUntil('each to know the other', async () => (await first.io.fetchSockets()).length === 4);
      await waitUntil('each to know the other', async () => (await second.io.fetchSockets()).length === 4);

      // Broadcasts, in order, to all browsers.
      for (let number = 0; number < MESSAGES; number++) first.io.emit('all', number);
      const expected = Array.from({ length: MESSAGES }, (_, number) => ['all', number]);
      await waitUntil('all broadcasts', () => browsers.every(({ told }) => told.length === MESSAGES));
      for (const { told } of browsers) assert.deepEqual(told.splice(0), expected);

      // Rooms, to which servers and browsers write.
      await Promise.all([a.join('room'), c.join('room')]);
      // The adapter over shard channels subscribes to a room's channel without waiting for it.
      await waitUntil('the room to be heard', () => {
        for (const [number, { io }] of applications.entries()) io.to('room').emit('ready', number);
        return [a, c].every(({ heard }) => heard.size === 2);
      });
      second.io.to('room').emit('news', { text: 'for a and c', binary: Buffer.from([0, 13, 10, 255]) });
      a.socket.emit('say', 'room', 'hello from a');
      await waitUntil('what is said in the room', () => a.told.length === 1 && c.told.length === 2);
      assert.deepEqual(a.told.splice(0), [['news', { text: 'for a and c', binary: Buffer.from([0, 13, 10, 255]) }]]);
      assert.deepEqual(new Set(c.told.splice(0).map(([event]) => event)), new Set(['news', 'said']));
      assert.deepEqual([b.told, d.told], [[], []]);

      // Acknowledgements of a broadcast, from the browsers of both servers.
      const answers = await first.io.timeout(ANSWER_MS).emitWithAck('question', 'who?');
      assert.deepEqual(answers.sort(), [0, 1, 2, 3]);
      for (const { told } of browsers) assert.deepEqual(told.splice(0), [['question', 'who?']]);

      // One server sends a request to the other.
      second.io.on('load', (what, reply) => reply(`${what} is low`));
      assert.deepEqual(await first.io.serverSideEmitWithAck('load', 'cpu'), ['cpu is low']);

      // One server manages the browsers of the other.
      await first.io.in(d.socket.id).socketsJoin('late');
      await waitUntil('d to be in the room', async () => (await second.io.in('late').fetchSockets()).length === 1);
      first.io.to('late').emit('late', 1);
      await waitUntil('what is said to d', () => d.told.length === 1);
      second.io.in('room').disconnectSockets();
      await waitUntil('a and c to be gone', () => a.socket.disconnected && c.socket.disconnected);
      await waitUntil('both to know', async () => (await first.io.fetchSockets()).length === 2);
      assert.ok(b.socket.connected && d.socket.connected);
    } finally {
      for (const { socket } of browsers) socket.disconnect();
      for (const { close } of applications) await close();
    }
  });
}
