//! Segments ahead of the log, created before they are needed, and old segments that are no longer needed.

use std::{io::ErrorKind, path::PathBuf};

use env::Access;
use lsn::Lsn;

use super::{
    LogState, record,
    segment::{self, Segment},
};
use crate::{Control, Error, LogStats, sync::Ordering};

/// The result of [`Log::prepare_segment`](super::Log::prepare_segment).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepare {
    /// Enough segments lie ahead, or the log is poisoned or frozen.
    Enough,
    /// A segment was created or recycled.
    Made,
    /// The next segment could not be created, usually because the disk is full. Call again after a pause.
    NoRoom,
}

/// Why a segment could not be made.
pub(super) struct NoRoom {
    pub(super) kind: ErrorKind,
    /// The reason as text for the operator.
    pub(super) text: String,
}

impl NoRoom {
    fn of(error: &Error) -> NoRoom {
        let kind = match error {
            Error::Io { source, .. } => source.kind(),
            _ => ErrorKind::Other,
        };
        NoRoom { kind, text: error.to_string() }
    }
}

impl LogState {
    pub(super) fn needs_segment(&self) -> bool {
        let prepared_end = self.prepared_end.load(Ordering::SeqCst);
        let ahead = prepared_end - self.written.load(Ordering::SeqCst);
        ahead <= self.options.segment_bytes || self.is_wanted_beyond(prepared_end)
    }

    /// Whether a write has requested segments beyond `prepared_end`.
    pub(super) fn is_wanted_beyond(&self, prepared_end: u64) -> bool {
        self.wanted_end.load(Ordering::SeqCst) > prepared_end
    }

    pub(super) fn has_room_again(&self) {
        if self.no_room.swap(false, Ordering::SeqCst) {
            tracing::info!(target: "storage", "the log has room again, writes are accepted");
            self.waiters.wake_all();
        }
    }

    /// Creates the next segment if needed. The segment thread and appenders may call this concurrently; a
    /// lock admits one at a time.
    pub(super) fn prepare_segment(&self) -> Result<Prepare, Error> {
        let _alone = self.preparing.lock();
        if self.poisoned.load(Ordering::SeqCst) || self.frozen.load(Ordering::SeqCst) {
            return Ok(Prepare::Enough);
        }
        if !self.needs_segment() {
            // The segment for which there was no room is no longer needed.
            self.has_room_again();
            return Ok(Prepare::Enough);
        }
        let start = Lsn::new(self.prepared_end.load(Ordering::SeqCst));
        let recycled = self.segments.lock().recyclable.pop();
        let control = *self.control.lock();
        match Segment::create(&*self.disk, &self.dir, &control, start, recycled.as_deref()) {
            Ok(segment) => {
                let counter = if recycled.is_some() {
                    &self.stats.segments_recycled
                } else {
                    &self.stats.segments_created
                };
                LogStats::add(counter, 1);
                self.prepared_end.store(segment.end.get(), Ordering::SeqCst);
                self.segments.lock().ready.push_back(segment);
                self.has_room_again();
                self.waiters.wake_all();
                Ok(Prepare::Made)
            }
            Err(error) => {
                if let Some(old) = recycled {
                    self.keep_recyclable(old, start);
                }
                *self.no_room_reason.lock() = Some(NoRoom::of(&error));
                // The record that requested these segments is refused; the next attempt makes room only for
                // ordinary records.
                self.wanted_end.store(0, Ordering::SeqCst);
                if !self.no_room.swap(true, Ordering::SeqCst) {
                    tracing::warn!(target: "storage", %error, "the next segment of the log cannot be made, the server is read-only until one can");
                }
                self.waiters.wake_all();
                Ok(Prepare::NoRoom)
            }
        }
    }

    /// Keeps the old file `old`, which could not be turned into the segment that begins at `start`, for the
    /// next attempt: a full disk has no room for a new file. If only the last step of the recycling failed,
    /// the file already has its new name.
    fn keep_recyclable(&self, old: PathBuf, start: Lsn) {
        let mut names = [old, self.dir.join(segment::file_name(start))].into_iter();
        let kept = names.find(|path| self.disk.open(path, Access::Read).is_ok());
        self.segments.lock().recyclable.extend(kept);
    }

    /// Makes segments, on this thread, until they reach `end`. Returns false if one is missing and cannot be
    /// made, usually because the disk is full, or because the log takes no records.
    pub(super) fn make_segments_to(&self, end: u64) -> bool {
        loop {
            if end <= self.prepared_end.load(Ordering::Acquire) {
                return true;
            }
            self.wanted_end.fetch_max(end, Ordering::SeqCst);
            if !matches!(self.prepare_segment(), Ok(Prepare::Made)) {
                // Another thread may have made the last segment.
                return end <= self.prepared_end.load(Ordering::Acquire);
            }
        }
    }

    /// Forgets the log before `boundary`. `needs_snapshot` means that recovery will need a snapshot with the
    /// state of the forgotten part.
    pub(super) fn truncate_before(&self, boundary: Lsn, needs_snapshot: bool) -> Result<(), Error> {
        assert!(
            boundary.is_aligned(record::BLOCK_BYTES) && boundary.get() <= self.durable.load(Ordering::SeqCst)
        );
        if boundary <= self.control.lock().log_start {
            return Ok(());
        }
        // The predecessor of the batch at `boundary` is read before the part that contains it is removed.
        let start = self.start_at(boundary)?;
        let (segment_bytes, old_start) = {
            let mut control = self.control.lock();
            if boundary <= control.log_start {
                return Ok(());
            }
            let old_start = control.log_start;
            let forgotten = Control { log_start: boundary, needs_snapshot, start, ..*control };
            self.replace_control(&mut control, forgotten)?;
            (forgotten.segment_bytes, old_start)
        };
        // The new start must be durable before the files are removed or recycled.
        let mut start = old_start.align_down(segment_bytes);
        while start.advance(segment_bytes) <= boundary {
            let path = self.dir.join(segment::file_name(start));
            let mut segments = self.segments.lock();
            if segments.recyclable.is_empty() {
                segments.recyclable.push(path);
            } else {
                drop(segments);
                self.disk.remove(&path).map_err(Error::io("remove", &path))?;
            }
            start = start.advance(segment_bytes);
        }
        Ok(())
    }
}
