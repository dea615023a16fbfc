//! Flushing: close the open batch, write it with one write, make it durable, tell who waits.
//!
//! A step machine without a thread: [`Shared::flush`] does one batch. The server's log thread calls it in a loop;
//! a worker that is the only writer may call it on the spot.
//!
//! Invariants
//! - One batch in flight. The next is closed only after the one before is written, so a batch on disk vouches for
//!   everything its footer calls durable.
//! - A closed batch is written whole before anything else; if it needs a segment that does not exist yet, it waits
//!   closed ([`Flush::NeedSegment`]).
//! - The first failure poisons the log. Neither the write nor the sync is tried again.

#![allow(unsafe_code)]

use std::{path::Path, sync::Arc};

use env::File;
use lsn::Lsn;

use super::{
    Durability, Shared,
    footer::{self, Footer, Link, Predecessor},
    record,
    segment::Segment,
};
use crate::{Error, LogStats, sync::Ordering};

/// With `durability = interval`, the log is synced this often.
const SYNC_INTERVAL_US: u64 = 1_000_000;
/// An idle log writes an empty batch after this time, whose footer vouches for the last batch with content: damage to it
/// is then corruption, not a torn tail.
const SEAL_AFTER_US: u64 = 1_000_000;
/// Files that are written and not synced, at most: with `durability = none` the oldest is synced when one more
/// is begun, so that the final sync is bounded.
const UNSYNCED_FILES_MAX: usize = 4;

/// What a call of [`Log::flush`](super::Log::flush) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Nothing is left to write. If set, something is due at that time (monotonic microseconds) although
    /// nothing is appended.
    Idle {
        /// Monotonic microseconds, by the log's clock.
        due_us: Option<u64>,
    },
    /// A batch was written, or something was appended meanwhile: call again.
    Wrote,
    /// The batch needs a segment that is still being made: call again when it is.
    NeedSegment,
}

/// The flusher's own state, behind one lock.
pub(super) struct Flusher {
    /// The segment being written; `None` before the first of a log that begins with none.
    active: Option<Segment>,
    /// A batch that is closed and not yet written: its first and last position.
    closed: Option<(Lsn, Lsn)>,
    /// What the next batch continues.
    before: Predecessor,
    /// Written files that are not synced, oldest first, each with the batch boundary that is reached once it and those
    /// before it are synced: a batch that goes on in the next file is durable only with that.
    unsynced: Vec<(Arc<dyn File>, Lsn)>,
    last_sync_us: u64,
    last_write_us: u64,
    /// Whether the last durable batch has records that no later footer vouches for.
    unsealed: bool,
    /// Whether the last batch of this run has no records, so that the log ends with what vouches for all of it.
    ends_sealed: bool,
    /// What is written now is made durable, whatever the durability.
    is_sealing: bool,
    /// Records that the statistics have counted.
    records_counted: u64,
}

impl Flusher {
    /// Goes on in `active`, if there is one, with a batch that continues `before`.
    pub(super) fn new(active: Option<Segment>, before: Predecessor, now_us: u64) -> Self {
        Flusher {
            active,
            closed: None,
            before,
            unsynced: Vec::new(),
            last_sync_us: now_us,
            last_write_us: now_us,
            unsealed: false,
            ends_sealed: false,
            is_sealing: false,
            records_counted: 0,
        }
    }

    fn active_end(&self) -> Option<Lsn> {
        self.active.as_ref().map(|active| active.end)
    }

    /// Goes on behind batches that others have closed.
    pub(super) fn continue_behind(&mut self, before: Predecessor) {
        self.before = before;
    }

    /// What an error is about: the segment being written.
    fn path<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.active.as_ref().map_or(dir, |active| &active.path)
    }
}

