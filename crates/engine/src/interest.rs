//! Interests: the clients that watch or await keys.
//!
//! ```text
//! WATCH: lock slot -> register   write: lock slot -> apply -> report -> unlock   EXEC: lock slots -> broken?
//! BLPOP: lock slot -> register   push:  lock slot -> apply -> awaited? -> serve -> unlock
//! ```
//!
//! This module is a registry from keys to the clients that watch them or wait for something in them, exact
//! per key, shared by all workers. The registry does not act on changes. A report only marks a watching
//! client, which checks the mark when it holds the locks itself; for waiting clients see `blocking`.
//!
//! Invariants
//! - Registering for a key, and reporting its changes, happen under the lock of its slot: no change is missed
//!   between looking at a key and registering for it. Withdrawing needs no lock of a slot.
//! - While no client is registered a change costs one load ([`Interests::any`]). The load may be relaxed,
//!   because the lock of the slot orders it after the registration.
//! - The locks in this module are leaves: no other lock is taken under them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use keyspace::{DbId, Effect, GlobalOp, SlotId, slot_of};
use parking_lot::Mutex;

use crate::{CommandError, Tracking, clients::Waiter};

/// The number of locks of the registry; many slots share one.
const SHARDS: usize = 64;

/// The kind of change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The value or the deadline of the key has changed, or the key was created or removed.
    Value,
    /// The key had expired, and was removed for that: no change for clients that have seen it expired
    /// already.
    Expired,
}

#[derive(Debug)]
pub(crate) struct Interest {
    pub(crate) db: DbId,
    /// Whether the key existed when the interest was registered.
    pub(crate) seen_alive: bool,
    pub(crate) broken: Arc<AtomicBool>,
}

impl Interest {
    fn report(&self, change: Change) {
        if change == Change::Value || self.seen_alive {
            self.broken.store(true, Relaxed);
        }
    }
}

/// The interests in the keys of some slots, indexed by name without the database: most names are in use in
/// one database only.
#[derive(Debug, Default)]
struct Shard {
    watched: BTreeMap<Box<[u8]>, Vec<Interest>>,
    awaited: BTreeMap<Box<[u8]>, Waiters>,
}

/// The waiters of a key, by database and in the order in which they are served.
type Waiters = BTreeMap<(DbId, u64), Arc<Waiter>>;

/// The registry of clients that watch, await or track keys; see the module documentation.
#[derive(Debug)]
pub struct Interests {
    count: AtomicUsize,
    /// The number of registrations of waiters with a condition: one for each key that such a waiter waits
    /// for.
    conditions: AtomicUsize,
    shards: Box<[Mutex<Shard>]>,
    next_ticket: AtomicU64,
    tracking: Tracking,
}

impl Default for Interests {
    fn default() -> Interests {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (next_ticket, tracking) = (AtomicU64::new(0), Tracking::default());
        Interests {
            count: AtomicUsize::new(0),
            conditions: AtomicUsize::new(0),
            shards,
            next_ticket,
            tracking,
        }
    }
}

