//! Following the log: whole batches, in order, soon after they were written, for whoever ships or tells what it says.
//!
//! ```text
//! flusher -- while anybody follows: a copy of each batch --> recent (memory, bounded) --+--> followers
//!                                                   segment files (older batches) ------+
//! ```
//!
//! What it is not: it does not keep the log. A follower that lags is overtaken by the removal of old segments, and is told so;
//! whoever must not be, pins the log.
//!
//! Invariants
//! - A follower's position is a batch boundary, and one number: changing between memory and files leaves no gap.
//! - It never sees what may not leave the server: it ends at [`Log::shippable_lsn`].
//! - Nobody waits for a follower. One that is slow reads files; what is kept in memory for all of them together is
//!   [`RECENT_BYTES_MAX`].
//! - What comes from a file was verified record by record, and continues the chain of what was read before; what comes from memory
//!   has never left it.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use lsn::Lsn;
use parking_lot::Mutex;

use super::{
    Log, Shared,
    footer::{FOOTER_BYTES, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Record},
    segment::Segment,
    walk::{BatchWalk, Walked},
};
use crate::{Control, Error, Start, sync::Ordering};

/// Bytes of batches kept in memory for all followers together.
const RECENT_BYTES_MAX: usize = 8 << 20;
/// How much of a file is read at a time.
const READ_BYTES: usize = 1 << 20;

/// A batch as it is on disk, in memory.
#[derive(Clone)]
struct RecentBatch {
    start: Lsn,
    end: Lsn,
    bytes: Arc<[u8]>,
}

/// The batches that were written last.
#[derive(Default)]
pub(super) struct Recent {
    followers: AtomicUsize,
    batches: Mutex<(VecDeque<RecentBatch>, usize)>,
}

impl Recent {
    /// Whether anybody follows. While nobody does, this is all that following costs.
    pub(super) fn is_wanted(&self) -> bool {
        self.followers.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// Adds the batch or batches that were just written.
    pub(super) fn push(&self, start: Lsn, end: Lsn, bytes: &[u8]) {
        let batch = RecentBatch { start, end, bytes: bytes.into() };
        let (batches, total) = &mut *self.batches.lock();
        // After a time without followers, what is kept does not reach up to here.
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

/// One or more whole batches, as they are on disk.
#[derive(Clone)]
pub struct Chunk {
    /// Where the first batch starts.
    pub start: Lsn,
    /// Where the last batch ends.
    pub end: Lsn,
    /// What lies between.
    pub bytes: Arc<[u8]>,
}

impl Chunk {
    /// The records, batch ends left out, in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        record::verified_records(&self.bytes, self.start)
    }

    /// The batches, the last one first.
    pub fn batches_backwards(&self) -> impl Iterator<Item = BatchInfo> {
        let mut end = self.end;
        std::iter::from_fn(move || {
            let bytes = &self.bytes[..end.bytes_since(self.start) as usize];
            let batch = Footer::decode(bytes, end).filter(|footer| footer.start >= self.start)?;
            end = batch.start;
            Some(batch.into())
        })
    }
}

/// What a follower finds.
pub enum Followed {
    /// The next batches.
    Chunk(Chunk),
    /// Nothing new.
    UpToDate,
    /// The log does not reach back to its position any more: it starts here.
    Forgotten(Lsn),
}

/// What is known of a batch by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// Where it starts.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// Its number over the life of the log.
    pub number: u64,
    /// The epoch of its writer.
    pub epoch: u32,
    /// When it was closed, in milliseconds since 1970.
    pub closed_at_ms: u64,
    /// The reign of its writer; 0 in the earlier format.
    pub reign: u64,
    /// Stands for this batch and all before it.
    pub chain: u64,
}

impl From<Footer> for BatchInfo {
    fn from(footer: Footer) -> BatchInfo {
        let (reign, chain) = (footer.reign(), footer.chain());
        let Footer { start, end, batch_number: number, epoch, closed_at_ms, .. } = footer;
        BatchInfo { start, end, number, epoch, closed_at_ms, reign, chain }
    }
}

/// See the module documentation.
pub struct LogFollower {
    shared: Arc<Shared>,
    position: Lsn,
    /// What the next batch has to continue, as far as it is known.
    before: Predecessor,
    /// Bytes of a file from `position` on.
    window: Vec<u8>,
    segment: Option<Segment>,
}

impl Log {
    /// Follows the log from `from` on, a batch boundary.
    pub fn follow(&self, from: Lsn) -> LogFollower {
        self.shared.recent.followers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        LogFollower {
            shared: self.shared.clone(),
            position: from,
            before: Predecessor::default(),
            window: Vec::new(),
            segment: None,
        }
    }

