// Common parts of the views of keys: the choice of a database, facts about keys, and scanning.

import { command, isError, redis } from './api.js';
import { h } from './dom.js';
import { isRefusal } from './rights.js';

const DATABASES = 16;
/* Keys of one step of SCAN without a filter. With three commands about each key, all fit one request. */
const STEP = 80;
/* Steps after which the user is asked whether to go on, even if too few keys were found. */
const STEPS_MAX = 50;

/* A field for the number of a database: { element, value() }. */
export function databaseField(chosen, changed) {
  const field = h('select', { onchange: changed }, Array.from({ length: DATABASES }, (_, index) => h('option', { value: String(index) }, String(index))));
  field.value = String(chosen);
  return { element: h('label', {}, 'Database', field), value: () => Number(field.value) };
}

/* Type, time to live (ms) and size of keys. Keys that no longer exist are left out. Of a key that the user may
   not read, the type is null, and `refusal` is the error. */
export async function describe(db, keys) {
  const replies = await redis(keys.flatMap((key) => [['TYPE', key], ['PTTL', key], ['MEMORY', 'USAGE', key]]), db);
  const rows = keys.map((key, index) => {
    const [type, ttl, size] = replies.slice(3 * index, 3 * index + 3);
    return { key, type: isError(type) ? null : type, refusal: isError(type) ? type.error : null, ttl: isError(ttl) ? -1 : ttl, size: isError(size) ? null : size };
  });
  return rows.filter(({ type, refusal }) => type !== 'none' && (refusal === null || isRefusal(refusal)));
}

/* The next keys that match: { cursor, keys, isOver }. */
export async function scan(db, { cursor = '0', match = '', type = '', wanted = STEP }) {
  const keys = [];
  for (let step = 0; step < STEPS_MAX && keys.length < wanted; step += 1) {
    const options = [...(match === '' ? [] : ['MATCH', match]), ...(type === '' ? [] : ['TYPE', type])];
    // With a filter, a step looks at more keys, because it finds only some of them.
    const [next, found] = await command(['SCAN', cursor, ...options, 'COUNT', options.length > 0 ? 1000 : STEP], db);
    keys.push(...found);
    cursor = String(next);
    if (cursor === '0') return { cursor, keys, isOver: true };
  }
  return { cursor, keys, isOver: false };
}
