// The largest uses of memory, and the remedies.

import { command, isError, redis } from '../api.js';
import { button, fill, h, head, none, panel, table, tell } from '../dom.js';
import { bytes, number } from '../format.js';
import { explained } from '../rights.js';

export async function show({ place, signal }) {
  const content = h('div', { class: 'stack' });
  const refresh = async () => {
    const [doctor, stats] = await redis([['MEMORY', 'DOCTOR'], ['MEMORY', 'STATS']]);
    if (signal.aborted) return;
    fill(content, panel('Doctor', h('pre', { class: 'text' }, isError(doctor) ? explained(doctor.error) : doctor.trim())), panel('By purpose', purposes(stats)));
  };
  const purge = async () => {
    await command(['MEMORY', 'PURGE']);
    tell('Free memory is given back to the operating system.');
    await refresh();
  };
  fill(place, head('Memory', button('Give free memory back', purge), button('Refresh', refresh)), content);
  await refresh();
}

function purposes(stats) {
  if (isError(stats)) return none(explained(stats.error));
  const rows = [...stats].filter(([, value]) => !(value instanceof Map));
  const isRatio = (name) => /percentage|fragmentation$|ratio|count|keys/.test(name);
  return table('As MEMORY STATS', [
    { title: 'What', cell: ([name]) => String(name) },
    { title: 'How much', number: true, cell: ([name, value]) => (isRatio(name) ? (Number.isInteger(value) ? number(value) : String(value)) : bytes(value)) },
  ], rows);
}
