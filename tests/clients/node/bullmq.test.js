'use strict';
/*
 * Features of BullMQ besides jobs: flows, schedulers, limits, events, pauses, cleaning. Kills:
 * clients/queues.
 */

const assert = require('node:assert/strict');
const { FlowProducer, Queue, QueueEvents, Worker } = require('bullmq');
const { Redis } = require('ioredis');
const { serverTest, waitUntil } = require('./server');

/* Declares a test that gets the port, and `make`, which creates BullMQ objects that are closed at the end. */
function bullTest(name, work) {
  serverTest(name, async (server) => {
    const connection = { host: '127.0.0.1', port: server.port };
    const parts = [];
    const make = (Part, ...args) => {
      const options = args.find((arg) => arg && typeof arg === 'object') ?? {};
      const part = new Part(...args.filter((arg) => arg !== options), { connection, ...options });
      parts.push(part);
      return part;
    };
    try {
      await work(make, server.port);
    } finally {
      await Promise.all(parts.map((part) => part.close()));
    }
  });
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

bullTest('a parent runs after its children and sees what they returned', async (make) => {
  const flows = make(FlowProducer);
  const events = make(QueueEvents, 'parents');
  make(Worker, 'children', async (job) => job.data.number);
  make(Worker, 'parents', async (job) => sum(Object.values(await job.getChildrenValues())));
  const children = [1, 2, 3, 4].map((number) => ({ name: 'child', queueName: 'children', data: { number } }));
  const { job } = await flows.add({ name: 'parent', queueName: 'parents', children });
  assert.equal(await job.waitUntilFinished(events), 10);
  const { processed, unprocessed } = await job.getDependencies();
  assert.equal(Object.keys(processed).length, 4);
  assert.deepEqual(unprocessed, []);
});

bullTest('priorities decide the order, also among jobs that were added at once', async (make) => {
  const queue = make(Queue, 'jobs');
  const jobs = [3, 1, 2, 1, 3].map((priority, number) => ({ name: 'n', data: { number }, opts: { priority } }));
  await queue.addBulk(jobs);
  assert.deepEqual(await queue.getCountsPerPriority([1, 2, 3]), { 1: 2, 2: 1, 3: 2 });
  const order = [];
  make(Worker, 'jobs', async (job) => { order.push(job.data.number); });
  await waitUntil('five jobs', () => order.length === 5);
  assert.deepEqual(order, [1, 3, 2, 0, 4]);
});

bullTest('a scheduler makes a job after the other until it is removed', async (make) => {
  const queue = make(Queue, 'jobs');
  await queue.upsertJobScheduler('tick', { every: 20 }, { name: 'tick', data: { of: 'clock' } });
  const seen = [];
  make(Worker, 'jobs', async (job) => { seen.push(job.data.of); });
  await waitUntil('three ticks', () => seen.length >= 3);
  assert.equal((await queue.getJobSchedulers()).length, 1);
  assert.equal(await queue.removeJobScheduler('tick'), true);
  assert.deepEqual(await queue.getJobSchedulers(), []);
  await waitUntil('nothing to be planned', async () => (await queue.getJobCountByTypes('delayed', 'waiting')) === 0);
});

bullTest('attempts, their delays, what failed, and trying it again', async (make) => {
  const queue = make(Queue, 'jobs');
  const events = make(QueueEvents, 'jobs');
  let broken = true;
  make(Worker, 'jobs', async (job) => {
    await job.updateProgress(50);
    await job.log(`attempt ${job.attemptsMade}`);
    if (broken) throw new Error('broken');
    return 'mended';
  });
  const job = await queue.add('n', {}, { attempts: 3, backoff: { type: 'fixed', delay: 10 } });
  await assert.rejects(job.waitUntilFinished(events), /broken/);
  const failed = await queue.getJob(job.id);
  assert.equal(failed.attemptsMade, 3);
  assert.equal(failed.progress, 50);
  assert.equal((await queue.getJobLogs(job.id)).count, 3);
  broken = false;
  await failed.retry();
  await waitUntil('the job', async () => (await job.getState()) === 'completed');
  assert.equal((await queue.getJob(job.id)).returnvalue, 'mended');
});

bullTest('a queue that is paused or at its limit waits', async (make) => {
  const queue = make(Queue, 'jobs');
  await queue.pause();
  await queue.addBulk(Array.from({ length: 20 }, (_, number) => ({ name: 'n', data: { number } })));
  const ran = [];
  make(Worker, 'jobs', async (job) => { ran.push(job.data.number); }, { limiter: { max: 5, duration: 50 } });
  assert.equal(await queue.isPaused(), true);
  await queue.resume();
  await waitUntil('twenty jobs', () => ran.length === 20);
  assert.deepEqual(ran, Array.from({ length: 20 }, (_, number) => number));
});

bullTest('events come in order, and one of several equal jobs is kept', async (make) => {
  const queue = make(Queue, 'jobs');
  const events = make(QueueEvents, 'jobs', { lastEventId: '0' });
  const heard = [];
  for (const name of ['added', 'deduplicated', 'completed']) events.on(name, () => heard.push(name));
  const deduplication = { id: 'one' };
  const first = await queue.add('n', { number: 1 }, { deduplication });
  const second = await queue.add('n', { number: 2 }, { deduplication });
  assert.equal(second.id, first.id);
  make(Worker, 'jobs', async () => {});
  await waitUntil('the end', () => heard.includes('completed'));
  assert.deepEqual(heard, ['added', 'deduplicated', 'completed']);
});

bullTest('cleaning, draining and obliterating leave nothing', async (make, port) => {
  const queue = make(Queue, 'jobs');
  const worker = make(Worker, 'jobs', async (job) => { if (job.data.number % 2) throw new Error('odd'); });
  await queue.addBulk(Array.from({ length: 10 }, (_, number) => ({ name: 'n', data: { number } })));
  await waitUntil('ten jobs', async () => (await queue.getJobCountByTypes('completed', 'failed')) === 10);
  assert.equal((await queue.clean(0, 3, 'completed')).length, 3);
  assert.deepEqual(await queue.getJobCounts('completed', 'failed'), { completed: 2, failed: 5 });
  await queue.retryJobs({ state: 'failed' });
  await worker.close();
  await queue.add('later', {}, { delay: 60_000 });
  await queue.drain(true);
  assert.equal(await queue.getJobCountByTypes('waiting', 'delayed', 'paused', 'prioritized'), 0);
  await queue.obliterate({ force: true });
  const redis = new Redis(port);
  assert.deepEqual(await redis.keys('*'), []);
  redis.disconnect();
});
