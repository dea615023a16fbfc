'use strict';
/* ioredis and node-redis follow a group of servers whose leader is killed: by Sentinel, and as a cluster. */

const assert = require('node:assert/strict');
const Redis = require('ioredis');
const { createCluster, createSentinel } = require('redis');
const { NAME, ask, groupTest, leaderOf } = require('./group');
const { waitUntil } = require('./server');

const EMULATION = ['--cluster-emulation', 'yes'];
const RETRY_MS = 50;

/* Kills the leader; resolves when the client can write again, and reads what it has written. */
async function survives([leader, ...others], client) {
  assert.equal(await client.set('k', 'before'), 'OK');
  await leader.kill();
  await waitUntil('the client to find the new leader', async () => {
    try {
      return await client.set('k', 'after') === 'OK';
    } catch {
      return false;
    }
  });
  assert.equal(await client.get('k'), 'after');
  assert.ok(await leaderOf(others));
}

const nodesOf = (servers) => servers.map(({ port }) => ({ host: '127.0.0.1', port }));

function sentinelClient(servers, options) {
  const client = new Redis({
    sentinels: nodesOf(servers), sentinelRetryStrategy: () => RETRY_MS, retryStrategy: () => RETRY_MS, ...options,
  });
  client.on('error', () => {});
  return client;
}

for (const name of [NAME, 'mymaster']) {
  groupTest(`ioredis: Sentinel, by the name ${name}`, async (servers) => {
    const client = sentinelClient(servers, { name });
    try {
      await survives(servers, client);
    } finally {
      client.disconnect();
    }
  });
}

/* The connection to a leader that is stopped stays open: only the event makes the client ask again. The leader
   is a sentinel, too, which does not answer any more. */
groupTest('ioredis: Sentinel, an event', async (servers) => {
  const client = sentinelClient(servers, { name: NAME, failoverDetector: true, sentinelCommandTimeout: 500 });
  try {
    assert.equal(await client.set('k', 'before'), 'OK');
    const [leader, ...others] = servers;
    for (const { port } of others) {
      await waitUntil('its subscription', async () => /:1\r\n$/.test(await ask(port, 'PUBSUB NUMSUB +switch-master')));
    }
    leader.freeze();
    await waitUntil('another leader', () => leaderOf(others));
    await waitUntil('the client to find it', () => client.set('k', 'after').catch(() => false));
    assert.equal(await client.get('k'), 'after');
  } finally {
    client.disconnect();
  }
});

groupTest('ioredis: Cluster', async (servers) => {
  const client = new Redis.Cluster(nodesOf(servers), { clusterRetryStrategy: () => RETRY_MS });
  client.on('error', () => {});
  try {
    await survives(servers, client);
    // While the client asks for the slots again, it knows no master.
    await waitUntil('one master', () => client.nodes('master').length === 1);
  } finally {
    client.disconnect();
  }
}, EMULATION);

groupTest('node-redis: Sentinel', async (servers) => {
  const client = createSentinel({
    name: NAME, sentinelRootNodes: nodesOf(servers), maxCommandRediscovers: 100, scanInterval: 0,
  });
  client.on('error', () => {});
  await client.connect();
  try {
    await survives(servers, client);
  } finally {
    await client.destroy();
  }
});

groupTest('node-redis: Cluster', async (servers) => {
  const client = createCluster({
    rootNodes: nodesOf(servers).map((socket) => ({ socket })),
    defaults: { socket: { reconnectStrategy: RETRY_MS } },
  });
  client.on('error', () => {});
  await client.connect();
  try {
    await survives(servers, client);
  } finally {
    await client.destroy();
  }
}, EMULATION);
