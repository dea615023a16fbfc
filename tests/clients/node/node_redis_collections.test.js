'use strict';
/*
 * node-redis with collections, transactions and blocking commands; the current version in both protocols, and
 * 4.
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
const sorted = (reply) => [...reply].sort();
const close = (client) => (client.destroy ?? client.disconnect).call(client);

for (const [variant, library, options] of VARIANTS) {
  const connect = async (server) => {
    const client = library.createClient({
      url: `redis://127.0.0.1:${server.port}`,
      socket: { reconnectStrategy: false },
      ...options,
    });
    client.on('error', () => {});
    return client.connect();
  };

  const clientTest = (name, work) => {
    serverTest(`${variant}: ${name}`, async (server) => {
      const clients = [];
      const another = async () => {
        clients.push(await connect(server));
        return clients.at(-1);
      };
      try {
        await work(await another(), another);
      } finally {
        clients.forEach(close);
      }
    });
  };

  clientTest('hashes', async (client) => {
    assert.equal(await client.hSet('h', { f: '1', g: 'two' }), 2);
    assert.equal(await client.hSet('h', 'f', '5'), 0);
    assert.equal(await client.hGet('h', 'f'), '5');
    assert.deepEqual({ ...(await client.hGetAll('h')) }, { f: '5', g: 'two' });
    assert.deepEqual(await client.hmGet('h', ['g', 'missing']), ['two', null]);
    assert.equal(await client.hIncrBy('h', 'f', 2), 7);
    assert.equal(Number(await client.hIncrByFloat('h', 'f', 0.5)), 7.5);
    assert.deepEqual(sorted(await client.hKeys('h')), ['f', 'g']);
    assert.deepEqual(sorted(await client.hVals('h')), ['7.5', 'two']);
    assert.equal(await client.hLen('h'), 2);
    assert.equal(Boolean(await client.hExists('h', 'g')), true);
    assert.equal(Boolean(await client.hSetNX('h', 'g', 'x')), false);
    assert.equal(await client.hDel('h', ['f', 'g']), 2);
  });

  clientTest('lists', async (client) => {
    assert.equal(await client.rPush('l', ['a', 'b', 'c']), 3);
    assert.equal(await client.lPush('l', 'z'), 4);
    assert.deepEqual(await client.lRange('l', 0, -1), ['z', 'a', 'b', 'c']);
    assert.equal(await client.lIndex('l', 1), 'a');
    assert.equal(await client.lPos('l', 'b'), 2);
    assert.equal(await client.lInsert('l', 'BEFORE', 'b', 'ab'), 5);
    assert.equal(await client.lSet('l', 0, 'Z'), 'OK');
    assert.equal(await client.lRem('l', 0, 'ab'), 1);
    assert.equal(await client.lMove('l', 'm', 'LEFT', 'RIGHT'), 'Z');
    assert.equal(await client.rPopLPush('l', 'm'), 'c');
    assert.deepEqual(await client.lPopCount('m', 5), ['c', 'Z']);
    assert.equal(await client.lTrim('l', 0, 0), 'OK');
    assert.equal(await client.lLen('l'), 1);
    await assert.rejects(client.lSet('l', 9, 'x'), /ERR index out of range/);
  });

  clientTest('sets', async (client) => {
    assert.equal(await client.sAdd('a', ['1', '2', '3']), 3);
    await client.sAdd('b', ['2', '3', '4']);
    assert.deepEqual(sorted(await client.sMembers('a')), ['1', '2', '3']);
    assert.deepEqual((await client.smIsMember('a', ['1', '9'])).map(Boolean), [true, false]);
    assert.deepEqual(sorted(await client.sInter(['a', 'b'])), ['2', '3']);
    assert.deepEqual(sorted(await client.sUnion(['a', 'b'])), ['1', '2', '3', '4']);
    assert.deepEqual(sorted(await client.sDiff(['a', 'b'])), ['1']);
    assert.equal(await client.sInterCard(['a', 'b']), 2);
    assert.equal(await client.sUnionStore('c', ['a', 'b']), 4);
    assert.equal(Boolean(await client.sMove('a', 'b', '1')), true);
    assert.equal(await client.sCard('b'), 4);
    assert.ok(['2', '3'].includes(await client.sRandMember('a')));
    assert.equal(await client.sRem('a', ['2', '3']), 2);
    assert.equal(await client.exists('a'), 0);
  });

  clientTest('sorted sets', async (client) => {
    const members = [{ score: 1, value: 'a' }, { score: 2.5, value: 'b' }, { score: 7, value: 'c' }];
    assert.equal(await client.zAdd('z', members), 3);
    assert.deepEqual(await client.zRange('z', 0, -1), ['a', 'b', 'c']);
    assert.deepEqual(await client.zRange('z', 0, -1, { REV: true }), ['c', 'b', 'a']);
    assert.deepEqual((await client.zRangeWithScores('z', 0, -1)).map((found) => ({ ...found })),
      members.map(({ score, value }) => ({ value, score })));
    assert.deepEqual(await client.zRangeByScore('z', 2, '+inf'), ['b', 'c']);
    assert.equal(await client.zScore('z', 'b'), 2.5);
    assert.equal(await client.zScore('z', 'missing'), null);
    assert.equal(await client.zRank('z', 'b'), 1);
    assert.equal(await client.zIncrBy('z', 1.5, 'a'), 2.5);
    assert.equal(await client.zCount('z', 0, 3), 2);
    assert.equal(await client.zRem('z', 'c'), 1);
    assert.deepEqual({ ...(await client.zPopMin('z')) }, { value: 'a', score: 2.5 });
    assert.equal(await client.zRemRangeByScore('z', '-inf', '+inf'), 1);
  });

  clientTest('bits, cardinalities and places', async (client) => {
    assert.equal(await client.setBit('bits', 9, 1), 0);
    assert.equal(await client.bitCount('bits'), 1);
    assert.equal(await client.bitPos('bits', 1), 9);
    assert.equal(Boolean(await client.pfAdd('seen', ['a', 'b', 'c'])), true);
    assert.equal(await client.pfCount('seen'), 3);
    await client.geoAdd('cities', [
      { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' },
      { longitude: 15.087269, latitude: 37.502669, member: 'Catania' },
    ]);
    assert.equal(Math.round(await client.geoDist('cities', 'Palermo', 'Catania', 'km')), 166);
    const near = await client.geoSearch('cities', { longitude: 15, latitude: 37 }, { radius: 100, unit: 'km' });
    assert.deepEqual(near, ['Catania']);
  });

  clientTest('a transaction', async (client) => {
    const replies = await client.multi().set('k', '1').incr('k').rPush('l', ['a', 'b']).get('k').exec();
    assert.deepEqual(replies, ['OK', 2, 2, '2']);
  });

  clientTest('a watched key', async (client, another) => {
    const other = await another();
    await client.watch('k');
    await other.set('k', 'theirs');
    await assert.rejects(client.multi().set('k', 'mine').exec(), /One \(or more\) of the watched keys has been changed/);
    await client.watch('k');
    assert.deepEqual(await client.multi().set('k', 'mine').exec(), ['OK']);
    assert.equal(await other.get('k'), 'mine');
  });

  clientTest('a push serves who waits', async (client, another) => {
    const other = await another();
    const blocked = async (count) => waitUntil('blocked clients', async () => (
      (await other.info('clients')).includes(`blocked_clients:${count}`)));
    const popped = client.blPop('l', 0);
    await blocked(1);
    await other.rPush('l', 'a');
    assert.deepEqual({ ...(await popped) }, { key: 'l', element: 'a' });
    const moved = client.blMove('l', 'm', 'LEFT', 'RIGHT', 0);
    await blocked(1);
    await other.rPush('l', 'b');
    assert.equal(await moved, 'b');
    const lowest = client.bzPopMin('z', 0);
    await blocked(1);
    await other.zAdd('z', { score: 3, value: 'm' });
    assert.deepEqual({ ...(await lowest) }, { key: 'z', value: 'm', score: 3 });
    assert.equal(await client.blPop('missing', 0.01), null);
  });
}
