//! The state shared by all workers: the topics with subscribers, the patterns, and the mailboxes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wire::glob;

use crate::{index::Index, kind::Kind, mailbox::Inbox, patterns::Patterns, topic::Name, waiting::Waiting};

/// The maximum number of workers: a set of them is a number of 128 bits.
pub const WORKERS_MAX: usize = 128;

/// The prefix of keyspace notification channels.
const KEY_CHANNELS: &[u8] = b"__key";

/// The state of pub/sub shared by all workers.
#[derive(Debug)]
pub struct Hub {
    indexes: [Index; 4],
    pub(crate) patterns: Patterns,
    pub(crate) inboxes: Box<[Inbox]>,
    /// Number of pairs of topic and worker whose subscribers may receive keyspace notifications.
    key_listeners: AtomicUsize,
    /// Number of subscribers that count as behind; see [`Local::set_behind`](crate::Local::set_behind).
    pub(crate) behind: AtomicUsize,
    pub(crate) waiting: Waiting,
    secrets: RapidSecrets,
}

impl Hub {
    /// A hub for `workers` workers. `hash_seed` keeps clients from choosing names that collide.
    ///
    /// # Panics
    ///
    /// If `workers` exceeds [`WORKERS_MAX`].
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

    /// Sets the function that wakes a worker, which must then call [`Local::deliver`](crate::Local::deliver).
    /// The worker is woken when messages arrive for it. A worker that waits (see
    /// [`Local::begin_waiting`](crate::Local::begin_waiting)) is also woken when its reason to wait may have
    /// ended. Any worker may call `wake`, which must not block.
    pub fn listen(&self, worker: usize, wake: impl Fn() + Send + Sync + 'static) {
        self.inboxes[worker].listen(Box::new(wake));
    }

    /// Number of topics of a kind that have subscribers.
    pub fn topics(&self, kind: Kind) -> usize {
        self.index(kind).len()
    }

    /// Number of subscribers of a topic.
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let count = self.index(kind).read(&self.name(name), |topic| topic.presence().count());
        count.unwrap_or(0)
    }

    /// The names of topics with subscribers that match `pattern`; `None` matches all.
    pub fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let mut names = Vec::new();
        self.index(kind).for_each_name(|name| {
            if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
                names.push(name.into());
            }
        });
        names
    }

    /// Whether a subscriber may receive keyspace notifications.
    #[inline]
    pub fn hears_of_keys(&self) -> bool {
        self.key_listeners.load(Relaxed) > 0
    }

    /// Wakes the workers that hold back publishers, because their reason may have ended.
    pub(crate) fn wake_waiting(&self) {
        self.waiting.workers().iter().for_each(|worker| self.inboxes[worker].wake());
    }

    pub(crate) fn index(&self, kind: Kind) -> &Index {
        &self.indexes[kind as usize]
    }

    pub(crate) fn name<'n>(&self, bytes: &'n [u8]) -> Name<'n> {
        Name { bytes, hash: rapidhash_v3_seeded(bytes, &self.secrets) as u32 }
    }

    /// Updates `key_listeners` for a worker that gets its first subscriber of a topic, or loses its last one.
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
