//! Ownership of the bytes of the ring: reservation, publication and the hand-over to the flusher.
//!
//! This module is the lock-free part of the log. It handles only positions, no bytes and no I/O, so that a
//! model checker can try every interleaving.
//!
//! ```text
//!   released        closed             published            tail
//!      |  being written |  open batch, filled |  being filled  |
//! -----+----------------+---------------------+----------------+-----> lsn
//!      '----------------------- at most `capacity` ------------'
//! ```
//!
//! An appender (one thread, one index) reserves in three steps, whose order makes it safe:
//! 1. its *word* := the current tail, so that nothing from there on counts as published;
//! 2. compare-and-swap the tail forward: the bytes are its own;
//! 3. fill them, then its word := IDLE (release).
//!
//! The flusher loads the tail FIRST and the words afterwards. The word of every reservation below that tail
//! was stored before, so the flusher sees either that word (and waits) or a later word (and then, through
//! acquire, the filled bytes).
//!
//! Invariants
//! - Reservations are disjoint, in tail order, and gap-free.
//! - Bytes below `published()` are filled and visible to its caller.
//! - An appender can never take the last [`FLUSHER_RESERVE_BYTES`] of the ring (except with
//!   `reserve_closed`), so the flusher can always close the open batch.
//! - No bytes stay unflushed while all threads sleep. An appender that sees no active flusher must wake one
//!   (`needs_wake`). An active flusher checks the tail again after it has marked itself inactive.

use crate::sync::{AtomicBool, AtomicU64, Ordering, Padded, fence, spin_loop, yield_now};

use super::record::{BATCH_END_BYTES_MIN, BLOCK_BYTES};

/// Bytes kept free for the batch-end record: its minimum size and the padding to the next block.
pub(crate) const FLUSHER_RESERVE_BYTES: u64 = 2 * BLOCK_BYTES;

const IDLE: u64 = u64::MAX;

/// Number of spins before the flusher yields the processor: filling takes at most a few microseconds, unless
/// the appender was descheduled.
const SPINS_BEFORE_YIELD: u32 = 200;

/// The state that one appender publishes for the flusher. Written by that appender only.
#[derive(Debug)]
struct Word {
    /// This appender has filled everything that it reserved before this position. IDLE if it fills nothing at
    /// the moment.
    filling_from: AtomicU64,
    /// Reservations published so far, for statistics: records, or the batches of a mirror.
    records: AtomicU64,
}

/// Positions of the ring, shared by appenders and flusher without locks.
#[derive(Debug)]
pub(crate) struct Sequencer {
    tail: Padded<AtomicU64>,
    released: Padded<AtomicU64>,
    flusher_active: Padded<AtomicBool>,
    words: Box<[Padded<Word>]>,
    capacity: u64,
}

/// The end of a batch whose records end at `tail`.
pub(crate) fn batch_end(tail: u64) -> u64 {
    (tail + BATCH_END_BYTES_MIN).next_multiple_of(BLOCK_BYTES)
}

impl Sequencer {
    pub(crate) fn new(start: u64, capacity: u64, appenders: usize) -> Self {
        assert!(capacity > FLUSHER_RESERVE_BYTES);
        Sequencer {
            tail: Padded(AtomicU64::new(start)),
            released: Padded(AtomicU64::new(start)),
            flusher_active: Padded(AtomicBool::new(false)),
            words: (0..appenders)
                .map(|_| Padded(Word { filling_from: AtomicU64::new(IDLE), records: AtomicU64::new(0) }))
                .collect(),
            capacity,
        }
    }

    /// Reserves the next `bytes` for `appender`; `None` if the ring is full. Fill them, then [`publish`].
    ///
    /// [`publish`]: Sequencer::publish
    #[inline]
    pub(crate) fn reserve(&self, appender: usize, bytes: u64) -> Option<u64> {
        self.reserve_within(appender, bytes, self.capacity - FLUSHER_RESERVE_BYTES)
    }

