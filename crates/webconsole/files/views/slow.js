// Slow commands, hot keys, and the time that each command takes.

import { command, isError, redis } from '../api.js';
import { escaped, isBytes, shown, toAddress } from '../bytes.js';
import { button, fill, h, head, none, panel, shortTable } from '../dom.js';
import { number, percent, seconds, time } from '../format.js';
import { info, pairs } from '../info.js';
import { explained } from '../rights.js';

/* Rows of each list before the user asks for all: the slow log may be longer than several screens. */
const SHOWN = 10;

export async function show({ place, signal }) {
  const content = h('div', { class: 'stack' });
  // Which lists the user has opened: they stay open when they are read again.
  const open = {};
  const short = (name) => ({ count: SHOWN, isOpen: open[name] === true, opened: (isOpen) => { open[name] = isOpen; } });
  const refresh = async () => {
    const [slow, hot, stats, threshold] = await redis([
      ['SLOWLOG', 'GET', 128], ['HOTKEYS', 'COUNT', 20], ['INFO', 'commandstats'], ['CONFIG', 'GET', 'slowlog-log-slower-than']]);
    if (signal.aborted) return;
    fill(content, panel('Slow log', slowLog(slow, threshold, short('slow')), [button('Clear', async () => {
        await command(['SLOWLOG', 'RESET']);
        await refresh();
      })]), h('div', { class: 'columns' }, panel('Hot keys', hotKeys(hot, short('hot'))), panel('Commands by time', byCommand(stats, short('commands')))));
  };
  fill(place, head('Slow and hot', button('Refresh', refresh)), content);
  await refresh();
}

const words = (args) => args.map((word) => (isBytes(word) ? escaped(word) : String(word))).join(' ');

function slowLog(entries, threshold, short) {
  if (isError(entries)) return none(explained(entries.error));
  const us = threshold instanceof Map ? threshold.get('slowlog-log-slower-than') : NaN;
  return shortTable(`Commands that took longer than ${seconds(us / 1e6)}`, [
    { title: 'When', cell: ([, at]) => h('span', { class: 'words' }, time(at)) },
    { title: 'Took', number: true, cell: ([, , took]) => seconds(took / 1e6) },
    { title: 'Command', cell: ([, , , args]) => shown(words(args)) },
    { title: 'Client', cell: ([, , , , peer, name]) => h('span', { class: 'anywhere' }, `${label(peer)}${label(name) === '' ? '' : ` (${label(name)})`}`) },
  ], entries, { ...short, empty: `No command took longer than ${seconds(us / 1e6)}.` });
}

const label = (value) => (value === undefined || value === null ? '' : isBytes(value) ? escaped(value) : value);

function hotKeys(keys, short) {
  if (isError(keys)) return none(explained(keys.error));
  return shortTable('Keys used most, by samples', [
    { title: 'Key', cell: (key) => h('a', { href: `#/keys?db=${key.get('db')}&key=${encodeURIComponent(toAddress(key.get('key')))}` }, shown(key.get('key'))) },
    { title: 'Type', cell: (key) => key.get('type') },
    { title: 'Accesses', number: true, cell: (key) => `${number(key.get('accesses-per-second'))}/s` },
    { title: 'Share', number: true, cell: (key) => percent(Number(key.get('share'))) },
  ], keys, { ...short, empty: 'No key was used often lately.' });
}

function byCommand(stats, short) {
  if (isError(stats)) return none(explained(stats.error));
  const rows = Object.entries(info(stats)).filter(([name]) => name.startsWith('cmdstat_')).map(([name, text]) => ({ name: name.slice('cmdstat_'.length).replace('|', ' '), ...pairs(text) }));
  rows.sort((a, b) => Number(b.usec) - Number(a.usec));
  return shortTable('Since the start, or CONFIG RESETSTAT', [
    { title: 'Command', cell: ({ name }) => name },
    { title: 'Calls', number: true, cell: ({ calls }) => number(calls) },
    { title: 'Total', number: true, cell: ({ usec }) => seconds(usec / 1e6) },
    { title: 'Each', number: true, cell: ({ usec_per_call: us }) => seconds(us / 1e6) },
    { title: 'Failed', number: true, cell: ({ failed_calls: failed, rejected_calls: rejected }) => number(Number(failed ?? 0) + Number(rejected ?? 0)) },
  ], rows, { ...short, empty: 'No command yet.' });
}
