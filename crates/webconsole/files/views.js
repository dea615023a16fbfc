// The views, in the order in which they are listed, with the rights that each needs beside @admin: `needs` to
// show all that it can, `changes` to change it.

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

/* @connection is for databases other than 0, and for reading without touching. */
const READS = '~* +@read +@connection';
const WRITES = '+@write +@scripting';

export const VIEWS = [
  { name: 'overview', title: 'Overview', needs: '+info', show: overview.show },
  { name: 'replication', title: 'Group and replicas', needs: '+info', show: replication.show },
  { name: 'keys', title: 'Keys', needs: READS, changes: WRITES, show: keys.show },
  { name: 'streams', title: 'Streams and queues', needs: READS, changes: WRITES, show: streams.show },
  { name: 'channels', title: 'Channels', needs: '&* +@pubsub', show: channels.show },
  { name: 'databases', title: 'Documents', show: databases.show },
  { name: 'slow', title: 'Slow and hot', needs: '+info', show: slow.show },
  { name: 'clients', title: 'Clients', show: clients.show },
  { name: 'memory', title: 'Memory', needs: '+memory', show: memory.show },
  { name: 'snapshots', title: 'Snapshots', needs: '+info', show: snapshots.show },
  { name: 'terminal', title: 'Commands', show: terminal.show },
];
