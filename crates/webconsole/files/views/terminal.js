// A line for commands, as in redis-cli.

import { isError, redis } from '../api.js';
import { isBytes, escaped } from '../bytes.js';
import { confirm } from '../dialog.js';
import { fill, h, head, panel, tell } from '../dom.js';
import { databaseField } from '../keyspace.js';

export async function show({ place, parameters }) {
  const said = h('div', { class: 'terminal', tabindex: '0', role: 'log', 'aria-label': 'Replies' });
  const line = h('input', { class: 'mono', 'aria-label': 'Command', spellcheck: 'false', autocomplete: 'off', placeholder: 'GET key' });
  const database = databaseField(parameters.get('db') ?? '0');
  const history = [];
  let at = 0;
  const form = h('form', { class: 'row' }, database.element, h('label', { class: 'grow' }, 'Command', line), h('button', { class: 'main' }, 'Run'));
  line.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return;
    event.preventDefault();
    at = Math.min(history.length, Math.max(0, at + (event.key === 'ArrowUp' ? -1 : 1)));
    line.value = history[at] ?? '';
  });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    let words;
    try {
      words = split(line.value);
    } catch (error) {
      tell(error.message, 'bad');
      return;
    }
    if (words.length === 0) return;
    const loss = lossOf(words);
    if (loss !== null && !await confirm(`Run ${words[0].toUpperCase()}?`, `${loss} This cannot be undone.`, 'Run', async () => {})) {
      line.focus();
      return;
    }
    history.push(line.value);
    at = history.length;
    said.append(h('div', { class: 'value said' }, `> ${line.value}`));
    line.value = '';
    try {
      const [reply] = await redis([words], database.value());
      said.append(h('div', { class: 'value' }, written(reply)));
    } catch (error) {
      said.append(h('div', { class: 'value wrong' }, error.message));
    }
    said.scrollTop = said.scrollHeight;
  });
  fill(place, head('Commands'), panel('Commands of the Redis protocol', [said, form,
    h('p', { class: 'quiet' }, 'Words in quotes may have spaces; in double quotes, \\n, \\r, \\t, \\" and \\xNN. Commands that wait, subscribe or keep the state of a connection are refused.')]));
  line.focus();
}

/* What is lost by commands that need a confirmation, by their first word or first two words. */
const LOSSES = {
  FLUSHALL: 'All keys of all databases, and all functions, are deleted.',
  FLUSHDB: 'All keys of the database are deleted.',
  SHUTDOWN: 'The server stops, and has to be started again on its machine.',
  DEL: 'The keys are deleted with their values.',
  UNLINK: 'The keys are deleted with their values.',
  'FUNCTION FLUSH': 'All libraries of functions are deleted.',
  'FUNCTION DELETE': 'The library is deleted with its functions.',
  'XGROUP DESTROY': 'The group is deleted, and what is pending in it is forgotten.',
  'XGROUP DELCONSUMER': 'The consumer is deleted, and what is pending for it is forgotten.',
  'ACL DELUSER': 'The users are deleted, and their connections are closed.',
  'GROUP REMOVE': 'The member is removed from the group, and does not come back by itself.',
};

/* What the command deletes or ends, or null if it needs no confirmation. */
function lossOf(words) {
  const [first, second] = words.map((word) => String(word).toUpperCase());
  return LOSSES[first] ?? LOSSES[`${first} ${second}`] ?? null;
}

/* Splits a line into words. A word that its \xNN escapes make invalid UTF-8 becomes { base64 }. */
export function split(line) {
  const words = [];
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))(?=\s|$)/gy;
  const rest = line.trimEnd();
  while (pattern.lastIndex < rest.length) {
    const match = pattern.exec(rest);
    if (match === null) throw new Error('The quotes of the command do not match.');
    const [, double, single, plain] = match;
    words.push(double !== undefined ? unescaped(double) : single !== undefined ? single.replaceAll("\\'", "'") : plain);
  }
  return words;
}

const ESCAPES = { n: '\n', r: '\r', t: '\t', b: '\b', a: '\x07' };

function unescaped(text) {
  const bytes = [];
  const utf8 = new TextEncoder();
  for (const [, hex, letter, other] of text.matchAll(/\\x([0-9a-f]{2})|\\(.)|([^\\])/gisu)) {
    if (hex !== undefined) bytes.push(parseInt(hex, 16));
    else bytes.push(...utf8.encode(letter !== undefined ? ESCAPES[letter] ?? letter : other));
  }
  const all = Uint8Array.from(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(all);
  } catch {
    return { base64: btoa(String.fromCharCode(...all)) };
  }
}

/* A reply as text, in a form like that of redis-cli. */
function written(reply, indent = '') {
  if (isError(reply)) return `(error) ${reply.error}`;
  if (reply === null) return '(nil)';
  if (isBytes(reply)) return `"${escaped(reply)}"`;
  if (typeof reply === 'string') return reply.includes('\n') ? reply : JSON.stringify(reply);
  if (typeof reply === 'number') return `(number) ${reply}`;
  if (typeof reply === 'boolean') return `(${reply})`;
  const rows = reply instanceof Map ? [...reply].map(([key, value]) => `${written(key)} => ${written(value, `${indent}   `)}`) : reply.map((value) => written(value, `${indent}   `));
  if (rows.length === 0) return '(empty)';
  return rows.map((row, index) => `${index === 0 ? '' : `\n${indent}`}${index + 1}) ${row}`).join('');
}
