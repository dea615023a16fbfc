//! Flushing: close the open batch, write it with one write (one more for each further segment that it
//! reaches), make it durable, wake the waiters.
//!
//! This is a step machine without a thread: [`LogState::flush`] writes one batch. The server's log thread
//! calls it in a loop; a worker that is the only writer may call it directly.
//!
//! Invariants
//! - At most one batch is in flight. The next batch is closed only after the previous one is written, so
//!   everything that the footer of a batch on disk calls durable is durable.
//! - A closed batch is written whole before anything else; if it needs a segment that does not exist yet, it
//!   stays closed and unwritten ([`Flush::NeedSegment`]).
//! - The first failure poisons the log. Neither the write nor the sync is retried.

#![allow(unsafe_code)]

use std::{path::Path, sync::Arc};

use env::File;
use lsn::Lsn;

use super::{
    Durability, LogState,
    flush_times::FlushTime,
    footer::{self, Footer, Link, Predecessor},
    record,
    segment::Segment,
};
use crate::{Error, LogStats, sync::Ordering};

/// The interval of syncs with `durability = interval`.
const SYNC_INTERVAL_US: u64 = 1_000_000;
/// After this time without writes, a log that is durable and ends with records writes an empty batch. The
/// footer of this batch vouches for the records before it, so that damage to them is recognised as corruption
/// and not taken for a torn tail.
const SEAL_AFTER_US: u64 = 1_000_000;
/// The maximum number of files that are written and not synced. If there are as many when another file is
/// begun, as happens with `durability = none`, the oldest is synced first. This bounds the final sync.
const UNSYNCED_FILES_MAX: usize = 4;

/// The result of a call of [`Log::flush`](super::Log::flush).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Nothing is left to write. If `due_us` is set, call again at that time even if nothing is appended: a
    /// sync or an empty batch is due then.
    Idle {
        /// Monotonic microseconds, by the log's clock.
        due_us: Option<u64>,
    },
    /// A batch was written, or records were appended meanwhile: call again.
    Wrote,
    /// The batch needs a segment that does not exist yet: call again when it does.
    NeedSegment,
}

/// The flusher's own state, behind one lock.
pub(super) struct Flusher {
    /// The segment being written; `None` before the first segment of a log that starts without one.
    active: Option<Segment>,
    /// A batch that is closed and not yet written: its start and its end.
    closed: Option<(Lsn, Lsn)>,
    /// The predecessor of the next batch.
    before: Predecessor,
    /// Written files that are not synced, oldest first. Each file has a batch boundary, which is durable once
    /// this file and the older ones are synced. A batch that continues in the next file becomes durable only
    /// with the next file.
    unsynced: Vec<(Arc<dyn File>, Lsn)>,
    last_sync_us: u64,
    last_write_us: u64,
    /// Whether the last closed batch has records for which no later footer vouches yet.
    unsealed: bool,
    /// Whether the last batch of this run has no records, so that the log ends with a footer that vouches for
    /// everything that was durable when it was closed.
    ends_sealed: bool,
    /// Whether writes are made durable, independent of the configured durability.
    is_sealing: bool,
    /// Number of records already counted in the statistics.
    records_counted: u64,
}

impl Flusher {
    /// A flusher that writes to the segment `active`, if given. Its first batch continues `before`.
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

    /// Continues after batches that another server has closed.
    pub(super) fn continue_behind(&mut self, before: Predecessor) {
        self.before = before;
        (self.unsealed, self.ends_sealed) = (false, false);
    }

    /// Stops closing batches, because another server closes them from now on; returns the predecessor of the
    /// next batch. Nothing may be waiting to be written.
    pub(super) fn stop_closing(&mut self) -> Predecessor {
        assert!(self.closed.is_none(), "everything is written");
        self.unsealed = false;
        self.before
    }

    /// The path for error messages: the segment being written, or `dir`.
    fn path<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.active.as_ref().map_or(dir, |active| &active.path)
    }
}

impl LogState {
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
                // Mirrored batches were closed by their source, so whole batches are in the ring. `None`
                // while the first of these batches is still being copied into the ring.
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

