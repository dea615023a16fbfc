//! Cursors of the log: they read whole batches, in order, soon after they were written, for replication and
//! feeds.
//!
//! ```text
//! flusher -- while the log has cursors: a copy of each batch --> recent (memory, bounded) --+--> cursors
//!                                                         segment files (older batches) ------+
//! ```
//!
//! A cursor does not keep old segments from being removed: if its position was removed, it gets
//! [`CursorRead::Forgotten`]. A caller that must not lose anything pins the log.
//!
//! Invariants
//! - The position of a cursor is one number, a batch boundary, so a change between memory and files leaves no
//!   gap.
//! - A cursor never sees records that may not leave the server: it ends at [`Log::shippable_lsn`].
//! - The log never waits for a cursor. A slow cursor reads files; the batches kept in memory for all cursors
//!   together are bounded by [`RECENT_BYTES_MAX`].
//! - Batches from a file are verified record by record and must continue the chain of the batches read
//!   before; batches from memory are the bytes that were written.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use lsn::Lsn;
use parking_lot::Mutex;

use super::{
    Log, LogState,
    footer::{FOOTER_BYTES, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Record},
    segment::Segment,
    walk::{BatchWalk, Walked},
};
use crate::{Control, Error, Start, sync::Ordering};

/// The maximum number of bytes of batches that are kept in memory, for all cursors together.
const RECENT_BYTES_MAX: usize = 8 << 20;
/// Files are read in pieces of this size.
const READ_BYTES: usize = 1 << 20;

/// One or more batches in memory, with the same bytes as on disk.
#[derive(Clone)]
struct RecentBatch {
    start: Lsn,
    end: Lsn,
    bytes: Arc<[u8]>,
}

/// The batches written most recently, while the log has cursors.
#[derive(Default)]
pub(super) struct Recent {
    cursors: AtomicUsize,
    batches: Mutex<(VecDeque<RecentBatch>, usize)>,
}

impl Recent {
    /// Whether the log has cursors. If not, the flusher copies no batches.
    pub(super) fn is_wanted(&self) -> bool {
        self.cursors.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// Adds the batch or batches just written.
    pub(super) fn push(&self, start: Lsn, end: Lsn, bytes: &[u8]) {
        let batch = RecentBatch { start, end, bytes: bytes.into() };
        let (batches, total) = &mut *self.batches.lock();
        // After a time without cursors, the batches kept may not reach up to `start`.
        if batches.back().is_some_and(|last| last.end != start) {
            batches.clear();
            *total = 0;
        }
        *total += bytes.len();
        batches.push_back(batch);
        while *total > RECENT_BYTES_MAX
            && let Some(oldest) = batches.pop_front()
        {
            *total -= oldest.bytes.len();
        }
    }

    fn find(&self, position: Lsn) -> Option<RecentBatch> {
        let (batches, _) = &*self.batches.lock();
        let index = batches.partition_point(|batch| batch.start < position);
        batches.get(index).filter(|batch| batch.start == position).cloned()
    }

    fn forget(&self) {
        *self.batches.lock() = Default::default();
    }
}

/// One or more whole batches, with the same bytes as on disk.
#[derive(Clone)]
pub struct Chunk {
    /// The start of the first batch.
    pub start: Lsn,
    /// The end of the last batch.
    pub end: Lsn,
    /// The bytes from `start` to `end`.
    pub bytes: Arc<[u8]>,
}

impl Chunk {
    /// The records in log order, without the batch-end records.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        record::verified_records(&self.bytes, self.start)
    }

    /// The batches, the last one first.
    pub fn batches_backwards(&self) -> impl Iterator<Item = BatchInfo> {
        batches_backwards(self.start, &self.bytes)
    }

    /// The batches, in order.
    pub fn batches(&self) -> Vec<BatchInfo> {
        batches_in(self.start, &self.bytes)
    }
}

/// The batches in `bytes`, in order. `bytes` consists of whole batches, of which the first starts at `start`.
/// The batches are found backwards by their footers; nothing else is verified. Empty if the footers do not
/// lead back to `start`.
pub fn batches_in(start: Lsn, bytes: &[u8]) -> Vec<BatchInfo> {
    let mut batches: Vec<BatchInfo> = batches_backwards(start, bytes).collect();
    batches.reverse();
    if batches.first().is_some_and(|first| first.start != start) {
        batches.clear();
    }
    batches
}