impl Shared {
    /// One step; see [`Log::flush`](super::Log::flush).
    pub(super) fn flush(&self, flusher: &mut Flusher) -> Result<Flush, Error> {
        if let Some(reason) = self.poison_reason.lock().clone() {
            return Err(Error::Poisoned { reason });
        }
        self.sequencer.begin_flushing();
        let result = self.step(flusher).inspect_err(|error| self.poison(error));
        let all_written = self.sequencer.end_flushing(self.written.load(Ordering::Relaxed));
        match result? {
            Flush::Idle { .. } if !all_written => Ok(Flush::Wrote),
            done => Ok(done),
        }
    }

    fn step(&self, flusher: &mut Flusher) -> Result<Flush, Error> {
        let written = self.written.load(Ordering::Relaxed);
        if flusher.closed.is_none() {
            if self.sequencer.tail() == written {
                return self.idle(flusher);
            }
            flusher.closed = match self.mirroring.load(Ordering::SeqCst) {
                false => Some(self.close_batch(flusher)),
                // Closed by who wrote them first; `None` while the first is still being copied.
                true => Some(Lsn::new(self.sequencer.published()))
                    .filter(|end| end.get() > written)
                    .map(|end| (Lsn::new(written), end)),
            };
            if flusher.closed.is_none() {
                return Ok(Flush::Idle { due_us: None });
            }
        }
        self.write_closed(flusher)
    }

    /// Ends the open batch; it is then complete in the ring.
    fn close_batch(&self, flusher: &mut Flusher) -> (Lsn, Lsn) {
        let start = Lsn::new(self.written.load(Ordering::Relaxed));
        let (records_end, end) = self.sequencer.close_batch();
        // SAFETY: everything before `records_end` is published and stays untouched until `advance` releases it; the batch is at most
        // the ring, which is mapped twice in a row.
        let records = unsafe { self.ring.slice(start.get(), (records_end - start.get()) as usize) };
        let link = Link {
            reign: self.reign.load(Ordering::Relaxed),
            content: footer::sum_of(records),
            before: flusher.before.chain.unwrap_or_default(),
        };
        let footer = Footer {
            start,
            batch_number: flusher.before.next_batch_number.unwrap_or_default(),
            durable: Lsn::new(self.durable.load(Ordering::Relaxed)),
            closed_at_ms: flusher.before.closed_at_ms.max(self.clock.unix_ms()),
            end: Lsn::new(end),
            epoch: self.epoch.load(Ordering::Relaxed),
            link: Some(link),
        };
        flusher.before = Predecessor::from(&footer);
        flusher.unsealed = records_end > start.get();
        flusher.ends_sealed = !flusher.unsealed;
        self.count_records(flusher);
        // SAFETY: the flusher reserved [records_end, end) for itself.
        let space = unsafe { self.ring.slice_mut(records_end, (end - records_end) as usize) };
        record::encode_batch_end(space, &footer);
        (start, Lsn::new(end))
    }

    /// Records are counted by their appenders; what came since the last batch is this one's share, give or take
    /// what is published while this looks.
    fn count_records(&self, flusher: &mut Flusher) {
        let published = self.sequencer.published_records();
        self.stats.batch_records.observe(published - flusher.records_counted);
        LogStats::add(&self.stats.records, published - flusher.records_counted);
        flusher.records_counted = published;
    }

