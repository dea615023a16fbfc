'use strict';
/*
 * PouchDB against the HTTP port: the operations of an offline-first app. Each test has a server and local
 * databases (LevelDB) of its own. A finished replication must have copied everything; tests of a live one
 * wait for its changes.
 */

const assert = require('node:assert/strict');
const { createHash, randomBytes } = require('node:crypto');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const PouchDB = require('pouchdb');
const { serverTest, waitUntil } = require('./server');

/*
 * Declares a test with `local(name)` and `remote(name)`, which create databases; all are closed at the end.
 */
function pouchTest(name, work) {
  serverTest(name, async (server) => {
    const directory = mkdtempSync(path.join(tmpdir(), 'sheaf-pouch-'));
    const opened = [];
    const open = (place) => {
      const database = new PouchDB(place);
      opened.push(database);
      return database;
    };
    try {
      await work({
        server,
        local: (database) => open(path.join(directory, database)),
        remote: (database) => open(`${server.url}/${database}`),
      });
    } finally {
      await Promise.allSettled(opened.map((database) => database.close()));
      rmSync(directory, { recursive: true, force: true });
    }
  });
}

/* Everything in a database: per document its revision, its conflicts and its fields. */
async function content(database) {
  const { rows } = await database.allDocs({ include_docs: true, conflicts: true });
  return Object.fromEntries(rows.map(({ id, doc }) => [id, { ...doc, _conflicts: doc._conflicts?.sort() }]));
}

async function assertSame(a, b) {
  assert.deepEqual(await content(a), await content(b));
}

/* Writes a new document; retries if the connection is one from before the kill. */
async function putAgain(database, doc) {
  await waitUntil(`${doc._id} is written`, async () => {
    try {
      await database.put(doc);
      return true;
    } catch (error) {
      return error.status === 409;
    }
  });
}

/*
 * After each batch PouchDB 9 requests the database's info to report progress, and does not handle a failure:
 * if the server is killed at that moment, the rejection is unhandled. A caller that handles the failure still
 * gets it.
 */
function infoMayFail(database) {
  const ask = database.info.bind(database);
  database.info = (...args) => {
    const asked = ask(...args);
    asked.then = (...handlers) => {
      const next = Promise.prototype.then.apply(asked, handlers);
      next.catch(() => {});
      return next;
    };
    return asked;
  };
}

const documents = (count, body = {}) =>
  Array.from({ length: count }, (_, n) => ({ _id: `doc-${String(n).padStart(6, '0')}`, n, ...body }));

function assertSaved(results) {
  assert.deepEqual(results.filter((result) => result.error), []);
}

pouchTest('what is written here is pushed, what is written there is pulled', async ({ local, remote }) => {
  const [here, there] = [local('here'), remote('there')];
  assertSaved(await here.bulkDocs(documents(250)));
  const pushed = await here.replicate.to(there);
  assert.equal(pushed.ok, true);
  assert.equal(pushed.docs_written, 250);
  assert.equal((await there.info()).doc_count, 250);
  await assertSame(here, there);

  const changed = await there.get('doc-000007');
  await there.put({ ...changed, note: 'changed there' });
  await there.remove(await there.get('doc-000008'));
  await there.put({ _id: 'new there' });
  const pulled = await here.replicate.from(there);
  assert.equal(pulled.ok, true);
  assert.equal(pulled.docs_written, 3);
  await assertSame(here, there);
  assert.equal((await here.get('doc-000007')).note, 'changed there');
  await assert.rejects(here.get('doc-000008'), { status: 404, reason: 'deleted' });

  const nothing = await here.sync(there);
  assert.equal(nothing.push.docs_written + nothing.pull.docs_written, 0, 'the checkpoints are known');
});

pouchTest('edits on both sides are conflicts that both sides see and resolve alike', async ({ local, remote }) => {
  const [a, b, hub] = [local('a'), local('b'), remote('hub')];
  await a.put({ _id: 'shared', text: 'first' });
  await a.sync(hub);
  await b.sync(hub);
  const base = await a.get('shared');
  await a.put({ ...base, text: 'by a' });
  await b.put({ ...(await b.get('shared')), text: 'by b' });
  await b.put({ ...(await b.get('shared')), text: 'by b, again' });
  for (const side of [a, b, a]) await side.sync(hub);
  const seen = await Promise.all([a, b, hub].map((side) => side.get('shared', { conflicts: true })));
  assert.equal(seen[0]._conflicts.length, 1);
  assert.equal(seen[0].text, 'by b, again', 'the longer history wins');
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[2], seen[0]);

  const leaves = await hub.get('shared', { open_revs: 'all' });
  assert.deepEqual(leaves.map(({ ok }) => ok.text).sort(), ['by a', 'by b, again']);
  await a.remove('shared', seen[0]._conflicts[0]);
  for (const side of [a, b]) await side.sync(hub);
  for (const side of [a, b, hub]) {
    assert.equal((await side.get('shared', { conflicts: true }))._conflicts, undefined);
  }
  await assertSame(a, hub);
  await assertSame(b, hub);
});

