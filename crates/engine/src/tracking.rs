//! Client tracking: clients that keep what they read learn when it changes (CLIENT TRACKING).
//!
//! ```text
//! read of a tracking client: lock slot -> read -> remember (key, client) -> unlock
//! write: lock slot -> change -> forget key, collect who had it -> unlock, LSN     end of round: push, gated by the LSN
//! ```
//!
//! What it is: who tracks, which keys each may have kept ([`table`]), which prefixes they want to hear of, and what must be
//! told ([`invalidations`]). Keys are tracked by name, whatever their database, as in Redis.
//! What it is not: exact. A client may be told of a key that it does not keep; never the other way round.
//!
//! Invariants
//! - A key is remembered, and forgotten when it changes, under the lock of its slot: no change is missed in between.
//! - The message about a change is pushed behind the replies of the round that the reader's worker is at, so behind every
//!   reply with an older value, and leaves when others may see the change: with durability strict, once it is durable.
//! - The table holds `tracking-table-max-keys` keys; one more pushes out any other, about which its readers are told.

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

use crate::{clients::Client, interest::Interests};

/// How the client that it is about tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everything it reads is remembered.
    Reads,
    /// Only what it reads after CLIENT CACHING YES.
    OptIn,
    /// Everything but what it reads after CLIENT CACHING NO.
    OptOut,
    /// Nothing is remembered: it hears of every key with one of its prefixes.
    Broadcast,
}

/// What the others must know about a client that tracks.
#[derive(Debug)]
pub struct Tracker {
    client: Arc<Client>,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
    /// Whether it is not told of its own changes.
    pub noloop: bool,
    /// The client that is to be told in its place has gone.
    redirect_broken: AtomicBool,
}

/// Everyone who tracks. See the module documentation.
#[derive(Debug, Default)]
pub struct Tracking {
    trackers: RwLock<HashMap<u64, Arc<Tracker>>>,
    prefixes: RwLock<Vec<Prefix>>,
    table: Table,
}

/// Who wants to hear of keys that begin so.
#[derive(Debug)]
struct Prefix {
    prefix: Box<[u8]>,
    clients: Vec<u64>,
}

/// What INFO shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackingTotals {
    /// Clients that track.
    pub clients: usize,
    /// Keys that are remembered.
    pub keys: usize,
    /// Pairs of a key and a client.
    pub items: usize,
    /// Prefixes that somebody wants to hear of.
    pub prefixes: usize,
}

impl Tracking {
    /// Remembers so many keys; 0 for any number.
    pub fn set_keys_max(&self, keys_max: usize) {
        self.table.set_keys_max(keys_max);
    }

    /// How much is tracked.
    pub fn totals(&self) -> TrackingTotals {
        TrackingTotals {
            clients: self.trackers.read().len(),
            keys: self.table.len(),
            items: self.table.items(),
            prefixes: self.prefixes.read().len(),
        }
    }

    fn tracker(&self, id: u64) -> Option<Arc<Tracker>> {
        self.trackers.read().get(&id).cloned()
    }

    /// A key of this slot, which is locked, has changed.
    pub(crate) fn changed(&self, slot: SlotId, key: &[u8], invalidations: &mut Invalidations) {
        let readers = self.table.take(slot, key);
        if !readers.is_empty() || !self.prefixes.read().is_empty() {
            invalidations.changed(key, readers);
        }
    }

    /// What was said from the place `start` on was undone: the keys, whose slots are still locked, have not changed, and those
    /// who have read them go on relying on them.
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

    /// Any key may have changed; all slots are locked.
    pub(crate) fn all_changed(&self, invalidations: &mut Invalidations) {
        self.table.clear();
        if !self.trackers.read().is_empty() {
            invalidations.all_changed();
        }
    }
}

/// A client's own side of its tracking. Dropping it ends the tracking.
#[derive(Debug)]
pub struct ClientTracking {
    interests: Arc<Interests>,
    /// Receives the invalidations.
    pub tracker: Arc<Tracker>,
    /// Which keys are tracked.
    pub mode: Mode,
    /// Of [`Mode::Broadcast`]: never empty, as no prefix is the empty one.
    pub prefixes: Vec<Box<[u8]>>,
    /// CLIENT CACHING was called before the present command or transaction.
    pub caching: bool,
}

impl ClientTracking {
    /// Begins to track. If the client tracks already, this takes its place, and the former is to be dropped afterwards.
    pub fn begin(
        interests: &Arc<Interests>,
        client: &Arc<Client>,
        mode: Mode,
        redirect: Option<u64>,
        noloop: bool,
        prefixes: Vec<Box<[u8]>>,
    ) -> ClientTracking {
        let redirect_broken = AtomicBool::new(false);
        let tracker = Arc::new(Tracker { client: client.clone(), redirect, noloop, redirect_broken });
        let tracking = interests.tracking();
        tracking.trackers.write().insert(client.id(), tracker.clone());
        let mut known = tracking.prefixes.write();
        for prefix in &prefixes {
            match known.iter_mut().find(|it| it.prefix == *prefix) {
                Some(it) => it.clients.push(client.id()),
                None => known.push(Prefix { prefix: prefix.clone(), clients: vec![client.id()] }),
            }
        }
        drop(known);
        client.set_tracking(Some((redirect, mode == Mode::Broadcast)));
        interests.tracking_begins();
        ClientTracking { interests: interests.clone(), tracker, mode, prefixes, caching: false }
    }

    /// Whether what the present command reads is to be remembered.
    pub(crate) fn remembers(&self) -> bool {
        match self.mode {
            Mode::Reads => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }

    /// Remembers that the client has read a key of this slot, which is locked.
    pub(crate) fn read(&self, slot: SlotId, key: &[u8], invalidations: &mut Invalidations) {
        let (tracking, id) = (self.interests.tracking(), self.tracker.client.id());
        let tracks = |id: &u64| tracking.trackers.read().contains_key(id);
        if let Some((key, readers)) = tracking.table.add(slot, key, id, tracks) {
            invalidations.forgotten(&key, readers);
        }
    }

    /// Whether the client that is told in its place has gone.
    pub fn is_redirect_broken(&self) -> bool {
        self.tracker.redirect_broken.load(Relaxed)
    }
}

impl Drop for ClientTracking {
    fn drop(&mut self) {
        let tracking = self.interests.tracking();
        let id = self.tracker.client.id();
        // What the table still knows of the client is left there: nobody of that id tracks any more.
        let mut trackers = tracking.trackers.write();
        if trackers.get(&id).is_some_and(|tracker| Arc::ptr_eq(tracker, &self.tracker)) {
            trackers.remove(&id);
            self.tracker.client.set_tracking(None);
        }
        drop(trackers);
        tracking.prefixes.write().retain_mut(|it| {
            if let Some(position) = it.clients.iter().position(|client| *client == id)
                && self.prefixes.contains(&it.prefix)
            {
                it.clients.swap_remove(position);
            }
            !it.clients.is_empty()
        });
        self.interests.tracking_ends();
    }
}