fn batches_backwards(start: Lsn, bytes: &[u8]) -> impl Iterator<Item = BatchInfo> {
    let mut end = start.advance(bytes.len() as u64);
    std::iter::from_fn(move || {
        let bytes = &bytes[..end.bytes_since(start) as usize];
        let batch = Footer::decode(bytes, end).filter(|footer| footer.start >= start)?;
        end = batch.start;
        Some(batch.into())
    })
}

/// The result of a read.
pub enum CursorRead {
    /// The next batches.
    Chunk(Chunk),
    /// There is no further batch, or none that may be returned.
    UpToDate,
    /// The log no longer reaches back to the cursor's position: it starts at this later position.
    Forgotten(Lsn),
}

/// Data of a batch from its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// The start of the batch.
    pub start: Lsn,
    /// The end of the batch.
    pub end: Lsn,
    /// The number of the batch in the log, counted from 0.
    pub number: u64,
    /// The epoch of its writer.
    pub epoch: u32,
    /// When it was closed, in milliseconds since 1970.
    pub closed_at_ms: u64,
    /// The reign of its writer; 0 in the earlier format.
    pub reign: u64,
    /// The chain value: identifies this batch and all before it.
    pub chain: u64,
}

impl From<Footer> for BatchInfo {
    fn from(footer: Footer) -> BatchInfo {
        let (reign, chain) = (footer.reign(), footer.chain());
        let Footer { start, end, batch_number: number, epoch, closed_at_ms, .. } = footer;
        BatchInfo { start, end, number, epoch, closed_at_ms, reign, chain }
    }
}

/// A position in the log from which batches are read, also those that are written later.
pub struct LogCursor {
    shared: Arc<LogState>,
    position: Lsn,
    /// The known properties of the predecessor of the next batch.
    before: Predecessor,
    /// Bytes of segment files from `position` on.
    window: Vec<u8>,
    segment: Option<Segment>,
}

impl Log {
    /// A cursor at `from`, a batch boundary.
    pub fn cursor(&self, from: Lsn) -> LogCursor {
        self.shared.recent.cursors.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        LogCursor {
            shared: self.shared.clone(),
            position: from,
            before: Predecessor::default(),
            window: Vec::new(),
            segment: None,
        }
    }

    /// Whether `counts` is true for any record that may leave the server, or the beginning of the log was
    /// forgotten. Reads up to the first record that counts.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn holds_records(&self, counts: impl Fn(&Record<'_>) -> bool) -> Result<bool, Error> {
        let mut cursor = self.cursor(Lsn::ZERO);
        loop {
            match cursor.read(BLOCK_BYTES as usize)? {
                CursorRead::Chunk(chunk) if !chunk.records().any(|record| counts(&record)) => {}
                CursorRead::UpToDate => return Ok(false),
                CursorRead::Chunk(_) | CursorRead::Forgotten(_) => return Ok(true),
            }
        }
    }

    /// The position up to which the log may leave the server, a batch boundary: the durable position, or the
    /// written position if the durability does not sync every batch.
    pub fn shippable_lsn(&self) -> Lsn {
        self.shared.shippable_lsn()
    }

    /// The batch that contains the byte before `position`, and so the record with this LSN. `None` if that
    /// part of the log is forgotten or may not leave the server yet, if the batch has no intact footer, or
    /// if `position` is 0.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn batch_at(&self, position: Lsn) -> Result<Option<BatchInfo>, Error> {
        let shippable = self.shippable_lsn();
        // The batch that ends exactly at the start of the log is forgotten, but can usually still be read.
        if position == Lsn::ZERO || position < self.start_lsn() || position > shippable {
            return Ok(None);
        }
        let (mut end, mut segment) = (position.align_up(BLOCK_BYTES), None);
        while end <= shippable {
            match self.shared.read_footer(end, &mut segment)? {
                Some(footer) => return Ok((footer.start < position).then(|| footer.into())),
                None if segment.is_none() => return Ok(None),
                None => end = end.advance(BLOCK_BYTES),
            }
        }
        Ok(None)
    }

    /// The last batches that may leave the server, in order: the batches that end after `from`, and the batch
    /// before these. The result has at most `count_max` batches, and none that ends before the start of the
    /// log.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn last_batches(&self, from: Lsn, count_max: usize) -> Result<Vec<BatchInfo>, Error> {
        let (mut end, start, mut segment) = (self.shippable_lsn(), self.start_lsn(), None);
        let mut batches = Vec::new();
        while batches.len() < count_max && end > Lsn::ZERO && end >= start {
            let Some(footer) = self.shared.read_footer(end, &mut segment)? else { break };
            let is_before = end <= from;
            end = footer.start;
            batches.push(BatchInfo::from(footer));
            if is_before {
                break;
            }
        }
        batches.reverse();
        Ok(batches)
    }

    /// The chain value at `position`, which identifies the whole log up to there. `None` if it is unknown,
    /// for instance because no batch ends at `position`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn chain_at(&self, position: Lsn) -> Result<Option<u64>, Error> {
        Ok(self.shared.start_at(position)?.chain)
    }

    /// The batch that ends at `position`; `None` if no batch ends there, or if it is forgotten or may not
    /// leave the server yet.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn batch_ending_at(&self, position: Lsn) -> Result<Option<BatchInfo>, Error> {
        let is_kept = position > self.start_lsn() && position <= self.shippable_lsn();
        if !is_kept || !position.is_aligned(BLOCK_BYTES) {
            return Ok(None);
        }
        Ok(self.shared.read_footer(position, &mut None)?.map(BatchInfo::from))
    }
}

