'use strict';
/*
 * The console in headless Chromium: every view, in light and dark, wide and narrow; what is stored is shown as
 * text; changes are made, and are on the server. Screenshots go to target/console-screenshots, or to the
 * folder in CONSOLE_SCREENSHOTS.
 *
 * Needs Chromium: /usr/bin/chromium, or the path in CHROMIUM. Functions passed to `evaluate` run in the page.
 */

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { after, before } = require('node:test');
const puppeteer = require('puppeteer-core');
const { createClient } = require('redis');
const { BINARY, Server, runTest } = require('./server');

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const SCREENSHOTS = process.env.CONSOLE_SCREENSHOTS ?? path.resolve(__dirname, '../../../target/console-screenshots');
const PATIENCE_MS = 60_000;
const PAGE_BYTES_MAX = 500_000;
const MARKUP = '<img src=x onerror="window.hacked = true"><script>window.hacked = true</script>';
const VIEWS = ['overview', 'replication', 'keys', 'streams', 'channels', 'databases', 'slow', 'clients', 'memory', 'snapshots', 'terminal'];
let browser;

before(async () => {
  mkdirSync(SCREENSHOTS, { recursive: true });
  browser = await puppeteer.launch({
    executablePath: CHROMIUM,
    // Tests run as root and in containers with little shared memory.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
    protocolTimeout: 2 * PATIENCE_MS,
    // Chromium ends with the other end of the pipe, that is, with this process.
    pipe: true,
  });
});

after(() => browser?.close());

/* Declares a test with a server, a client of it, and a page: `work({ server, redis, page, problems })`. */
function consoleTest(name, work, { password } = {}) {
  const server = new Server(password, ['--durable-channels', 'orders.*']);
  runTest(name, [server], async () => {
    await server.start();
    const redis = createClient({ url: `redis://127.0.0.1:${server.port}`, password });
    await redis.connect();
    const context = await browser.createBrowserContext();
    try {
      const page = await context.newPage();
      page.setDefaultTimeout(PATIENCE_MS);
      const problems = [];
      page.on('pageerror', (error) => problems.push(error.message));
      page.on('console', (message) => { if (message.type() === 'error') problems.push(message.text()); });
      await work({ server, redis, page, problems });
    } finally {
      await context.close();
      redis.destroy();
    }
  });
}

const open = (page, server, view) => page.goto(`${server.url}/#/${view}`);

/* Waits until the text is somewhere in the content. */
const seen = (page, text) => page.waitForFunction((wanted) => document.getElementById('main').innerText.includes(wanted) || document.getElementById('notices').innerText.includes(wanted), {}, text);

/* Clicks the first visible button or link with this text, in a dialog if one is open. */
async function click(page, text) {
  const found = await page.waitForFunction((wanted) => {
    const place = document.querySelector('dialog[open]') ?? document.body;
    return [...place.querySelectorAll('button, a')].find((element) => element.innerText.trim() === wanted && !element.disabled);
  }, {}, text);
  await found.evaluate((element) => element.click());
}

/* Replaces the content of the field with this label. */
async function write(page, label, text) {
  const found = await page.waitForFunction((wanted) => {
    const place = document.querySelector('dialog[open]') ?? document.getElementById('main');
    const labelled = [...place.querySelectorAll('label')].find((element) => element.firstChild?.textContent === wanted);
    return labelled?.querySelector('input, textarea') ?? place.querySelector(`[aria-label="${wanted}"]`);
  }, {}, label);
  await found.evaluate((field, value) => {
    field.value = value;
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }, text);
}

async function choose(page, label, value) {
  const found = await page.waitForFunction((wanted) => {
    const place = document.querySelector('dialog[open]') ?? document.getElementById('main');
    const labelled = [...place.querySelectorAll('label')].find((element) => element.firstChild?.textContent === wanted);
    return labelled?.querySelector('select') ?? place.querySelector(`select[aria-label="${wanted}"]`);
  }, {}, label);
  await found.evaluate((field, wanted) => {
    field.value = wanted;
    field.dispatchEvent(new Event('change', { bubbles: true }));
  }, value);
}

