//! Counters per command. Each thread that executes commands has counters of its own, and readers add them up.
//!
//! Invariants
//! - A count that is not under a lock has one writer and only grows. A reset (CONFIG RESETSTAT) does not
//!   change this count: it notes the sums as of now, and readers subtract these sums. So every count is
//!   before a reset or after it, and none is lost. The counts of one call, such as its number and its time,
//!   are made one after the other: a reset may come in between.

mod errors;
mod histogram;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use keyspace::{DbId, KeyHash};
use parking_lot::{Mutex, RwLock};

pub use histogram::Histogram;

use crate::{
    CommandTable,
    observe::{HotKey, HotKeys},
};

/// On average, one in this many commands is sampled. The time of a sampled command stands for this many
/// calls, unless every call of the command is timed.
pub(crate) const TIMED_EVERY: u64 = 32;
/// On average, one in this many commands has a key counted for HOTKEYS: half of the sampled commands.
pub const KEYS_SAMPLED_EVERY: u64 = 2 * TIMED_EVERY;

/// The counters of one worker for one command.
#[derive(Debug, Default)]
pub struct RowStats {
    calls: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    usec: AtomicU64,
    times: histogram::Buckets,
}

/// The sums over all workers for one command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RowTotals {
    /// The number of calls that ran.
    pub calls: u64,
    /// The number of calls that were refused before they ran.
    pub rejected: u64,
    /// The number of calls that ended with an error.
    pub failed: u64,
    /// Microseconds of execution, for most commands estimated from one in 32 calls.
    pub usec: u64,
}

impl RowTotals {
    fn since(self, before: RowTotals) -> RowTotals {
        RowTotals {
            calls: self.calls - before.calls,
            rejected: self.rejected - before.rejected,
            failed: self.failed - before.failed,
            usec: self.usec.wrapping_sub(before.usec),
        }
    }
}

/// The counters over all commands.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Keys evicted to make room.
    pub evicted_keys: u64,
    /// Keys that were removed or replaced after their deadline.
    pub expired_keys: u64,
    /// Fields of hashes that were removed after their deadline.
    pub expired_fields: u64,
    /// Reads of keys that existed.
    pub keyspace_hits: u64,
    /// Reads of keys that did not exist.
    pub keyspace_misses: u64,
}

/// The keys and fields that a unit has removed because their time was over.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) keys: u64,
    pub(crate) fields: u64,
}

/// The counters of one worker, of one thread for long units, or of the thread that applies a leader's log.
/// Only that thread counts, so a plain load and store is enough.
#[derive(Debug, Default)]
pub struct WorkerStats {
    rows: Box<[RowStats]>,
    evicted: AtomicU64,
    expired: AtomicU64,
    expired_fields: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    hot_keys: Mutex<HotKeys>,
    vm_bytes: AtomicU64,
    errors: errors::ErrorCounts,
    /// Served waits that changed data: each change is in the record of the unit that served the wait.
    served: AtomicU64,
}

