//! Filling: entries that are put into a slot as they are, when it is loaded.
//!
//! What it is: the only way besides effects to add an entry to the table of a slot. The bookkeeping is
//! settled for many entries at once. What it is not: able to replace anything: a key that is there already is
//! an error of the source.
//!
//! Invariants
//! - `settle` adds the bytes of new entries to the totals. The numbers of keys are added when the slot is
//!   unlocked.

use crate::entry::Entry;
use crate::expiry::Item;
use crate::hash::KeyHash;
use crate::id::DbId;
use crate::slot::SlotGuard;
use crate::totals::Tally;

/// A slot that is being filled.
pub(crate) struct Filling<'k> {
    guard: SlotGuard<'k>,
    /// The database that is filled, and its contribution to the totals as it was settled last.
    db: DbId,
    settled: Tally,
    settled_heap_bytes: u64,
    /// Whether an entry with a deadline was added since the totals were settled.
    has_deadline: bool,
}

impl<'k> Filling<'k> {
    pub(crate) fn new(guard: SlotGuard<'k>) -> Self {
        let (settled, settled_heap_bytes) = (guard.state.tally(DbId::ZERO), guard.state.heap_bytes());
        Filling { guard, db: DbId::ZERO, settled, settled_heap_bytes, has_deadline: false }
    }

    /// Adds an entry; `hash` is the hash of its key. Returns `false` if the key is there already.
    #[inline]
    pub(crate) fn add(&mut self, db: DbId, hash: &KeyHash, entry: Entry) -> bool {
        if db != self.db {
            self.settle();
            (self.db, self.settled) = (db, self.guard.state.tally(db));
        }
        let state = &mut *self.guard.state;
        let table = state.table_mut(db);
        if table.get(hash, entry.as_ref().key()).is_some() {
            return false;
        }
        let deadline_ms = entry.as_ref().expire_at_ms();
        table.insert(hash, entry);
        if let Some(deadline_ms) = deadline_ms {
            let item = Item::new(deadline_ms, db, hash.position());
            state.extra.get_or_insert_default().heap.push(item);
            self.has_deadline = true;
        }
        true
    }

    /// Lets `run` apply effects to the slot.
    pub(crate) fn with_guard<R>(&mut self, run: impl FnOnce(&mut SlotGuard<'k>) -> R) -> R {
        self.settle();
        let result = run(&mut self.guard);
        self.settled = self.guard.state.tally(self.db);
        self.settled_heap_bytes = self.guard.state.heap_bytes();
        result
    }

    /// Does the bookkeeping for the entries added since the last call.
    fn settle(&mut self) {
        let guard = &mut self.guard;
        let now = guard.state.tally(self.db);
        if now == self.settled {
            return;
        }
        guard.tally_changed(self.db, self.settled, now);
        guard.keyspace.occupied.set(guard.slot(), true);
        guard.note_buckets();
        if self.has_deadline {
            guard.heap_bytes_changed(self.settled_heap_bytes);
            guard.publish_next_expiry();
        }
        (self.settled, self.settled_heap_bytes) = (now, guard.state.heap_bytes());
        self.has_deadline = false;
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}
