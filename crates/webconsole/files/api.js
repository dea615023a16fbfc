// The only module that sends requests: commands of the Redis protocol, databases, health and metrics.

import { errorOf, isRefusal } from './rights.js';

/* Thrown when the user must log in. */
export class LoginNeeded extends Error {}

/* Thrown when no reply comes. */
export class NoAnswer extends Error {}

/* A server that answers at all answers questions about its health within this time. */
const HEALTH_PATIENCE_MS = 10_000;

/* Whether the last request that ended had a reply, and when the last reply came. An event `change` says that
   the server has gone, or is back. */
export const contact = Object.assign(new EventTarget(), { isLost: false, lastAt: new Date() });

let isLeft = false;
addEventListener('pagehide', () => { isLeft = true; });
addEventListener('pageshow', () => { isLeft = false; });

function setLost(isLost) {
  if (!isLost) contact.lastAt = new Date();
  if (contact.isLost === isLost) return;
  contact.isLost = isLost;
  contact.dispatchEvent(new Event('change'));
}

/* Commands in one request, besides the two that `redis` adds; the server takes 256. */
const COMMANDS_MAX = 250;

async function request(path, { method = 'GET', body, accept = 'application/json', patienceMs } = {}) {
  const headers = { accept };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const signal = patienceMs === undefined ? undefined : AbortSignal.timeout(patienceMs);
  let reply;
  try {
    reply = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', signal });
  } catch {
    // A page that is left ends its requests: that says nothing about the server.
    if (!isLeft) setLost(true);
    throw new NoAnswer('The server does not answer.');
  }
  // Nobody but a proxy answers so, for a server that has gone.
  if (reply.status === 502) {
    setLost(true);
    throw new NoAnswer('The server does not answer the proxy before it.');
  }
  setLost(false);
  return reply;
}

async function content(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text);
  } catch {
    return { reason: text };
  }
}

async function json(path, options) {
  const reply = await request(path, options);
  const found = await content(reply);
  if (reply.status === 401) throw new LoginNeeded(found.reason);
  if (!reply.ok) throw Object.assign(new Error(found.reason ?? `HTTP ${reply.status}`), { status: reply.status });
  return found;
}

/* The verdict of `/_up`. */
export async function up() {
  const reply = await request('/_up', { patienceMs: HEALTH_PATIENCE_MS });
  return { code: reply.status, ...(await content(reply)) };
}

/* Metrics as text. */
export async function metrics() {
  const reply = await request('/metrics', { accept: 'text/plain', patienceMs: HEALTH_PATIENCE_MS });
  if (reply.status === 401) throw new LoginNeeded('');
  if (!reply.ok) throw new Error((await content(reply)).reason);
  return reply.text();
}

/* Whether the user may run CLIENT NO-TOUCH. Who may not is not refused again with every request, each of which
   the server would count and log. */
let mayNotTouch = true;

/* Runs commands and returns their replies in the form of `plain`, errors as { error }. Reads do not change
   the access times of keys, if the user may prevent that. A request begins in database 0, so nobody needs the
   right to SELECT it. */
export async function redis(commands, db = 0) {
  const replies = [];
  for (let at = 0; at < commands.length; at += COMMANDS_MAX) {
    const part = commands.slice(at, at + COMMANDS_MAX);
    const first = [...(db === 0 ? [] : [['SELECT', db]]), ...(mayNotTouch ? [['CLIENT', 'NO-TOUCH', 'ON']] : [])];
    const all = await json('/_redis', { method: 'POST', body: [...first, ...part] });
    const told = all.splice(0, first.length);
    if (db !== 0 && isError(told[0])) throw errorOf(told[0].error);
    if (mayNotTouch && isError(told.at(-1)) && isRefusal(told.at(-1).error)) mayNotTouch = false;
    replies.push(...all);
  }
  return replies.map(plain);
}

/* Runs one command; throws its error. */
export async function command(words, db = 0) {
  const [reply] = await redis([words], db);
  if (isError(reply)) throw errorOf(reply.error);
  return reply;
}

export const isError = (reply) => reply !== null && typeof reply === 'object' && 'error' in reply;

/* Converts a reply: maps become Map, numbers that JavaScript does not have become texts, bytes stay { base64
   }. */
function plain(reply) {
  if (Array.isArray(reply)) return reply.map(plain);
  if (reply === null || typeof reply !== 'object') return reply;
  if ('map' in reply) return new Map(reply.map.map(([key, value]) => [plain(key), plain(value)]));
  return reply.integer ?? reply.double ?? reply;
}

/* The messages of a durable channel after a position. */
export const follow = (channel, from, waitMs) => json('/_redis/channel', { method: 'POST', body: { channel, from, wait_ms: waitMs } });

/* A request to the document databases; `path` is a list of segments. */
export function couch(path, { query = {}, ...options } = {}) {
  const segments = path.map((segment) => encodeURIComponent(segment)).join('/').replaceAll('_design%2F', '_design/').replaceAll('_local%2F', '_local/');
  const values = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return json(`/${segments}${values.length > 0 ? `?${values.join('&')}` : ''}`, options);
}

export const session = () => json('/_session');
export function logIn(name, password) {
  mayNotTouch = true;
  return json('/_session', { method: 'POST', body: { name, password } });
}

export const logOut = () => json('/_session', { method: 'DELETE' });

/* Whether a proxy before the server serves Fauxton. Browsers log every failed request as an error, so this
   asks for a type with which the server itself says in 200 that it has none; a proxy answers with the page. */
export async function hasFauxton() {
  const reply = await request('/_utils/', { accept: 'application/vnd.sheaf.console+json' });
  return reply.ok && (reply.headers.get('content-type') ?? '').startsWith('text/html');
}
