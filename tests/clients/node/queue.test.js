'use strict';
/* A queue with acknowledgements, over node-redis, on a server that is killed meanwhile. */

const assert = require('node:assert/strict');
const { createClient } = require('redis');
const { serverTest } = require('./server');

const WORKERS = 3;
const KILLS = 3;
const JOBS_PER_LIFE = 150;

serverTest('a queue loses nothing and repeats nothing that was acknowledged', async (server) => {
  const pushed = new Set();
  const done = new Set();
  const acknowledged = new Set();
  let next = 0;
  let clients = [];

  const connect = async () => {
    const client = createClient({ url: `redis://127.0.0.1:${server.port}`, socket: { reconnectStrategy: false } });
    client.on('error', () => {});
    clients.push(client);
    return client.connect();
  };

  const produce = async (client) => {
    for (;;) {
      next += 1;
      const job = `job:${next}`;
      await client.lPush('pending', job);
      pushed.add(job);
    }
  };

  const work = async (client, name, goOn) => {
    while (await goOn(client)) {
      const job = await client.blMove('pending', `taken:${name}`, 'RIGHT', 'LEFT', 0.05);
      if (job === null) continue;
      assert.ok(!acknowledged.has(job), `${job} was acknowledged and came again`);
      done.add(job);
      assert.equal(await client.lRem(`taken:${name}`, 1, job), 1);
      acknowledged.add(job);
    }
  };

  // A closed connection ends its worker; any other error is a failure.
  const untilKilled = (working) => working.catch((error) => {
    if (error instanceof assert.AssertionError) throw error;
  });

  const giveBack = async (client) => {
    for (let worker = 0; worker < WORKERS; worker += 1) {
      while ((await client.lMove(`taken:${worker}`, 'pending', 'RIGHT', 'RIGHT')) !== null);
    }
  };

  for (let life = 0; life < KILLS; life += 1) {
    await giveBack(await connect());
    const target = acknowledged.size + JOBS_PER_LIFE;
    let enough;
    const reached = new Promise((resolve) => { enough = resolve; });
    const goOn = async () => {
      if (acknowledged.size >= target) enough();
      return true;
    };
    const working = [untilKilled(produce(await connect()))];
    for (let worker = 0; worker < WORKERS; worker += 1) working.push(untilKilled(work(await connect(), worker, goOn)));
    await Promise.race([reached, Promise.all(working)]);
    await server.kill();
    await Promise.all(working);
    clients.forEach((client) => client.isOpen && client.destroy());
    clients = [];
    await server.start();
  }

  const janitor = await connect();
  await giveBack(janitor);
  await work(janitor, 0, async (client) => (await client.lLen('pending')) > 0);
  assert.deepEqual([...pushed].filter((job) => !done.has(job)), []);
  assert.ok(acknowledged.size >= KILLS * JOBS_PER_LIFE);
  clients.forEach((client) => client.destroy());
});
