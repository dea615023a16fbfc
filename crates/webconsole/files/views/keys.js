// Keys: found by pattern and type, shown and edited by type.

import { command } from '../api.js';
import { fromAddress, label, shown, toAddress, valueField } from '../bytes.js';
import { ask } from '../dialog.js';
import { button, fill, h, head, panel, pill, table } from '../dom.js';
import { bytes, number, ttl } from '../format.js';
import { databaseField, describe, scan } from '../keyspace.js';
import { showKey } from './key.js';

const TYPES = ['string', 'hash', 'list', 'set', 'zset', 'stream'];

export async function show({ place, parameters, signal }) {
  const state = { db: Number(parameters.get('db') ?? 0), cursor: '0', rows: [], isOver: false, seen: new Set() };
  const pattern = h('input', { type: 'search', class: 'mono', placeholder: 'user:*', autocomplete: 'off', spellcheck: 'false' });
  const type = h('select', {}, h('option', { value: '' }, 'all'), TYPES.map((name) => h('option', { value: name }, name)));
  const database = databaseField(state.db, () => { restart(); });
  const list = h('div', {});
  const detail = h('div', {});
  let chosen = parameters.has('key') ? fromAddress(parameters.get('key')) : null;
  // SCAN MATCH takes a glob, so a word without wildcards is searched for within keys.
  const glob = () => (/[*?[\]\\]/.test(pattern.value) || pattern.value === '' ? pattern.value : `*${pattern.value}*`);
  const form = h('form', { class: 'row', role: 'search' }, database.element, h('label', { class: 'grow' }, 'Pattern', pattern), h('label', {}, 'Type', type), h('button', { class: 'main' }, 'Find'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    restart();
  });
  type.addEventListener('change', () => { restart(); });

  async function more() {
    const found = await scan(state.db, { cursor: state.cursor, match: glob(), type: type.value });
    // SCAN may find a key twice.
    const fresh = found.keys.filter((key) => !state.seen.has(toAddress(key)));
    fresh.forEach((key) => state.seen.add(toAddress(key)));
    const rows = await describe(state.db, fresh);
    state.rows.push(...rows);
    [state.cursor, state.isOver] = [found.cursor, found.isOver];
    if (!signal.aborted) await draw();
  }

  async function restart() {
    Object.assign(state, { db: database.value(), cursor: '0', rows: [], isOver: false, seen: new Set() });
    fill(list, h('p', { class: 'quiet' }, 'Looking …'));
    try {
      await more();
    } catch (error) {
      fill(list);
      throw error;
    }
  }

  async function draw() {
    const size = await command(['DBSIZE'], state.db);
    const shownRows = table(`${number(state.rows.length)} shown${state.isOver ? '' : ' so far'}, ${number(size)} keys in database ${state.db}`, [
      { title: 'Key', cell: ({ key }) => button(shown(key), () => choose(key), { class: 'link' }) },
      { title: 'Type', cell: ({ type: found }) => (found === null ? pill('no right', 'warn') : pill(found)) },
      { title: 'Expires in', number: true, cell: (row) => ttl(row.ttl) },
      { title: 'Memory', number: true, cell: (row) => bytes(row.size ?? NaN) },
    ], state.rows, { empty: `No key ${glob() === '' ? '' : `matches ${glob()} `}in database ${state.db}.`, chosen: ({ key }) => chosen !== null && toAddress(key) === toAddress(chosen) });
    fill(list, panel('Keys', [shownRows, !state.isOver && button('More', more)], [button('New key', () => create(choose, state.db))]));
  }

  async function choose(key, { focus = true } = {}) {
    chosen = key;
    history.replaceState(null, '', `#/keys?db=${state.db}&key=${encodeURIComponent(toAddress(key))}`);
    await showKey(detail, { db: state.db, key, signal, gone: async () => {
      chosen = null;
      history.replaceState(null, '', `#/keys?db=${state.db}`);
      fill(detail);
      await restart();
    } });
    detail.querySelector('h2')?.setAttribute('tabindex', '-1');
    if (focus) detail.querySelector('h2')?.focus();
    await draw();
  }

  fill(place, head('Keys'), form, h('div', { class: 'split' }, list, detail));
  await restart();
  if (chosen !== null) await choose(chosen, { focus: false });
}

/* For each type, the command that makes a key, with its first content. */
const FIRST = {
  string: (key, content) => ['SET', key, content, 'NX'],
  hash: (key, content, name) => ['HSET', key, name, content],
  list: (key, content) => ['RPUSH', key, content],
  set: (key, content) => ['SADD', key, content],
  zset: (key, content) => ['ZADD', key, '0', content],
  stream: (key, content, name) => ['XADD', key, '*', name, content],
};

async function create(choose, db) {
  const name = valueField('Key');
  const content = valueField('Value', '', { rows: 4 });
  const field = valueField('Field');
  const type = h('select', {}, TYPES.map((known) => h('option', { value: known }, known)));
  const adapt = () => { field.element.hidden = !['hash', 'stream'].includes(type.value); };
  type.addEventListener('change', adapt);
  adapt();
  const made = await ask(`New key in database ${db}`, [h('label', {}, 'Type', type), name.element, field.element, content.element], 'Create', async () => {
    const key = name.read();
    if (await command(['EXISTS', key], db) === 1) throw new Error(`The key ${label(key)} exists already.`);
    const reply = await command(FIRST[type.value](key, content.read(), field.read()), db);
    if (reply === null) throw new Error(`The key ${label(key)} exists already.`);
    return { key };
  });
  if (made) await choose(made.key);
}
