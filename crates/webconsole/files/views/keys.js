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
  const pattern = h('input', { type: 'search', class: 'mono', placeholder: 'user:*', autocomplete: 'off', spellcheck: 'false' });
  const type = h('select', {}, h('option', { value: '' }, 'all'), TYPES.map((name) => h('option', { value: name }, name)));
  const database = databaseField(Number(parameters.get('db') ?? 0), () => { restart(); });
  const list = h('div', {});
  const detail = h('div', {});
  let chosen = parameters.has('key') ? fromAddress(parameters.get('key')) : null;
  const form = h('form', { class: 'row', role: 'search' }, database.element, h('label', { class: 'grow' }, 'Name, a part of it, or a pattern', pattern), h('label', {}, 'Type', type), h('button', { class: 'main' }, 'Find'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    restart();
  });
  type.addEventListener('change', () => { restart(); });

  // The search that is shown: what was asked for, and what was found so far. What belongs to an earlier one,
  // and comes late, is dropped.
  let search = begun();
  const isOld = (of) => of !== search || signal.aborted;

  function begun() {
    const text = pattern.value;
    // SCAN MATCH takes a glob, so a word without wildcards is searched for within keys. The key of exactly this
    // name comes first in any case: it may be one of many that contain the word.
    const isGlob = /[*?[\]\\]/.test(text);
    return { db: database.value(), text, isGlob, match: isGlob || text === '' ? text : `*${text}*`, type: type.value, cursor: '0', rows: [], isOver: false, seen: new Set() };
  }

  /* Puts the key of exactly the name that was typed on top. */
  async function exact(of) {
    if (of.text === '') return;
    const rows = (await describe(of.db, [of.text])).filter((row) => of.type === '' || row.type === of.type);
    rows.forEach(({ key }) => of.seen.add(toAddress(key)));
    of.rows.push(...rows.map((row) => ({ ...row, isExact: true })));
  }

  async function more(of) {
    const found = await scan(of.db, { cursor: of.cursor, match: of.match, type: of.type });
    // SCAN may find a key twice.
    const fresh = found.keys.filter((key) => !of.seen.has(toAddress(key)));
    fresh.forEach((key) => of.seen.add(toAddress(key)));
    of.rows.push(...await describe(of.db, fresh));
    [of.cursor, of.isOver] = [found.cursor, found.isOver];
    await draw(of);
  }

  async function restart() {
    search = begun();
    const of = search;
    fill(list, h('p', { class: 'quiet' }, 'Looking …'));
    try {
      await exact(of);
      await more(of);
    } catch (error) {
      if (isOld(of)) return;
      fill(list);
      throw error;
    }
  }

  async function draw(of) {
    const size = await command(['DBSIZE'], of.db);
    if (isOld(of)) return;
    const asked = of.text === '' ? '' : of.isGlob ? `matches ${of.text} ` : `has ${of.text} in its name `;
    const shownRows = table(`${number(of.rows.length)} shown${of.isOver ? '' : ' so far'}, ${number(size)} keys in database ${of.db}`, [
      { title: 'Key', cell: ({ key, isExact }) => [button(shown(key), () => choose(key), { class: 'link' }), isExact && h('span', { class: 'quiet' }, 'exactly this name')] },
      { title: 'Type', cell: ({ type: found }) => (found === null ? pill('no right', 'warn') : pill(found)) },
      { title: 'Expires in', number: true, cell: (row) => ttl(row.ttl) },
      { title: 'Memory', number: true, cell: (row) => bytes(row.size ?? NaN) },
    ], of.rows, { empty: `No key ${asked}in database ${of.db}.`, chosen: ({ key }) => chosen !== null && toAddress(key) === toAddress(chosen) });
    fill(list, panel('Keys', [shownRows, !of.isOver && button('More', () => more(of))], [button('New key', () => create(choose, of.db))]));
  }

  async function choose(key, { focus = true } = {}) {
    const of = search;
    chosen = key;
    history.replaceState(null, '', `#/keys?db=${of.db}&key=${encodeURIComponent(toAddress(key))}`);
    await showKey(detail, { db: of.db, key, signal, gone: async () => {
      chosen = null;
      history.replaceState(null, '', `#/keys?db=${of.db}`);
      fill(detail);
      await restart();
    } });
    detail.querySelector('h2')?.setAttribute('tabindex', '-1');
    if (focus) detail.querySelector('h2')?.focus();
    await draw(of);
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
