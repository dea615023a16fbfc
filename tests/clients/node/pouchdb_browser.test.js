'use strict';
/*
 * PouchDB in a real browser, against the HTTP port of another origin: with IndexedDB, CORS and the browser's
 * own connections. pouchdb.test.js tests PouchDB itself; here the question is whether a browser permits it.
 *
 * Needs Chromium: /usr/bin/chromium, or the path in CHROMIUM. Functions passed to `evaluate` run in the page.
 */

const assert = require('node:assert/strict');
const { createServer } = require('node:http');
const { after, before } = require('node:test');
const puppeteer = require('puppeteer-core');
const { serverTest } = require('./server');

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const EVALUATION_MS = 200_000;
let browser;
let app;

before(async () => {
  app = createServer((_, answer) => answer.setHeader('content-type', 'text/html').end('<!doctype html><title>app</title>'));
  await new Promise((resolve) => { app.listen(0, '127.0.0.1', resolve); });
  browser = await puppeteer.launch({
    executablePath: CHROMIUM,
    // Tests run as root and in containers with little shared memory.
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
    protocolTimeout: EVALUATION_MS,
    // Chromium ends with the other end of the pipe, that is, with this process.
    pipe: true,
  });
});

after(async () => {
  await browser?.close();
  app?.close();
});

const origin = () => `http://127.0.0.1:${app.address().port}`;

async function configure(server, section, key, value) {
  const address = `${server.url}/_node/_local/_config/${section}/${key}`;
  assert.equal((await fetch(address, { method: 'PUT', body: JSON.stringify(value) })).status, 200);
}

/* Declares a test with the page of an app whose origin the server allows. */
function browserTest(name, work) {
  serverTest(name, async (server) => {
    await configure(server, 'httpd', 'enable_cors', 'true');
    await configure(server, 'cors', 'origins', origin());
    // PouchDB tells the browser to send cookies, which it does only if permitted.
    await configure(server, 'cors', 'credentials', 'true');
    const context = await browser.createBrowserContext();
    try {
      const page = await context.newPage();
      await page.goto(origin());
      await page.addScriptTag({ path: require.resolve('pouchdb/dist/pouchdb.js') });
      await page.evaluate(() => {
        // Polls, because a replication reports only its own changes.
        window.until = async (condition) => {
          while (!(await condition())) await new Promise((again) => { setTimeout(again, 5); });
        };
        window.has = (database, id) => database.get(id).then(() => true, () => false);
        window.content = async (database) => {
          const { rows } = await database.allDocs({ include_docs: true, conflicts: true });
          return rows.map(({ doc }) => doc);
        };
      });
      await work({ server, page });
    } finally {
      await context.close();
    }
  });
}

browserTest('a browser pushes, pulls and sees conflicts', async ({ server, page }) => {
  const seen = await page.evaluate(async (url) => {
    const [here, other, there] = [new PouchDB('here'), new PouchDB('other'), new PouchDB(`${url}/there`)];
    await here.bulkDocs(Array.from({ length: 250 }, (_, n) => ({ _id: `doc-${n}`, n })));
    const pushed = await here.replicate.to(there);
    await other.replicate.from(there);
    const [mine, theirs] = [await here.get('doc-7'), await other.get('doc-7')];
    await here.put({ ...mine, text: 'mine' });
    await other.put({ ...theirs, text: 'theirs' });
    await other.put({ ...(await other.get('doc-7')), text: 'theirs, again' });
    await other.remove(await other.get('doc-8'));
    for (const side of [here, other, here]) await side.sync(there);
    const refused = await there.put({ _id: 'doc-9' }).catch(({ status, name }) => ({ status, name }));
    return { pushed, refused, contents: await Promise.all([here, other, there].map(content)) };
  }, server.url);
  assert.equal(seen.pushed.docs_written, 250);
  assert.deepEqual(seen.refused, { status: 409, name: 'conflict' });
  const [here, other, there] = seen.contents;
  assert.deepEqual(here, there);
  assert.deepEqual(other, there);
  assert.equal(there.length, 249);
  const winner = there.find(({ _id }) => _id === 'doc-7');
  assert.equal(winner.text, 'theirs, again');
  assert.equal(winner._conflicts.length, 1);
});

