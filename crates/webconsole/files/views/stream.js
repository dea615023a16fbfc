// One stream: its newest entries, its groups with their consumers, and what is pending.

import { isError, redis } from '../api.js';
import { shown, valueField } from '../bytes.js';
import { ask, confirm } from '../dialog.js';
import { button, fill, h, table } from '../dom.js';
import { number, seconds } from '../format.js';
import { errorOf } from '../rights.js';
import { paged, remove, twos } from './values.js';

const PAGE = 50;
const PENDING_MAX = 100;

export async function stream({ place, db, key, refresh, run }) {
  const [groups, entries] = [h('div', { class: 'stack' }), h('div', { class: 'stack' })];
  fill(place, groups, entries);
  await showGroups(groups, { db, key, refresh, run });
  const add = async () => {
    const fields = [valueField('Field'), valueField('Value', '', { rows: 4 })];
    await ask('New entry', fields.map(({ element }) => element), 'Add', async () => {
      await run(['XADD', key, '*', ...fields.map((field) => field.read())]);
      await refresh();
    });
  };
  const columns = [
    { title: 'Id', cell: ([id]) => [h('span', { class: 'mono' }, id), h('div', { class: 'quiet' }, timeOf(id))] },
    { title: 'Fields', cell: ([, fields]) => (fields ?? []).length === 0 ? '' : twos(fields).map(([name, value]) => h('div', {}, shown(name, { clamp: false }), ' = ', shown(value, { clamp: false }))) },
    { title: '', actions: true, cell: ([id]) => remove('entry', async () => {
      await run(['XDEL', key, id]);
      await refresh();
    }) },
  ];
  const page = async (state) => {
    const rows = await run(['XREVRANGE', key, state.end ?? '+', '-', 'COUNT', PAGE]);
    if (rows.length > 0) state.end = `(${rows.at(-1)[0]}`;
    return { rows, isOver: rows.length < PAGE };
  };
  const caption = async (count) => `${number(count)} of ${number(await run(['XLEN', key]))} entries, the newest first`;
  await paged(entries, caption, columns, page, [button('New entry', add)]);
}

function timeOf(id) {
  const at = new Date(Number(id.split('-')[0]));
  return Number.isNaN(at.getTime()) || at.getFullYear() < 2000 ? '' : at.toLocaleString();
}

async function showGroups(place, { db, key, refresh, run }) {
  const groups = await run(['XINFO', 'GROUPS', key]);
  const detail = h('div', { class: 'stack' });
  fill(place, table('Consumer groups', [
    { title: 'Group', cell: (group) => button(shown(group.get('name')), () => showGroup(detail, { db, key, name: group.get('name'), refresh, run }), { class: 'link' }) },
    { title: 'Consumers', number: true, cell: (group) => number(group.get('consumers')) },
    { title: 'Pending', number: true, cell: (group) => number(group.get('pending')) },
    { title: 'Lag', number: true, cell: (group) => number(group.get('lag') ?? NaN) },
    { title: 'Last delivered', cell: (group) => h('span', { class: 'mono' }, group.get('last-delivered-id')) },
  ], groups, { empty: 'No consumer group.' }), detail);
}

async function showGroup(place, { db, key, name, refresh, run }) {
  const [consumers, pending] = await redis([['XINFO', 'CONSUMERS', key, name], ['XPENDING', key, name, '-', '+', PENDING_MAX]], db);
  if (isError(consumers)) throw errorOf(consumers.error);
  const acknowledge = (id) => confirm('Acknowledge this entry?', `No consumer of the group gets ${id} again, though it may not have been worked on.`, 'Acknowledge', async () => {
    await run(['XACK', key, name, id]);
    await refresh();
  });
  fill(place,
    h('h3', {}, 'Group ', shown(name, { short: false })),
    table('Consumers', [
      { title: 'Consumer', cell: (consumer) => shown(consumer.get('name')) },
      { title: 'Pending', number: true, cell: (consumer) => number(consumer.get('pending')) },
      { title: 'Idle', number: true, cell: (consumer) => seconds(consumer.get('idle') / 1000) },
      { title: 'Inactive', number: true, cell: (consumer) => (Number(consumer.get('inactive') ?? -1) < 0 ? '–' : seconds(consumer.get('inactive') / 1000)) },
    ], consumers, { empty: 'No consumer.' }),
    table(`Pending entries, the first ${PENDING_MAX} at most`, [
      { title: 'Id', cell: ([id]) => h('span', { class: 'mono' }, id) },
      { title: 'Consumer', cell: ([, consumer]) => shown(consumer) },
      { title: 'Idle', number: true, cell: ([, , idle]) => seconds(idle / 1000) },
      { title: 'Deliveries', number: true, cell: ([, , , count]) => number(count) },
      { title: '', actions: true, cell: ([id]) => button('Acknowledge', () => acknowledge(id), { class: 'small' }) },
    ], pending, { empty: 'Nothing is pending.' }));
}
