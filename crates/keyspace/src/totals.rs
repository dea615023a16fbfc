//! Totals over all slots: keys and expiring keys per database, bytes.
//!
//! What it is: counters to which threads add without contention, and which are summed on request. What it is
//! not: exact while writers run. A sum may include or miss any change that happens meanwhile; it is exact
//! while no thread writes.
//!
//! Invariants
//! - Keys are counted when their slot is unlocked. So a reader that takes a sum, and then the end of the log,
//!   has counted no key of a later record. It has counted no key of a unit that still runs and may be undone,
//!   either. Bytes are counted at once, because they occupy memory even if the unit is undone later.
//! - Every thread adds to one stripe. The numbers in a stripe wrap and may be negative; only the sum over all
//!   stripes has a meaning.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use smallvec::SmallVec;

use crate::id::{DB_COUNT, DbId};

/// The number of stripes, which threads take in turn. Threads that share a stripe cost time, but the sums
/// stay correct.
const STRIPES: usize = 64;

/// The contribution of one database of one slot to the totals. `bytes` counts the table, not the expiry heaps
/// of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    pub(crate) bytes: u64,
}

/// The changes of the numbers of keys of a locked slot that are not in the totals yet, by database.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(SmallVec<[(DbId, Counts); 1]>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    keys: u64,
    expiring: u64,
}

impl Uncounted {
    /// Notes that a slot's tally went from `before` to `after`.
    #[inline]
    pub(crate) fn note(&mut self, db: DbId, before: Tally, after: Tally) {
        if (before.keys, before.expiring) != (after.keys, after.expiring) {
            self.add(db, before, after);
        }
    }

    #[inline(never)]
    fn add(&mut self, db: DbId, before: Tally, after: Tally) {
        let at = self.0.iter().position(|(known, _)| *known == db).unwrap_or_else(|| {
            self.0.push((db, Counts::default()));
            self.0.len() - 1
        });
        let counts = &mut self.0[at].1;
        counts.keys = counts.keys.wrapping_add(after.keys).wrapping_sub(before.keys);
        counts.expiring = counts.expiring.wrapping_add(after.expiring).wrapping_sub(before.expiring);
    }

    /// The change of the number of keys of a database; a negative change is wrapped.
    pub(crate) fn keys(&self, db: DbId) -> u64 {
        self.0.iter().find(|(known, _)| *known == db).map_or(0, |(_, counts)| counts.keys)
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    bytes: AtomicU64,
    dbs: [[AtomicU64; 2]; DB_COUNT],
}

pub(crate) struct Totals {
    stripes: Box<[Stripe]>,
}

impl Totals {
    pub(crate) fn new() -> Self {
        Totals { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    /// Records that the bytes of a slot have changed from `before` to `after`.
    #[inline]
    pub(crate) fn change_bytes(&self, before: u64, after: u64) {
        add(&self.stripes[stripe_of_thread()].bytes, after.wrapping_sub(before));
    }

    /// Adds the changes of the numbers of keys of a slot that is about to be unlocked.
    #[inline]
    pub(crate) fn count(&self, uncounted: &Uncounted) {
        for (db, counts) in &uncounted.0 {
            let [keys, expiring] = &self.stripes[stripe_of_thread()].dbs[db.index()];
            add(keys, counts.keys);
            add(expiring, counts.expiring);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sum(|stripe| &stripe.bytes)
    }

    pub(crate) fn keys(&self, db: DbId) -> u64 {
        self.sum(|stripe| &stripe.dbs[db.index()][0])
    }

    pub(crate) fn expiring(&self, db: DbId) -> u64 {
        self.sum(|stripe| &stripe.dbs[db.index()][1])
    }

    fn sum(&self, counter: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        let parts = self.stripes.iter().map(|stripe| counter(stripe).load(Acquire));
        let sum = parts.fold(0u64, u64::wrapping_add);
        // If a removal is seen without its insertion, the sum is below zero for a moment.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }
}

#[inline]
fn add(counter: &AtomicU64, delta: u64) {
    if delta != 0 {
        counter.fetch_add(delta, Release);
    }
}

#[inline]
fn stripe_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = THREADS.fetch_add(1, Relaxed) % STRIPES;
    }
    STRIPE.with(|stripe| *stripe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(totals: &Totals, before: Tally, after: Tally) {
        let mut uncounted = Uncounted::default();
        uncounted.note(DbId::ZERO, before, after);
        totals.count(&uncounted);
        totals.change_bytes(before.bytes, after.bytes);
    }

    #[test]
    fn one_thread_may_subtract_the_counts_of_another() {
        let totals = Totals::new();
        let (none, some) = (Tally::default(), Tally { keys: 3, expiring: 1, bytes: 500 });
        std::thread::scope(|scope| {
            scope.spawn(|| change(&totals, none, some)).join().expect("no panic");
        });
        assert_eq!((totals.keys(DbId::ZERO), totals.expiring(DbId::ZERO), totals.bytes()), (3, 1, 500));
        change(&totals, some, none);
        assert_eq!((totals.keys(DbId::ZERO), totals.expiring(DbId::ZERO), totals.bytes()), (0, 0, 0));
        change(&totals, some, none);
        assert_eq!(totals.bytes(), 0, "never reported as nearly 2^64");
    }
}