    /// Closes the open batch; it is then complete in the ring.
    fn close_batch(&self, flusher: &mut Flusher) -> (Lsn, Lsn) {
        let start = Lsn::new(self.written.load(Ordering::Relaxed));
        let (records_end, end) = self.sequencer.close_batch();
        // SAFETY: everything before `records_end` is published and stays unchanged until `advance` releases
        // it; the batch is at most as long as the ring, which is mapped twice in a row.
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

    /// Counts the records that appenders have published since the last batch as the records of this batch.
    /// The count may be off by the records published during this call.
    fn count_records(&self, flusher: &mut Flusher) {
        let published = self.sequencer.published_records();
        self.stats.batch_records.observe(published - flusher.records_counted);
        LogStats::add(&self.stats.records, published - flusher.records_counted);
        flusher.records_counted = published;
    }

    /// Writes the closed batch, durably if the durability demands it, and wakes its waiters.
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
            // The durability was raised: earlier writes without sync must become durable before this batch.
            self.sync(flusher)?;
        }
        if self.mirror_vouched.load(Ordering::Relaxed) > self.durable.load(Ordering::Relaxed) {
            // A footer in this batch may call bytes durable that the source has synced and this disk has
            // not. This disk syncs these bytes before the footer is written.
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
        if self.stalled.load(Ordering::Relaxed) {
            self.stalled.store(false, Ordering::Relaxed);
        }
        self.stats.flush_us.observe(flusher.last_write_us - started_us);
        self.stats.took(flusher.last_write_us - started_us);
        self.flush_times.note(FlushTime {
            start,
            end,
            began_us: started_us,
            ended_us: flusher.last_write_us,
        });
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
        // SAFETY: the batch is closed: its bytes are filled and stay unchanged until `advance` releases them.
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

    /// Publishes that everything before `end` is written, and durable if `durable`.
    fn advance(&self, end: Lsn, durable: bool) {
        self.written.store(end.get(), Ordering::SeqCst);
        self.sequencer.release(end.get());
        if durable {
            self.set_durable(end);
        } else {
            self.waiters.wake(Lsn::new(self.committed()));
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

    /// Syncs all files that were written without a sync, the oldest first.
    fn sync(&self, flusher: &mut Flusher) -> Result<(), Error> {
        let started_us = self.clock.monotonic_us();
        // The sync may be a part of a write in flight. The start time of that write is restored below.
        let in_flight_us = self.flush_started_us.swap(started_us, Ordering::Relaxed);
        for (file, boundary) in std::mem::take(&mut flusher.unsynced) {
            LogStats::add(&self.stats.syncs, 1);
            file.sync_data().map_err(Error::io("sync", flusher.path(&self.dir)))?;
            self.set_durable(boundary);
        }
        self.flush_started_us.store(in_flight_us, Ordering::Relaxed);
        flusher.last_sync_us = self.clock.monotonic_us();
        self.stats.took(flusher.last_sync_us - started_us);
        Ok(())
    }

    /// Syncs everything written, for a caller that cannot wait until a sync is due.
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

    /// There is nothing to write: syncs or seals if that is due, otherwise returns the time at which one of
    /// them will be due, if any.
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

    /// Closes the open batch, even if it is empty, unless a closed batch waits to be written; returns the end
    /// of the closed batch.
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

    /// Writes the closed batch; makes the segment for it on this thread, if the disk has room.
    fn write_closed_here(&self, flusher: &mut Flusher) -> Result<(), Error> {
        if self.write_closed(flusher)? == Flush::NeedSegment {
            self.prepare_segment()?;
            self.write_closed(flusher)?;
        }
        Ok(())
    }

    /// Makes everything written durable and ends the log with an empty batch that vouches for everything
    /// before it. No such batch is added if the log already ends with one, or if the disk has no room. A
    /// mirror is only synced. Nothing may append meanwhile. Returns the durable end; a server that has the
    /// log up to this end has all of the log.
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
            if flusher.closed.is_some() {
                self.write_closed_here(flusher)?;
            }
            if flusher.closed.is_none() {
                flusher.closed = Some(self.close_batch(flusher));
            }
            self.write_closed_here(flusher)
        };
        flusher.is_sealing = true;
        let sealed = seal(flusher);
        flusher.is_sealing = false;
        sealed.inspect_err(|error| self.poison(error))?;
        Ok(Lsn::new(self.durable.load(Ordering::SeqCst)))
    }
}