impl WorkerStats {
    #[inline]
    fn bump(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Sets the memory of the worker's script machine.
    pub fn set_vm_bytes(&self, bytes: usize) {
        self.vm_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a call of the command with this row index.
    #[inline]
    pub fn called(&self, row: usize, failed: bool) {
        Self::bump(&self.rows[row].calls, 1);
        if failed {
            Self::bump(&self.rows[row].failed, 1);
        }
    }

    /// Counts an error reply with this text, without the `-`.
    #[cold]
    pub fn replied_error(&self, text: &[u8]) {
        self.errors.add(text);
    }

    /// Counts a call of the command with this row index that was refused before it ran.
    pub fn rejected(&self, row: usize) {
        Self::bump(&self.rows[row].rejected, 1);
    }

    /// Counts a served wait that changed data, in the record of the unit that served the wait.
    pub(crate) fn served(&self) {
        Self::bump(&self.served, 1);
    }

    /// Counts the failure of a call that was counted when its client began to wait.
    pub fn failed_later(&self, row: usize) {
        Self::bump(&self.rows[row].failed, 1);
    }

    pub(crate) fn evicted(&self) {
        Self::bump(&self.evicted, 1);
    }

    #[inline]
    pub(crate) fn expired(&self, expired: Expired) {
        if expired != Expired::default() {
            Self::bump(&self.expired, expired.keys);
            Self::bump(&self.expired_fields, expired.fields);
        }
    }

    /// Counts a read of a key as a hit or a miss.
    #[inline]
    pub(crate) fn looked_up(&self, found: bool) {
        Self::bump(if found { &self.hits } else { &self.misses }, 1);
    }

    /// Counts a key of a sampled command for HOTKEYS, one of the `uses` keys of that command.
    pub(crate) fn key_sampled(&self, db: DbId, hash: KeyHash, key: &[u8], uses: u64, now_ms: u64) {
        self.hot_keys.lock().sampled(db, hash, key, uses, now_ms);
    }

    /// Records the duration of a call, which stands for `calls` calls.
    pub fn timed(&self, row: usize, usec: u64, calls: u64) {
        Self::bump(&self.rows[row].usec, usec.saturating_mul(calls));
        self.rows[row].times.add(usec, calls);
    }
}

/// The counters of all threads that execute commands; their documentation calls each of them a worker.
#[derive(Debug)]
pub struct CommandStats {
    workers: Box<[Arc<WorkerStats>]>,
    /// The sums at the last reset. Readers hold this lock while they read counters, so that they never
    /// subtract newer sums from older counts.
    reset: RwLock<Option<Sums>>,
}

/// The sums over all workers at one time.
#[derive(Debug)]
struct Sums {
    rows: Box<[(RowTotals, Histogram)]>,
    keyspace: Totals,
}

impl CommandStats {
    /// Counters for this number of workers, each with one set for every row of `table`.
    pub fn new(workers: usize, table: &CommandTable) -> CommandStats {
        let row_count = table.rows().len();
        let worker = || {
            let rows = (0..row_count).map(|_| RowStats::default()).collect();
            Arc::new(WorkerStats { rows, ..WorkerStats::default() })
        };
        CommandStats { workers: (0..workers).map(|_| worker()).collect(), reset: RwLock::default() }
    }

    /// The counters of one worker, by its index.
    pub fn worker(&self, index: usize) -> Arc<WorkerStats> {
        self.workers[index].clone()
    }

    /// The sums for the command with this row index, since the start or the last reset.
    pub fn totals(&self, row: usize) -> RowTotals {
        let reset = self.reset.read();
        let before = reset.as_ref().map_or_else(RowTotals::default, |sums| sums.rows[row].0);
        self.row_totals(row).since(before)
    }

    fn row_totals(&self, row: usize) -> RowTotals {
        let mut totals = RowTotals::default();
        for worker in &self.workers {
            let stats = &worker.rows[row];
            totals.calls += stats.calls.load(Ordering::Relaxed);
            totals.rejected += stats.rejected.load(Ordering::Relaxed);
            totals.failed += stats.failed.load(Ordering::Relaxed);
            totals.usec = totals.usec.wrapping_add(stats.usec.load(Ordering::Relaxed));
        }
        totals
    }

    /// The distribution of durations of the command with this row index, since the start or the last reset.
    pub fn histogram(&self, row: usize) -> Histogram {
        let reset = self.reset.read();
        let sum = self.row_histogram(row);
        reset.as_ref().map_or(sum, |sums| sum.since(&sums.rows[row].1))
    }

    fn row_histogram(&self, row: usize) -> Histogram {
        let mut sum = Histogram::default();
        self.workers.iter().for_each(|worker| sum.add(&worker.rows[row].times));
        sum
    }

    /// The hot keys of each worker, and how many samples of all keys that worker takes per second.
    pub fn hot_keys(&self, now_ms: u64) -> impl Iterator<Item = (Vec<HotKey>, f64)> {
        self.workers.iter().map(move |worker| worker.hot_keys.lock().rates(now_ms))
    }

    /// Memory of the script machines, in bytes, as of when each last ran or compiled a script.
    pub fn vm_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.vm_bytes.load(Ordering::Relaxed)).sum()
    }

