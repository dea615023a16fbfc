'use strict';
/* Clients over TLS: ioredis 5, node-redis, nano and PouchDB. */

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { mkdtempSync, readFileSync, rmSync } = require('node:fs');
const https = require('node:https');
const { tmpdir } = require('node:os');
const path = require('node:path');
const Redis = require('ioredis');
const PouchDB = require('pouchdb');
const { createClient } = require('redis');
const { BINARY, Server, freePort, runTest, waitUntil } = require('./server');

/*
 * Declares a test with a server that serves TLS: `work({ port, httpPort, file, tls })` gets its ports, names of files
 * in a directory, and what a client shows and trusts.
 */
function tlsTest(name, work) {
  const server = new Server();
  runTest(name, [server], async () => {
    const directory = mkdtempSync(path.join(tmpdir(), 'sheaf-tls-'));
    try {
      execFileSync(BINARY, ['certs', directory]);
      const file = (which) => path.join(directory, which);
      const [port, httpPort] = [await freePort(), await freePort()];
      server.flags = [
        '--tls-port', String(port), '--tls-cert-file', file('server.crt'), '--tls-key-file', file('server.key'),
        '--tls-ca-cert-file', file('ca.crt'), '--http-tls-port', String(httpPort),
      ];
      await server.start();
      const read = (which) => readFileSync(file(which));
      await work({ port, httpPort, file, tls: { ca: read('ca.crt'), cert: read('client.crt'), key: read('client.key') } });
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
}

tlsTest('ioredis: pipelines, large values and messages over TLS', async ({ port, tls }) => {
  const client = new Redis({ host: 'localhost', port, tls, retryStrategy: null, maxRetriesPerRequest: 0 });
  const listener = client.duplicate();
  [client, listener].forEach((it) => it.on('error', () => {}));
  try {
    const pipeline = client.pipeline();
    for (let number = 0; number < 5000; number += 1) pipeline.set(`k${number}`, number);
    assert.equal((await pipeline.exec()).length, 5000);
    const large = Buffer.alloc(3 << 20, 'large');
    await client.set('large', large);
    assert.ok(large.equals(await client.getBuffer('large')));
    await listener.subscribe('c');
    const heard = new Promise((resolve) => { listener.on('message', (_, message) => resolve(message)); });
    assert.equal(await client.publish('c', 'm'.repeat(200_000)), 1);
    assert.equal((await heard).length, 200_000);
  } finally {
    client.disconnect();
    listener.disconnect();
  }
});

tlsTest('ioredis: a client that does not trust the authority is no client', async ({ port, tls }) => {
  const options = { host: 'localhost', port, retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true };
  const trusting = new Redis({ ...options, tls: { ...tls, ca: undefined } });
  trusting.on('error', () => {});
  await assert.rejects(trusting.connect());
  trusting.disconnect();
});

tlsTest('node-redis: commands and transactions over TLS', async ({ port, tls }) => {
  const client = createClient({ socket: { host: 'localhost', port, tls: true, ...tls, reconnectStrategy: false } });
  client.on('error', () => {});
  await client.connect();
  try {
    const values = Array.from({ length: 2000 }, (_, number) => String(number));
    await Promise.all(values.map((value) => client.set(`k${value}`, value)));
    assert.deepEqual(await Promise.all(values.map((value) => client.get(`k${value}`))), values);
    assert.deepEqual(await client.multi().incr('n').incr('n').exec(), [1, 2]);
  } finally {
    client.destroy();
  }
});

/* nano uses the fetch of Node, which takes further authorities from the environment, at the start of the process. */
const NANO = `
const assert = require('node:assert/strict');
const server = require('nano')(process.argv[1]);
(async () => {
  await server.db.create('db');
  const database = server.use('db');
  const { rev } = await database.insert({ text: 'x'.repeat(300_000) }, 'a');
  assert.equal((await database.get('a')).text.length, 300_000);
  await database.attachment.insert('b', 'file', Buffer.alloc(1 << 20, 'bytes'), 'text/plain');
  assert.equal((await database.attachment.get('b', 'file')).length, 1 << 20);
  await assert.rejects(database.insert({ text: 'conflict' }, 'a'), /conflict/);
  await database.destroy('a', rev);
})();`;

tlsTest('nano: documents over TLS', async ({ httpPort, file }) => {
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: file('ca.crt') };
  execFileSync(process.execPath, ['-e', NANO, `https://localhost:${httpPort}`], { env });
});

tlsTest('PouchDB: live replication over TLS', async ({ httpPort, tls, file }) => {
  const agent = new https.Agent({ ca: tls.ca, keepAlive: true });
  const fetch = (url, options) => PouchDB.fetch(url, { ...options, agent });
  const remote = new PouchDB(`https://localhost:${httpPort}/db`, { fetch });
  const [near, far] = ['near', 'far'].map((name) => new PouchDB(file(name)));
  const syncs = [near, far].map((local) => local.sync(remote, { live: true, retry: true }));
  syncs.forEach((sync) => sync.on('error', () => {}));
  try {
    for (let number = 0; number < 50; number += 1) await near.put({ _id: String(number), text: 'x'.repeat(5000) });
    await waitUntil('the documents', async () => (await far.info()).doc_count === 50);
    assert.equal((await far.get('49')).text.length, 5000);
  } finally {
    syncs.forEach((sync) => sync.cancel());
    await Promise.all([near, far].map((local) => local.close()));
    // PouchDB reports the failure of a request that it still makes to nobody.
    await waitUntil('its requests to end', () => Object.keys({ ...agent.sockets, ...agent.requests }).length === 0);
    agent.destroy();
  }
});