impl LogCursor {
    /// The position at which the next batch starts.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Reads the next batches, at least one if any is available. From memory, these are the batches of one
    /// write, of any size. From files, the batches before the last one have fewer than `bytes_max` bytes
    /// together.
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if written batches cannot be read back.
    pub fn read(&mut self, bytes_max: usize) -> Result<CursorRead, Error> {
        self.read_until(bytes_max, Lsn::MAX)
    }

    /// Does the same as [`LogCursor::read`], but returns no batch that ends after `until`, and from memory no
    /// batch of a write that ends after `until`.
    ///
    /// # Errors
    /// As [`LogCursor::read`].
    pub fn read_until(&mut self, bytes_max: usize, until: Lsn) -> Result<CursorRead, Error> {
        let limit = self.shared.shippable_lsn();
        if self.position >= limit.min(until) {
            return Ok(CursorRead::UpToDate);
        }
        if let Some(RecentBatch { start, end, bytes }) = self.shared.recent.find(self.position) {
            if end > until {
                return Ok(CursorRead::UpToDate);
            }
            self.window.clear();
            self.segment = None;
            self.position = end;
            self.before = Footer::decode(&bytes, end).as_ref().map_or_else(Default::default, Into::into);
            return Ok(CursorRead::Chunk(Chunk { start, end, bytes }));
        }
        let read = self.read_files(bytes_max, limit, until);
        let log_start = self.shared.control.lock().log_start;
        if self.position < log_start || read.as_ref().is_ok_and(|chunk| chunk.start < log_start) {
            // The segment may have been recycled during the read: discard the result.
            return Ok(CursorRead::Forgotten(log_start));
        }
        read.map(
            |chunk| if chunk.start < chunk.end { CursorRead::Chunk(chunk) } else { CursorRead::UpToDate },
        )
    }

    /// Sleeps until the log makes any progress, is poisoned, or [`Log::wake_cursors`] is called, at most for
    /// `timeout`. Returns at once if more can be read or the log is poisoned. Returns whether more can be
    /// read.
    pub fn wait(&self, timeout: Duration) -> bool {
        let shared = &*self.shared;
        let mut progress = shared.progress.0.lock();
        if shared.shippable_lsn() <= self.position && !shared.poisoned.load(Ordering::SeqCst) {
            shared.progress.1.wait_for(&mut progress, timeout);
        }
        shared.shippable_lsn() > self.position
    }

