// One document, as JSON, with its conflicts and attachments.

import { couch } from '../api.js';
import { compared } from '../compare.js';
import { confirm } from '../dialog.js';
import { button, fill, h, none, panel, pill, tell } from '../dom.js';
import { bytes } from '../format.js';

/* JSON with the names of objects in order, so that only differences of content are found. */
const sortedJson = (value) => JSON.stringify(value, (_, part) => (part !== null && typeof part === 'object' && !Array.isArray(part)
  ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  : part), 2);

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
  const conflict = (rev) => {
    const difference = h('div', {});
    const compareWithWinner = async () => {
      const { _id: _, _rev: otherRev, ...other } = await couch([database, id], { query: { rev } });
      const winner = Object.keys(attachments).length > 0 ? { ...content, _attachments: attachments } : content;
      fill(difference, h('p', { class: 'quiet anywhere' }, `- only in ${_rev}, which wins; + only in ${otherRev}`),
        compared(`${otherRev} compared with ${_rev}`, sortedJson(winner), sortedJson(other)));
    };
    const removeIt = () => confirm('Delete this revision?', `${rev} loses; the revision above stays.`, 'Delete', async () => {
      await couch([database, id], { method: 'DELETE', query: { rev } });
      await changed();
      await again(id);
    });
    return h('li', {}, h('span', { class: 'mono' }, rev), ' ',
      button('Compare', compareWithWinner, { class: 'small', 'aria-label': `Compare ${rev} with the winner` }), ' ',
      button('Delete', removeIt, { class: 'small bad', 'aria-label': `Delete ${rev}` }), difference);
  };
  const files = Object.entries(attachments).map(([file, { content_type: type, length }]) => h('li', {}, `${file} (${type}, ${bytes(length)})`));
  const heading = panel(id ?? 'New document', [
    id === null ? h('label', {}, 'Id', name) : h('p', {}, h('span', { class: 'mono quiet' }, _rev), ' ', conflicts.length > 0 && pill(`${conflicts.length} ${conflicts.length === 1 ? 'conflict' : 'conflicts'}`, 'warn')),
    area,
    files.length > 0 && h('div', {}, h('h3', {}, 'Attachments'), h('ul', {}, files)),
    conflicts.length > 0 && h('div', {}, h('h3', {}, 'Conflicts'), h('p', { class: 'quiet' }, 'Other revisions of this document, which were written elsewhere at the same time. The one above wins.'),
      h('ul', {}, conflicts.map(conflict))),
    h('div', { class: 'row' }, button('Save', save, { class: 'main' }), id !== null && button('Delete', remove, { class: 'bad' })),
  ]);
  fill(place, heading);
  const title = heading.querySelector('h2');
  title.setAttribute('tabindex', '-1');
  title.focus();
}
