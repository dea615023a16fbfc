'use strict';
/*
 * A producer or a worker of BullMQ, as a process (its output: harness/job_storm.py).
 *
 *     bullmq_actor.js PORT produce FIRST END STEP
 *     bullmq_actor.js PORT work PLACES
 *     bullmq_actor.js PORT counts            prints the number of jobs in each state
 *
 * Some jobs are delayed, some have a priority, some fail the first time.
 */

const { writeSync } = require('node:fs');
const { Queue, Worker } = require('bullmq');

const NAME = 'jobs';
const ADDING_AT_ONCE = 16;
const DELAY_MS = 50;
// A job of a dead worker is recovered after the first time; the second is the interval of the check.
const LOCK_MS = 20_000;
const STALLED_INTERVAL_MS = 1000;

const [port, role, ...rest] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(port) };

/* Lines must have left this process before it is killed, so they are not buffered. */
function say(line) {
  writeSync(1, `${line}\n`);
}

/*
 * Errors of the library while its server is unavailable are not failures; they are shown if the test fails.
 */
function remark(error) {
  console.error(String(error));
}

function optionsOf(number) {
  // With an id chosen by the application, adding a job again has no effect.
  const options = { jobId: `job-${number}`, attempts: 3 };
  if (number % 10 === 1) options.delay = DELAY_MS;
  if (number % 10 === 2) options.priority = 1 + (number % 3);
  return options;
}

async function produce(first, end, step) {
  const queue = new Queue(NAME, { connection });
  queue.on('error', remark);
  let next = first;
  const add = async () => {
    while (next < end) {
      const number = next;
      next += step;
      await queue.add('count', { number }, optionsOf(number));
      say(`accepted ${number}`);
    }
  };
  await Promise.all(Array.from({ length: ADDING_AT_ONCE }, add));
  await queue.close();
}

function work(places) {
  const run = async (job) => {
    if (job.data.number % 50 === 0 && job.attemptsMade === 0) throw new Error('the first attempt fails');
    say(`ran ${job.data.number}`);
  };
  const worker = new Worker(NAME, run, {
    connection: { ...connection, maxRetriesPerRequest: null },
    concurrency: places,
    lockDuration: LOCK_MS,
    stalledInterval: STALLED_INTERVAL_MS,
    // Each kill may hit the same job.
    maxStalledCount: 10,
  });
  worker.on('error', remark);
  worker.on('failed', (job, error) => remark(error));
  worker.on('completed', (job) => say(`completed ${job.data.number}`));
  process.once('SIGTERM', () => worker.close().then(() => process.exit(0)));
  say('ready');
}

async function counts() {
  const queue = new Queue(NAME, { connection });
  say(JSON.stringify(await queue.getJobCounts()));
  await queue.close();
}

const roles = { produce, work, counts };
roles[role](...rest.map(Number));
