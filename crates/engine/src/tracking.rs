//! Client tracking (CLIENT TRACKING): clients that cache the keys that they read are notified when a key
//! changes.
//!
//! ```text
//! read of a tracking client: lock slot -> read -> remember (key, client) -> unlock
//! write: lock slot -> change -> forget key, collect its readers -> unlock, LSN    end of round: push, gated
//! ```
//!
//! This module has the tracking clients, the keys that each may have cached ([`table`]), the prefixes that
//! they follow, and the invalidations to send ([`invalidations`]). Keys are tracked by name, in all databases
//! alike, as in Redis.
//! Tracking is not exact: a client may get an invalidation for a key that it does not cache.
//!
//! Invariants
//! - A key is remembered, and forgotten when it changes, under the lock of its slot: no change is missed in
//!   between.
//! - The invalidation of a key is pushed after the replies of the current round of the reader's worker, so
//!   after every reply with an older value. The invalidation is sent when the change becomes visible to other
//!   clients: with durability `strict`, once the change is committed.
//! - The reply of a long unit reaches the worker by mail. What is pushed to its client after the unit has
//!   read a tracked key, or after its slots are unlocked, waits for that reply
//!   ([`Conversation::push`](crate::conversation::Conversation::push)).
//! - The table holds about `tracking-table-max-keys` keys at most: a further key evicts another one, from its
//!   own shard if possible. After the limit was lowered, [`Tracking::trim`] evicts the surplus.
//! - An evicted key is invalidated for its readers. The slot of the key need not be locked for that: the
//!   thread that removes the key from the table tells its readers, and a reader that reads the key again is
//!   remembered again.

mod invalidations;
mod table;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use keyspace::{SlotId, slot_of};
use parking_lot::RwLock;

pub(crate) use invalidations::{BY_SERVER, Invalidations};
use table::Table;

use crate::clients::{Client, Clients};

/// The maximum number of keys that one call of [`Tracking::trim`] evicts, which takes about a millisecond.
const TRIMMED_MAX: usize = 4096;

/// The mode of a client's tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every key that the client reads is remembered.
    Reads,
    /// Only the keys that the client reads after CLIENT CACHING YES are remembered.
    OptIn,
    /// Every key is remembered, except those that the client reads after CLIENT CACHING NO.
    OptOut,
    /// No key is remembered: instead, the client gets invalidations for the changes of all keys with one of
    /// its prefixes.
    Broadcast,
}

/// A tracking client, as other workers see it.
#[derive(Debug)]
pub struct Tracker {
    client: Arc<Client>,
    /// The client that gets the invalidations instead of the tracking client.
    pub redirect: Option<u64>,
    /// Whether the client gets no invalidations for its own changes.
    pub noloop: bool,
    /// Whether the client follows prefixes. If so, the client is told nothing about keys that it has read
    /// before, in another mode.
    follows_prefixes: bool,
    /// Whether the client of `redirect` was found to have disconnected.
    redirect_broken: AtomicBool,
}

impl Tracker {
    pub(crate) fn new(client: Arc<Client>, mode: Mode, redirect: Option<u64>, noloop: bool) -> Tracker {
        let follows_prefixes = mode == Mode::Broadcast;
        Tracker { client, redirect, noloop, follows_prefixes, redirect_broken: AtomicBool::new(false) }
    }

    /// Whether the client of `redirect` was found to have disconnected.
    pub(crate) fn is_redirect_broken(&self) -> bool {
        self.redirect_broken.load(Relaxed)
    }
}

/// All tracking clients, the keys that they may have cached, and their prefixes. See the module
/// documentation.
#[derive(Debug, Default)]
pub struct Tracking {
    trackers: RwLock<HashMap<u64, Arc<Tracker>>>,
    prefixes: RwLock<Vec<Prefix>>,
    table: Table,
}

/// The clients that follow the keys with a prefix.
#[derive(Debug)]
struct Prefix {
    prefix: Box<[u8]>,
    clients: Vec<u64>,
}

/// The figures about tracking that INFO shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackingTotals {
    /// The number of clients that track.
    pub clients: usize,
    /// The number of keys that are remembered.
    pub keys: usize,
    /// Pairs of a key and a client.
    pub items: usize,
    /// Prefixes that a client follows.
    pub prefixes: usize,
}

