'use strict';
/*
 * One server process per test. SHEAF_TEST_SERVER=redis runs redis-server instead of Sheaf, SHEAF_BINARY names
 * another binary than target/debug/sheaf. The server's log is printed when the test fails.
 *
 * A server never outlives its test file, however that ends: the kernel kills it (setpriv, of util-linux).
 */

const { spawn } = require('node:child_process');
const { randomInt } = require('node:crypto');
const { mkdtempSync, readFileSync, rmSync } = require('node:fs');
const { createServer, connect } = require('node:net');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { setTimeout: pause } = require('node:timers/promises');

const ROOT = path.resolve(__dirname, '../../..');
const UNDER_TEST = process.env.SHEAF_TEST_SERVER ?? 'sheaf';
const BINARY = process.env.SHEAF_BINARY ?? path.join(ROOT, 'target/debug/sheaf');
const PATIENCE_MS = 60_000;
const POLL_MS = 5;
/* A free port may be taken by another test before the server listens on it. */
const BIND_TRIES = 5;

/* Outside the range from which the system assigns ports: a connection of another test cannot take it. */
async function freePort() {
  const lowest = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s/)[0]);
  for (let tries = 1; ; tries += 1) {
    const port = randomInt(lowest / 2, lowest);
    if (await isFree(port)) return port;
    if (tries === BIND_TRIES) throw new Error(`no free port in ${BIND_TRIES} tries`);
  }
}

/* Whether no process listens, and no other test process may have the port, from now on until this one ends. */
function isFree(port) {
  return new Promise((resolve) => {
    const probe = createServer().on('error', () => resolve(false));
    const claim = createServer().on('error', () => resolve(false)).unref();
    probe.listen(port, '127.0.0.1', () => probe.close(() => {
      claim.listen(`\0port ${port} of a test of Sheaf`, () => resolve(true));
    }));
  });
}

function commandLine(directory, port, httpPort, password, flags) {
  const place = ['--dir', directory, '--bind', '127.0.0.1', '--port', String(port)];
  const secret = password ? ['--requirepass', password] : [];
  if (UNDER_TEST === 'redis') {
    return ['redis-server', [...place, '--save', '', '--appendonly', 'yes', '--appendfsync', 'always', ...secret]];
  }
  return [BINARY, ['serve', ...place, '--http-port', String(httpPort), '--log-segment-bytes', '16mb', ...secret, ...flags]];
}

/* Whether this process, and not another test's server, answers PING on the port: it has loaded its data. */
function answers(port, password, pid) {
  return new Promise((resolve) => {
    const ask = 'PING\r\nINFO server\r\n';
    const hello = password ? `AUTH ${password}\r\n${ask}` : ask;
    const socket = connect(port, '127.0.0.1', () => socket.write(hello));
    let said = '';
    const done = (ready) => { socket.destroy(); resolve(ready); };
    socket.on('error', () => done(false));
    socket.on('close', () => done(false));
    socket.on('data', (reply) => {
      said += reply;
      const found = /^process_id:(\d+)\r\n/m.exec(said);
      if (/^-.*\r\n/m.test(said)) done(false);
      else if (found) done(/^\+PONG\r\n/m.test(said) && Number(found[1]) === pid);
    });
  });
}

/* A server that may be killed and started again on the same directory and port. */
class Server {
  log = '';
  #directory = mkdtempSync(path.join(tmpdir(), 'sheaf-node-'));
  #password;
  #child;
  #ended;
  #isStopped = false;

  constructor(password, flags = []) {
    this.#password = password;
    /* Further settings, of Sheaf only. */
    this.flags = flags;
  }

  async start() {
    const isFirst = this.port === undefined;
    for (let tries = 1; ; tries += 1) {
      if (isFirst) {
        this.port = await freePort();
        do this.httpPort = await freePort(); while (this.httpPort === this.port);
      }
      if (await this.#started()) return this;
      const isTaken = isFirst && this.log.includes('already in use') && tries < BIND_TRIES;
      if (isTaken) {
        this.log = '';
        continue;
      }
      await this.stop();
      throw new Error(`the server did not start:\n${this.log}`);
    }
  }

  /* Starts the process; resolves to whether it answers. */
  async #started() {
    if (this.#isStopped) throw new Error('the test is over');
    const [program, flags] = commandLine(this.#directory, this.port, this.httpPort, this.#password, this.flags);
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('SHEAF_')));
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', program, ...flags], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.on('data', (text) => { this.log += text; });
    child.stderr.on('data', (text) => { this.log += text; });
    this.#child = child;
    this.#ended = new Promise((resolve, reject) => { child.on('exit', resolve).on('error', reject); });
    // Reported where it is waited for.
    this.#ended.catch(() => {});
    const deadline = Date.now() + PATIENCE_MS;
    while (!(await answers(this.port, this.#password, child.pid))) {
      if (child.exitCode !== null || child.signalCode !== null || Date.now() > deadline) return false;
      await pause(POLL_MS);
    }
    return true;
  }

  /* The URL of its document databases. */
  get url() {
    return `http://127.0.0.1:${this.httpPort}`;
  }

  /* kill -9; resolves when the process is gone. */
  async kill() {
    this.#child?.kill('SIGKILL');
    await this.#ended;
  }

  /* The process stops (SIGSTOP); its connections stay open. */
  freeze() {
    this.#child.kill('SIGSTOP');
  }

  /* Ends it for good: a test that has timed out cannot start it again. */
  async stop() {
    this.#isStopped = true;
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/* Declares a test that gets a server of its own: `work(server, t)`. */
function serverTest(name, work, { password } = {}) {
  const server = new Server(password);
  runTest(name, [server], async (t) => {
    await server.start();
    await work(server, t);
  });
}

/* Declares a test that ends these servers at its end. */
function runTest(name, servers, work) {
  const stop = () => Promise.all(servers.map((server) => server.stop()));
  test(name, { timeout: 4 * PATIENCE_MS }, async (t) => {
    // A client that waits for ever returns when its server ends.
    t.signal.addEventListener('abort', stop);
    try {
      await work(t);
    } catch (error) {
      servers.forEach((server) => console.error(`log of a server of "${name}":\n${server.log}`));
      throw error;
    } finally {
      await stop();
    }
  });
}

/* Polls until `condition` resolves to something true. */
async function waitUntil(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited for: ${what}`);
    await pause(POLL_MS);
  }
}

module.exports = { BINARY, Server, freePort, runTest, serverTest, waitUntil };
