// Snapshots, the scrubber, and how to make a backup.

import { command, isError, redis, session } from '../api.js';
import { button, facts, fill, h, head, none, panel, pill, tell } from '../dom.js';
import { bytes, number, seconds, time } from '../format.js';
import { info } from '../info.js';
import { poll } from '../poll.js';
import { explained } from '../rights.js';

const PERIOD_MS = 3000;

export async function show({ place, signal, failed }) {
  const content = h('div', { class: 'stack' });
  const begin = button('Take a snapshot', async () => {
    tell(await command(['BGSAVE']));
    await refresh();
  }, { class: 'main' });
  const refresh = async () => {
    const [said] = await redis([['INFO']]);
    if (signal.aborted) return;
    if (isError(said)) fill(content, panel('Snapshots', none(explained(said.error))));
    else fill(content, h('div', { class: 'columns' }, snapshots(info(said)), scrubber(info(said))));
  };
  fill(place, head('Snapshots', begin), content, panel('Backups', backups((await session()).userCtx.name)));
  await poll(refresh, PERIOD_MS, signal, failed);
}

function snapshots(known) {
  const isRunning = known.rdb_bgsave_in_progress === '1';
  const isGood = known.rdb_last_bgsave_status === 'ok';
  // INFO says ok before the first snapshot, too.
  const isDone = Number(known.snapshot_bytes) > 0 || !isGood;
  return panel('Snapshots', facts([
    ['Now', isRunning ? pill('being written', 'warn') : 'none is being written'],
    ['Last one', Number(known.snapshot_bytes) === 0 ? 'none yet: the log has everything' : time(known.rdb_last_save_time)],
    ['Outcome', isDone && pill(isGood ? 'ok' : known.rdb_last_bgsave_status, isGood ? 'good' : 'bad')],
    ['It took', duration(Number(known.rdb_last_bgsave_time_sec))],
    ['Size', Number(known.snapshot_bytes) > 0 && bytes(known.snapshot_bytes)],
    ['Taken since the start', number(known.rdb_saves)],
    ['Failed since the start', number(known.snapshot_failures)],
    ['Changes since', number(known.rdb_changes_since_last_save)],
  ]));
}

/* INFO has whole seconds, and -1 before the first one. */
const duration = (tookS) => (tookS < 0 ? null : tookS < 1 ? 'less than 1 s' : seconds(tookS));

const scrubber = (known) => panel('Scrubber', facts([
  ['Now', known.scrub_in_progress === '1' ? pill('reading', 'warn') : 'waiting'],
  ['Last round', time(known.scrub_last_round_time)],
  ['Read', bytes(known.scrub_bytes)],
  ['Damaged files', pill(number(known.scrub_damaged_files), known.scrub_damaged_files === '0' ? 'good' : 'bad')],
]));

/* What nobody but the user knows is written in capitals, and explained. `user` is null if there is no
   password. */
function backups(user) {
  const words = ['sheaf', 'backup', 'DIRECTORY', '--from', location.origin];
  if (user !== null && user !== 'default') words.push('--user', quoted(user));
  if (user !== null) words.push('--password-file', 'FILE');
  const isLocal = /^(localhost|127\..*|\[::1\])$/.test(location.hostname);
  return [
    h('p', {}, 'Snapshots stay on the machine of the server. A backup is a verified copy elsewhere, with the log up to now. ', isLocal
      ? `Only this machine reaches the server as ${location.hostname}, so run this here, with a directory on another disk; on another machine, put an address that it reaches in place of ${location.origin}:`
      : 'Run this on the machine that keeps the backup:'),
    h('div', { class: 'stack' },
      h('pre', { class: 'text terminal short', tabindex: '0' }, words.join(' ')),
      facts([
        ['DIRECTORY', 'where the backup is kept: a new directory, or an earlier backup of this server'],
        ['FILE', user === null ? null : `a file whose first line is the password of ${user}`],
      ])),
    location.protocol === 'https:' && h('p', { class: 'quiet' }, 'If the system does not trust the authority of the certificate, add --cacert with its file.'),
    h('p', { class: 'quiet' }, 'Run again, it copies only what is new. “sheaf restore” goes back to any moment of it.'),
  ];
}

/* A word for a shell. */
const quoted = (word) => (/^[\w.@-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