impl Interests {
    /// Whether any client is registered or tracks. Called under the lock of the slot that changes.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// The clients that cache the keys that they read.
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// Notes that a client begins to track, and so is interested in the keys that it will read.
    pub(crate) fn tracking_begins(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn tracking_ends(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    fn shard(&self, slot: SlotId) -> &Mutex<Shard> {
        &self.shards[slot.index() % SHARDS]
    }

    pub(crate) fn register(&self, key: &[u8], interest: Interest) {
        self.shard(slot_of(key)).lock().watched.entry(key.into()).or_default().push(interest);
        self.count.fetch_add(1, Relaxed);
    }

    pub(crate) fn withdraw(&self, db: DbId, key: &[u8], broken: &Arc<AtomicBool>) {
        let mut shard = self.shard(slot_of(key)).lock();
        let Some(interested) = shard.watched.get_mut(key) else { return };
        let is_it = |it: &Interest| it.db == db && Arc::ptr_eq(&it.broken, broken);
        if let Some(position) = interested.iter().position(is_it) {
            interested.swap_remove(position);
            self.count.fetch_sub(1, Relaxed);
        }
        if interested.is_empty() {
            shard.watched.remove(key);
        }
    }

    /// Reports a change of a key of this slot, which is locked.
    pub fn report(&self, slot: SlotId, db: DbId, key: &[u8], change: Change) {
        if let Some(interested) = self.shard(slot).lock().watched.get(key) {
            interested.iter().filter(|it| it.db == db).for_each(|it| it.report(change));
        }
    }

    pub(crate) fn report_all(&self) {
        for shard in &self.shards {
            shard.lock().watched.values().flatten().for_each(|it| it.report(Change::Value));
        }
    }

    /// Reports all watched keys of databases that are about to be emptied or exchanged, with all slots
    /// locked.
    pub(crate) fn report_global(&self, op: GlobalOp, exists: impl Fn(DbId, &[u8]) -> bool) {
        // In an exchange both databases count: a key loses its value in one database, and gets its value in
        // the other.
        let affected = |db: DbId| match op {
            GlobalOp::FlushAll => Some([db, db]),
            GlobalOp::FlushDb { db: flushed } if flushed == db => Some([db, db]),
            GlobalOp::SwapDb { a, b } if a == db || b == db => Some([a, b]),
            _ => None,
        };
        for shard in &self.shards {
            for (key, interested) in &shard.lock().watched {
                for interest in interested {
                    let Some(dbs) = affected(interest.db) else { continue };
                    let exists = dbs.into_iter().any(|db| exists(db, key));
                    interest.report(if exists { Change::Value } else { Change::Expired });
                }
            }
        }
    }
}

/// The waits of blocked clients.
impl Interests {
    /// The next place in the order of waiters. It is taken under the locks of the awaited keys, so that
    /// tickets give the order of waiters of every key.
    pub fn next_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Relaxed)
    }

    /// Registers a waiter for its keys, whose slots are locked.
    pub(crate) fn wait(&self, waiter: &Arc<Waiter>) {
        let id = (waiter.db(), waiter.ticket());
        for key in waiter.keys() {
            let mut shard = self.shard(slot_of(key)).lock();
            // A command may name a key twice.
            if shard.awaited.entry(key.into()).or_default().insert(id, waiter.clone()).is_none() {
                self.count.fetch_add(1, Relaxed);
                self.conditions.fetch_add(waiter.has_condition().into(), Relaxed);
            }
        }
    }