    /// Reads from the files, and verifies, batches that end at or before `until`. The caller guarantees that
    /// `limit`, the shippable position, lies after the cursor's position.
    fn read_files(&mut self, bytes_max: usize, limit: Lsn, until: Lsn) -> Result<Chunk, Error> {
        let (mut whole, mut next, mut before) = (0, self.position, self.before);
        'batches: while next < limit && (whole == 0 || whole < bytes_max) {
            let mut walk = BatchWalk::new(next, before);
            let mut wanted = BatchWalk::BYTES_MIN;
            let footer = loop {
                if self.window.len() < whole + wanted {
                    // With at least one complete batch, stop here; the next call continues with the
                    // incomplete one.
                    if whole > 0 && whole + wanted > bytes_max {
                        break None;
                    }
                    // A record may be longer than one read, and continue in the next segment.
                    while self.window.len() < whole + wanted {
                        match self.fill(limit) {
                            Ok(1..) => {}
                            // The complete batches are returned first, as below.
                            Ok(0) | Err(_) if whole > 0 => break 'batches,
                            Ok(0) => return Err(self.unreadable(walk.position(), "the file ends here")),
                            Err(error) => return Err(error),
                        }
                    }
                }
                match walk.resume(&self.window[whole..]) {
                    Walked::Whole(_, footer) if footer.end > until => break None,
                    Walked::Whole(bytes, footer) => {
                        whole += bytes;
                        break Some(footer);
                    }
                    Walked::Short(bytes) => wanted = bytes,
                    // Return the complete batches first; the next call reports the error.
                    Walked::Invalid(_) if whole > 0 => break None,
                    Walked::Invalid(stop) => return Err(self.unreadable(stop.position, &stop.reason)),
                }
            };
            let Some(footer) = footer else { break };
            (next, before) = (footer.end, Predecessor::from(&footer));
        }
        let chunk = Chunk { start: self.position, end: next, bytes: self.window[..whole].into() };
        self.window.drain(..whole);
        (self.position, self.before) = (next, before);
        Ok(chunk)
    }

    /// Reads more bytes into the window, up to `limit` or the end of the segment; returns the number of bytes
    /// read.
    fn fill(&mut self, limit: Lsn) -> Result<usize, Error> {
        let from = self.position.advance(self.window.len() as u64);
        if self.segment.as_ref().is_none_or(|segment| from < segment.start || from >= segment.end) {
            self.segment = self.shared.open_segment(from)?;
        }
        let Some(segment) = self.segment.as_ref().filter(|_| from < limit) else { return Ok(0) };
        let length = READ_BYTES.min(limit.min(segment.end).bytes_since(from) as usize);
        let old = self.window.len();
        self.window.resize(old + length, 0);
        let read = segment.file.read_at(&mut self.window[old..], segment.offset(from));
        let read = read.map_err(Error::io("read", &segment.path));
        self.window.truncate(old + *read.as_ref().unwrap_or(&0));
        read
    }

    /// The error for written bytes that cannot be read back.
    fn unreadable(&mut self, position: Lsn, reason: &str) -> Error {
        self.window.clear();
        let path = self.segment.take().map_or_else(|| self.shared.dir.to_path_buf(), |segment| segment.path);
        let reason = format!("cannot be read at lsn {position}: {reason}");
        Error::Inconsistent { path, reason }
    }
}

impl Drop for LogCursor {
    fn drop(&mut self) {
        let recent = &self.shared.recent;
        if recent.cursors.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1 {
            recent.forget();
        }
    }
}

impl LogState {
    pub(super) fn shippable_lsn(&self) -> Lsn {
        let durability = super::Durability::from_byte(self.durability.load(Ordering::Relaxed));
        let position = if durability.syncs_every_batch() { &self.durable } else { &self.written };
        Lsn::new(position.load(Ordering::SeqCst))
    }

    /// The predecessor of the batch that starts at `position`; an unknown one if no batch that can be read
    /// ends there.
    pub(super) fn start_at(&self, position: Lsn) -> Result<Start, Error> {
        let Control { log_start, start, .. } = *self.control.lock();
        if position == log_start && (start.chain.is_some() || position == Lsn::ZERO) {
            return Ok(start);
        }
        let footer = self.read_footer(position, &mut None)?;
        Ok(footer.as_ref().map_or(Start { reign: 0, chain: None }, Start::behind))
    }

    /// The footer of the batch that ends at `end`; `None` if no batch ends there, or its segment is
    /// forgotten. The footer of a forgotten batch is found as long as its segment exists. `segment` caches
    /// the segment between calls; after a success, `segment` is `None` only if the segment is forgotten.
    fn read_footer(&self, end: Lsn, segment: &mut Option<Segment>) -> Result<Option<Footer>, Error> {
        // No batch ends before the first footer has room: a caller may ask about the position 0.
        let Some(footer_start) = end.get().checked_sub(FOOTER_BYTES as u64).map(Lsn::new) else {
            return Ok(None);
        };
        // A footer lies within one block, so it never spans two segments.
        if segment.as_ref().is_none_or(|segment| segment.end < end || end <= segment.start) {
            *segment = self.open_segment(footer_start)?;
        }
        let Some(segment) = segment else { return Ok(None) };
        let mut footer = [0; FOOTER_BYTES];
        let read = segment.file.read_at(&mut footer, segment.offset(footer_start));
        let read = read.map_err(Error::io("read", &segment.path))?;
        Ok(Footer::decode(&footer[..read], end))
    }

    /// The segment that holds `position`; `None` if it is forgotten.
    pub(super) fn open_segment(&self, position: Lsn) -> Result<Option<Segment>, Error> {
        let control = *self.control.lock();
        let start = position.align_down(control.segment_bytes);
        match Segment::open(&*self.disk, &self.dir, env::Access::Read, &control, start) {
            Ok(segment) => Ok(Some(segment)),
            Err(_) if position < self.control.lock().log_start => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
