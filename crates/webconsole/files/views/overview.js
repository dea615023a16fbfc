// Health, and throughput and latency as they are now.

import { LoginNeeded, NoAnswer, contact, isError, metrics, redis, up } from '../api.js';
import { chart } from '../chart.js';
import { facts, figures, fill, h, head, none, panel } from '../dom.js';
import { bytes, clock, number, percent, rate as perSecond, seconds, time } from '../format.js';
import { info } from '../info.js';
import { parse, quantile, rate, value } from '../metrics.js';
import { poll } from '../poll.js';
import { explained } from '../rights.js';

const PERIOD_MS = 2000;

export async function show({ place, signal, failed }) {
  const verdict = h('section', { class: 'panel verdict', 'aria-label': 'Verdict' });
  const numbers = h('div', {});
  const details = h('div', { class: 'columns' });
  const missing = h('div', {});
  const throughput = chart('Commands per second', ['commands', 'records of the log'], perSecond, 10);
  const latency = chart('Time to make a batch durable', ['median', '99 %'], seconds, 0.001);
  signal.addEventListener('abort', () => [throughput, latency].forEach((drawn) => drawn.end()));
  fill(place, head('Overview'), verdict, numbers,
    h('div', { class: 'columns' }, panel('Throughput', throughput.element), panel('Time to make a batch durable', latency.element)),
    details, missing);
  let before = null;
  // At once, whichever request it was that had no reply.
  contact.addEventListener('change', () => { if (contact.isLost) showUnknown(verdict, new NoAnswer()); }, { signal });
  await poll(async () => {
    try {
      await measure();
    } catch (error) {
      if (!signal.aborted && !(error instanceof LoginNeeded)) showUnknown(verdict, error);
      throw error;
    }
  }, PERIOD_MS, signal, failed);

  async function measure() {
    const [state, text, [said]] = await Promise.all([up(), metrics(), redis([['INFO']])]);
    if (signal.aborted) return;
    const now = parse(text);
    // Who may not run INFO sees what the verdict and the metrics have.
    const known = isError(said) ? {} : info(said);
    fill(missing, isError(said) && panel('Not shown', none(explained(said.error))));
    showVerdict(verdict, state, known);
    const answered = (labels) => labels.outcome !== 'rejected';
    const commands = rate(before, now, 'sheaf_commands_total', answered);
    fill(numbers, figures([
      ['Commands', perSecond(commands), before === null ? 'measuring' : null],
      ['Keys', number(value(now, 'sheaf_keys'))],
      ['Databases of documents', number(value(now, 'sheaf_document_databases'))],
      ['Clients', number(value(now, 'sheaf_clients')), known.maxclients && `of ${number(known.maxclients)}`],
      ['Data in memory', bytes(value(now, 'sheaf_memory_data_bytes')), known.maxmemory && (known.maxmemory === '0' ? 'no limit' : `of ${bytes(known.maxmemory)}`)],
      ['Process memory', bytes(value(now, 'sheaf_memory_resident_bytes'))],
      ['Waiting for the disk', bytes(value(now, 'sheaf_log_parked_bytes'))],
      ['Uptime', seconds(value(now, 'sheaf_uptime_seconds'))],
    ]));
    throughput.add(now.at, [commands, rate(before, now, 'sheaf_log_records_total')]);
    latency.add(now.at, ['0.5', '0.99'].map((share) => quantile(before, now, 'sheaf_log_flush_seconds', Number(share))));
    showDetails(details, now, known);
    before = now;
  }
}

/* The verdict while the server cannot be asked: an earlier one must not be left standing. */
function showUnknown(element, error) {
  element.className = 'panel verdict bad';
  const told = error instanceof NoAnswer
    ? ['The server does not answer.', `Its last answer came at ${clock(contact.lastAt)}. What is shown below is from before.`]
    : ['The state of the server is not known.', `${error.message} What is shown below may be from before.`];
  fill(element, h('strong', {}, told[0]), h('span', {}, told[1]));
}

function showVerdict(element, state, known) {
  const kind = state.status === 'ok' ? 'good' : state.status === 'loading' ? 'warn' : 'bad';
  element.className = `panel verdict ${kind}`;
  const words = {
    ok: { slave: 'Healthy: this server follows its leader.', master: 'Healthy: writes are taken.' }[known.role] ?? 'Healthy.',
    loading: `Loading: ${state.percent} %${state.eta_seconds === null ? '' : `, about ${seconds(state.eta_seconds)} left`}`,
  };
  fill(element, h('strong', {}, words[state.status] ?? `Not healthy: ${state.error ?? state.status ?? `HTTP ${state.code}`}`),
    state.reason && h('span', {}, state.reason),
    known.role && h('span', { class: 'quiet' }, `durability ${known.log_durability}, epoch ${known.log_epoch}`));
}

function showDetails(element, now, known) {
  const log = facts([
    ['Position', number(value(now, 'sheaf_log_appended_lsn'))],
    ['Durable', number(value(now, 'sheaf_log_durable_lsn'))],
    ['Records per sync', known.log_records_per_sync],
    ['Written', bytes(value(now, 'sheaf_log_bytes_total'))],
    ['Syncs', number(value(now, 'sheaf_log_syncs_total'))],
    ['Spans of traces dropped', number(value(now, 'sheaf_trace_spans_dropped_total'))],
  ]);
  const [hits, misses] = ['sheaf_keyspace_hits_total', 'sheaf_keyspace_misses_total'].map((name) => value(now, name));
  const keys = facts([
    ['Found', percent(hits / (hits + misses))],
    ['Expired', number(value(now, 'sheaf_expired_keys_total'))],
    ['Evicted', number(value(now, 'sheaf_evicted_keys_total'))],
    ['Connections refused', number(value(now, 'sheaf_connections_rejected_total'))],
    ['Slow clients disconnected', number(value(now, 'sheaf_slow_clients_disconnected_total'))],
  ]);
  const disk = facts([
    ['Last snapshot', known.snapshot_bytes && (known.snapshot_bytes === '0' ? 'none yet' : time(known.rdb_last_save_time))],
    ['Unsaved documents', bytes(value(now, 'sheaf_document_unsaved_bytes'))],
    ['Damaged files', number(value(now, 'sheaf_scrub_damaged_files_total'))],
    ['Cannot write because', known.read_only_reason],
  ]);
  fill(element, panel('Log', log), panel('Keys and clients', keys), panel('Disk', disk));
}
