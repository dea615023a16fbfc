'use strict';
/*
 * add-cors-to-couchdb: the script that PouchDB's guide recommends to run once, so that pages may use a
 * server.
 */

const assert = require('node:assert/strict');
const addCors = require('add-cors-to-couchdb');
const { serverTest } = require('./server');

serverTest('add-cors-to-couchdb lets pages of other origins in', async (server) => {
  const headers = { origin: 'http://page.example', 'content-type': 'application/json' };
  const put = (path) => fetch(`${server.url}${path}`, { method: 'PUT', headers, body: '{}' });
  assert.equal((await put('/db')).status, 403);
  // It sends paths like /_node/nonode@nohost//_config/httpd/enable_cors.
  await addCors(server.url);
  assert.equal((await put('/db')).status, 201);
  const answer = await put('/db/doc');
  assert.equal(answer.status, 201);
  assert.equal(answer.headers.get('access-control-allow-origin'), 'http://page.example');
});