    /// Writes the closed batch, durably if the durability says so, and releases who waits for it.
    fn write_closed(&self, flusher: &mut Flusher) -> Result<Flush, Error> {
        let (start, end) = flusher.closed.expect("a closed batch");
        if end.get() > self.prepared_end.load(Ordering::Acquire) {
            return Ok(Flush::NeedSegment);
        }
        let durability = Durability::from_byte(self.durability.load(Ordering::Relaxed));
        let durable = flusher.is_sealing || durability.syncs_every_batch();
        let started_us = self.clock.monotonic_us();
        self.flush_started_us.store(started_us, Ordering::Relaxed);
        if durable && !flusher.unsynced.is_empty() {
            // The durability was raised: what was written lazily must be durable before what follows it.
            self.sync(flusher)?;
        }
        if self.mirror_vouched.load(Ordering::Relaxed) > self.durable.load(Ordering::Relaxed) {
            // What is about to be written may say of this what another server knew of its own disk.
            self.sync(flusher)?;
        }
        let mut position = start;
        while position < end {
            if flusher.active_end().is_none_or(|end| end == position) {
                self.enter_next_segment(flusher)?;
            }
            let piece_end = flusher.active_end().map_or(end, |segment_end| end.min(segment_end));
            let boundary = if piece_end == end { end } else { start };
            self.write_piece(flusher, (position, piece_end), boundary, durable)?;
            position = piece_end;
        }
        flusher.closed = None;
        flusher.last_write_us = self.clock.monotonic_us();
        self.flush_started_us.store(0, Ordering::Relaxed);
        self.stats.flush_us.observe(flusher.last_write_us - started_us);
        self.stats.took(flusher.last_write_us - started_us);
        LogStats::add(&self.stats.batches, 1);
        LogStats::add(&self.stats.bytes, end.bytes_since(start));
        if self.recent.is_wanted() {
            // SAFETY: as in `write_piece`; the ring is mapped twice in a row.
            let bytes = unsafe { self.ring.slice(start.get(), end.bytes_since(start) as usize) };
            self.recent.push(start, end, bytes);
        }
        self.advance(end, durable);
        if !durable {
            self.sync_if_due(flusher)?;
        }
        Ok(Flush::Wrote)
    }

    fn write_piece(
        &self,
        flusher: &mut Flusher,
        (from, to): (Lsn, Lsn),
        boundary: Lsn,
        durable: bool,
    ) -> Result<(), Error> {
        // SAFETY: the batch is closed: its bytes are filled and stay untouched until `advance` releases them.
        let bytes = unsafe { self.ring.slice(from.get(), to.bytes_since(from) as usize) };
        let active = flusher.active.as_ref().expect("a segment was entered");
        let Segment { path, file, .. } = active;
        let offset = active.offset(from);
        if durable {
            LogStats::add(&self.stats.syncs, 1);
            return file.write_durable_at(bytes, offset).map_err(Error::io("write", path));
        }
        file.write_direct_at(bytes, offset).map_err(Error::io("write", path))?;
        match flusher.unsynced.last_mut() {
            Some((last, reached)) if Arc::ptr_eq(last, file) => *reached = boundary,
            _ => flusher.unsynced.push((file.clone(), boundary)),
        }
        Ok(())
    }

    /// Publishes that everything before `end` is written, and durable if so.
    fn advance(&self, end: Lsn, durable: bool) {
        self.written.store(end.get(), Ordering::SeqCst);
        self.sequencer.release(end.get());
        if durable {
            self.set_durable(end);
        } else {
            self.waiters.wake(Lsn::ZERO);
        }
        self.notify_progress();
    }

    fn set_durable(&self, end: Lsn) {
        let before = self.durable.swap(end.get(), Ordering::SeqCst);
        assert!(before <= end.get(), "durable_lsn moved back");
        self.waiters.wake(Lsn::new(self.committed()));
    }

    fn enter_next_segment(&self, flusher: &mut Flusher) -> Result<(), Error> {
        if flusher.unsynced.len() >= UNSYNCED_FILES_MAX {
            let (file, boundary) = flusher.unsynced.remove(0);
            LogStats::add(&self.stats.syncs, 1);
            file.sync_data().map_err(Error::io("sync", flusher.path(&self.dir)))?;
            self.set_durable(boundary);
        }
        let next = self.segments.lock().ready.pop_front().expect("segments are prepared up to prepared_end");
        assert!(flusher.active_end().is_none_or(|end| end == next.start), "segments follow each other");
        flusher.active = Some(next);
        Ok(())
    }

