// Slow commands, hot keys, and the time that each command takes.

import { command, isError, redis } from '../api.js';
import { escaped, isBytes, shown, toAddress } from '../bytes.js';
import { button, fill, h, head, none, panel, table } from '../dom.js';
import { number, percent, seconds, time } from '../format.js';
import { info, pairs } from '../info.js';
import { explained } from '../rights.js';

const COMMANDS_SHOWN = 25;

export async function show({ place, signal }) {
  const content = h('div', { class: 'stack' });
  const refresh = async () => {
    const [slow, hot, stats, threshold] = await redis([
      ['SLOWLOG', 'GET', 128], ['HOTKEYS', 'COUNT', 20], ['INFO', 'commandstats'], ['CONFIG', 'GET', 'slowlog-log-slower-than']]);
    if (signal.aborted) return;
    fill(content, panel('Slow log', slowLog(slow, threshold), [button('Clear', async () => {
        await command(['SLOWLOG', 'RESET']);
        await refresh();
      })]), h('div', { class: 'columns' }, panel('Hot keys', hotKeys(hot)), panel('Commands by time', byCommand(stats))));
  };
  fill(place, head('Slow and hot', button('Refresh', refresh)), content);
  await refresh();
}

const words = (args) => args.map((word) => (isBytes(word) ? escaped(word) : String(word))).join(' ');

function slowLog(entries, threshold) {
  if (isError(entries)) return none(explained(entries.error));
  const us = threshold instanceof Map ? threshold.get('slowlog-log-slower-than') : NaN;
  return table(`Commands that took longer than ${seconds(us / 1e6)}`, [
    { title: 'When', cell: ([, at]) => time(at) },
    { title: 'Took', number: true, cell: ([, , took]) => seconds(took / 1e6) },
    { title: 'Command', cell: ([, , , args]) => shown(words(args)) },
    { title: 'Client', cell: ([, , , , peer, name]) => `${label(peer)}${label(name) === '' ? '' : ` (${label(name)})`}` },
  ], entries, { empty: `No command took longer than ${seconds(us / 1e6)}.` });
}

const label = (value) => (value === undefined || value === null ? '' : isBytes(value) ? escaped(value) : value);

function hotKeys(keys) {
  if (isError(keys)) return none(explained(keys.error));
  return table('Keys used most, by samples', [
    { title: 'Key', cell: (key) => h('a', { href: `#/keys?db=${key.get('db')}&key=${encodeURIComponent(toAddress(key.get('key')))}` }, shown(key.get('key'))) },
    { title: 'Type', cell: (key) => key.get('type') },
    { title: 'Accesses', number: true, cell: (key) => `${number(key.get('accesses-per-second'))}/s` },
    { title: 'Share', number: true, cell: (key) => percent(Number(key.get('share'))) },
  ], keys, { empty: 'No key was used often lately.' });
}

function byCommand(stats) {
  if (isError(stats)) return none(explained(stats.error));
  const rows = Object.entries(info(stats)).filter(([name]) => name.startsWith('cmdstat_')).map(([name, text]) => ({ name: name.slice('cmdstat_'.length).replace('|', ' '), ...pairs(text) }));
  rows.sort((a, b) => Number(b.usec) - Number(a.usec));
  return table('Since the start, or CONFIG RESETSTAT', [
    { title: 'Command', cell: ({ name }) => name },
    { title: 'Calls', number: true, cell: ({ calls }) => number(calls) },
    { title: 'Total', number: true, cell: ({ usec }) => seconds(usec / 1e6) },
    { title: 'Each', number: true, cell: ({ usec_per_call: us }) => seconds(us / 1e6) },
    { title: 'Failed', number: true, cell: ({ failed_calls: failed, rejected_calls: rejected }) => number(Number(failed ?? 0) + Number(rejected ?? 0)) },
  ], rows.slice(0, COMMANDS_SHOWN), { empty: 'No command yet.' });
}
