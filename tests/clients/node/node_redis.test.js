'use strict';
/*
 * node-redis: the current major version in both protocols, and version 4, which is still the most installed.
 */

const assert = require('node:assert/strict');
const current = require('redis');
const four = require('redis4');
const { serverTest, waitUntil } = require('./server');

const VARIANTS = [
  ['node-redis 6, RESP2', current, { RESP: 2 }],
  ['node-redis 6, RESP3', current, { RESP: 3 }],
  ['node-redis 4', four, {}],
];

for (const [variant, library, options] of VARIANTS) {
  const connect = async (server, more = {}) => {
    const client = library.createClient({
      url: `redis://127.0.0.1:${server.port}`,
      socket: { reconnectStrategy: false },
      ...options,
      ...more,
    });
    client.on('error', () => {});
    return client.connect();
  };

  const clientTest = (name, work, settings = {}) => {
    serverTest(`${variant}: ${name}`, async (server, t) => {
      const client = await connect(server, settings.client);
      try {
        await work(client, server, t);
      } finally {
        if (client.isOpen) await (client.destroy ?? client.disconnect).call(client);
      }
    }, settings);
  };

  clientTest('strings', async (client) => {
    assert.equal(await client.set('k', 'v'), 'OK');
    assert.equal(await client.get('k'), 'v');
    assert.equal(await client.get('missing'), null);
    assert.equal(await client.set('k', 'w', { NX: true }), null);
    assert.equal(await client.set('k', 'w', { XX: true, GET: true }), 'v');
    assert.equal(await client.set('e', 'v', { EX: 100 }), 'OK');
    const left = await client.ttl('e');
    assert.ok(left > 0 && left <= 100);
    assert.equal(await client.append('k', 'xyz'), 4);
    assert.equal(await client.getRange('k', 1, 2), 'xy');
    assert.equal(await client.setRange('k', 0, 'W'), 4);
    assert.equal(await client.strLen('k'), 4);
    assert.equal(await client.getDel('k'), 'Wxyz');
    assert.equal(await client.mSet({ a: '1', b: '2' }), 'OK');
    assert.deepEqual(await client.mGet(['a', 'missing', 'b']), ['1', null, '2']);
    assert.ok(!(await client.mSetNX({ a: '3', c: '3' })));
    assert.equal(await client.setNX('a', '3') == true, false);
  });

  clientTest('counters', async (client) => {
    assert.equal(await client.incr('n'), 1);
    assert.equal(await client.incrBy('n', 41), 42);
    assert.equal(await client.decr('n'), 41);
    assert.equal(await client.decrBy('n', 1), 40);
    assert.equal(Number(await client.incrByFloat('n', 0.5)), 40.5);
    await assert.rejects(client.incr('n'), /^(Simple)?Error: ERR value is not an integer or out of range/);
  });

  clientTest('keys and expiry', async (client) => {
    await client.mSet({ a: '1', b: '2', c: '3' });
    assert.equal(await client.exists(['a', 'b', 'missing']), 2);
    assert.equal(await client.type('a'), 'string');
    assert.deepEqual((await client.keys('*')).sort(), ['a', 'b', 'c']);
    assert.equal(await client.rename('a', 'd'), 'OK');
    assert.equal(Boolean(await client.copy('d', 'e')), true);
    assert.equal(await client.unlink(['b', 'c']), 2);
    assert.equal(Boolean(await client.expire('d', 100)), true);
    assert.equal(Boolean(await client.persist('d')), true);
    assert.equal(await client.ttl('d'), -1);
    await client.pExpire('d', 1);
    await waitUntil('the key to expire', async () => (await client.exists('d')) === 0);
    await waitUntil('the expired key to be removed', async () => (await client.dbSize()) === 1);
    assert.equal(await client.flushDb(), 'OK');
    assert.equal(await client.dbSize(), 0);
  });

  clientTest('a scan by iterator', async (client) => {
    const names = Array.from({ length: 1000 }, (_, number) => `k:${number}`);
    await Promise.all(names.map((name) => client.set(name, 'v')));
    const found = [];
    for await (const keys of client.scanIterator({ MATCH: 'k:*', COUNT: 100 })) found.push(...[keys].flat());
    assert.deepEqual(found.sort(), names.sort());
  });

  clientTest('ten thousand commands sent at once come back in order', async (client) => {
    const replies = await Promise.all(Array.from({ length: 10_000 }, () => client.incr('n')));
    assert.deepEqual(replies, Array.from({ length: 10_000 }, (_, number) => number + 1));
  });

  clientTest('an error rejects its own promise only', async (client) => {
    const settled = await Promise.allSettled([
      client.set('k', 'text'), client.incr('k'), client.sendCommand(['NOSUCH']), client.get('k'),
    ]);
    assert.deepEqual(settled.map(({ status }) => status), ['fulfilled', 'rejected', 'rejected', 'fulfilled']);
    assert.match(settled[2].reason.message, /^ERR unknown command 'NOSUCH'/);
  });

  clientTest('binary and large values', async (client) => {
    const bytes = Buffer.alloc(8 * 1024 * 1024, 0).map((_, index) => index & 0xff);
    await client.set('large', bytes);
    const buffers = library === four
      ? (key) => client.get(library.commandOptions({ returnBuffers: true }), key)
      : (key) => client.withTypeMapping({ [library.RESP_TYPES.BLOB_STRING]: Buffer }).get(key);
    assert.ok(bytes.equals(await buffers('large')));
  });

  clientTest('databases', async (client) => {
    await client.set('k', 'zero');
    await client.select(3);
    assert.equal(await client.get('k'), null);
    await client.set('k', 'three');
    assert.equal(await client.sendCommand(['SWAPDB', '0', '3']), 'OK');
    assert.equal(await client.get('k'), 'zero');
  });

  clientTest('what clients ask about the server', async (client) => {
    assert.equal(await client.ping(), 'PONG');
    assert.match(await client.info('server'), /redis_version:7\./);
    assert.deepEqual({ ...(await client.configGet('maxmemory')) }, { maxmemory: '0' });
    assert.equal(await client.configSet('maxmemory', '100mb'), 'OK');
    assert.equal(await client.clientSetName('me'), 'OK');
    assert.equal(await client.clientGetName(), 'me');
    assert.ok((await client.clientId()) > 0);
    assert.ok((await client.commandCount()) > 50);
    assert.ok((await client.time()));
  });

  clientTest('a password', async (client, server) => {
    assert.equal(await client.set('k', 'v'), 'OK');
    await assert.rejects(connect(server, { password: 'wrong' }), /WRONGPASS/);
  }, { password: 'secret', client: { password: 'secret', database: 2, name: 'worker' } });
}
