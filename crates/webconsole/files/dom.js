// Elements are made from texts, never from markup: what users store cannot become a part of the page.

/* An element. `properties` are attributes; those named `on...` are listeners; null and false are left out.
   Children are elements, texts, numbers, and arrays of these; null and false are left out. */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'value' || key === 'checked') element[key] = value;
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  add(element, children);
  return element;
}

function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/* Replaces the content of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
  return parent;
}

export const byId = (id) => document.getElementById(id);

/* A panel with a heading, and buttons beside it. */
export function panel(title, content, actions = []) {
  return h('section', { class: 'panel' },
    h('div', { class: 'title' }, h('h2', {}, title), actions), content);
}

/* The heading of a view, and buttons beside it. */
export const head = (title, ...actions) => h('div', { class: 'head' }, h('h1', {}, title), actions);

export const pill = (text, kind = '') => h('span', { class: `pill ${kind}` }, text);

export const none = (text) => h('p', { class: 'none' }, text);

/* A list of names with their values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false);
  return h('dl', { class: 'facts' }, shown.map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

/* Large numbers, given as [name, value, note]. */
export function figures(rows) {
  return h('dl', { class: 'figures' }, rows.map(([name, value, note]) => h('div', { class: 'figure' },
    h('dt', {}, name), h('dd', {}, value, note && h('div', { class: 'note' }, note)))));
}

/* A table. Columns: { title, cell(row), number, actions }; the first is the heading of its row. */
export function table(caption, columns, rows, { empty = 'None.', chosen = () => false } = {}) {
  if (rows.length === 0) return none(empty);
  const kind = ({ number, actions }) => (number ? 'number' : actions ? 'actions' : null);
  const cell = (row) => (column, index) => h(index === 0 ? 'th' : 'td',
    { class: kind(column), scope: index === 0 ? 'row' : null }, column.cell(row));
  const title = (column) => (column.title
    ? h('th', { scope: 'col', class: kind(column) }, column.title)
    : h('td', {}, ''));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {},
      h('caption', {}, caption),
      h('thead', {}, h('tr', {}, columns.map(title))),
      h('tbody', {}, rows.map((row) => h('tr', { class: chosen(row) ? 'chosen' : null }, columns.map(cell(row)))))));
}

/* A table of the first `count` rows, with a button for all of them where there are more. `isOpen` says that all
   are shown, and `opened` that the user wants them. */
export function shortTable(caption, columns, rows, { count, isOpen, opened, ...options }) {
  if (rows.length <= count) return table(caption, columns, rows, options);
  const place = h('div', {});
  const draw = (all) => {
    const more = button(all ? `Show ${count}` : `Show all ${rows.length}`, () => {
      opened(!all);
      draw(!all);
      place.querySelector('button').focus();
    }, { class: 'small', 'aria-expanded': String(all) });
    fill(place, table(caption, columns, all ? rows : rows.slice(0, count), options), more);
  };
  draw(isOpen);
  return place;
}

/* A button. The listener may be async; if it fails, the user is told. */
export function button(text, listener, properties = {}) {
  const element = h('button', { type: 'button', ...properties }, text);
  element.addEventListener('click', async () => {
    element.disabled = true;
    try {
      await listener();
    } catch (error) {
      tell(error.message, 'bad');
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

const TELL_MS = 8000;

/* A short message in a corner, which screen readers read out. */
export function tell(text, kind = '') {
  const notice = h('div', { class: `notice ${kind}` }, h('span', {}, text));
  notice.append(h('button', { type: 'button', 'aria-label': 'Dismiss', onclick: () => notice.remove() }, '✕'));
  byId('notices').append(notice);
  setTimeout(() => notice.remove(), TELL_MS);
}