    /// Like [`Sequencer::reserve`], for whole batches: they are already closed, so no bytes are kept free for
    /// a batch-end record.
    pub(crate) fn reserve_closed(&self, appender: usize, bytes: u64) -> Option<u64> {
        self.reserve_within(appender, bytes, self.capacity)
    }

    #[inline]
    fn reserve_within(&self, appender: usize, bytes: u64, used_max: u64) -> Option<u64> {
        let word = &self.words[appender].0.filling_from;
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        // Relaxed is enough: the swap below releases this store, and swaps of other appenders continue that
        // release sequence. So a thread that acquires a tail which includes this reservation also sees this
        // word.
        word.store(tail, Ordering::Relaxed);
        loop {
            // The difference is negative if the flusher has advanced since the tail was loaded: then the swap
            // fails and returns the new tail.
            let used = (tail + bytes).saturating_sub(self.released.0.load(Ordering::Acquire));
            if used > used_max {
                word.store(IDLE, Ordering::Release);
                return None;
            }
            match self.tail.0.compare_exchange_weak(tail, tail + bytes, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(start) => return Some(start),
                Err(current) => tail = current,
            }
        }
    }

    /// Marks the latest reservation of `appender` as filled.
    #[inline]
    pub(crate) fn publish(&self, appender: usize) {
        let word = &self.words[appender].0;
        word.records.store(word.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        word.filling_from.store(IDLE, Ordering::Release);
    }

    /// Reservations published by all appenders so far: records, or the batches of a mirror.
    pub(crate) fn published_records(&self) -> u64 {
        self.words.iter().map(|word| word.0.records.load(Ordering::Relaxed)).sum()
    }

    /// The position up to which everything is filled. Does not wait, unlike `close_batch`.
    pub(crate) fn published(&self) -> u64 {
        let tail = self.tail.0.load(Ordering::SeqCst);
        self.words.iter().map(|word| word.0.filling_from.load(Ordering::SeqCst)).fold(tail, u64::min)
    }

    /// The position after the last reservation.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::SeqCst)
    }

    /// Closes the open batch: reserves its end record and waits until everything before is filled. Flusher
    /// only. Returns (start of the end record, end of the batch).
    pub(crate) fn close_batch(&self) -> (u64, u64) {
        let mut tail = self.tail.0.load(Ordering::SeqCst);
        let (start, end) = loop {
            let end = batch_end(tail);
            assert!(
                end - self.released.0.load(Ordering::Relaxed) <= self.capacity,
                "no room to close a batch"
            );
            match self.tail.0.compare_exchange_weak(tail, end, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(start) => break (start, end),
                Err(current) => tail = current,
            }
        };
        let mut spins = 0;
        while self.words.iter().any(|word| word.0.filling_from.load(Ordering::SeqCst) < start) {
            spins += 1;
            if spins % SPINS_BEFORE_YIELD == 0 { yield_now() } else { spin_loop() }
        }
        (start, end)
    }

    /// Lets the ring overwrite the bytes before `position`, which are written. Flusher only.
    pub(crate) fn release(&self, position: u64) {
        self.released.0.store(position, Ordering::Release);
    }

    /// Bytes reserved and not yet released.
    #[inline]
    pub(crate) fn used(&self) -> u64 {
        self.tail().saturating_sub(self.released.0.load(Ordering::Acquire))
    }

    /// Whether an appender that has just published must wake the flusher: see the module's last invariant.
    #[inline]
    pub(crate) fn needs_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.flusher_active.0.load(Ordering::SeqCst)
    }

    /// Marks the flusher as active: from now on appenders rely on it.
    pub(crate) fn begin_flushing(&self) {
        self.flusher_active.0.store(true, Ordering::SeqCst);
    }

    /// Marks the flusher as inactive. Returns `false` if bytes after `flushed` were appended meanwhile: their
    /// appender may have relied on the caller, so the caller must flush again or wake another flusher.
    #[must_use]
    pub(crate) fn end_flushing(&self, flushed: u64) -> bool {
        self.flusher_active.0.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.tail() == flushed
    }
}

