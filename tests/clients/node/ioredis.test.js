'use strict';
/* ioredis 5: pipelines, streams, key prefixes, auto-pipelining. It speaks RESP2. */

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const { serverTest, waitUntil } = require('./server');

function clientTest(name, work, { client: options, ...settings } = {}) {
  serverTest(`ioredis: ${name}`, async (server) => {
    const client = new Redis({ port: server.port, retryStrategy: null, maxRetriesPerRequest: 0, ...options });
    client.on('error', () => {});
    try {
      await work(client, server);
    } finally {
      client.disconnect();
    }
  }, settings);
}

clientTest('strings and counters', async (client) => {
  assert.equal(await client.set('k', 'v', 'EX', 100, 'NX'), 'OK');
  assert.equal(await client.set('k', 'w', 'NX'), null);
  assert.equal(await client.get('k'), 'v');
  assert.equal(await client.getex('k', 'PERSIST'), 'v');
  assert.equal(await client.ttl('k'), -1);
  assert.equal(await client.mset({ a: 1, b: 2 }), 'OK');
  assert.deepEqual(await client.mget('a', 'missing', 'b'), ['1', null, '2']);
  assert.equal(await client.incrby('n', 5), 5);
  assert.equal(await client.incrbyfloat('n', 0.25), '5.25');
  await assert.rejects(client.incr('n'), /ReplyError: ERR value is not an integer or out of range/);
});

clientTest('a pipeline of ten thousand commands with an error inside', async (client) => {
  const pipeline = client.pipeline();
  for (let number = 0; number < 10_000; number += 1) pipeline.incr(number === 5000 ? 'text' : 'n');
  await client.set('text', 'no number');
  const replies = await pipeline.exec();
  assert.equal(replies.length, 10_000);
  assert.match(replies[5000][0].message, /not an integer/);
  assert.deepEqual(replies.at(-1), [null, 9999]);
});

clientTest('automatic pipelines', async (client) => {
  await Promise.all(Array.from({ length: 2000 }, (_, number) => client.set(`k${number}`, number)));
  const values = await Promise.all(Array.from({ length: 2000 }, (_, number) => client.get(`k${number}`)));
  assert.deepEqual(values, Array.from({ length: 2000 }, (_, number) => String(number)));
}, { client: { enableAutoPipelining: true } });

clientTest('binary values', async (client) => {
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
  await client.set(bytes, bytes);
  assert.ok(bytes.equals(await client.getBuffer(bytes)));
});

clientTest('a scan by stream, with a key prefix', async (client) => {
  await Promise.all(Array.from({ length: 500 }, (_, number) => client.set(`k${number}`, 'v')));
  const found = [];
  for await (const keys of client.scanStream({ match: 'app:*', count: 50 })) found.push(...keys);
  assert.equal(new Set(found).size, 500);
  assert.ok(found.every((key) => key.startsWith('app:k')));
}, { client: { keyPrefix: 'app:' } });

clientTest('a lock that expires', async (client) => {
  assert.equal(await client.set('lock', 'me', 'PX', 5, 'NX'), 'OK');
  await waitUntil('the lock', async () => (await client.set('lock', 'you', 'PX', 60_000, 'NX')) === 'OK');
});

clientTest('databases, names and a password', async (client) => {
  assert.equal(await client.set('k', 'v'), 'OK');
  assert.equal(await client.client('GETNAME'), 'worker');
  const list = await client.client('LIST');
  assert.match(list, /name=worker .*db=4/);
  assert.equal(await client.select(0), 'OK');
  assert.equal(await client.exists('k'), 0);
  assert.match(await client.info(), /db4:keys=1,expires=0/);
}, { password: 'secret', client: { password: 'secret', db: 4, connectionName: 'worker' } });

clientTest('quit', async (client) => {
  assert.equal(await client.quit(), 'OK');
});
