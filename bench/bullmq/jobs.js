'use strict';
/*
 * BullMQ as an application uses it: one process adds and processes jobs. Prints its figures as one line of
 * JSON.
 *
 *     node jobs.js --jobs N --places N --port PORT --pid PID
 *
 * It fails unless every job is done exactly once. A quarter of the jobs is the warm-up.
 */

const { readFileSync } = require('node:fs');
const { parseArgs } = require('node:util');
const { Queue, Worker } = require('bullmq');

const NAME = 'bench';
const TICKS_PER_SECOND = 100;

const names = ['jobs', 'places', 'port', 'pid'];
const { values } = parseArgs({ options: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) });
const [jobs, places, port, pid] = names.map((name) => Number(values[name]));
// The worker waits for commands without a timeout: none of its commands may be abandoned.
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };

/* User and system time of all threads of the server. */
function serverCpuSeconds() {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

function now() {
  const own = process.cpuUsage();
  return { s: process.hrtime.bigint(), cpu: serverCpuSeconds(), own: (own.user + own.system) / 1e6 };
}

/* Adds the jobs of these numbers, `places` at a time, and returns when all are done. */
async function run(queue, done, first, end) {
  let next = first;
  const add = async () => {
    while (next < end) {
      const number = next;
      next += 1;
      await queue.add('count', { number, text: 'x'.repeat(100) }, { removeOnComplete: true });
    }
  };
  await Promise.all([done.until(end), ...Array.from({ length: places }, add)]);
}

/* Which jobs are done. */
class Done {
  numbers = new Set();
  wanted = 0;
  reached = () => {};

  add(number) {
    if (this.numbers.has(number)) throw new Error(`job ${number} was done twice`);
    this.numbers.add(number);
    if (this.numbers.size === this.wanted) this.reached();
  }

  until(wanted) {
    this.wanted = wanted;
    return new Promise((resolve) => { this.reached = resolve; });
  }
}

async function main() {
  const queue = new Queue(NAME, { connection });
  const done = new Done();
  const worker = new Worker(NAME, async (job) => done.add(job.data.number), { connection, concurrency: places });
  const failed = new Promise((_, reject) => {
    worker.on('failed', (_job, error) => reject(error));
    worker.on('error', reject);
    queue.on('error', reject);
  });
  const warming = Math.floor(jobs / 4);
  await Promise.race([failed, run(queue, done, 0, warming)]);
  const before = now();
  await Promise.race([failed, run(queue, done, warming, jobs)]);
  const after = now();
  await worker.close();
  const left = await queue.getJobCounts('waiting', 'active', 'delayed', 'failed');
  await queue.close();
  if (Object.values(left).some((count) => count !== 0)) throw new Error(`jobs are left: ${JSON.stringify(left)}`);
  const elapsed = Number(after.s - before.s) / 1e9;
  console.log(JSON.stringify({
    jobs_s: (jobs - warming) / elapsed,
    cpu_us_per_job: ((after.cpu - before.cpu) * 1e6) / (jobs - warming),
    client_share: (after.own - before.own) / elapsed,
  }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
