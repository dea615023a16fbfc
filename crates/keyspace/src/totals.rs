//! Totals over all slots: keys and expiring keys per database, bytes.
//!
//! What it is: counters that threads add to without meeting each other, and that are summed when asked for.
//! What it is not: exact while writers run. A sum may miss or include each change that happens meanwhile; it
//! is exact when nobody writes.
//!
//! Invariants
//! - Every thread adds to one stripe; stripes hold wrapping parts that may be negative, only their sum means
//!   something.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::id::{DB_COUNT, DbId};

/// More threads than this share stripes, which costs time but stays correct.
const STRIPES: usize = 64;

/// What one database of one slot contributes; the bytes are those of the whole slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    pub(crate) bytes: u64,
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

    /// Records that a slot's tally went from `before` to `after`.
    #[inline]
    pub(crate) fn change(&self, db: DbId, before: Tally, after: Tally) {
        let stripe = &self.stripes[stripe_of_thread()];
        let [keys, expiring] = &stripe.dbs[db.index()];
        add(&stripe.bytes, after.bytes.wrapping_sub(before.bytes));
        add(keys, after.keys.wrapping_sub(before.keys));
        add(expiring, after.expiring.wrapping_sub(before.expiring));
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
        let parts = self.stripes.iter().map(|stripe| counter(stripe).load(Relaxed));
        let sum = parts.fold(0u64, u64::wrapping_add);
        // A removal seen without its insertion leaves the sum below zero for a moment.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }
}

#[inline]
fn add(counter: &AtomicU64, delta: u64) {
    if delta != 0 {
        counter.fetch_add(delta, Relaxed);
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

    #[test]
    fn what_one_thread_adds_another_may_take_away() {
        let totals = Totals::new();
        let (none, some) = (Tally::default(), Tally { keys: 3, expiring: 1, bytes: 500 });
        std::thread::scope(|scope| {
            scope.spawn(|| totals.change(DbId::ZERO, none, some)).join().expect("no panic");
        });
        assert_eq!((totals.keys(DbId::ZERO), totals.expiring(DbId::ZERO), totals.bytes()), (3, 1, 500));
        totals.change(DbId::ZERO, some, none);
        assert_eq!((totals.keys(DbId::ZERO), totals.expiring(DbId::ZERO), totals.bytes()), (0, 0, 0));
        totals.change(DbId::ZERO, some, none);
        assert_eq!(totals.bytes(), 0, "never reported as nearly 2^64");
    }
}