browserTest('live sync in a browser goes on after the server was killed', async ({ server, page }) => {
  await page.evaluate(async (url) => {
    window.here = new PouchDB('here');
    window.there = new PouchDB(`${url}/there`);
    window.sync = here.sync(there, { live: true, retry: true, back_off_function: () => 20 });
    await here.put({ _id: 'from the app' });
    await until(() => has(there, 'from the app'));
    await there.put({ _id: 'from the server' });
    await until(() => has(here, 'from the server'));
  }, server.url);
  for (let kill = 0; kill < 3; kill += 1) {
    await server.kill();
    await page.evaluate((id) => here.put({ _id: id }), `offline-${kill}`);
    await server.start();
    await page.evaluate(async (written, after) => {
      await until(() => has(there, written));
      await until(() => there.put({ _id: after }).then(() => true, ({ status }) => status === 409));
      await until(() => has(here, after));
    }, `offline-${kill}`, `after-${kill}`);
  }
  const contents = await page.evaluate(async () => {
    sync.cancel();
    return Promise.all([here, there].map(content));
  });
  assert.equal(contents[1].length, 8);
  assert.deepEqual(contents[0], contents[1]);
});

browserTest('attachments come back from a browser as they were', async ({ server, page }) => {
  const seen = await page.evaluate(async (url) => {
    const digest = async (blob) => new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer())).join();
    const bytes = new Uint8Array(1_000_000).map((_, at) => (at * 7919) >> 8);
    const blob = new Blob([bytes], { type: 'application/octet-stream' });
    const [here, there, again] = [new PouchDB('here'), new PouchDB(`${url}/there`), new PouchDB('again')];
    await here.put({ _id: 'with', _attachments: { 'a file': { content_type: blob.type, data: blob } } });
    await here.replicate.to(there);
    await again.replicate.from(there);
    const found = await Promise.all([there, again].map((side) => side.getAttachment('with', 'a file')));
    return { sent: await digest(blob), found: await Promise.all(found.map(digest)), types: found.map(({ type }) => type) };
  }, server.url);
  assert.deepEqual(seen.found, [seen.sent, seen.sent]);
  assert.deepEqual(seen.types, Array(2).fill('application/octet-stream'));
});

browserTest('a first sync of 20 000 documents into a browser', async ({ server, page }) => {
  await fetch(`${server.url}/many`, { method: 'PUT' });
  for (let batch = 0; batch < 20; batch += 1) {
    const docs = Array.from({ length: 1000 }, (_, n) => ({ _id: `${batch}-${n}`, text: 'x'.repeat(100) }));
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${server.url}/many/_bulk_docs`, { method: 'POST', headers, body: JSON.stringify({ docs }) });
    assert.equal(answer.status, 201);
  }
  const pulled = await page.evaluate(async (url) => {
    const begun = performance.now();
    const copy = new PouchDB('copy');
    const { docs_written: written } = await copy.replicate.from(`${url}/many`, { batch_size: 1000 });
    return { written, took: Math.round(performance.now() - begun), count: (await copy.info()).doc_count };
  }, server.url);
  console.log(`pulled ${pulled.written} documents in ${pulled.took} ms`);
  assert.deepEqual([pulled.written, pulled.count], [20_000, 20_000]);
});

browserTest('a browser lets no app in whose origin the server does not name', async ({ server, page }) => {
  const put = () => page.evaluate((url) => new PouchDB(`${url}/there`).put({ _id: 'x' }).then(() => true, () => false), server.url);
  assert.equal(await put(), true);
  await configure(server, 'cors', 'origins', 'https://app.example.org');
  assert.equal(await put(), false);
});
