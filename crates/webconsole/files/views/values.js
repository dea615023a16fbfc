// The editors for values of keys, one for each type, which show values in pages.
//
// A whole string, and an element of a list at an index, are changed by a script. The script compares the
// value first, and refuses to overwrite a change that someone else has made meanwhile. The value of a field
// of a hash and the score of a member are set without such a comparison.

import { shown, valueField } from '../bytes.js';
import { ask, confirm } from '../dialog.js';
import { button, fill, h, table, tell } from '../dom.js';
import { bytes, number, ttl } from '../format.js';

const PAGE = 100;
/* Strings longer than this are shown in part, and cannot be edited. */
const STRING_BYTES_MAX = 256 << 10;

const CHANGED = 'It was changed meanwhile: refresh to see its value.';
const SET_IF_SAME = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL') return 1";
const LSET_IF_SAME = "if redis.call('LINDEX', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end redis.call('LSET', KEYS[1], ARGV[1], ARGV[3]) return 1";
const LDEL_IF_SAME = "if redis.call('LINDEX', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end redis.call('LSET', KEYS[1], ARGV[1], ARGV[3]) redis.call('LREM', KEYS[1], 1, ARGV[3]) return 1";

async function compareAndRun(run, script, key, args) {
  if (await run(['EVAL', script, 1, key, ...args]) !== 1) throw new Error(CHANGED);
}

export async function string({ place, key, refresh, run }) {
  const length = await run(['STRLEN', key]);
  if (length > STRING_BYTES_MAX) {
    const start = await run(['GETRANGE', key, 0, 4095]);
    fill(place, h('p', {}, `${bytes(length)}: too long to be edited here. It begins with:`), shown(start));
    return;
  }
  const value = await run(['GET', key]);
  const field = valueField('Value', value ?? '', { rows: Math.min(20, 4 + Math.ceil(length / 80)) });
  const save = button('Save', async () => {
    await compareAndRun(run, SET_IF_SAME, key, [value, field.read()]);
    await refresh();
    tell('Saved: it is on disk.');
  }, { class: 'main' });
  fill(place, field.element, h('div', { class: 'row' }, save, isJson(value) && button('Format as JSON', () => { field.area.value = JSON.stringify(JSON.parse(field.area.value), null, 2); }), h('span', { class: 'quiet' }, bytes(length))));
}