impl Tracking {
    /// Sets the number of keys that are remembered at most; 0 for no limit.
    pub fn set_keys_max(&self, keys_max: usize) {
        self.table.set_keys_max(keys_max);
    }

    /// Evicts some of the keys beyond the limit, if it was lowered. To be called again and again.
    pub fn trim(&self, clients: &Clients) {
        let mut invalidations = Invalidations::default();
        for (key, readers) in self.table.evict(TRIMMED_MAX) {
            invalidations.forgotten(&key, readers);
        }
        if !invalidations.is_empty() {
            invalidations.publish(self, clients);
        }
    }

    /// The figures of now, for INFO.
    pub fn totals(&self) -> TrackingTotals {
        TrackingTotals {
            clients: self.trackers.read().len(),
            keys: self.table.len(),
            items: self.table.items(),
            prefixes: self.prefixes.read().len(),
        }
    }

    /// Begins the tracking of a client, in place of its earlier tracking. `prefixes` are those that the
    /// client follows.
    pub(crate) fn enter(&self, tracker: &Arc<Tracker>, prefixes: &[Box<[u8]>]) {
        let id = tracker.client.id();
        self.trackers.write().insert(id, tracker.clone());
        let mut known = self.prefixes.write();
        for prefix in prefixes {
            match known.iter_mut().find(|it| it.prefix == *prefix) {
                Some(it) => it.clients.push(id),
                None => known.push(Prefix { prefix: prefix.clone(), clients: vec![id] }),
            }
        }
    }

    /// Ends the tracking of a client. Entries of the client remain in the table: they have no effect as long
    /// as no client with this id tracks.
    pub(crate) fn leave(&self, tracker: &Arc<Tracker>, prefixes: &[Box<[u8]>]) {
        let id = tracker.client.id();
        let mut trackers = self.trackers.write();
        if trackers.get(&id).is_some_and(|known| Arc::ptr_eq(known, tracker)) {
            trackers.remove(&id);
            tracker.client.set_tracking(None);
        }
        drop(trackers);
        self.prefixes.write().retain_mut(|it| {
            if let Some(position) = it.clients.iter().position(|client| *client == id)
                && prefixes.contains(&it.prefix)
            {
                it.clients.swap_remove(position);
            }
            !it.clients.is_empty()
        });
    }

    /// Remembers that a client has read a key of this slot, which is locked.
    pub(crate) fn remember(
        &self,
        slot: SlotId,
        key: &[u8],
        tracker: &Tracker,
        invalidations: &mut Invalidations,
    ) {
        let tracks = |id: &u64| self.trackers.read().contains_key(id);
        if let Some((key, readers)) = self.table.add(slot, key, tracker.client.id(), tracks) {
            invalidations.forgotten(&key, readers);
        }
    }

    fn tracker(&self, id: u64) -> Option<Arc<Tracker>> {
        self.trackers.read().get(&id).cloned()
    }

    /// Forgets a key of this slot, which is locked, because the key has changed; adds the invalidation for
    /// its readers.
    pub(crate) fn changed(&self, slot: SlotId, key: &[u8], invalidations: &mut Invalidations) {
        let readers = self.table.take(slot, key);
        if !readers.is_empty() || !self.prefixes.read().is_empty() {
            invalidations.changed(key, readers);
        }
    }

    /// Takes back the changes gathered from index `start` on, which were undone: remembers their keys again
    /// for the clients that have read them. The slots of these keys are still locked.
    pub(crate) fn not_changed(&self, start: usize, invalidations: &mut Invalidations) {
        if invalidations.len() == start {
            return;
        }
        let tracks = |id: &u64| self.trackers.read().contains_key(id);
        for (key, readers) in invalidations.take_changes(start) {
            for reader in readers {
                if let Some((gone, readers)) = self.table.add(slot_of(&key), &key, reader, tracks) {
                    invalidations.forgotten(&gone, readers);
                }
            }
        }
    }

    /// Forgets all keys, because any of them may have changed; all slots are locked.
    pub(crate) fn forget_all(&self) {
        self.table.clear();
    }

    /// Forgets and invalidates all keys, because any of them may have changed; all slots are locked.
    pub(crate) fn all_changed(&self, invalidations: &mut Invalidations) {
        self.forget_all();
        if !self.trackers.read().is_empty() {
            invalidations.all_changed();
        }
    }
}