    /// Whether any record was ever written to the log for which `counts` is true. A server that has no data marks its starts and ends by
    /// batches without records. Reads up to the first that counts.
    ///
    /// # Errors
    /// I/O errors.
    pub fn holds_records(&self, counts: impl Fn(&Record<'_>) -> bool) -> Result<bool, Error> {
        let mut follower = self.follow(Lsn::ZERO);
        loop {
            match follower.read(BLOCK_BYTES as usize)? {
                Followed::Chunk(chunk) if !chunk.records().any(|record| counts(&record)) => {}
                Followed::UpToDate => return Ok(false),
                Followed::Chunk(_) | Followed::Forgotten(_) => return Ok(true),
            }
        }
    }

    /// Up to where the log may leave the server: what is durable, or, with a durability that leaves that to time or to the
    /// operating system, what is written. A batch boundary.
    pub fn shippable_lsn(&self) -> Lsn {
        self.shared.shippable_lsn()
    }

    /// The batch that holds the byte before `position`: that of the record with this LSN. `None` if it is forgotten or does not
    /// exist yet.
    ///
    /// # Errors
    /// I/O errors.
    pub fn batch_at(&self, position: Lsn) -> Result<Option<BatchInfo>, Error> {
        let shippable = self.shippable_lsn();
        // The batch that ends at the start of the log is forgotten, but as a rule not overwritten.
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

    /// The chain value at `position`, a batch boundary that is kept: it stands for all of the log up to there. `None` if it is not
    /// known, or no boundary.
    ///
    /// # Errors
    /// I/O errors.
    pub fn chain_at(&self, position: Lsn) -> Result<Option<u64>, Error> {
        Ok(self.shared.start_at(position)?.chain)
    }

    /// The batch that ends at `position`, if one does.
    ///
    /// # Errors
    /// I/O errors.
    pub fn batch_ending_at(&self, position: Lsn) -> Result<Option<BatchInfo>, Error> {
        if !position.is_aligned(BLOCK_BYTES) {
            return Ok(None);
        }
        Ok(self.batch_at(position)?.filter(|batch| batch.end == position))
    }
}

impl LogFollower {
    /// Where the next batch starts.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// The next batches: about `bytes_max` of them at most, at least one if there is one.
    ///
    /// # Errors
    /// I/O errors; [`Error::Inconsistent`] if what was written cannot be read back.
    pub fn read(&mut self, bytes_max: usize) -> Result<Followed, Error> {
        self.read_until(bytes_max, Lsn::MAX)
    }

    /// As [`LogFollower::read`], and nothing of a batch that ends behind `until`.
    ///
    /// # Errors
    /// As [`LogFollower::read`].
    pub fn read_until(&mut self, bytes_max: usize, until: Lsn) -> Result<Followed, Error> {
        let limit = self.shared.shippable_lsn();
        if self.position >= limit.min(until) {
            return Ok(Followed::UpToDate);
        }
        if let Some(RecentBatch { start, end, bytes }) = self.shared.recent.find(self.position) {
            if end > until {
                return Ok(Followed::UpToDate);
            }
            self.window.clear();
            self.segment = None;
            self.position = end;
            self.before = Footer::decode(&bytes, end).as_ref().map_or_else(Default::default, Into::into);
            return Ok(Followed::Chunk(Chunk { start, end, bytes }));
        }
        let read = self.read_files(bytes_max, limit, until);
        let log_start = self.shared.control.lock().log_start;
        if self.position < log_start || read.as_ref().is_ok_and(|chunk| chunk.start < log_start) {
            // Whatever was read of a file that is being used again.
            return Ok(Followed::Forgotten(log_start));
        }
        read.map(|chunk| if chunk.start < chunk.end { Followed::Chunk(chunk) } else { Followed::UpToDate })
    }

    /// Sleeps until there is more, or the time is over. Whether there is more.
    pub fn wait(&self, timeout: Duration) -> bool {
        let shared = &*self.shared;
        let mut progress = shared.progress.0.lock();
        if shared.shippable_lsn() <= self.position && !shared.poisoned.load(Ordering::SeqCst) {
            shared.progress.1.wait_for(&mut progress, timeout);
        }
        shared.shippable_lsn() > self.position
    }

    /// Verified batches from the files that end at `until` at most; the log is shippable up to `limit`, which is behind the position.
    fn read_files(&mut self, bytes_max: usize, limit: Lsn, until: Lsn) -> Result<Chunk, Error> {
        let (mut whole, mut next, mut before) = (0, self.position, self.before);
        while next < limit && (whole == 0 || whole < bytes_max) {
            let mut walk = BatchWalk::new(next, before);
            let mut wanted = BatchWalk::BYTES_MIN;
            let footer = loop {
                if self.window.len() < whole + wanted {
                    // Only if nothing is complete yet: the next call goes on here.
                    if whole > 0 && whole + wanted > bytes_max {
                        break None;
                    }
                    // A record may be larger than what is read at a time, and go on in the next segment.
                    while self.window.len() < whole + wanted {
                        if self.fill(limit)? == 0 {
                            return Err(self.unreadable(walk.position(), "the file ends here"));
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
                    // What is before it comes first.
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

    /// Reads on, up to `limit` or the end of the segment; how many bytes.
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

    /// What was durable cannot be read.
    fn unreadable(&mut self, position: Lsn, reason: &str) -> Error {
        self.window.clear();
        let path = self.segment.take().map_or_else(|| self.shared.dir.to_path_buf(), |segment| segment.path);
        let reason = format!("cannot be read at lsn {position}: {reason}");
        Error::Inconsistent { path, reason }
    }
}

impl Drop for LogFollower {
    fn drop(&mut self) {
        let recent = &self.shared.recent;
        if recent.followers.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1 {
            recent.forget();
        }
    }
}

impl Shared {
    pub(super) fn shippable_lsn(&self) -> Lsn {
        let durability = super::Durability::from_byte(self.durability.load(Ordering::Relaxed));
        let position = if durability.syncs_every_batch() { &self.durable } else { &self.written };
        Lsn::new(position.load(Ordering::SeqCst))
    }

    /// What continues at `position`, a batch boundary that is kept.
    pub(super) fn start_at(&self, position: Lsn) -> Result<Start, Error> {
        let Control { log_start, start, .. } = *self.control.lock();
        if position == log_start && (start.chain.is_some() || position == Lsn::ZERO) {
            return Ok(start);
        }
        let footer = self.read_footer(position, &mut None)?;
        Ok(footer.as_ref().map_or(Start { reign: 0, chain: None }, Start::behind))
    }

    /// The footer of the batch that ends at `end`, if one does and it is kept. `segment` is the one that was read last, and the one
    /// that was read then: `None` if it is forgotten.
    fn read_footer(&self, end: Lsn, segment: &mut Option<Segment>) -> Result<Option<Footer>, Error> {
        // A footer never spans two segments: it lies within a block.
        let footer_start = Lsn::new(end.get() - FOOTER_BYTES as u64);
        if segment.as_ref().is_none_or(|segment| segment.end < end) {
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