function isJson(value) {
  if (typeof value !== 'string' || !/^\s*[[{]/.test(value)) return false;
  try {
    JSON.parse(value);
    return true;
  } catch {
    return false;
  }
}

/* Shows a value that is read page by page. `page(state)` returns { rows, isOver } and advances the state;
   `columns` may be a function of all rows so far, and `read` gets these rows before they are shown. */
async function paged(place, caption, columns, page, actions, read = () => {}) {
  const rows = [];
  const state = { cursor: '0', at: 0 };
  const content = h('div', {});
  const more = async () => {
    const found = await page(state);
    rows.push(...found.rows);
    read(rows, found.isOver);
    fill(content, table(await caption(rows.length), typeof columns === 'function' ? columns(rows) : columns, rows, { empty: 'Nothing here.' }), !found.isOver && button('More', more));
  };
  fill(place, h('div', { class: 'row' }, actions), content);
  await more();
}

/* Reads a page with HSCAN or SSCAN. */
const scanPage = (run, name, key, rowsOf) => async (state) => {
  const [cursor, found] = await run([name, key, state.cursor, 'COUNT', PAGE]);
  state.cursor = String(cursor);
  return { rows: rowsOf(found), isOver: state.cursor === '0' };
};

const twos = (values) => values.flatMap((value, index) => (index % 2 === 0 ? [[value, values[index + 1]]] : []));

const remove = (what, work) => button('Delete', () => confirm(`Delete this ${what}?`, 'This cannot be undone. If it is the last one, the key goes, too.', 'Delete', work), { class: 'small bad' });

/* Fields with their values and their times to live (ms; below 0: none). */
const fieldPage = (run, key) => {
  const next = scanPage(run, 'HSCAN', key, twos);
  return async (state) => {
    const { rows, isOver } = await next(state);
    if (rows.length === 0) return { rows, isOver };
    const left = await run(['HPTTL', key, 'FIELDS', rows.length, ...rows.map(([name]) => name)]);
    // A field that has expired meanwhile is -2, and the key may have gone with its last field.
    const withTtl = rows.map(([name, value], index) => [name, value, left?.[index] ?? -2]);
    return { rows: withTtl.filter(([, , ms]) => ms !== -2), isOver };
  };
};

const hasDeadline = ([, , ms]) => ms >= 0;

/* What is said of the deadlines of fields; empty if no field has one. */
function deadlines(rows, isOver) {
  const expiring = rows.filter(hasDeadline);
  const [some, rest] = [number(expiring.length), isOver ? '' : ' so far'];
  if (expiring.length > 0) return `${some} of the fields shown${rest} ${expiring.length === 1 ? 'expires' : 'expire'}, the next in ${ttl(Math.min(...expiring.map(([, , ms]) => ms)))}`;
  return isOver ? '' : 'no field shown so far expires';
}

export async function hash({ place, key, refresh, run, tellExpiry }) {
  const edit = async (name, value) => {
    const fields = [valueField('Field', name ?? ''), valueField('Value', value ?? '', { rows: 5 })];
    if (name !== null) fields[0].area.readOnly = true;
    await ask(name === null ? 'New field' : 'Field', fields.map(({ element }) => element), 'Save', async () => {
      // HSET would remove the deadline of a field that is there.
      if (name === null) await run(['HSET', key, fields[0].read(), fields[1].read()]);
      else await run(['HSETEX', key, 'KEEPTTL', 'FIELDS', 1, name, fields[1].read()]);
      await refresh();
    });
  };
  const columns = (rows) => [
    { title: 'Field', cell: ([name]) => shown(name) },
    { title: 'Value', cell: ([, value]) => shown(value) },
    ...(rows.some(hasDeadline) ? [{ title: 'Expires in', number: true, cell: ([, , ms]) => ttl(ms) }] : []),
    { title: '', actions: true, cell: ([name, value]) => [button('Edit', () => edit(name, value), { class: 'small' }), ' ', remove('field', async () => {
      await run(['HDEL', key, name]);
      await refresh();
    })] },
  ];
  const caption = async (count) => `${number(count)} of ${number(await run(['HLEN', key]))} fields`;
  await paged(place, caption, columns, fieldPage(run, key), [button('New field', () => edit(null, null))], (rows, isOver) => tellExpiry(deadlines(rows, isOver)));
}

export async function list({ place, key, refresh, run }) {
  const edit = async (index, value) => {
    const field = valueField('Element', value, { rows: 5 });
    await ask(`Element ${index}`, field.element, 'Save', async () => {
      await compareAndRun(run, LSET_IF_SAME, key, [index, value, field.read()]);
      await refresh();
    });
  };
  const push = async (name, where) => {
    const field = valueField('Element', '', { rows: 5 });
    await ask(`New element at the ${where}`, field.element, 'Add', async () => {
      await run([name, key, field.read()]);
      await refresh();
    });
  };
  const columns = [
    { title: 'Index', cell: ([index]) => index },
    { title: 'Element', cell: ([, value]) => shown(value) },
    { title: '', actions: true, cell: ([index, value]) => [button('Edit', () => edit(index, value), { class: 'small' }), ' ', remove('element', async () => {
      await compareAndRun(run, LDEL_IF_SAME, key, [index, value, `deleted ${crypto.getRandomValues(new Uint32Array(4)).join('-')}`]);
      await refresh();
    })] },
  ];
  const caption = async (count) => `${number(count)} of ${number(await run(['LLEN', key]))} elements, from the head`;
  const page = async (state) => {
    const found = await run(['LRANGE', key, state.at, state.at + PAGE - 1]);
    const rows = found.map((value, index) => [state.at + index, value]);
    state.at += found.length;
    return { rows, isOver: found.length < PAGE };
  };
  await paged(place, caption, columns, page, [button('Add at head', () => push('LPUSH', 'head')), button('Add at tail', () => push('RPUSH', 'tail'))]);
}

export async function set({ place, key, refresh, run }) {
  const add = async () => {
    const field = valueField('Member', '', { rows: 3 });
    await ask('New member', field.element, 'Add', async () => {
      if (await run(['SADD', key, field.read()]) === 0) throw new Error('It is a member already.');
      await refresh();
    });
  };
  const columns = [
    { title: 'Member', cell: (member) => shown(member) },
    { title: '', actions: true, cell: (member) => remove('member', async () => {
      await run(['SREM', key, member]);
      await refresh();
    }) },
  ];
  const caption = async (count) => `${number(count)} of ${number(await run(['SCARD', key]))} members`;
  await paged(place, caption, columns, scanPage(run, 'SSCAN', key, (found) => found), [button('New member', add)]);
}

export async function zset({ place, key, refresh, run }) {
  const edit = async (member, score) => {
    const field = valueField('Member', member ?? '', { rows: 3 });
    if (member !== null) field.area.readOnly = true;
    const scoreField = h('input', { class: 'mono', value: String(score ?? 0), required: true });
    await ask(member === null ? 'New member' : 'Score', [field.element, h('label', {}, 'Score', scoreField)], 'Save', async () => {
      await run(['ZADD', key, ...(member === null ? ['NX'] : ['XX']), scoreField.value, field.read()]);
      await refresh();
    });
  };
  const columns = [
    { title: 'Member', cell: ([member]) => shown(member) },
    { title: 'Score', number: true, cell: ([, score]) => String(score) },
    { title: '', actions: true, cell: ([member, score]) => [button('Edit', () => edit(member, score), { class: 'small' }), ' ', remove('member', async () => {
      await run(['ZREM', key, member]);
      await refresh();
    })] },
  ];
  const caption = async (count) => `${number(count)} of ${number(await run(['ZCARD', key]))} members, by score`;
  const page = async (state) => {
    const rows = await run(['ZRANGE', key, state.at, state.at + PAGE - 1, 'WITHSCORES']);
    state.at += rows.length;
    return { rows, isOver: rows.length < PAGE };
  };
  await paged(place, caption, columns, page, [button('New member', () => edit(null, null))]);
}

/* The view of streams uses these, too. */
export { paged, remove, twos };
