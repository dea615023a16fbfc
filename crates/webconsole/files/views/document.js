// One document, as JSON, with its conflicts and attachments.

import { couch } from '../api.js';
import { confirm } from '../dialog.js';
import { button, fill, h, none, panel, pill, tell } from '../dom.js';
import { bytes } from '../format.js';

/* Shows the document `id` in `place`; with null as `id`, a form for a new one. */
export async function edit(place, { database, id, changed, signal }) {
  const again = (shownId) => edit(place, { database, id: shownId, changed, signal });
  let stored = {};
  if (id !== null) {
    try {
      stored = await couch([database, id], { query: { conflicts: true } });
    } catch (error) {
      if (error.status !== 404) throw error;
      fill(place, panel(id, none(`This document is ${error.message}.`)));
      return;
    }
  }
  if (signal.aborted) return;
  const { _id, _rev, _conflicts: conflicts = [], _attachments: attachments = {}, ...content } = stored;
  const name = h('input', { class: 'mono', autocomplete: 'off', spellcheck: 'false', placeholder: 'empty: the server makes one' });
  const text = JSON.stringify(content, null, 2);
  const area = h('textarea', { spellcheck: 'false', rows: Math.min(30, Math.max(8, text.split('\n').length + 1)), 'aria-label': 'Document as JSON' });
  area.value = text;
  const save = async () => {
    let given;
    try {
      given = JSON.parse(area.value);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
    if (given === null || typeof given !== 'object' || Array.isArray(given)) throw new Error('A document is an object: { ... }');
    const own = id ?? (name.value === '' ? (await couch(['_uuids'])).uuids[0] : name.value);
    const kept = Object.keys(attachments).length > 0 ? { _attachments: attachments } : {};
    const body = { ...given, ...kept, _id: own, ...(_rev === undefined ? {} : { _rev }) };
    await couch([database, own], { method: 'PUT', body });
    await changed();
    await again(own);
    tell('Saved: it is on disk.');
  };
  const remove = () => confirm('Delete this document?', `${id} is deleted; replicas and PouchDB clients learn of it.`, 'Delete', async () => {
    await couch([database, id], { method: 'DELETE', query: { rev: _rev } });
    fill(place);
    await changed();
  });
  const files = Object.entries(attachments).map(([file, { content_type: type, length }]) => h('li', {}, `${file} (${type}, ${bytes(length)})`));
  const heading = panel(id ?? 'New document', [
    id === null ? h('label', {}, 'Id', name) : h('p', {}, h('span', { class: 'mono quiet' }, _rev), ' ', conflicts.length > 0 && pill(`${conflicts.length} conflicts`, 'warn')),
    area,
    files.length > 0 && h('div', {}, h('h3', {}, 'Attachments'), h('ul', {}, files)),
    conflicts.length > 0 && h('div', {}, h('h3', {}, 'Conflicts'), h('ul', {}, conflicts.map((rev) => h('li', {}, h('span', { class: 'mono' }, rev), ' ', button('Delete', () => confirm('Delete this revision?', `${rev} loses; the revision above stays.`, 'Delete', async () => {
      await couch([database, id], { method: 'DELETE', query: { rev } });
      await changed();
      await again(id);
    }), { class: 'small bad' }))))),
    h('div', { class: 'row' }, button('Save', save, { class: 'main' }), id !== null && button('Delete', remove, { class: 'bad' })),
  ]);
  fill(place, heading);
  const title = heading.querySelector('h2');
  title.setAttribute('tabindex', '-1');
  title.focus();
}
