// Snapshots, the scrubber, and how to make a backup.

import { command } from '../api.js';
import { button, facts, fill, h, head, panel, pill, tell } from '../dom.js';
import { bytes, number, seconds, time } from '../format.js';
import { info } from '../info.js';
import { poll } from '../poll.js';

const PERIOD_MS = 3000;

export async function show({ place, signal, failed }) {
  const content = h('div', { class: 'stack' });
  const begin = button('Take a snapshot', async () => {
    tell(await command(['BGSAVE']));
    await refresh();
  }, { class: 'main' });
  const refresh = async () => {
    const known = info(await command(['INFO']));
    if (!signal.aborted) fill(content, h('div', { class: 'columns' }, snapshots(known), scrubber(known)));
  };
  fill(place, head('Snapshots', begin), content, panel('Backups', backups()));
  await poll(refresh, PERIOD_MS, signal, failed);
}

function snapshots(known) {
  const isRunning = known.rdb_bgsave_in_progress === '1';
  const isGood = known.rdb_last_bgsave_status === 'ok';
  return panel('Snapshots', facts([
    ['Now', isRunning ? pill('being written', 'warn') : 'none is being written'],
    ['Last one', Number(known.snapshot_bytes) === 0 ? 'none yet: the log has everything' : time(known.rdb_last_save_time)],
    ['Outcome', pill(isGood ? 'ok' : known.rdb_last_bgsave_status, isGood ? 'good' : 'bad')],
    ['It took', Number(known.rdb_last_bgsave_time_sec) < 0 ? null : seconds(Number(known.rdb_last_bgsave_time_sec))],
    ['Size', bytes(known.snapshot_bytes)],
    ['Taken since the start', number(known.rdb_saves)],
    ['Failed since the start', number(known.snapshot_failures)],
    ['Changes since', number(known.rdb_changes_since_last_save)],
  ]));
}

const scrubber = (known) => panel('Scrubber', facts([
  ['Now', known.scrub_in_progress === '1' ? pill('reading', 'warn') : 'waiting'],
  ['Last round', time(known.scrub_last_round_time)],
  ['Read', bytes(known.scrub_bytes)],
  ['Damaged files', pill(number(known.scrub_damaged_files), known.scrub_damaged_files === '0' ? 'good' : 'bad')],
]));

function backups() {
  return [
    h('p', {}, 'Snapshots stay on this machine. A backup is a verified copy elsewhere, with the log up to now; run this there:'),
    h('pre', { class: 'text terminal short', tabindex: '0' }, `sheaf backup /backups/${location.hostname} --from ${location.origin}`),
    h('p', { class: 'quiet' }, 'Run again, it copies only what is new. “sheaf restore” goes back to any moment of it.'),
  ];
}
