// The views, in the order in which they are listed.

import * as channels from './views/channels.js';
import * as clients from './views/clients.js';
import * as databases from './views/databases.js';
import * as keys from './views/keys.js';
import * as memory from './views/memory.js';
import * as overview from './views/overview.js';
import * as replication from './views/replication.js';
import * as slow from './views/slow.js';
import * as snapshots from './views/snapshots.js';
import * as streams from './views/streams.js';
import * as terminal from './views/terminal.js';

export const VIEWS = [
  { name: 'overview', title: 'Overview', show: overview.show },
  { name: 'replication', title: 'Group and replicas', show: replication.show },
  { name: 'keys', title: 'Keys', show: keys.show },
  { name: 'streams', title: 'Streams and queues', show: streams.show },
  { name: 'channels', title: 'Channels', show: channels.show },
  { name: 'databases', title: 'Documents', show: databases.show },
  { name: 'slow', title: 'Slow and hot', show: slow.show },
  { name: 'clients', title: 'Clients', show: clients.show },
  { name: 'memory', title: 'Memory', show: memory.show },
  { name: 'snapshots', title: 'Snapshots', show: snapshots.show },
  { name: 'terminal', title: 'Commands', show: terminal.show },
];