pouchTest('a conflicting PUT is refused with the name that apps look for', async ({ remote }) => {
  const there = remote('there');
  const { rev } = await there.put({ _id: 'x', n: 1 });
  await there.put({ _id: 'x', _rev: rev, n: 2 });
  await assert.rejects(there.put({ _id: 'x', _rev: rev, n: 3 }), { status: 409, name: 'conflict' });
  await assert.rejects(there.put({ _id: 'x', n: 3 }), { status: 409, name: 'conflict' });
  await assert.rejects(there.get('nothing'), { status: 404, name: 'not_found', reason: 'missing' });
  await assert.rejects(there.put({ _id: '_reserved' }), { status: 400 });
  const results = await there.bulkDocs([{ _id: 'x', n: 4 }, { _id: 'y' }, { n: 5 }]);
  assert.deepEqual(results.map((result) => Boolean(result.error)), [true, false, false]);
  assert.equal(results[0].name, 'conflict');
});

pouchTest('live sync moves changes both ways until it is cancelled', async ({ local, remote }) => {
  const [a, b, hub] = [local('a'), local('b'), remote('hub')];
  const syncs = [a, b].map((side) => side.sync(hub, { live: true, retry: true }));
  try {
    for (let round = 0; round < 10; round += 1) {
      await a.put({ _id: `a-${round}`, round });
      await waitUntil(`b has a-${round}`, () => b.get(`a-${round}`).then(() => true, () => false));
      await b.put({ _id: `b-${round}`, round });
      await waitUntil(`a has b-${round}`, () => a.get(`b-${round}`).then(() => true, () => false));
    }
    await hub.bulkDocs(documents(300));
    await waitUntil('both have all', async () => {
      const infos = await Promise.all([a.info(), b.info()]);
      return infos.every((info) => info.doc_count === 320);
    });
    await assertSame(a, hub);
    await assertSame(b, hub);
  } finally {
    syncs.forEach((sync) => sync.cancel());
  }
});

pouchTest('a live feed tells each change once, and goes on after the server was killed', async ({ server, local, remote }) => {
  const [here, there] = [local('here'), remote('there')];
  infoMayFail(there);
  await there.put({ _id: 'before' });
  const sync = here.sync(there, { live: true, retry: true, back_off_function: () => 20 });
  try {
    await waitUntil('the first', () => here.get('before').then(() => true, () => false));
    for (let kill = 0; kill < 3; kill += 1) {
      await server.kill();
      await here.put({ _id: `offline-${kill}` });
      await server.start();
      await waitUntil('what was written offline', () => there.get(`offline-${kill}`).then(() => true, () => false));
      await putAgain(there, { _id: `after-${kill}` });
      await waitUntil('what came after', () => here.get(`after-${kill}`).then(() => true, () => false));
    }
  } finally {
    sync.cancel();
  }
  await assertSame(here, there);
  const { results } = await there.changes({ since: 0 });
  assert.equal(new Set(results.map(({ id }) => id)).size, results.length);
  assert.equal(results.length, 7);
});

pouchTest('attachments travel whole, and are not sent again with a new revision', async ({ local, remote }) => {
  const [here, there, again] = [local('here'), remote('there'), local('again')];
  const files = {
    'a text.txt': { content_type: 'text/plain', data: Buffer.from('häßlich\n'.repeat(1000)) },
    'dir/binary': { content_type: 'application/octet-stream', data: randomBytes(3_000_000) },
    empty: { content_type: 'image/png', data: Buffer.alloc(0) },
  };
  await here.put({ _id: 'with', _attachments: files });
  await here.replicate.to(there);
  const stub = (await there.get('with'))._attachments['dir/binary'];
  assert.equal(stub.length, 3_000_000);
  assert.equal(stub.digest, `md5-${createHash('md5').update(files['dir/binary'].data).digest('base64')}`);
  const doc = await there.get('with');
  await there.put({ ...doc, edited: true });
  assert.equal((await there.get('with'))._attachments['dir/binary'].revpos, 1, 'it is that of the first revision');
  const extra = await there.get('with');
  await there.putAttachment('with', 'later', extra._rev, Buffer.from('later'), 'text/plain');
  await again.replicate.from(there);
  for (const side of [there, again]) {
    for (const [name, { data }] of Object.entries({ ...files, later: { data: Buffer.from('later') } })) {
      assert.ok(data.equals(await side.getAttachment('with', name)), name);
    }
  }
  const inline = await again.get('with', { attachments: true, binary: true });
  assert.equal(inline._attachments.empty.data.length, 0);
  await there.removeAttachment('with', 'later', (await there.get('with'))._rev);
  await assert.rejects(there.getAttachment('with', 'later'), { status: 404 });
});

