'use strict';
/*
 * Channels over node-redis in both protocols and version 4, and over ioredis, as a chat with rooms uses them.
 */

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const current = require('redis');
const four = require('redis4');
const { serverTest, waitUntil } = require('./server');

const MESSAGES = 500;
const VARIANTS = [
  ['node-redis 6, RESP2', current, { RESP: 2 }],
  ['node-redis 6, RESP3', current, { RESP: 3 }],
  ['node-redis 4', four, {}],
];

for (const [variant, library, options] of VARIANTS) {
  const connected = async (server) => {
    const client = library.createClient({
      url: `redis://127.0.0.1:${server.port}`,
      socket: { reconnectStrategy: false },
      ...options,
    });
    client.on('error', () => {});
    return client.connect();
  };

  serverTest(`${variant}: messages arrive in order at channels, patterns and shard channels`, async (server) => {
    const clients = [await connected(server), await connected(server)];
    try {
      const [listener, publisher] = clients;
      const [byName, byPattern, byShard] = [[], [], []];
      await listener.subscribe('room:1', (message) => byName.push(message));
      await listener.pSubscribe('room:*', (message, channel) => byPattern.push(`${channel} ${message}`));
      await listener.sSubscribe('room:1', (message) => byShard.push(message));
      const expected = Array.from({ length: MESSAGES }, (_, number) => `message ${number}`);
      const counts = await Promise.all(expected.map((message) => publisher.publish('room:1', message)));
      assert.deepEqual(new Set(counts), new Set([2]));
      assert.equal(await publisher.publish('room:2', 'x'), 1);
      assert.equal(await publisher.sPublish('room:1', 'shard'), 1);
      await waitUntil('all messages', () => byPattern.length === MESSAGES + 1 && byShard.length === 1);
      assert.deepEqual(byName, expected);
      assert.deepEqual(byPattern, [...expected.map((message) => `room:1 ${message}`), 'room:2 x']);
      assert.deepEqual(byShard, ['shard']);
      await listener.unsubscribe('room:1');
      await listener.pUnsubscribe();
      await listener.sUnsubscribe('room:1');
      assert.equal(await publisher.publish('room:1', 'nobody'), 0);
      assert.equal(String(await listener.ping()), 'PONG', 'an ordinary client again');
    } finally {
      for (const client of clients) await (client.destroy ?? client.disconnect).call(client);
    }
  });

  serverTest(`${variant}: binary messages arrive as they are`, async (server) => {
    const clients = [await connected(server), await connected(server)];
    try {
      const [listener, publisher] = clients;
      const payload = Buffer.from(Array.from({ length: 100_000 }, (_, number) => number % 256));
      const got = [];
      await listener.subscribe('b', (message) => got.push(message), true);
      await publisher.publish('b', payload);
      await waitUntil('the message', () => got.length === 1);
      assert.ok(payload.equals(got[0]));
    } finally {
      for (const client of clients) await (client.destroy ?? client.disconnect).call(client);
    }
  });
}

serverTest('node-redis 6, RESP3: a client that listens goes on with other commands', async (server) => {
  const client = await current
    .createClient({ url: `redis://127.0.0.1:${server.port}`, RESP: 3, socket: { reconnectStrategy: false } })
    .on('error', () => {})
    .connect();
  try {
    const got = [];
    await client.subscribe('own', (message) => got.push(message));
    for (let number = 0; number < MESSAGES; number++) {
      const [set, count] = await Promise.all([client.set('k', number), client.publish('own', String(number))]);
      assert.deepEqual([set, count], ['OK', 1]);
    }
    await waitUntil('own messages', () => got.length === MESSAGES);
    assert.deepEqual(got, Array.from({ length: MESSAGES }, (_, number) => String(number)));
    assert.equal(await client.get('k'), String(MESSAGES - 1));
  } finally {
    client.destroy();
  }
});

serverTest('ioredis: rooms with a publisher and listeners that come and go', async (server) => {
  const connect = () => new Redis({ port: server.port, retryStrategy: null });
  const [publisher, stable] = [connect(), connect()];
  try {
    const got = [];
    stable.on('messageBuffer', (channel, message) => got.push(`${channel} ${message}`));
    assert.equal(await stable.subscribe('a', 'b'), 2);
    for (let round = 0; round < 20; round++) {
      const passing = connect();
      await passing.psubscribe('?');
      assert.equal(await publisher.publish('a', round), 2);
      assert.equal(await publisher.publish('b', round), 2);
      assert.deepEqual(await publisher.pubsub('NUMSUB', 'a', 'c'), ['a', 1, 'c', 0]);
      passing.disconnect();
      await waitUntil('it to be gone', async () => (await publisher.pubsub('NUMPAT')) === 0);
    }
    await waitUntil('all messages', () => got.length === 40);
    assert.deepEqual(got, Array.from({ length: 40 }, (_, number) => `${'ab'[number % 2]} ${number >> 1}`));
  } finally {
    publisher.disconnect();
    stable.disconnect();
  }
});