async function couch(server, method, below, body) {
  const headers = { 'content-type': 'application/json' };
  const reply = await fetch(`${server.url}/${below}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  assert.ok(reply.ok, `${method} ${below}: ${reply.status}`);
  return reply.json();
}

/* Keys of all types, a stream with a group, messages, documents; some with markup in every place. */
async function store(server, redis) {
  for (let number = 0; number < 120; number += 1) await redis.set(`session:${number}`, 'x', { EX: 3600 + number });
  await redis.set(MARKUP, MARKUP);
  await redis.hSet('user:1', { name: 'Anna', [MARKUP]: MARKUP });
  await redis.rPush('queue:mail', ['job 1', 'job 2', MARKUP]);
  await redis.sAdd('tags', ['red', MARKUP]);
  await redis.zAdd('scores', [{ score: 12.5, value: 'anna' }, { score: 7, value: MARKUP }]);
  for (let number = 0; number < 20; number += 1) await redis.xAdd('events', '*', { kind: 'order', [MARKUP]: String(number) });
  await redis.xGroupCreate('events', 'billing', '0');
  await redis.xReadGroup('billing', 'worker-1', [{ key: 'events', id: '>' }], { COUNT: 5 });
  await redis.publish('orders.new', MARKUP);
  await redis.clientSetName('shop');
  await couch(server, 'PUT', 'notes');
  const docs = [{ _id: 'first', text: 'hello' }, { _id: MARKUP, text: MARKUP }];
  await couch(server, 'POST', 'notes/_bulk_docs', { docs });
}

consoleTest('the page is small, comes from the server alone, and is shown in every width and colour', async ({ server, redis, page, problems }) => {
  await store(server, redis);
  const origins = new Set();
  page.on('response', (response) => { origins.add(new URL(response.url()).origin); });
  const begun = performance.now();
  const reply = await open(page, server, 'overview');
  await seen(page, 'Healthy');
  const took = Math.round(performance.now() - begun);
  const [bytes, sent] = await page.evaluate(() => {
    const files = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource').filter(({ name }) => name.includes('/_console/'))];
    return ['decodedBodySize', 'encodedBodySize'].map((size) => files.reduce((sum, file) => sum + file[size], 0));
  });
  assert.match(reply.headers()['content-security-policy'], /^default-src 'self';/);
  assert.ok(bytes > 100_000 && bytes < PAGE_BYTES_MAX, `${bytes} bytes`);
  assert.deepEqual([...origins], [server.url]);
  console.log(`the page has ${bytes} bytes (${sent} in gzip), and shows the server's health after ${took} ms`);

  for (const [scheme, width] of [['light', 1300], ['dark', 1300], ['light', 390], ['dark', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport({ width, height: 900 });
    for (const view of VIEWS) {
      await open(page, server, view);
      await page.waitForFunction((title) => document.querySelector('nav a[aria-current]')?.hash === `#/${title}` && document.querySelectorAll('main .panel').length > 0 && !document.getElementById('main').innerText.includes('Looking'), {}, view);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${view} is ${overflow} px too wide at ${width} px`);
      if (view === 'keys') {
        const cut = await page.evaluate(() => Math.max(...[...document.querySelectorAll('main .scroll')].map((table) => table.scrollWidth - table.clientWidth)));
        assert.ok(cut <= 0, `${cut} px of the keys are cut at ${width} px`);
      }
      await page.screenshot({ path: path.join(SCREENSHOTS, `${view}-${scheme}-${width}.png`) });
    }
  }
  assert.deepEqual(problems, []);
});

consoleTest('what is stored is shown as text', async ({ server, redis, page, problems }) => {
  await store(server, redis);
  for (const key of [MARKUP, 'user:1', 'queue:mail', 'tags', 'scores', 'events']) {
    await open(page, server, `keys?key=${encodeURIComponent(`t:${key}`)}`);
    await page.waitForFunction((text) => [...document.querySelectorAll('main .split > :last-child *')].some((element) => (element.value ?? (element.childElementCount === 0 ? element.textContent : '')).includes(text)), {}, MARKUP);
  }
  await open(page, server, 'databases?database=notes');
  await click(page, MARKUP);
  await page.waitForFunction((text) => document.querySelector('main h2[tabindex]')?.textContent === text, {}, MARKUP);
  await open(page, server, 'channels');
  await write(page, 'Channel', 'orders.new');
  await click(page, 'Follow');
  await seen(page, MARKUP);
  await open(page, server, 'terminal');
  await write(page, 'Command', `GET '${MARKUP}'`);
  await click(page, 'Run');
  await page.waitForFunction((text) => document.querySelectorAll('.terminal .value')[1]?.textContent === JSON.stringify(text), {}, MARKUP);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.evaluate(() => document.querySelector('main script, main img')), null);
  assert.deepEqual(problems, []);
});

consoleTest('a script in an attachment is not a page of this server', async ({ server, page }) => {
  await couch(server, 'PUT', 'notes');
  const script = '<script>fetch("/_redis", { method: "POST", headers: { "content-type": "application/json" }, body: \'[["SET", "hacked", "1"]]\' })</script>done';
  await fetch(`${server.url}/notes/page/index.html`, { method: 'PUT', headers: { 'content-type': 'text/html' }, body: script });
  const reply = await page.goto(`${server.url}/notes/page/index.html`);
  assert.equal(reply.headers()['content-security-policy'], 'sandbox');
  const [found] = await (await fetch(`${server.url}/_redis`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '[["EXISTS", "hacked"]]' })).json();
  assert.equal(found, 0);
});

consoleTest('keys are found, edited, created and deleted', async ({ server, redis, page, problems }) => {
  await store(server, redis);
  await redis.set('greeting', 'hello');
  await redis.sendCommand(['SET', 'bytes', Buffer.from([0, 1, 0xfe])]);
  await open(page, server, 'keys');
  await write(page, 'Name, a part of it, or a pattern', 'greet');
  await click(page, 'Find');
  await click(page, 'greeting');
  await write(page, 'Value', 'hello, world');
  await click(page, 'Save');
  await seen(page, 'Saved: it is on disk.');
  assert.equal(await redis.get('greeting'), 'hello, world');

  await redis.set('greeting', 'someone else');
  await write(page, 'Value', 'too late');
  await click(page, 'Save');
  await seen(page, 'It was changed meanwhile');
  assert.equal(await redis.get('greeting'), 'someone else');

  await open(page, server, `keys?key=${encodeURIComponent('t:bytes')}`);
  await page.waitForFunction(() => document.querySelector('main .split > :last-child textarea')?.value === 'AAH+');
  await write(page, 'Value', 'AAH/');
  await click(page, 'Save');
  // The page may still show that the first change was saved.
  while (await redis.sendCommand(['GETBIT', 'bytes', '23']) !== 1);
  assert.deepEqual(await redis.sendCommand(['STRLEN', 'bytes']), 3);

  await click(page, 'New key');
  await choose(page, 'Type', 'list');
  await write(page, 'Key', 'new:list');
  await write(page, 'Value', 'one');
  await click(page, 'Create');
  await page.waitForFunction(() => document.querySelector('main h2[tabindex]')?.textContent === 'new:list');
  assert.deepEqual(await redis.lRange('new:list', 0, -1), ['one']);

  await page.evaluate(() => [...document.querySelectorAll('main .split > :last-child .title button')].at(-1).click());
  await page.waitForSelector('dialog[open]');
  assert.equal(await redis.exists('new:list'), 1, 'nothing is deleted before it is confirmed');
  await click(page, 'Delete');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  assert.equal(await redis.exists('new:list'), 0);
  assert.deepEqual(problems, []);
});

consoleTest('the key of exactly the name that is asked for comes first', async ({ server, redis, page, problems }) => {
  // More keys that contain the name than one page shows.
  const others = Array.from({ length: 20_000 }, (_, number) => [`user:1${number}`, 'x']);
  await redis.mSet([...others, ['user:1', 'me'], ['user:[1]', 'brackets']]);
  const first = (name) => page.waitForFunction((wanted) => {
    const row = document.querySelector('main .split > :first-child tbody tr');
    return row?.querySelector('button').innerText === wanted && row.innerText.includes('exactly this name');
  }, {}, name);
  await open(page, server, 'keys');
  await seen(page, 'shown so far');
  for (const name of ['user:1', 'user:[1]']) {
    await write(page, 'Name, a part of it, or a pattern', name);
    await click(page, 'Find');
    await first(name);
    await page.screenshot({ path: path.join(SCREENSHOTS, `exact-${name === 'user:1' ? 'word' : 'pattern'}.png`) });
    const count = await page.evaluate((wanted) => [...document.querySelectorAll('main .split > :first-child tbody button')].filter((element) => element.innerText === wanted).length, name);
    assert.equal(count, 1, 'the key is shown once');
  }
  await click(page, 'user:[1]');
  await page.waitForFunction(() => document.querySelector('main .split > :last-child textarea')?.value === 'brackets');
  await choose(page, 'Type', 'hash');
  await seen(page, 'No key matches user:[1]');
  // The reply to a search that was replaced meanwhile comes late.
  await page.evaluate(() => {
    const { fetch } = window;
    window.sizes = 0;
    const released = new Promise((release) => { window.release = release; });
    window.fetch = async (address, options) => {
      if (options?.body?.includes('user:[1]')) await released;
      const reply = await fetch(address, options);
      if (options?.body?.includes('DBSIZE')) window.sizes += 1;
      return reply;
    };
  });
  await choose(page, 'Type', '');
  await write(page, 'Name, a part of it, or a pattern', 'nosuch');
  await click(page, 'Find');
  await seen(page, 'No key has nosuch in its name in database 0.');
  await page.evaluate(() => window.release());
  await page.waitForFunction(() => window.sizes === 2);
  await seen(page, 'No key has nosuch in its name in database 0.');
  assert.deepEqual(problems, []);
});

consoleTest('the deadlines of the fields of a hash are shown and kept', async ({ server, redis, page, problems }) => {
  await redis.hSet('lease', { a: '1', b: '2' });
  await redis.hSet('plain', { a: '1' });
  await redis.hpExpire('lease', 'a', 6 * 86_400_000);
  const detail = () => page.evaluate(() => document.querySelector('main .split > :last-child').innerText);
  await open(page, server, `keys?key=${encodeURIComponent('t:lease')}`);
  await seen(page, '1 of the fields shown expires, the next in 6 d');
  assert.ok(!(await detail()).includes('never expires'), await detail());
  const cells = await page.evaluate(() => [...document.querySelectorAll('main .split > :last-child tbody tr')].map((row) => [...row.children].slice(0, 3).map((cell) => cell.innerText)));
  assert.deepEqual(cells.sort(), [['a', '1', '6 d'], ['b', '2', '–']]);
  for (const [scheme, width] of [['light', 1300], ['dark', 1300], ['light', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport({ width, height: 900 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide at ${width} px`);
    await page.screenshot({ path: path.join(SCREENSHOTS, `fields-${scheme}-${width}.png`) });
  }
  // A changed value keeps its deadline.
  await page.evaluate(() => [...document.querySelectorAll('main .split > :last-child tbody tr')].find((row) => row.children[0].innerText === 'a').querySelector('button').click());
  await page.waitForSelector('dialog[open]');
  await write(page, 'Value', 'changed');
  await click(page, 'Save');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  assert.equal(await redis.hGet('lease', 'a'), 'changed');
  assert.ok((await redis.hpTTL('lease', 'a'))[0] > 0);

  await open(page, server, `keys?key=${encodeURIComponent('t:plain')}`);
  await page.reload();
  await seen(page, 'never expires');
  assert.deepEqual(problems, []);
});

consoleTest('streams show their groups, consumers and pending entries', async ({ server, redis, page, problems }) => {
  await store(server, redis);
  await open(page, server, 'streams');
  await click(page, 'events');
  await click(page, 'billing');
  await seen(page, 'worker-1');
  await click(page, 'Acknowledge');
  await page.waitForSelector('dialog[open]');
  await click(page, 'Acknowledge');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  assert.equal((await redis.xPending('events', 'billing')).pending, 4);
  assert.deepEqual(problems, []);
});

consoleTest('messages of a durable channel appear as they are published', async ({ server, redis, page, problems }) => {
  await redis.publish('orders.new', 'before');
  await open(page, server, 'channels');
  await write(page, 'Channel', 'orders.new');
  await click(page, 'Follow');
  await seen(page, 'before');
  for (let number = 0; number < 3; number += 1) {
    await redis.publish('orders.new', `message ${number}`);
    await seen(page, `message ${number}`);
  }
  const lines = await page.evaluate(() => [...document.querySelectorAll('[role=log] .value')].map((element) => element.textContent));
  assert.deepEqual(lines, ['before', 'message 0', 'message 1', 'message 2'], 'each once, in order');
  await click(page, 'Stop');
  await seen(page, 'Stopped.');
  await write(page, 'Channel', 'plain');
  await click(page, 'Follow');
  await seen(page, 'the channel is not durable');
  assert.deepEqual(problems, []);
});

consoleTest('documents are created, edited and deleted, and the changes of others appear', async ({ server, page, problems }) => {
  await open(page, server, 'databases');
  await click(page, 'New database');
  await page.waitForSelector('dialog[open]');
  await page.type('dialog input', 'notes');
  await click(page, 'Create');
  await click(page, 'notes');
  await click(page, 'New document');
  await write(page, 'Id', 'a/b +c');
  await write(page, 'Document as JSON', '{"text": "one"}');
  await click(page, 'Save');
  await seen(page, 'Saved: it is on disk.');
  const below = `notes/${encodeURIComponent('a/b +c')}`;
  assert.equal((await couch(server, 'GET', below)).text, 'one');
  await write(page, 'Document as JSON', '{"text": "two"}');
  await click(page, 'Save');
  await page.waitForFunction(() => document.querySelector('main .split > :last-child .mono')?.textContent.startsWith('2-'));
  assert.equal((await couch(server, 'GET', below)).text, 'two');
  await couch(server, 'PUT', 'notes/other', { text: 'from elsewhere' });
  await seen(page, 'other');
  await click(page, 'Delete');
  await page.waitForSelector('dialog[open]');
  await click(page, 'Delete');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
  assert.equal((await fetch(`${server.url}/${below}`)).status, 404);
  assert.deepEqual(problems, []);
});

consoleTest('a conflicting revision is compared with the winner before it is deleted', async ({ server, page, problems }) => {
  await couch(server, 'PUT', 'notes');
  const [loser, winner] = ['a', 'b'].map((digit) => `1-${digit.repeat(32)}`);
  const docs = [
    { _id: 'shared', _rev: loser, owner: MARKUP, place: 'Rome', text: 'same' },
    { _id: 'shared', _rev: winner, place: 'Oslo', text: 'same', more: [1] }];
  await couch(server, 'POST', 'notes/_bulk_docs', { new_edits: false, docs });
  await open(page, server, 'databases?database=notes&document=shared');
  await page.waitForFunction(() => [...document.querySelectorAll('main .pill')].some((element) => element.innerText === '1 conflict'));
  await click(page, 'Compare');
  await page.waitForSelector('main .compared');
  const lines = await page.evaluate(() => [...document.querySelectorAll('.compared > div')].map((element) => element.textContent));
  assert.deepEqual(lines, ['  {', '-   "more": [', '-     1', '-   ],', '-   "place": "Oslo",', `+   "owner": ${JSON.stringify(MARKUP)},`, '+   "place": "Rome",', '    "text": "same"', '  }']);
  await seen(page, `- only in ${winner}, which wins; + only in ${loser}`);
  for (const [scheme, width] of [['light', 1300], ['dark', 1300], ['light', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport({ width, height: 900 });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide at ${width} px`);
    await page.screenshot({ path: path.join(SCREENSHOTS, `conflict-${scheme}-${width}.png`), fullPage: true });
  }
  await page.evaluate((rev) => document.querySelector(`button[aria-label="Delete ${rev}"]`).click(), loser);
  await page.waitForSelector('dialog[open]');
  await click(page, 'Delete');
  await page.waitForFunction(() => document.querySelector('dialog') === null && !document.getElementById('main').innerText.includes('conflict'));
  assert.equal((await couch(server, 'GET', 'notes/shared?conflicts=true'))._conflicts, undefined);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(problems, []);
});

consoleTest('commands that delete are run after a question', async ({ server, redis, page }) => {
  await redis.mSet({ a: '1', b: '2' });
  await open(page, server, 'terminal');
  const run = async (line) => {
    await write(page, 'Command', line);
    await click(page, 'Run');
  };
  for (const line of ['flushall', 'FLUSHDB async', 'unlink a b', 'SHUTDOWN NOSAVE', 'function flush', 'XGROUP destroy s g']) {
    await run(line);
    await page.waitForSelector('dialog[open]');
    await click(page, 'Cancel');
    await page.waitForFunction(() => document.querySelector('dialog') === null);
  }
  assert.equal(await redis.dbSize(), 2, 'nothing is done before it is confirmed');
  await run('del a');
  await page.waitForSelector('dialog[open]');
  await click(page, 'Run');
  await seen(page, '(number) 1');
  await run('get b');
  await seen(page, '"2"');
  assert.equal(await redis.dbSize(), 1);
});

consoleTest('a note of one view does not stay in another', async ({ server, page }) => {
  await open(page, server, 'terminal');
  // Notes go by themselves after a while: here, only what takes them away at once.
  await page.evaluate(() => { window.setTimeout = () => 0; });
  await write(page, 'Command', 'SET "a');
  await click(page, 'Run');
  await seen(page, 'The quotes of the command do not match.');
  await click(page, 'Channels');
  await page.waitForFunction(() => document.querySelector('main h1')?.innerText === 'Channels');
  assert.equal(await page.evaluate(() => document.getElementById('notices').innerText), '');
});

consoleTest('with a password the page asks for it, and is gone after logging out', async ({ server, page, redis }) => {
  await redis.set('secret', 'x');
  await open(page, server, 'keys');
  await page.waitForSelector('input[type=password]');
  await page.screenshot({ path: path.join(SCREENSHOTS, 'login.png') });
  await page.type('input[type=password]', 'wrong');
  await click(page, 'Log in');
  await seen(page, 'Name or password is incorrect.');
  await write(page, 'Password', 'open-sesame');
  await click(page, 'Log in');
  await seen(page, 'secret');
  await click(page, 'Log out');
  await page.waitForSelector('input[type=password]');
  assert.ok(!(await page.evaluate(() => document.body.innerText)).includes('secret'));
}, { password: 'open-sesame' });

consoleTest('who is no admin is told so, and what is needed', async ({ server, page, redis }) => {
  await redis.sendCommand(['ACL', 'SETUSER', 'anna', 'on', '>apple', '~*', '+@read']);
  await open(page, server, 'keys');
  await seen(page, 'the user of admin-user with admin-password');
  const logIn = async () => {
    await write(page, 'User', 'anna');
    await write(page, 'Password', 'apple');
    await click(page, 'Log in');
  };
  await logIn();
  await seen(page, 'anna is no admin: it needs all of @admin');
  await page.screenshot({ path: path.join(SCREENSHOTS, 'no-admin.png') });
  await page.reload();
  await seen(page, 'anna is no admin: it needs all of @admin');
  await redis.sendCommand(['ACL', 'SETUSER', 'anna', '+@all']);
  await redis.set('found', 'x');
  await logIn();
  await seen(page, 'found');
}, { password: 'open-sesame' });

/* The commands that a text advises an admin to run for the user watcher, as lists of words. */
const advised = (text) => [...text.matchAll(/ACL SETUSER watcher [~&*@+a-z ]+/g)].map(([line]) => line.trim().split(' '));

/* Makes data of each kind, and the user `watcher`, who may only PING. Returns ways to look at the page, and the two lines of
   rights that it advises to this user. */
async function advisedWatcher({ server, page, redis }) {
  await redis.set('found', 'x');
  await redis.hSet('fields', { part: 'inside' });
  await redis.rPush('elements', 'inside');
  await redis.sAdd('members', 'inside');
  await redis.zAdd('scores', { score: 1, value: 'inside' });
  await redis.xAdd('jobs', '*', { kind: 'inside' });
  await redis.xGroupCreate('jobs', 'workers', '0');
  await redis.xReadGroup('workers', 'anna', { key: 'jobs', id: '>' });
  await redis.publish('orders.new', 'inside');
  const main = () => page.evaluate(() => document.getElementById('main').innerText);
  // Reloads: a change of the address alone does not ask the server who the user is.
  const reopen = async (view) => {
    await open(page, server, view);
    await page.reload();
  };
  const logIn = async () => {
    const context = page.browserContext();
    await context.deleteCookie(...await context.cookies());
    await reopen('overview');
    await write(page, 'User', 'watcher');
    await write(page, 'Password', 'w');
    await click(page, 'Log in');
  };
  await redis.sendCommand(['ACL', 'SETUSER', 'watcher', 'on', '>w', '+ping']);
  await logIn();
  await seen(page, 'watcher is no admin');
  const advice = advised(await main());
  assert.equal(advice.length, 2, 'for everything, and to look');
  return { main, reopen, logIn, advice };
}

/* What each view shows to a user with all rights that it needs. */
const WHOLE = { overview: 'durability strict', replication: 'Log position', keys: 'found', streams: 'jobs', channels: 'Nobody subscribes to a channel', databases: 'No database yet.', slow: 'Since the start, or CONFIG RESETSTAT', clients: 'Connections: ', memory: 'dataset.bytes', snapshots: 'Damaged files', terminal: 'Words in quotes' };

consoleTest('every view says which right it lacks, and works with the right that it advises', async ({ server, page, redis, problems }) => {
  const { main, reopen, logIn } = await advisedWatcher({ server, page, redis });
  const little = ['ACL', 'SETUSER', 'watcher', '-@all', '+@admin', 'resetkeys', 'resetchannels'];
  await redis.sendCommand(little);
  await logIn();
  await page.waitForFunction(() => document.querySelector('main .verdict')?.innerText.startsWith('Healthy'));
  await seen(page, 'Databases of documents');
  await page.waitForFunction(() => document.getElementById('server').innerText === 'healthy');
  for (const view of ['overview', 'replication', 'keys', 'streams', 'channels', 'slow', 'memory', 'snapshots']) {
    await redis.sendCommand(little);
    await reopen(view);
    await seen(page, 'ACL SETUSER watcher');
    const text = await main();
    assert.ok(!text.includes("'select'"), `nothing selects database 0: ${text}`);
    await page.screenshot({ path: path.join(SCREENSHOTS, `no-right-${view}.png`) });
    await redis.sendCommand(advised(text)[0]);
    await reopen(view);
    await seen(page, WHOLE[view]);
    assert.ok(!(await main()).includes('NOPERM'), `${view}: ${await main()}`);
  }
  assert.deepEqual(problems.filter((text) => !text.includes('401')), []);
}, { password: 'open-sesame' });

for (const [number, purpose] of ['for everything', 'to look'].entries()) {
  consoleTest(`every view works with the rights that the page advises ${purpose}`, async ({ server, page, redis, problems }) => {
    const { main, logIn, advice } = await advisedWatcher({ server, page, redis });
    const line = advice[number];
    await redis.sendCommand(['ACL', 'SETUSER', 'watcher', 'reset', 'on', '>w']);
    await redis.sendCommand(line);
    await logIn();
    for (const view of VIEWS) {
      await open(page, server, view);
      await seen(page, WHOLE[view]);
      const text = await page.evaluate(() => document.body.innerText);
      assert.ok(!text.includes('NOPERM'), `${line.join(' ')}, ${view}: ${text}`);
    }
    for (const key of ['found', 'fields', 'elements', 'members', 'scores', 'jobs']) {
      await open(page, server, `keys?key=${encodeURIComponent(`t:${key}`)}`);
      await page.waitForFunction((wanted) => document.querySelector('main .split > :last-child h2')?.innerText === wanted, {}, key);
      if (key !== 'found') await seen(page, 'inside');
      assert.ok(!(await main()).includes('NOPERM'), `${line.join(' ')}, ${key}: ${await main()}`);
    }
    await click(page, 'workers');
    await seen(page, 'anna');
    assert.ok(!(await page.evaluate(() => document.body.innerText)).includes('NOPERM'));
    await open(page, server, 'channels');
    await write(page, 'Channel', 'orders.new');
    await click(page, 'Follow');
    await seen(page, 'inside');
    await open(page, server, 'keys');
    await choose(page, 'Database', '1');
    await seen(page, 'No key in database 1.');
    const mayWrite = await redis.sendCommand(['ACL', 'DRYRUN', 'watcher', 'SET', 'found', 'y']) === 'OK';
    assert.equal(mayWrite, line.includes('+@all'), 'who may only look changes no key');
    await click(page, 'Log out');
    await page.waitForSelector('input[type=password]');
    assert.deepEqual(problems.filter((text) => !text.includes('401')), []);
  }, { password: 'open-sesame' });
}

consoleTest('a key that the user may not read is shown as such', async ({ server, page, redis }) => {
  await redis.mSet({ 'own:1': 'mine', 'other:1': 'x' });
  await redis.sendCommand(['ACL', 'SETUSER', 'watcher', 'on', '>w', '~own:*', '+@admin', '+@read']);
  await open(page, server, 'keys');
  await write(page, 'User', 'watcher');
  await write(page, 'Password', 'w');
  await click(page, 'Log in');
  await click(page, 'own:1');
  await page.waitForFunction(() => document.querySelector('main .split > :last-child textarea')?.value === 'mine');
  await seen(page, 'no right');
  await click(page, 'other:1');
  await page.waitForFunction(() => document.querySelector('main .split > :last-child').innerText.includes('which an admin gives with ACL SETUSER watcher ~* +@read'));
}, { password: 'open-sesame' });

/* Runs the backup command that the page shows, with values for what it writes in capitals. */
async function backUpAsShown(page, server, password) {
  await open(page, server, 'snapshots');
  await seen(page, 'sheaf backup');
  const shown = await page.evaluate(() => [...document.querySelectorAll('main pre')].map((element) => element.textContent).find((text) => text.startsWith('sheaf backup')));
  const folder = mkdtempSync(path.join(tmpdir(), 'sheaf-console-'));
  try {
    const values = { DIRECTORY: path.join(folder, 'copy'), FILE: path.join(folder, 'password') };
    writeFileSync(values.FILE, `${password}\n`);
    const words = shown.split(' ').map((word) => values[word] ?? word);
    assert.equal(words.shift(), 'sheaf');
    const done = spawnSync(BINARY, words, { encoding: 'utf8' });
    assert.equal(done.status, 0, `${shown}\n${done.stderr}`);
    assert.ok(existsSync(path.join(values.DIRECTORY, 'backup.json')), shown);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return shown;
}

consoleTest('the backup command works as it is shown, with a password', async ({ server, page, redis }) => {
  await redis.sendCommand(['ACL', 'SETUSER', 'anna', 'on', '>apple', '~*', '&*', '+@all']);
  for (const [name, password] of [['default', 'open-sesame'], ['anna', 'apple']]) {
    await open(page, server, 'snapshots');
    await write(page, 'User', name);
    await write(page, 'Password', password);
    await click(page, 'Log in');
    await seen(page, `a file whose first line is the password of ${name}`);
    await backUpAsShown(page, server, password);
    await click(page, 'Log out');
    await page.waitForSelector('input[type=password]');
  }
}, { password: 'open-sesame' });

consoleTest('the backup command works as it is shown, without a password', async ({ server, page, redis, problems }) => {
  await redis.set('a', '1');
  assert.ok(!(await backUpAsShown(page, server, '')).includes('FILE'));
  await seen(page, 'Only this machine reaches the server as 127.0.0.1');
  assert.deepEqual(problems, []);
});

consoleTest('a server that does not answer is not shown as healthy', async ({ server, redis, page }) => {
  // The client sees the server go, too.
  redis.on('error', () => {});
  const verdict = (wanted) => page.waitForFunction((text) => document.querySelector('main .verdict')?.innerText.startsWith(text), {}, wanted);
  const isStale = () => page.evaluate(() => getComputedStyle(document.querySelector('main .figures')).opacity < 1);
  for (const end of [() => server.kill(), () => server.freeze()]) {
    await open(page, server, 'overview');
    await verdict('Healthy');
    await page.waitForSelector('main .figures');
    assert.ok(!(await isStale()), 'the figures are those of now');
    await end();
    await verdict('The server does not answer.');
    assert.match(await page.evaluate(() => document.querySelector('main .verdict').innerText), /Its last answer came at \d\d:\d\d:\d\d\./);
    assert.match(await page.evaluate(() => document.getElementById('server').innerText), /^no answer since \d\d:\d\d:\d\d$/);
    assert.ok(await isStale(), 'the figures are shown as stale');
    await page.screenshot({ path: path.join(SCREENSHOTS, 'no-answer.png') });
    await server.kill();
    await server.start();
    await verdict('Healthy');
    await page.waitForFunction(() => document.getElementById('server').innerText.startsWith('healthy'));
    assert.ok(!(await isStale()), 'the figures are those of now again');
  }
});

consoleTest('a long slow log leaves hot keys and commands within reach', async ({ server, redis, page, problems }) => {
  await redis.configSet('slowlog-log-slower-than', '0');
  for (let number = 0; number < 200; number += 1) await redis.set(`k:${number}`, 'x');
  const rows = (title) => page.evaluate((wanted) => [...document.querySelectorAll('main .panel')].find((panel) => panel.querySelector('h2').innerText === wanted).querySelectorAll('tbody tr').length, title);
  for (const [scheme, width] of [['light', 1300], ['dark', 1300], ['light', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.setViewport({ width, height: 900 });
    await open(page, server, 'slow');
    await page.reload();
    await seen(page, 'Show all 128');
    assert.equal(await rows('Slow log'), 10);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide at ${width} px`);
    await page.screenshot({ path: path.join(SCREENSHOTS, `slow-long-${scheme}-${width}.png`), fullPage: true });
  }
  await click(page, 'Show all 128');
  assert.equal(await rows('Slow log'), 128);
  assert.equal(await page.evaluate(() => document.activeElement.innerText), 'Show 10', 'the focus stays');
  await click(page, 'Refresh');
  await page.waitForFunction(() => document.activeElement?.innerText !== 'Show 10');
  await seen(page, 'Show 10');
  assert.equal(await rows('Slow log'), 128, 'it stays open');
  assert.deepEqual(problems, []);
});

consoleTest('there is no outcome before the first snapshot', async ({ server, redis, page }) => {
  await open(page, server, 'snapshots');
  await seen(page, 'none yet: the log has everything');
  assert.ok(!(await page.evaluate(() => document.getElementById('main').innerText)).includes('Outcome'));
  await redis.set('k', 'x');
  await click(page, 'Take a snapshot');
  await seen(page, 'Outcome');
});

consoleTest('a server that follows is a follower everywhere', async ({ server, page }) => {
  const follower = new Server(undefined, ['--replica-of', `127.0.0.1:${server.port}`]);
  try {
    await follower.start();
    await open(page, follower, 'overview');
    await seen(page, 'Healthy: this server follows its leader.');
    await page.waitForFunction(() => document.querySelectorAll('#server .pill')[1]?.innerText === 'follower');
    await open(page, follower, 'replication');
    await seen(page, 'this server');
    assert.ok(!(await page.evaluate(() => document.body.innerText)).includes('this replica'));
  } finally {
    await follower.stop();
  }
});

consoleTest('numbers are written as people read them, and a list shows what it is sorted by', async ({ server, page }) => {
  await open(page, server, 'slow');
  await page.waitForFunction(() => [...document.querySelectorAll('main th')].some((title) => title.textContent === 'Total'));
  const written = await page.evaluate(async () => {
    const { bytes, seconds } = await import('/_console/format.js');
    return [[16384, 1500, 100].map(bytes), [0, 2e-7, 3e-6].map(seconds)];
  });
  assert.deepEqual(written, [['16 KiB', '1.5 KiB', '100 B'], ['0 s', '< 1 µs', '3 µs']]);
  await page.evaluate(async () => {
    const [{ BINARY_STEPS, chart }, { bytes }] = await Promise.all([import('/_console/chart.js'), import('/_console/format.js')]);
    window.marks = [];
    const note = (value) => {
      window.marks.push(bytes(value));
      return bytes(value);
    };
    document.getElementById('main').append(chart('Bytes', ['one'], note, 64 << 10, BINARY_STEPS).element);
  });
  const marks = await (await page.waitForFunction(() => window.marks.length > 0 && window.marks)).jsonValue();
  for (const mark of marks) assert.match(mark, /^\d+ (B|KiB)$/, 'the marks are round in binary units');
});

consoleTest('the page can be used by keyboard, and every field has a name', async ({ server, redis, page }) => {
  await store(server, redis);
  await open(page, server, 'overview');
  await seen(page, 'Healthy');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await page.evaluate(() => document.querySelector('nav a[href="#/keys"]').focus());
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('nav a[aria-current]')?.textContent === 'Keys');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main', 'the focus follows to the content');
  for (const view of VIEWS) {
    await open(page, server, view);
    await page.waitForFunction(() => document.querySelectorAll('main .panel').length > 0);
    const tree = await page.accessibility.snapshot();
    const nameless = (node) => [
      ...(['button', 'link', 'textbox', 'searchbox', 'combobox', 'spinbutton', 'table'].includes(node.role) && !node.name ? [node.role] : []),
      ...(node.children ?? []).flatMap(nameless)];
    assert.deepEqual(nameless(tree), [], view);
  }
  await open(page, server, 'keys');
  await click(page, 'New key');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('dialog') === null);
});

consoleTest('a page of another origin can neither show the console nor run commands', async ({ server, page }) => {
  await page.goto('data:text/html,<title>elsewhere</title>');
  const outcome = await page.evaluate(async (url) => {
    const send = (type) => fetch(`${url}/_redis`, { method: 'POST', mode: type === 'application/json' ? 'cors' : 'no-cors', headers: { 'content-type': type }, body: '[["SET", "k", "v"]]' }).then(() => 'sent', () => 'refused');
    return [await send('application/json'), await send('text/plain')];
  }, server.url);
  assert.deepEqual(outcome[0], 'refused');
  const reply = await fetch(`${server.url}/_redis`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '[["EXISTS", "k"]]' });
  assert.deepEqual(await reply.json(), [0]);
  assert.equal((await fetch(server.url, { headers: { accept: 'text/html' } })).headers.get('x-frame-options'), 'DENY');
});
