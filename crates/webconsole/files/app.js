// The frame of the page: the view that is shown, the user who is logged in, and the bar with the server's
// state.

import { LoginNeeded, NoAnswer, contact, isError, logOut, redis, session, up } from './api.js';
import { button, byId, fill, h, pill, tell } from './dom.js';
import { clock } from './format.js';
import { info } from './info.js';
import { loginView } from './login.js';
import { poll } from './poll.js';
import { RightMissing, setUser, setView } from './rights.js';
import { VIEWS } from './views.js';

const BAR_PERIOD_MS = 5000;
const HOME = 'overview';

let shownView = null;
let isLoggedIn = false;
/* The name of a user who is logged in, but is no admin. */
let stranger = null;

/* The address after `#/`: the name of a view, and its parameters. */
function address() {
  const [name, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { name: name || HOME, parameters: new URLSearchParams(query) };
}

function showNavigation(current) {
  const item = ({ name, title }) => h('li', {}, h('a', { href: `#/${name}`, 'aria-current': name === current ? 'page' : null }, title));
  fill(byId('views'), h('ul', {}, VIEWS.map(item)));
  byId('views').querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

/* Shows the view that the address names. `moveFocus` is true after the user has chosen a view. */
async function route(moveFocus) {
  shownView?.abort();
  const controller = new AbortController();
  shownView = controller;
  document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
  if (!isLoggedIn) return showLogin();
  const { name, parameters } = address();
  const view = VIEWS.find((known) => known.name === name) ?? VIEWS[0];
  document.title = `${view.title} – Sheaf`;
  setView(view);
  showNavigation(view.name);
  const place = h('div', { class: 'stack' });
  fill(byId('main'), place);
  if (moveFocus) byId('main').focus();
  try {
    await view.show({ place, parameters, signal: controller.signal, failed });
  } catch (error) {
    if (!controller.signal.aborted) {
      failed(error);
      place.append(h('p', { class: 'wrong', role: 'alert' }, error.message));
    }
  }
  return undefined;
}

function failed(error) {
  if (error instanceof LoginNeeded) {
    if (isLoggedIn) begin();
  } else if (error instanceof NoAnswer) {
    showContact();
  } else if (error instanceof RightMissing) {
    // The server is well: the view says what its user lacks.
  } else {
    fill(byId('server'), pill(error.message, 'bad'));
  }
}

/* While the server does not answer, all that the page shows is from before. */
function showContact() {
  byId('main').classList.toggle('stale', contact.isLost);
  if (contact.isLost) fill(byId('server'), pill(`no answer since ${clock(contact.lastAt)}`, 'bad'));
}

function showLogin() {
  document.title = 'Log in – Sheaf';
  fill(byId('views'));
  fill(byId('server'));
  if (stranger === null) fill(byId('account'));
  else showAccount(stranger);
  fill(byId('main'), loginView(begin, stranger));
  byId('main').querySelector('input[type=password]').focus();
}

function showAccount(name) {
  if (name === null) return fill(byId('account'), h('span', { class: 'quiet' }, 'no password set'));
  return fill(byId('account'), h('span', { class: 'quiet' }, name), button('Log out', async () => {
    await logOut();
    await begin();
  }));
}

const VERDICTS = { ok: 'good', loading: 'warn' };

async function showServer() {
  const verdict = await up();
  const told = [pill(verdict.status === 'ok' ? 'healthy' : verdict.error ?? verdict.status ?? `HTTP ${verdict.code}`, VERDICTS[verdict.status] ?? 'bad')];
  if (isLoggedIn) {
    const [said] = await redis([['INFO']]);
    // A user without the right to INFO sees the verdict alone, here and in the overview.
    if (isError(said)) return fill(byId('server'), told);
    const { redis_mode: mode, role, tcp_port: port, sheaf_version: version } = info(said);
    told.push(pill(role === 'slave' ? 'follower' : role === 'master' ? 'leader' : role));
    told.push(h('span', { class: 'quiet' }, `${location.hostname}:${port}, version ${version}${mode === 'standalone' ? '' : `, ${mode}`}`));
  }
  return fill(byId('server'), told);
}

/* Finds out who the user is, and shows what this user may see. */
async function begin() {
  let user;
  try {
    user = (await session()).userCtx;
  } catch (error) {
    // While the server loads, it cannot tell who a user is, but it serves INFO.
    user = error instanceof LoginNeeded ? { roles: [] } : { name: null, roles: ['_admin'] };
    if (error.status === 403) {
      fill(byId('main'), h('p', { class: 'wrong', role: 'alert' }, error.message));
      return;
    }
  }
  isLoggedIn = user.roles.includes('_admin');
  stranger = isLoggedIn ? null : user.name ?? null;
  setUser(user.name);
  if (isLoggedIn) showAccount(user.name);
  await route(false);
  if (isLoggedIn) showServer().catch(failed);
}

contact.addEventListener('change', () => {
  showContact();
  if (contact.isLost) {
    tell('The server does not answer.', 'bad');
  } else {
    tell('The server answers again.');
    if (isLoggedIn) showServer().catch(failed);
  }
});
addEventListener('hashchange', () => {
  // What was said in a view is about that view.
  fill(byId('notices'));
  route(true);
});
addEventListener('unhandledrejection', ({ reason }) => {
  if (reason instanceof LoginNeeded) failed(reason);
  else tell(reason?.message ?? String(reason), 'bad');
});
await begin();
poll(async () => { if (isLoggedIn) await showServer(); }, BAR_PERIOD_MS, new AbortController().signal, failed);