#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod loom_tests {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Arc, thread};

    /// A sequencer with cells for the bytes of the ring, one for each record. Loom reports a data race if the
    /// flusher reads a cell that is not yet filled.
    struct Model {
        sequencer: Sequencer,
        cells: [UnsafeCell<u64>; 4],
        woken: AtomicBool,
    }

    fn append(model: &Model, appender: usize) {
        let start = model.sequencer.reserve(appender, 64).expect("the ring is large enough");
        model.cells[(start % 4096 / 64) as usize % 4].with_mut(|cell| unsafe { *cell = start + 1 });
        model.sequencer.publish(appender);
        if model.sequencer.needs_wake() {
            model.woken.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn loom_published_bytes_are_filled() {
        loom::model(|| {
            let model = Arc::new(Model {
                sequencer: Sequencer::new(0, 1 << 16, 2),
                cells: [const { () }; 4].map(|()| UnsafeCell::new(0)),
                woken: AtomicBool::new(false),
            });
            let appenders = [0, 1].map(|appender| {
                let model = model.clone();
                thread::spawn(move || append(&model, appender))
            });
            let published = model.sequencer.published();
            for index in 0..published / 64 {
                model.cells[index as usize].with(|cell| assert_eq!(unsafe { *cell }, index * 64 + 1));
            }
            for appender in appenders {
                appender.join().unwrap();
            }
            assert_eq!(model.sequencer.published(), 128);
        });
    }

    #[test]
    fn loom_a_ring_with_room_is_never_full() {
        loom::model(|| {
            let model = Arc::new(Model {
                sequencer: Sequencer::new(0, 1 << 16, 2),
                cells: [const { () }; 4].map(|()| UnsafeCell::new(0)),
                woken: AtomicBool::new(false),
            });
            let appender = {
                let model = model.clone();
                thread::spawn(move || append(&model, 0))
            };
            // When the other appender computes the used bytes, the flusher may have released more than the
            // tail that the appender has loaded.
            append(&model, 1);
            append(&model, 1);
            model.sequencer.release(model.sequencer.published());
            appender.join().unwrap();
        });
    }

    /// Flushes as the log thread does; returns the position reached when it would sleep.
    fn flush_until_idle(model: &Model) -> u64 {
        let mut flushed = 0;
        loop {
            model.sequencer.begin_flushing();
            flushed = model.sequencer.published().max(flushed);
            model.sequencer.release(flushed);
            if model.sequencer.end_flushing(flushed) {
                return flushed;
            }
            yield_now();
        }
    }

    #[test]
    fn loom_nothing_is_left_behind_by_a_sleeping_flusher() {
        loom::model(|| {
            let model = Arc::new(Model {
                sequencer: Sequencer::new(0, 1 << 16, 1),
                cells: [const { () }; 4].map(|()| UnsafeCell::new(0)),
                woken: AtomicBool::new(false),
            });
            let appender = {
                let model = model.clone();
                thread::spawn(move || append(&model, 0))
            };
            let flushed = flush_until_idle(&model);
            appender.join().unwrap();
            let woken = model.woken.load(Ordering::SeqCst);
            assert!(flushed == 64 || woken, "an append was neither flushed nor did it wake the flusher");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_and_still_lets_the_flusher_close() {
        let sequencer = Sequencer::new(0, 16 * 1024, 1);
        assert_eq!(sequencer.reserve(0, 8192), Some(0));
        sequencer.publish(0);
        assert_eq!(sequencer.reserve(0, 8), None);
        assert_eq!(sequencer.close_batch(), (8192, 12288));
        assert_eq!(sequencer.published(), 12288);
        sequencer.release(12288);
        assert_eq!(sequencer.reserve(0, 8), Some(12288));
    }

    #[test]
    fn an_unfilled_reservation_holds_back_later_ones() {
        let sequencer = Sequencer::new(0, 1 << 20, 2);
        sequencer.reserve(0, 64).unwrap();
        sequencer.reserve(1, 64).unwrap();
        sequencer.publish(1);
        assert_eq!(sequencer.published(), 0);
        sequencer.publish(0);
        assert_eq!(sequencer.published(), 128);
    }
}