    /// The counters over all commands, since the start or the last reset.
    pub fn keyspace_totals(&self) -> Totals {
        let reset = self.reset.read();
        let before = reset.as_ref().map_or_else(Totals::default, |sums| sums.keyspace);
        let sums = self.keyspace_sums();
        Totals {
            evicted_keys: sums.evicted_keys - before.evicted_keys,
            expired_keys: sums.expired_keys - before.expired_keys,
            expired_fields: sums.expired_fields - before.expired_fields,
            keyspace_hits: sums.keyspace_hits - before.keyspace_hits,
            keyspace_misses: sums.keyspace_misses - before.keyspace_misses,
        }
    }

    fn keyspace_sums(&self) -> Totals {
        let sum = |counter: fn(&WorkerStats) -> &AtomicU64| -> u64 {
            self.workers.iter().map(|worker| counter(worker).load(Ordering::Relaxed)).sum()
        };
        Totals {
            evicted_keys: sum(|worker| &worker.evicted),
            expired_keys: sum(|worker| &worker.expired),
            expired_fields: sum(|worker| &worker.expired_fields),
            keyspace_hits: sum(|worker| &worker.hits),
            keyspace_misses: sum(|worker| &worker.misses),
        }
    }

    /// The numbers of error replies by code.
    pub fn errors(&self) -> BTreeMap<Box<str>, u64> {
        let mut totals = BTreeMap::new();
        self.workers.iter().for_each(|worker| worker.errors.add_to(&mut totals));
        totals
    }

    /// The number of waits of clients that were served and changed data, since the start. Such a change is in
    /// the record of the unit that served the wait.
    pub fn served(&self) -> u64 {
        self.workers.iter().map(|worker| worker.served.load(Ordering::Relaxed)).sum()
    }

    /// The number of calls of all commands, since the start or the last reset.
    pub fn total_calls(&self) -> u64 {
        (0..self.row_count()).map(|row| self.totals(row).calls).sum()
    }

    fn row_count(&self) -> usize {
        self.workers.first().map_or(0, |worker| worker.rows.len())
    }

    /// Lets all counters begin at zero; the memory of the script machines stays.
    pub fn reset(&self) {
        let mut reset = self.reset.write();
        let rows = (0..self.row_count()).map(|row| (self.row_totals(row), self.row_histogram(row))).collect();
        *reset = Some(Sums { rows, keyspace: self.keyspace_sums() });
        for worker in &self.workers {
            *worker.hot_keys.lock() = HotKeys::default();
            worker.errors.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::row::samples;

    #[test]
    fn a_reset_changes_no_counter_of_a_worker() {
        let stats = CommandStats::new(2, samples::table());
        let counts = |worker: usize| {
            let worker = stats.worker(worker);
            worker.called(1, true);
            worker.rejected(1);
            worker.timed(1, 3, 32);
            worker.looked_up(true);
            worker.evicted();
        };
        (0..3).for_each(|_| counts(0));
        counts(1);
        let shown = || {
            let (row, all) = (stats.totals(1), stats.keyspace_totals());
            let row = (row.calls, row.failed, row.rejected, row.usec, stats.histogram(1).count());
            (row, all.keyspace_hits, all.evicted_keys, stats.total_calls())
        };
        assert_eq!(shown(), ((4, 4, 4, 4 * 96, 4 * 32), 4, 4, 4));
        for _ in 0..2 {
            stats.reset();
            assert_eq!(shown(), ((0, 0, 0, 0, 0), 0, 0, 0));
            counts(1);
            assert_eq!(shown(), ((1, 1, 1, 96, 32), 1, 1, 1));
        }
        let own = |worker: usize| stats.worker(worker).rows[1].calls.load(Ordering::Relaxed);
        assert_eq!((own(0), own(1)), (3, 3), "only the worker writes its counters");
    }

    #[test]
    fn no_count_is_lost_while_others_reset_and_read() {
        const CALLS: u64 = 50_000;
        let stats = CommandStats::new(1, samples::table());
        let worker = stats.worker(0);
        thread::scope(|scope| {
            let counting = scope.spawn(|| (0..CALLS).for_each(|_| worker.called(1, false)));
            while !counting.is_finished() {
                stats.reset();
                assert!(stats.totals(1).calls <= CALLS, "nothing below zero");
            }
        });
        assert_eq!(worker.rows[1].calls.load(Ordering::Relaxed), CALLS);
    }
}
