// Values of keys: texts, and bytes that are not text ({ base64 }). Bytes are shown escaped; values are edited
// as text or Base64.

import { h } from './dom.js';

export const isBytes = (value) => value !== null && typeof value === 'object' && 'base64' in value;

/* The text of a value, for titles and confirmations. */
export const label = (value) => (isBytes(value) ? escaped(value) : String(value));

/* Bytes as text: printable ASCII stays as it is; a backslash and all other bytes become \xNN. */
export function escaped({ base64 }) {
  const bytes = atob(base64);
  return [...bytes].map((byte) => {
    const code = byte.charCodeAt(0);
    return code >= 0x20 && code < 0x7f && byte !== '\\' ? byte : `\\x${code.toString(16).padStart(2, '0')}`;
  }).join('');
}

const SHOWN_MAX = 4000;

/* An element that shows a value. */
export function shown(value, { short = true, clamp = short } = {}) {
  if (value === null || value === undefined) return h('span', { class: 'quiet' }, 'nil');
  const text = isBytes(value) ? escaped(value) : String(value);
  const cut = short && text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)} …` : text;
  if (text === '') return h('span', { class: 'quiet' }, '(empty)');
  return h('span', { class: `value${clamp ? ' short' : ''}${isBytes(value) ? ' bytes' : ''}`, title: isBytes(value) ? 'Bytes that are not UTF-8' : null }, cut);
}

/* A value in the address of a view. */
export const toAddress = (value) => (isBytes(value) ? `b:${value.base64}` : `t:${value}`);
export const fromAddress = (text) => (text.startsWith('b:') ? { base64: text.slice(2) } : text.slice(2));

/* Whether a value can be edited as text: fields for text would drop its carriage returns. */
const isEditable = (value) => !isBytes(value) && !String(value).includes('\r');

function base64Of(value) {
  if (isBytes(value)) return value.base64;
  return btoa(String.fromCharCode(...new TextEncoder().encode(value)));
}

/* A field for a value: { element, read(), area }. `read` throws if Base64 is chosen and the text is not
   Base64. */
export function valueField(name, value = '', { rows = 1 } = {}) {
  const area = h('textarea', { rows, spellcheck: 'false', autocomplete: 'off' });
  const format = h('select', { 'aria-label': `Format of ${name}` }, h('option', { value: 'text' }, 'Text'), h('option', { value: 'base64' }, 'Base64'));
  format.value = isEditable(value) ? 'text' : 'base64';
  area.value = isEditable(value) ? value : base64Of(value);
  // In a field of one line, Enter submits the form, as in any other field.
  if (rows === 1) {
    area.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      area.form?.requestSubmit();
    });
  }
  const read = () => {
    if (format.value === 'text') return area.value;
    try {
      return { base64: btoa(atob(area.value.replaceAll(/\s/g, ''))) };
    } catch {
      throw new Error(`${name} is not Base64.`);
    }
  };
  let before = format.value;
  format.addEventListener('change', () => {
    const wanted = format.value;
    format.value = before;
    const known = read();
    if (wanted === 'base64') area.value = base64Of(known);
    else {
      const bytes = Uint8Array.from(atob(known.base64), (byte) => byte.charCodeAt(0));
      try {
        const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
        if (!isEditable(text)) throw new Error();
        area.value = text;
      } catch {
        area.setCustomValidity('These bytes can be edited as Base64 only.');
        area.reportValidity();
        area.setCustomValidity('');
        return;
      }
    }
    before = wanted;
    format.value = wanted;
  });
  const element = h('div', { class: 'row' }, h('label', { class: 'grow' }, name, area), format);
  return { element, read, area };
}
