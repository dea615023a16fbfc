// Document databases: the list, documents, changes.

import { couch, hasFauxton } from '../api.js';
import { ask } from '../dialog.js';
import { button, fill, h, head, panel, table } from '../dom.js';
import { bytes, number } from '../format.js';
import { edit } from './document.js';

const PAGE = 50;
const CHANGES_SHOWN = 50;
const INFOS_MAX = 100;

export async function show({ place, parameters, signal }) {
  const database = parameters.get('database');
  if (database !== null) return showDatabase(place, database, parameters, signal);
  const list = h('div', {});
  const refresh = async () => {
    const names = await couch(['_all_dbs']);
    const infos = [];
    for (let at = 0; at < names.length; at += INFOS_MAX) {
      infos.push(...await couch(['_dbs_info'], { method: 'POST', body: { keys: names.slice(at, at + INFOS_MAX) } }));
    }
    if (signal.aborted) return;
    fill(list, panel('Databases', table(`Databases: ${number(names.length)}`, [
      { title: 'Name', cell: ({ key }) => link(key) },
      { title: 'Documents', number: true, cell: ({ info }) => number(info?.doc_count ?? NaN) },
      { title: 'Deleted', number: true, cell: ({ info }) => number(info?.doc_del_count ?? NaN) },
      { title: 'File', number: true, cell: ({ info }) => bytes(info?.sizes?.file ?? NaN) },
      { title: 'Data', number: true, cell: ({ info }) => bytes(info?.sizes?.active ?? NaN) },
      { title: '', actions: true, cell: ({ key }) => button('Delete', () => remove(key, refresh), { class: 'small bad', 'aria-label': `Delete ${key}` }) },
    ], infos, { empty: 'No database yet.' })));
  };
  const fauxton = h('span', {});
  fill(place, head('Documents', fauxton, button('New database', () => create(refresh)), button('Refresh', refresh)), list);
  if (await hasFauxton()) fill(fauxton, h('a', { class: 'button', href: '/_utils/' }, 'Fauxton'));
  return refresh();
}

const link = (name) => h('a', { href: `#/databases?database=${encodeURIComponent(name)}` }, name);

async function create(refresh) {
  const name = h('input', { required: true, pattern: '[a-z][a-z0-9_$\\(\\)+\\/\\-]*', autocomplete: 'off' });
  await ask('New database', h('label', {}, 'Name: lower case letters, digits, and _ $ ( ) + - /', name), 'Create', async () => {
    await couch([name.value], { method: 'PUT' });
    await refresh();
  });
}

async function remove(name, refresh) {
  const typed = h('input', { autocomplete: 'off', required: true });
  await ask(`Delete the database ${name}?`, [h('p', {}, 'All of its documents are deleted. This cannot be undone.'), h('label', {}, 'Type its name to confirm', typed)], 'Delete', async () => {
    if (typed.value !== name) throw new Error('This is not its name.');
    await couch([name], { method: 'DELETE' });
    await refresh();
  }, { kind: 'bad' });
}

async function showDatabase(place, name, parameters, signal) {
  const [documents, changes, detail] = [h('div', {}), h('div', {}), h('div', {})];
  const from = h('input', { type: 'search', class: 'mono', autocomplete: 'off', placeholder: 'Ids from …', 'aria-label': 'Ids from' });
  const refresh = () => Promise.all([showDocuments(), showChanges()]);
  const opened = (id) => edit(detail, { database: name, id, changed: refresh, signal });
  const showDocuments = async (start = from.value, rows = []) => {
    const found = await couch([name, '_all_docs'], { query: { limit: PAGE + 1, startkey: JSON.stringify(start) } });
    if (signal.aborted) return;
    const all = [...rows, ...found.rows.slice(0, PAGE)];
    const next = found.rows[PAGE];
    fill(documents, panel('Documents', [table(`${number(all.length)} shown, ${number(found.total_rows)} in all`, [
      { title: 'Id', cell: ({ id }) => button(id, () => opened(id), { class: 'link' }) },
      { title: 'Revision', cell: ({ value }) => h('span', { class: 'mono quiet nowrap' }, short(value.rev)) },
    ], all, { empty: 'No document here.' }), next && button('More', () => showDocuments(next.id, all))]));
  };
  const showChanges = async () => {
    const found = await couch([name, '_changes'], { query: { descending: true, limit: CHANGES_SHOWN } });
    if (signal.aborted) return;
    fill(changes, panel('Changes', table(`The last ${number(found.results.length)} changes, the newest first`, [
      { title: 'Sequence', cell: ({ seq }) => String(seq).split('-')[0] },
      { title: 'Id', cell: ({ id }) => button(id, () => opened(id), { class: 'link' }) },
      { title: 'Revision', cell: (row) => [h('span', { class: 'mono quiet nowrap' }, row.changes.map(({ rev }) => short(rev)).join(', ')), row.deleted && ' deleted'] },
    ], found.results, { empty: 'No change yet.' })));
  };
  const form = h('form', { class: 'row', role: 'search', onsubmit: (event) => {
    event.preventDefault();
    showDocuments();
  } }, from, h('button', {}, 'Find'));
  fill(place, head(name, form, button('New document', () => opened(null)), button('Refresh', refresh), h('a', { class: 'button', href: '#/databases' }, 'All databases')),
    h('div', { class: 'split' }, h('div', { class: 'stack' }, documents, changes), detail));
  await refresh();
  if (parameters.has('document')) await opened(parameters.get('document'));
  watch(name, signal, refresh);
}

const short = (rev) => (rev.length > 14 ? `${rev.slice(0, 12)}…` : rev);

/* Refreshes the view whenever the database changes, until the view is left. */
async function watch(name, signal, refresh) {
  try {
    let since = 'now';
    while (!signal.aborted) {
      const found = await couch([name, '_changes'], { query: { feed: 'longpoll', since, timeout: 25_000 } });
      if (!signal.aborted && found.results.length > 0) await refresh();
      since = found.last_seq;
    }
  } catch {
    // The list stays as it is; the button “Refresh” shows the error.
  }
}