    /// Removes a waiter from all its keys; no effect if it is already removed.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let id = (waiter.db(), waiter.ticket());
        for key in waiter.keys() {
            let mut shard = self.shard(slot_of(key)).lock();
            let Some(waiters) = shard.awaited.get_mut(key) else { continue };
            if waiters.remove(&id).is_some() {
                self.count.fetch_sub(1, Relaxed);
                self.conditions.fetch_sub(waiter.has_condition().into(), Relaxed);
            }
            if waiters.is_empty() {
                shard.awaited.remove(key);
            }
        }
    }

    /// Whether a client waits for a key of this slot, which is locked.
    pub(crate) fn is_awaited(&self, slot: SlotId, db: DbId, key: &[u8]) -> bool {
        let shard = self.shard(slot).lock();
        let waiters = shard.awaited.get(key);
        waiters.is_some_and(|waiters| waiters.range((db, 0)..=(db, u64::MAX)).next().is_some())
    }

    /// The first waiter of a key with this ticket or a later one.
    pub(crate) fn next_waiter(&self, db: DbId, key: &[u8], ticket: u64) -> Option<Arc<Waiter>> {
        let shard = self.shard(slot_of(key)).lock();
        let (_, waiter) = shard.awaited.get(key)?.range((db, ticket)..=(db, u64::MAX)).next()?;
        Some(waiter.clone())
    }

    /// Whether a waiter of a key, with this ticket or a later one, has a condition.
    pub(crate) fn awaits_condition(&self, db: DbId, key: &[u8], ticket: u64) -> bool {
        if self.conditions.load(Relaxed) == 0 {
            return false;
        }
        let shard = self.shard(slot_of(key)).lock();
        let mut waiters = shard
            .awaited
            .get(key)
            .into_iter()
            .flat_map(|waiters| waiters.range((db, ticket)..=(db, u64::MAX)));
        waiters.any(|(_, waiter)| waiter.has_condition())
    }

    fn awaited_keys_of(&self, affected: impl Fn(DbId) -> bool) -> Vec<(DbId, Box<[u8]>)> {
        let mut found = Vec::new();
        self.for_each_awaited(|db, key| {
            if affected(db) {
                found.push((db, key.into()));
            }
        });
        found
    }

    /// The number of awaited keys; a name counts once for each database.
    pub fn awaited_keys(&self) -> usize {
        let mut count = 0;
        self.for_each_awaited(|_, _| count += 1);
        count
    }

    /// The number of keys with a waiter that is also told when the key is removed.
    pub fn keys_awaited_for_removal(&self) -> usize {
        let counts = |shard: &Shard| {
            let waited = shard.awaited.values();
            waited.filter(|waiters| waiters.values().any(|waiter| waiter.hears_of_removal())).count()
        };
        self.shards.iter().map(|shard| counts(&shard.lock())).sum()
    }

    /// The number of watched keys; a name counts once for each database in which it is watched.
    pub fn watched_keys(&self) -> usize {
        let mut count = 0;
        for shard in &self.shards {
            for interested in shard.lock().watched.values() {
                let mut dbs: Vec<DbId> = interested.iter().map(|interest| interest.db).collect();
                dbs.sort_unstable();
                dbs.dedup();
                count += dbs.len();
            }
        }
        count
    }

    /// Ends all waits, because this server does not lead any more. As in Redis, waiting reads are woken, too.
    pub fn end_waits(&self) {
        for shard in &self.shards {
            let waiters: Vec<_> = shard.lock().awaited.values().flat_map(BTreeMap::values).cloned().collect();
            // Each worker withdraws the waiters of its clients.
            waiters.iter().for_each(|waiter| waiter.fail(&CommandError::Unblocked));
        }
    }

    /// Visits the awaited keys that may serve a waiter after this effect, which was applied under the locks
    /// of its slots.
    pub(crate) fn made_ready(&self, effect: &Effect<'_>, mut ready: impl FnMut(DbId, &[u8])) {
        let mut filled = |db, key: &[u8]| {
            if self.is_awaited(slot_of(key), db, key) {
                ready(db, key);
            }
        };
        match *effect {
            Effect::Key { db, key, .. } if effect.fills() => filled(db, key),
            Effect::Key { db, key, .. } if effect.takes_away() => self.made_absent(db, key, ready),
            Effect::Key { .. } | Effect::Library { .. } | Effect::Setting { .. } => {}
            Effect::Move { db, key, to_db, to_key } => {
                filled(to_db, to_key);
                self.made_absent(db, key, ready);
            }
            Effect::Global(op) => {
                let affected = |db: DbId| match op {
                    GlobalOp::SwapDb { a, b } => db == a || db == b,
                    GlobalOp::FlushDb { db: flushed } => db == flushed,
                    GlobalOp::FlushAll => true,
                };
                self.awaited_keys_of(affected).iter().for_each(|(db, key)| ready(*db, key));
            }
        }
    }

    /// Visits a key from which an effect has taken something away, if a waiter of the key has a condition:
    /// the condition may hold now. Without such a waiter the key is not visited. If the unit then fills the
    /// key again, its waiters must not be served before the waiters of keys that were filled in between.
    fn made_absent(&self, db: DbId, key: &[u8], mut ready: impl FnMut(DbId, &[u8])) {
        if self.awaits_condition(db, key, 0) {
            ready(db, key);
        }
    }

    fn for_each_awaited(&self, mut visit: impl FnMut(DbId, &[u8])) {
        for shard in &self.shards {
            for (key, waiters) in &shard.lock().awaited {
                let mut last = None;
                for (db, _) in waiters.keys().filter(|(db, _)| last.replace(*db) != Some(*db)) {
                    visit(*db, key);
                }
            }
        }
    }
}
