// One key: facts, time to live, deletion, and its value by type.

import { command, isError, redis } from '../api.js';
import { label, valueField } from '../bytes.js';
import { ask, confirm } from '../dialog.js';
import { button, fill, h, none, panel, pill, tell } from '../dom.js';
import { bytes, ttl } from '../format.js';
import { describe } from '../keyspace.js';
import { explained } from '../rights.js';
import { hash, list, set, string, zset } from './values.js';
import { stream } from './stream.js';

const EDITORS = { string, hash, list, set, zset, stream };

/* Shows a key in `place`; calls `gone` when it was deleted. */
export async function showKey(place, { db, key, signal, gone }) {
  const refresh = async () => {
    const [row] = await describe(db, [key]);
    if (signal.aborted) return;
    if (row === undefined) {
      fill(place, panel(label(key), none('There is no such key: it was deleted, or has expired.')));
      return;
    }
    if (row.refusal !== null) {
      fill(place, panel(label(key), none(explained(row.refusal))));
      return;
    }
    const [encoding] = await redis([['OBJECT', 'ENCODING', key]], db);
    const facts = h('span', { class: 'quiet' });
    // Fields of a hash may have deadlines of their own: what `parts` tells of them comes from the editor.
    const tellExpiry = (parts) => {
      const own = row.ttl >= 0 ? `expires in ${ttl(row.ttl)}` : parts === '' ? 'never expires' : 'no deadline of the key itself';
      fill(facts, `${bytes(row.size ?? NaN)} of memory, encoding ${isError(encoding) ? 'not known' : encoding}, ${own}${parts && `; ${parts}`}`);
    };
    tellExpiry(row.type === 'hash' ? 'fields not read yet' : '');
    const told = h('div', { class: 'row' }, pill(row.type), facts);
    const content = h('div', { class: 'stack' });
    fill(place, panel(label(key), h('div', { class: 'stack' }, told, content), [
      button('Refresh', refresh, { class: 'small' }),
      button('Expiry', () => expire(db, key, row, refresh), { class: 'small' }),
      button('Rename', () => rename(db, key, gone), { class: 'small' }),
      button('Delete', () => remove(db, key, gone), { class: 'small bad' }),
    ]));
    const editor = EDITORS[row.type];
    if (editor) await editor({ place: content, db, key, refresh, tellExpiry, run: (words) => command(words, db), signal });
    else fill(content, none(`Values of type ${row.type} are not shown here.`));
  };
  await refresh();
}

async function expire(db, key, row, refresh) {
  const field = h('input', { type: 'number', min: '0', step: 'any', value: row.ttl < 0 ? '' : String(row.ttl / 1000) });
  await ask(`Expiry of ${label(key)}`, h('label', {}, 'Seconds from now; empty: never', field), 'Save', async () => {
    const seconds = Number(field.value);
    if (field.value === '') await command(['PERSIST', key], db);
    else if (!(seconds > 0)) throw new Error('To remove the key now, delete it.');
    else await command(['PEXPIRE', key, Math.round(seconds * 1000)], db);
    await refresh();
  });
}

async function rename(db, key, gone) {
  const name = valueField('New name', key);
  await ask(`Rename ${label(key)}`, name.element, 'Rename', async () => {
    if (await command(['RENAMENX', key, name.read()], db) !== 1) throw new Error('A key of this name exists already.');
    tell('Renamed.');
    await gone();
  });
}

async function remove(db, key, gone) {
  await confirm('Delete this key?', `${label(key)} in database ${db} is deleted with its value. This cannot be undone.`, 'Delete', async () => {
    await command(['UNLINK', key], db);
    await gone();
  });
}
