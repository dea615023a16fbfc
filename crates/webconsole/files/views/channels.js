// Channels with subscribers, and the messages of a durable channel as they come.

import { command, follow, isError, redis } from '../api.js';
import { shown, valueField } from '../bytes.js';
import { button, fill, h, head, none, panel, table, tell } from '../dom.js';
import { number } from '../format.js';
import { explained } from '../rights.js';

const WAIT_MS = 20_000;
/* The maximum number of messages on the page; older ones are removed. */
const SHOWN_MAX = 500;
const RETRY_MS = 2000;

export async function show({ place, signal }) {
  const subscribed = h('div', {});
  fill(place, head('Channels', button('Refresh', () => showSubscribed(subscribed))), tail(signal), h('div', { class: 'columns' }, subscribed, publishing()));
  await showSubscribed(subscribed);
}

function tail(signal) {
  const channel = valueField('Channel');
  const from = h('select', {}, h('option', { value: '-' }, 'the oldest message'), h('option', { value: '$' }, 'now'), h('option', { value: '' }, 'a position'));
  const position = h('input', { class: 'mono', placeholder: 'epoch:lsn:reign', 'aria-label': 'Position', hidden: true });
  const said = h('div', { class: 'terminal', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': 'Messages' }, h('span', { class: 'quiet' }, 'Messages appear here.'));
  const state = h('span', { class: 'quiet', role: 'status' }, 'Not following.');
  const begin = h('button', { class: 'main' }, 'Follow');
  const end = h('button', { type: 'button', disabled: true }, 'Stop');
  const patterns = h('p', { class: 'quiet' });
  command(['CONFIG', 'GET', 'durable-channels']).then((found) => {
    const globs = found.get('durable-channels');
    patterns.textContent = globs === '' ? 'No channel is durable: set durable-channels to globs, such as orders.*' : `Durable channels: ${globs}`;
  }, () => {});
  let current = null;
  from.addEventListener('change', () => { position.hidden = from.value !== ''; });
  const stop = () => {
    current?.abort();
    current = null;
    [begin.disabled, end.disabled] = [false, true];
  };
  end.addEventListener('click', () => {
    stop();
    state.textContent = 'Stopped.';
  });
  signal.addEventListener('abort', stop);
  const form = h('form', { class: 'form' }, channel.element, h('div', { class: 'row' }, h('label', {}, 'From', from), position, begin, end, state));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    stop();
    const own = new AbortController();
    current = own;
    [begin.disabled, end.disabled] = [true, false];
    fill(said);
    state.textContent = 'Following …';
    try {
      await followChannel(channel.read(), from.value || position.value, own.signal, said, state);
    } catch (error) {
      if (!own.signal.aborted) {
        state.textContent = error.message;
        stop();
      }
    }
  });
  return panel('Durable channel', [form, patterns, said]);
}

async function followChannel(channel, from, signal, said, state) {
  let count = 0;
  while (!signal.aborted) {
    let found;
    try {
      found = await follow(channel, from, WAIT_MS);
    } catch (error) {
      if (error.status !== undefined && error.status < 500) throw error;
      state.textContent = `${error.message} Trying again …`;
      await new Promise((again) => { setTimeout(again, RETRY_MS); });
      continue;
    }
    if (signal.aborted) return;
    if (found.error) throw new Error(explained(found.error));
    for (const { position, message } of found.messages) {
      said.append(h('div', {}, h('span', { class: 'quiet mono' }, `${position} `), shown(message)));
      count += 1;
    }
    while (said.childElementCount > SHOWN_MAX) said.firstChild.remove();
    if (found.messages.length > 0) said.scrollTop = said.scrollHeight;
    if (found.lost !== null) throw new Error(`The next messages are no longer kept; the oldest is ${found.lost}.`);
    from = found.next;
    state.textContent = `Following: ${number(count)} messages.`;
  }
}

function publishing() {
  const [channel, message] = [valueField('Channel'), valueField('Message', '', { rows: 3 })];
  const publish = button('Publish', async () => {
    const count = await command(['PUBLISH', channel.read(), message.read()]);
    tell(`Published to ${number(count)} subscribers.`);
  });
  return panel('Publish', h('div', { class: 'form' }, channel.element, message.element, h('div', {}, publish)));
}

async function showSubscribed(place) {
  const [channels, patterns] = await redis([['PUBSUB', 'CHANNELS'], ['PUBSUB', 'NUMPAT']]);
  if (isError(channels)) {
    fill(place, panel('Subscribers', none(explained(channels.error))));
    return;
  }
  const counts = channels.length === 0 ? [] : await command(['PUBSUB', 'NUMSUB', ...channels]);
  const pairs = counts instanceof Map ? [...counts] : counts.flatMap((name, index) => (index % 2 === 0 ? [[name, counts[index + 1]]] : []));
  fill(place, panel('Subscribers', [table(`Channels with subscribers; ${number(patterns)} patterns`, [
    { title: 'Channel', cell: ([name]) => shown(name) },
    { title: 'Subscribers', number: true, cell: ([, count]) => number(count) },
  ], pairs, { empty: 'Nobody subscribes to a channel by name.' })]));
}
