// The group of the server, its replicas and its leader, with their lag.

import { isError, metrics, redis } from '../api.js';
import { BINARY_STEPS, chart } from '../chart.js';
import { facts, fill, h, head, none, panel, pill, table } from '../dom.js';
import { bytes, number, seconds } from '../format.js';
import { info, pairs } from '../info.js';
import { parse } from '../metrics.js';
import { poll } from '../poll.js';
import { explained, isRefusal } from '../rights.js';

const PERIOD_MS = 2000;
const LINES_MAX = 3;

export async function show({ place, signal, failed }) {
  const [group, replication] = [h('div', {}), h('div', {})];
  const lag = h('div', {});
  fill(place, head('Group and replicas'), group, replication, lag);
  let drawn = null;
  signal.addEventListener('abort', () => drawn?.plot.end());
  await poll(async () => {
    const [[said, about, members], text] = await Promise.all([
      redis([['INFO', 'replication'], ['GROUP', 'INFO'], ['GROUP', 'MEMBERS']]), metrics()]);
    if (signal.aborted) return;
    showGroup(group, about, members);
    if (isError(said)) fill(replication, panel('Replication', none(explained(said.error))));
    else showReplication(replication, info(said));
    const now = parse(text);
    const found = lags(now);
    const names = found.map(({ name }) => name).slice(0, LINES_MAX);
    if (names.length > 0 && drawn?.names !== names.join()) {
      drawn?.plot.end();
      drawn = { names: names.join(), plot: chart('Lag in bytes', names, bytes, 64 << 10, BINARY_STEPS) };
      fill(lag, panel('Lag', drawn.plot.element));
    }
    if (names.length > 0) drawn.plot.add(now.at, found.slice(0, LINES_MAX).map((row) => row.value));
  }, PERIOD_MS, signal, failed);
}

/* How far each replica, or this one, is behind. */
function lags(now) {
  const replicas = now.rows('sheaf_replication_replica_lag_bytes');
  const own = now.rows('sheaf_replication_lag_bytes').map(({ value }) => ({ name: 'this server', value }));
  return [...replicas.map(({ labels, value }) => ({ name: labels.replica, value })), ...own];
}

function showGroup(element, about, members) {
  if (isError(about) && isRefusal(about.error)) {
    fill(element, panel('Group', none(explained(about.error))));
    return;
  }
  if (isError(about)) {
    fill(element, panel('Group', none('This server belongs to no group: nobody takes over if it fails. Start members with --group and --join.')));
    return;
  }
  const columns = [
    { title: 'Address', cell: (member) => [member.get('address'), ' ', member.get('self') === 1 && pill('this server')] },
    { title: 'Role', cell: (member) => pill(member.get('role'), member.get('role') === 'leader' ? 'good' : '') },
    { title: 'Kind', cell: (member) => member.get('kind') },
    { title: 'Lag', number: true, cell: (member) => bytes(member.get('lag-bytes') ?? NaN) },
    { title: 'Durable up to', number: true, cell: (member) => number(member.get('durable') ?? NaN) },
    { title: 'Heard', number: true, cell: (member) => (member.get('heard-ms') === null ? '–' : `${seconds(member.get('heard-ms') / 1000)} ago`) },
    { title: 'Console', cell: (member) => h('a', { href: `http://${host(member.get('address'))}:${member.get('http-port')}/` }, 'open') },
  ];
  const told = facts([['Leader', about.get('leader-address') ?? 'not known'], ['Term', about.get('term')], ['State', about.get('state')], ['Voters', about.get('voters')]]);
  fill(element, panel(`Group ${about.get('name')}`, h('div', { class: 'stack' }, told, table('Members', columns, members))));
}

const host = (address) => address.slice(0, address.lastIndexOf(':'));

function showReplication(element, known) {
  const replicas = Object.entries(known).filter(([name]) => /^slave\d+$/.test(name)).map(([, text]) => pairs(text));
  const isReplica = known.role === 'slave';
  const rows = isReplica
    ? facts([
      ['Leader', `${known.master_host}:${known.master_port}`],
      ['Connection', pill(known.master_link_status, known.master_link_status === 'up' ? 'good' : 'bad')],
      ['Applied up to', number(known.slave_repl_offset)],
      ['Epoch', known.replication_epoch]])
    : h('div', { class: 'stack' }, facts([['Role', 'leader'], ['Epoch', known.replication_epoch], ['Log position', number(known.master_repl_offset)]]),
      table('Replicas', [
        { title: 'Address', cell: ({ ip, port }) => `${ip}:${port}` },
        { title: 'State', cell: ({ state }) => pill(state, state === 'online' ? 'good' : 'warn') },
        { title: 'Acknowledged up to', number: true, cell: ({ offset }) => number(offset) },
        { title: 'Behind', number: true, cell: ({ offset }) => bytes(Math.max(0, known.master_repl_offset - offset)) },
        { title: 'Last heard', number: true, cell: ({ lag }) => `${lag ?? '–'} s ago` },
      ], replicas, { empty: 'No replica is connected.' }));
  fill(element, panel('Replication', rows));
}
