'use strict';
/* Users of CouchDB as nano and PouchDB log them in: sessions, Basic, and the rights of a database. */

const assert = require('node:assert/strict');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const Nano = require('nano');
const PouchDB = require('pouchdb');
const { Server, runTest, waitUntil } = require('./server');

const ANNA = { name: 'anna', type: 'user', roles: ['writers'], password: 'apple' };
const MEMBERS = { admins: { names: [], roles: [] }, members: { names: [], roles: ['writers'] } };

/* Declares a test with a server that has an admin, the user anna, and a database for writers. */
function usersTest(name, work) {
  const server = new Server(undefined, ['--admin-password', 'secret']);
  runTest(name, [server], async () => {
    await server.start();
    const admin = Nano(server.url.replace('http://', 'http://admin:secret@'));
    await admin.db.create('_users');
    await admin.use('_users').insert(ANNA, 'org.couchdb.user:anna');
    await admin.db.create('notes');
    await admin.request({ db: 'notes', method: 'put', path: '_security', body: MEMBERS });
    await work(server, admin);
  });
}

usersTest('nano logs in and goes on by its cookie', async (server) => {
  const nano = Nano(server.url);
  await assert.rejects(nano.use('notes').info(), { statusCode: 401, error: 'unauthorized' });
  await assert.rejects(nano.auth('anna', 'wrong'), { statusCode: 401, reason: 'Name or password is incorrect.' });
  assert.deepEqual(await nano.auth('anna', 'apple'), { ok: true, name: 'anna', roles: ['writers'] });
  const session = await nano.session();
  assert.deepEqual(session.userCtx, { name: 'anna', roles: ['writers'] });
  assert.equal(session.info.authenticated, 'cookie');
  assert.ok((await nano.use('notes').insert({ text: 'a' }, 'a')).ok);
  const own = await nano.use('_users').get('org.couchdb.user:anna');
  assert.equal(own.password, undefined);
  assert.ok((await nano.use('_users').insert({ ...own, colour: 'green' })).ok);
  await assert.rejects(nano.db.list(), { statusCode: 401 });
});

usersTest('PouchDB replicates with the password of a user, and with a session of its own', async (server, admin) => {
  const directory = mkdtempSync(path.join(tmpdir(), 'sheaf-users-'));
  const local = new PouchDB(path.join(directory, 'notes'));
  try {
    const byPassword = new PouchDB(`${server.url}/notes`, { auth: { username: 'anna', password: 'apple' } });
    await local.put({ _id: 'a', text: 'from here' });
    assert.equal((await local.replicate.to(byPassword)).docs_written, 1);
    const stranger = new PouchDB(`${server.url}/notes`, { skip_setup: true });
    await assert.rejects(stranger.get('a'), { status: 401 });
    const login = await PouchDB.fetch(`${server.url}/_session`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ name: 'anna', password: 'apple' }),
    });
    assert.equal(login.status, 200);
    // Its fetch keeps cookies, as a browser does.
    const bySession = new PouchDB(`${server.url}/notes`);
    await bySession.put({ _id: 'b', text: 'from there' });
    await local.replicate.from(bySession);
    assert.equal((await local.get('b')).text, 'from there');
    // The right is taken away while a live replication waits.
    const live = local.replicate.from(bySession, { live: true });
    const ended = new Promise((resolve) => { live.on('error', resolve); });
    live.catch(() => {});
    let isWaiting = false;
    live.on('paused', () => { isWaiting = true; });
    await waitUntil('the live replication to wait', () => isWaiting);
    await admin.request({ db: 'notes', method: 'put', path: '_security', body: { members: { names: ['ben'] } } });
    await admin.use('notes').insert({ text: 'secret' }, 'c');
    assert.equal((await ended).status, 403);
    await assert.rejects(local.get('c'), { status: 404 });
  } finally {
    await local.close();
    rmSync(directory, { recursive: true, force: true });
  }
});
