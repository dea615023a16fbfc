'use strict';
/* express-session over connect-redis, with real HTTP requests and cookies. */

const assert = require('node:assert/strict');
const { once } = require('node:events');
const express = require('express');
const session = require('express-session');
const { RedisStore } = require('connect-redis');
const { createClient } = require('redis');
const { serverTest } = require('./server');

async function startApplication(store) {
  const application = express();
  application.use(session({ store, secret: 'for tests only', resave: false, saveUninitialized: false }));
  application.post('/login/:user', (request, response) => {
    request.session.user = request.params.user;
    response.end('welcome');
  });
  application.get('/visits', (request, response) => {
    request.session.visits = (request.session.visits ?? 0) + 1;
    response.json({ user: request.session.user ?? null, visits: request.session.visits });
  });
  application.post('/logout', (request, response, next) => {
    request.session.destroy((error) => (error ? next(error) : response.end('bye')));
  });
  const listener = application.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  return { listener, url: `http://127.0.0.1:${listener.address().port}` };
}

serverTest('express-session with connect-redis', async (server) => {
  const client = createClient({ url: `redis://127.0.0.1:${server.port}`, socket: { reconnectStrategy: false } });
  await client.connect();
  const store = new RedisStore({ client, prefix: 'session:', ttl: 600 });
  const { listener, url } = await startApplication(store);
  try {
    const login = await fetch(`${url}/login/ann`, { method: 'POST' });
    const headers = { cookie: login.headers.get('set-cookie').split(';')[0] };
    for (const visits of [1, 2, 3]) {
      const answer = await fetch(`${url}/visits`, { headers });
      assert.deepEqual(await answer.json(), { user: 'ann', visits });
    }
    const stranger = await fetch(`${url}/visits`);
    assert.deepEqual(await stranger.json(), { user: null, visits: 1 });
    const [key] = await client.keys('session:*').then((keys) => keys.sort());
    assert.ok((await client.ttl(key)) > 0);
    assert.equal(await store.length(), 2);
    assert.equal((await store.all()).length, 2);
    await fetch(`${url}/logout`, { method: 'POST', headers });
    const afterwards = await fetch(`${url}/visits`, { headers });
    assert.deepEqual(await afterwards.json(), { user: null, visits: 1 });
    await store.clear();
    assert.equal(await client.dbSize(), 0);
  } finally {
    listener.closeAllConnections();
    listener.close();
    client.destroy();
  }
});
