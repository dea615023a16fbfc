// The connections of the Redis protocol.

import { command } from '../api.js';
import { confirm } from '../dialog.js';
import { button, fill, h, head, panel, table } from '../dom.js';
import { bytes, number, seconds } from '../format.js';
import { clients } from '../info.js';

const SHOWN_MAX = 500;

export async function show({ place, signal }) {
  const content = h('div', {});
  const filter = h('input', { type: 'search', 'aria-label': 'Filter', placeholder: 'Filter by address, name, command' });
  let all = [];
  const draw = () => fill(content, panel('Clients', list(all, filter.value, refresh)));
  const refresh = async () => {
    const text = await command(['CLIENT', 'LIST']);
    if (signal.aborted) return;
    all = clients(text);
    draw();
  };
  filter.addEventListener('input', draw);
  fill(place, head('Clients', filter, button('Refresh', refresh)), content);
  await refresh();
}

function list(all, filter, refresh) {
  const found = all.filter((client) => [client.addr, client.name, client.cmd].some((text) => text?.includes(filter)));
  const more = found.length > SHOWN_MAX ? `, the first ${SHOWN_MAX} of them` : '';
  return table(`Connections: ${number(found.length)} of ${number(all.length)}${more}`, [
    { title: 'Address', cell: ({ addr }) => addr },
    { title: 'Name', cell: ({ name, 'lib-name': library }) => [name, library ? h('span', { class: 'quiet' }, ` ${library}`) : ''].filter(Boolean) },
    { title: 'Database', number: true, cell: ({ db }) => db },
    { title: 'Last command', cell: ({ cmd }) => cmd },
    { title: 'Age', number: true, cell: ({ age }) => seconds(Number(age)) },
    { title: 'Idle', number: true, cell: ({ idle }) => seconds(Number(idle)) },
    { title: 'Unsent', number: true, cell: ({ omem, obl }) => bytes(omem ?? obl ?? 0) },
    { title: '', actions: true, cell: (client) => button('Disconnect', () => disconnect(client, refresh), { class: 'small bad', 'aria-label': `Disconnect ${client.addr}` }) },
  ], found.slice(0, SHOWN_MAX), { empty: 'No client matches.' });
}

async function disconnect({ id, addr }, refresh) {
  await confirm('Disconnect this client?', `${addr} loses its connection at once; most clients connect again.`, 'Disconnect', async () => {
    await command(['CLIENT', 'KILL', 'ID', id]);
    await refresh();
  });
}
