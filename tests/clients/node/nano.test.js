'use strict';
/* nano, the client of CouchDB for servers: its everyday calls. */

const assert = require('node:assert/strict');
const Nano = require('nano');
const { serverTest } = require('./server');

function nanoTest(name, work) {
  serverTest(name, async (server) => {
    const nano = Nano(server.url);
    await nano.db.create('things');
    await work(nano, nano.use('things'));
  });
}

nanoTest('databases are created, listed, described and destroyed', async (nano) => {
  await nano.db.create('other-things/$+()_1');
  assert.deepEqual(await nano.db.list(), ['other-things/$+()_1', 'things']);
  await assert.rejects(nano.db.create('things'), { statusCode: 412, error: 'file_exists' });
  await assert.rejects(nano.db.create('Things'), { statusCode: 400, error: 'illegal_database_name' });
  const info = await nano.db.get('things');
  assert.equal(info.db_name, 'things');
  assert.equal(info.doc_count, 0);
  await nano.db.destroy('things');
  await assert.rejects(nano.db.get('things'), { statusCode: 404, error: 'not_found' });
  const welcome = await nano.info();
  assert.equal(welcome.couchdb, 'Welcome');
  assert.equal(welcome.uuid, (await nano.info()).uuid);
  assert.equal((await nano.uuids(3)).uuids.length, 3);
});

nanoTest('documents are inserted, read, changed, copied and destroyed', async (nano, things) => {
  const made = await things.insert({ happy: true }, 'rabbit');
  assert.match(made.rev, /^1-[0-9a-f]{32}$/);
  const unnamed = await things.insert({ happy: false });
  assert.match(unnamed.id, /^[0-9a-f]{32}$/);
  assert.deepEqual(await things.get('rabbit'), { _id: 'rabbit', _rev: made.rev, happy: true });
  const changed = await things.insert({ _id: 'rabbit', _rev: made.rev, happy: false });
  assert.match(changed.rev, /^2-/);
  await assert.rejects(things.insert({ happy: true }, 'rabbit'), { statusCode: 409, error: 'conflict' });
  const head = await things.head('rabbit');
  assert.equal(head.etag, `"${changed.rev}"`);
  // Revisions that are no longer leaves are removed, as in CouchDB after a compaction.
  await assert.rejects(things.get('rabbit', { rev: made.rev }), { statusCode: 404, reason: 'missing' });
  // nano no longer has a call for this, and sets headers only for a whole client.
  const copying = Nano({ url: nano.config.url, headers: { Destination: 'hare' } });
  await copying.request({ db: 'things', doc: 'rabbit', method: 'COPY' });
  assert.equal((await things.get('hare')).happy, false);
  await things.destroy('rabbit', changed.rev);
  await assert.rejects(things.get('rabbit'), { statusCode: 404, reason: 'deleted' });
  const odd = 'a/b?c&d=e #%ü';
  await things.insert({ odd: true }, odd);
  assert.equal((await things.get(odd))._id, odd);
});

nanoTest('many documents are written, listed and fetched at once', async (nano, things) => {
  const docs = Array.from({ length: 1000 }, (_, n) => ({ _id: `d${String(n).padStart(4, '0')}`, n }));
  const results = await things.bulk({ docs });
  assert.ok(results.every(({ ok }) => ok));
  const list = await things.list({ limit: 10, skip: 5, include_docs: true });
  assert.equal(list.total_rows, 1000);
  assert.deepEqual(list.rows.map(({ doc }) => doc.n), [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
  const fetched = await things.fetch({ keys: ['d0003', 'nothing', 'd0001'] });
  assert.deepEqual(fetched.rows.map(({ id, error }) => id ?? error), ['d0003', 'not_found', 'd0001']);
  const streamed = await new Promise((resolve, reject) => {
    let text = '';
    things.listAsStream().on('error', reject).on('data', (piece) => { text += piece; }).on('end', () => resolve(text));
  });
  assert.equal(JSON.parse(streamed).rows.length, 1000);
});

nanoTest('attachments are written, read, streamed and destroyed', async (nano, things) => {
  const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, n) => n % 251));
  const { rev } = await things.attachment.insert('doc', 'data.bin', bytes, 'application/octet-stream');
  assert.ok(bytes.equals(await things.attachment.get('doc', 'data.bin')));
  const streamed = await new Promise((resolve, reject) => {
    const pieces = [];
    const stream = things.attachment.getAsStream('doc', 'data.bin');
    stream.on('error', reject).on('data', (piece) => pieces.push(piece)).on('end', () => resolve(Buffer.concat(pieces)));
  });
  assert.ok(bytes.equals(streamed));
  await things.attachment.destroy('doc', 'data.bin', { rev });
  await assert.rejects(things.attachment.get('doc', 'data.bin'), { statusCode: 404 });
});

nanoTest('changes are read from the beginning and followed', async (nano, things) => {
  await things.bulk({ docs: [{ _id: 'a' }, { _id: 'b' }] });
  const { results, last_seq: lastSeq } = await things.changes({ since: 0, include_docs: true });
  assert.deepEqual(results.map(({ id }) => id), ['a', 'b']);
  for (const id of ['c', 'd', 'e']) await things.insert({}, id);
  const seen = [];
  // It polls until none are left, for which the server waits for `timeout` milliseconds. stop() during a poll rejects a promise that no caller can handle.
  const reader = things.changesReader.get({ since: lastSeq, includeDocs: true, timeout: 1 });
  reader.on('change', (change) => seen.push(change.id));
  await new Promise((resolve, reject) => { reader.on('end', resolve).on('error', reject); });
  assert.deepEqual(seen, ['c', 'd', 'e']);
});

nanoTest('documents are found by selector and by index', async (nano, things) => {
  const docs = Array.from({ length: 100 }, (_, n) => ({ _id: `p${String(n).padStart(3, '0')}`, age: n % 50, name: `n${n}` }));
  await things.bulk({ docs });
  const index = await things.createIndex({ index: { fields: ['age'] }, name: 'by-age' });
  assert.equal(index.result, 'created');
  const found = await things.find({ selector: { age: { $gte: 48 } }, fields: ['_id', 'age'], sort: [{ age: 'asc' }] });
  assert.deepEqual(found.docs.map(({ age }) => age), [48, 48, 49, 49]);
  const page = await things.find({ selector: { age: { $lt: 10 } }, limit: 15 });
  const rest = await things.find({ selector: { age: { $lt: 10 } }, limit: 15, bookmark: page.bookmark });
  assert.equal(new Set([...page.docs, ...rest.docs].map(({ _id }) => _id)).size, 20);
  await assert.rejects(
    things.find({ selector: { name: { $gt: null } }, sort: [{ name: 'asc' }] }),
    { statusCode: 400, error: 'no_usable_index' },
  );
});
