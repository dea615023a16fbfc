// Streams with their groups, and lists that are used as queues, of one database.

import { isError, redis } from '../api.js';
import { shown, toAddress } from '../bytes.js';
import { button, fill, h, head, panel, table } from '../dom.js';
import { number } from '../format.js';
import { databaseField, scan } from '../keyspace.js';
import { explained, isRefusal } from '../rights.js';
import { showKey } from './key.js';

const SHOWN_MAX = 200;

export async function show({ place, parameters, signal }) {
  const [streams, queues, detail] = [h('div', {}), h('div', {}), h('div', {})];
  const database = databaseField(parameters.get('db') ?? '0', () => { refresh(); });
  let chosen = null;
  const refresh = async () => {
    const db = database.value();
    const [foundStreams, foundLists] = await Promise.all(['stream', 'list'].map((type) => scan(db, { type, wanted: SHOWN_MAX })));
    const [{ rows: streamRows, refusal: noStream }, { rows: listRows, refusal: noList }] = await Promise.all([describeStreams(db, foundStreams.keys), describeLists(db, foundLists.keys)]);
    if (signal.aborted) return;
    const name = { title: 'Key', cell: ({ key }) => button(shown(key), () => choose(key), { class: 'link' }) };
    const isChosen = ({ key }) => chosen !== null && toAddress(key) === toAddress(chosen);
    const rest = ({ isOver }) => (isOver ? '' : ', and there are more');
    fill(streams, panel('Streams', [table(`Streams: ${number(streamRows.length)}${rest(foundStreams)}`, [name,
      { title: 'Entries', number: true, cell: (row) => number(row.length) },
      { title: 'Groups', number: true, cell: (row) => number(row.groups.length) },
      { title: 'Pending', number: true, cell: (row) => number(sum(row.groups, 'pending')) },
      { title: 'Lag', number: true, cell: (row) => (row.groups.some((group) => group.get('lag') === null) ? '–' : number(sum(row.groups, 'lag'))) },
    ], streamRows, { empty: noStream ? 'None that you may read.' : 'No stream in this database.', chosen: isChosen }), noStream]));
    fill(queues, panel('Lists as queues', [table(`Lists: ${number(listRows.length)}, the longest first${rest(foundLists)}`, [name,
      { title: 'Elements', number: true, cell: (row) => number(row.length) },
    ], listRows, { empty: noList ? 'None that you may read.' : 'No list in this database.', chosen: isChosen }), noList]));
  };
  const choose = async (key) => {
    chosen = key;
    await showKey(detail, { db: database.value(), key, signal, gone: async () => {
      chosen = null;
      fill(detail);
      await refresh();
    } });
    const heading = detail.querySelector('h2');
    heading?.setAttribute('tabindex', '-1');
    heading?.focus();
    await refresh();
  };
  fill(place, head('Streams and queues', database.element, button('Refresh', refresh)), h('div', { class: 'split' }, h('div', { class: 'stack' }, streams, queues), detail));
  await refresh();
}

const sum = (groups, name) => groups.reduce((all, group) => all + Number(group.get(name)), 0);

async function describeStreams(db, keys) {
  const replies = await redis(keys.flatMap((key) => [['XLEN', key], ['XINFO', 'GROUPS', key]]), db);
  const rows = keys.map((key, index) => ({ key, length: replies[2 * index], groups: replies[2 * index + 1] }));
  return { rows: rows.filter(({ length, groups }) => !isError(length) && !isError(groups)), refusal: refusalIn(replies) };
}

async function describeLists(db, keys) {
  const lengths = await redis(keys.map((key) => ['LLEN', key]), db);
  const rows = keys.map((key, index) => ({ key, length: lengths[index] }));
  return { rows: rows.filter(({ length }) => !isError(length)).sort((a, b) => b.length - a.length), refusal: refusalIn(lengths) };
}

/* What is said about keys that the user may not read; null if there are none. */
function refusalIn(replies) {
  const refused = replies.find((reply) => isError(reply) && isRefusal(reply.error));
  return refused === undefined ? null : h('p', { class: 'none' }, explained(refused.error));
}
