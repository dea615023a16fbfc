//! What all workers share: the topics that somebody has subscribed to, the patterns, and the mailboxes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wire::glob;

use crate::{index::Index, local::Local, mailbox::Inbox, patterns::Patterns, topic::Name, waiting::Waiting};

/// Workers at most.
pub const WORKERS_MAX: usize = 128;

/// What channels that tell of keys begin with.
const KEY_CHANNELS: &[u8] = b"__key";

/// What is subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name.
    Channel,
    /// All channels that a pattern matches.
    Pattern,
    /// A shard channel, which has a name space of its own.
    Shard,
    /// A durable channel by its name, whose messages come from the log: nothing is published to it here.
    Log,
}

impl Kind {
    /// All kinds, in order of their numbers.
    pub const ALL: [Kind; 4] = [Kind::Channel, Kind::Pattern, Kind::Shard, Kind::Log];
}

/// See the module documentation.
#[derive(Debug)]
pub struct Hub {
    indexes: [Index; 4],
    pub(crate) patterns: Patterns,
    pub(crate) inboxes: Box<[Inbox]>,
    /// Topics by worker whose subscribers hear of keys.
    key_listeners: AtomicUsize,
    /// Subscribers that are behind.
    pub(crate) behind: AtomicUsize,
    pub(crate) waiting: Waiting,
    secrets: RapidSecrets,
}

impl Hub {
    /// A hub for so many workers, at most [`WORKERS_MAX`]. The seed keeps clients from choosing names that collide.
    pub fn new(workers: usize, hash_seed: u64) -> Arc<Hub> {
        assert!(workers <= WORKERS_MAX, "{workers} workers");
        Arc::new(Hub {
            indexes: Default::default(),
            patterns: Patterns::default(),
            inboxes: (0..workers).map(|_| Inbox::new(workers)).collect(),
            key_listeners: AtomicUsize::new(0),
            behind: AtomicUsize::new(0),
            waiting: Waiting::new(),
            secrets: RapidSecrets::seed(hash_seed),
        })
    }

    /// The part of a worker, to be made once for each.
    pub fn local(self: &Arc<Self>, worker: usize) -> Local {
        Local::new(self.clone(), worker)
    }

    /// From now on a worker is woken so when messages come for it: it is to call [`Local::deliver`]. So it is when it waits (see
    /// [`Local::begin_waiting`]) and may not have to any more. `wake` is called by any worker and must not block.
    pub fn listen(&self, worker: usize, wake: impl Fn() + Send + Sync + 'static) {
        self.inboxes[worker].listen(Box::new(wake));
    }

    /// Channels, patterns or shard channels that somebody has subscribed to.
    pub fn topics(&self, kind: Kind) -> usize {
        self.index(kind).len()
    }

    /// How many have subscribed to it.
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let count = self.index(kind).read(&self.name(name), |topic| topic.presence().count());
        count.unwrap_or(0)
    }

    /// The names that somebody has subscribed to, of those that match; `None` matches all.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let mut names = Vec::new();
        self.index(kind).for_each_name(|name| {
            if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
                names.push(name.into());
            }
        });
        names
    }

    /// Whether anybody would hear of what happens to keys.
    #[inline]
    pub fn hears_of_keys(&self) -> bool {
        self.key_listeners.load(Relaxed) > 0
    }

    /// A reason to hold back publishers may have gone: wakes the workers that do so.
    pub(crate) fn wake_waiting(&self) {
        self.waiting.workers().iter().for_each(|worker| self.inboxes[worker].wake());
    }

    pub(crate) fn index(&self, kind: Kind) -> &Index {
        &self.indexes[kind as usize]
    }

    pub(crate) fn name<'n>(&self, bytes: &'n [u8]) -> Name<'n> {
        Name { bytes, hash: rapidhash_v3_seeded(bytes, &self.secrets) as u32 }
    }

    /// A worker has its first subscriber of a topic, or its last one no more.
    pub(crate) fn note_listening(&self, kind: Kind, name: &[u8], begins: bool) {
        let hears = match kind {
            Kind::Channel => name.starts_with(KEY_CHANNELS),
            Kind::Pattern => {
                let prefix = glob::literal_prefix(name);
                prefix.starts_with(KEY_CHANNELS) || KEY_CHANNELS.starts_with(prefix)
            }
            Kind::Shard | Kind::Log => false,
        };
        match (hears, begins) {
            (true, true) => self.key_listeners.fetch_add(1, Relaxed),
            (true, false) => self.key_listeners.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }
}