pouchTest('a first sync of 20 000 documents', async ({ local, remote }) => {
  const [source, copy] = [remote('many'), local('copy')];
  for (let batch = 0; batch < 20; batch += 1) {
    const docs = documents(1000, { text: 'x'.repeat(100) }).map((doc) => ({ ...doc, _id: `${batch}-${doc._id}` }));
    assertSaved(await source.bulkDocs(docs));
  }
  const begun = Date.now();
  const pulled = await copy.replicate.from(source, { batch_size: 1000 });
  console.log(`pulled ${pulled.docs_written} documents in ${Date.now() - begun} ms`);
  assert.equal(pulled.docs_written, 20_000);
  assert.equal((await copy.info()).doc_count, 20_000);
  await assertSame(copy, source);
});

pouchTest('a part of a database is replicated by ids and by selector', async ({ local, remote }) => {
  const there = remote('there');
  assertSaved(await there.bulkDocs(documents(60).map((doc) => ({ ...doc, kind: doc.n % 3 ? 'other' : 'third' }))));
  const [byIds, bySelector] = [local('by-ids'), local('by-selector')];
  await byIds.replicate.from(there, { doc_ids: ['doc-000003', 'doc-000004', 'nothing'] });
  assert.deepEqual(Object.keys(await content(byIds)), ['doc-000003', 'doc-000004']);
  await bySelector.replicate.from(there, { selector: { kind: 'third' } });
  assert.equal((await bySelector.info()).doc_count, 20);
});

pouchTest('documents that the server cannot hold do not stop a replication', async ({ local, remote }) => {
  const [here, there] = [local('here'), remote('there')];
  const deep = JSON.parse(`${'['.repeat(300)}${']'.repeat(300)}`);
  const rules = { _id: '_design/rules', validate_doc_update: 'function () {}' };
  assertSaved(await here.bulkDocs([...documents(5), { _id: 'a-lone', text: '\ud800' }, { _id: 'z-deep', deep }, rules]));
  const denied = [];
  const done = await here.replicate.to(there).on('denied', (error) => denied.push(error));
  assert.deepEqual([done.ok, done.docs_written, done.doc_write_failures], [true, 5, 3]);
  assert.deepEqual(denied.map(({ id, error }) => [id, error]), ['a-lone', 'z-deep', '_design/rules'].map((id) => [id, 'forbidden']));
  assert.equal((await there.info()).doc_count, 5);
  await here.put({ _id: 'later' });
  assert.equal((await here.replicate.to(there)).docs_written, 1, 'a checkpoint was written');
});

pouchTest('local documents, revision lists and ranges of ids are as apps expect', async ({ remote }) => {
  const there = remote('there');
  assertSaved(await there.bulkDocs(documents(100)));
  let doc = await there.get('doc-000050');
  for (let edit = 0; edit < 5; edit += 1) {
    await there.put({ ...doc, edit });
    doc = await there.get('doc-000050');
  }
  const info = await there.get('doc-000050', { revs_info: true, revs: true });
  assert.equal(info._revs_info.length, 6);
  assert.equal(info._revisions.start, 6);
  const range = await there.allDocs({ startkey: 'doc-000010', endkey: 'doc-000019', descending: false });
  assert.equal(range.rows.length, 10);
  const down = await there.allDocs({ startkey: 'doc-000019', endkey: 'doc-000010', descending: true, limit: 3, skip: 1 });
  assert.deepEqual(down.rows.map(({ id }) => id), ['doc-000018', 'doc-000017', 'doc-000016']);
  const keys = await there.allDocs({ keys: ['doc-000001', 'nothing', 'doc-000050'] });
  assert.equal(keys.rows[1].error, 'not_found');
  const { rev } = await there.put({ _id: '_local/settings', theme: 'dark' });
  assert.equal(rev, '0-1');
  assert.equal((await there.get('_local/settings')).theme, 'dark');
  assert.equal((await there.allDocs()).total_rows, 100);
  await there.compact();
  await there.destroy();
});