    /// Makes durable all that was written lazily.
    fn sync(&self, flusher: &mut Flusher) -> Result<(), Error> {
        let started_us = self.clock.monotonic_us();
        for (file, boundary) in std::mem::take(&mut flusher.unsynced) {
            LogStats::add(&self.stats.syncs, 1);
            file.sync_data().map_err(Error::io("sync", flusher.path(&self.dir)))?;
            self.set_durable(boundary);
        }
        flusher.last_sync_us = self.clock.monotonic_us();
        self.stats.took(flusher.last_sync_us - started_us);
        Ok(())
    }

    /// Makes durable all that is written, for a caller that cannot wait until it is due.
    pub(super) fn sync_written(&self, flusher: &mut Flusher) -> Result<(), Error> {
        if let Some(reason) = self.poison_reason.lock().clone() {
            return Err(Error::Poisoned { reason });
        }
        self.sync(flusher).inspect_err(|error| self.poison(error))
    }

    fn sync_if_due(&self, flusher: &mut Flusher) -> Result<(), Error> {
        let durability = Durability::from_byte(self.durability.load(Ordering::Relaxed));
        let due = self.clock.monotonic_us() >= flusher.last_sync_us + SYNC_INTERVAL_US;
        if durability == Durability::None || (durability == Durability::Interval && !due) {
            return Ok(());
        }
        self.sync(flusher)
    }

    /// Nothing is appended: sync or seal if that is due, else say when it will be.
    fn idle(&self, flusher: &mut Flusher) -> Result<Flush, Error> {
        self.sync_if_due(flusher)?;
        let durability = Durability::from_byte(self.durability.load(Ordering::Relaxed));
        if !flusher.unsynced.is_empty() {
            let due_us =
                (durability == Durability::Interval).then(|| flusher.last_sync_us + SYNC_INTERVAL_US);
            return Ok(Flush::Idle { due_us });
        }
        if !flusher.unsealed {
            return Ok(Flush::Idle { due_us: None });
        }
        let seal_us = flusher.last_write_us + SEAL_AFTER_US;
        if self.clock.monotonic_us() < seal_us {
            return Ok(Flush::Idle { due_us: Some(seal_us) });
        }
        flusher.closed = Some(self.close_batch(flusher));
        self.write_closed(flusher)
    }

    /// Closes a batch whether or not anything is in it, if none waits to be written; returns where it ends.
    pub(super) fn close_now(&self, flusher: &mut Flusher) -> Result<Lsn, Error> {
        if let Some(reason) = self.poison_reason.lock().clone() {
            return Err(Error::Poisoned { reason });
        }
        let closed = match flusher.closed {
            Some(closed) => closed,
            None => self.close_batch(flusher),
        };
        flusher.closed = Some(closed);
        Ok(closed.1)
    }

    /// Makes everything written durable and ends the log with a batch that vouches for all before it, if it does not end with one
    /// already: whoever was given all of the log has all of it then. Returns the end.
    pub(super) fn seal(&self, flusher: &mut Flusher) -> Result<Lsn, Error> {
        if self.mirroring.load(Ordering::SeqCst) {
            self.sync_written(flusher)?;
            return Ok(Lsn::new(self.durable.load(Ordering::SeqCst)));
        }
        let seal = |flusher: &mut Flusher| -> Result<(), Error> {
            self.sync(flusher)?;
            let all_written = self.sequencer.tail() == self.written.load(Ordering::Relaxed);
            if flusher.ends_sealed && flusher.closed.is_none() && all_written {
                return Ok(());
            }
            flusher.closed = Some(self.close_batch(flusher));
            if self.write_closed(flusher)? == Flush::NeedSegment {
                self.prepare_segment()?;
                self.write_closed(flusher)?;
            }
            Ok(())
        };
        flusher.is_sealing = true;
        let sealed = seal(flusher);
        flusher.is_sealing = false;
        sealed.inspect_err(|error| self.poison(error))?;
        Ok(Lsn::new(self.durable.load(Ordering::SeqCst)))
    }
}
