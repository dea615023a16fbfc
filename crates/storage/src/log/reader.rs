//! Reading the log back: batch by batch, checking everything, and distinguishing an interrupted write from
//! damage.
//!
//! The reader returns only complete batches in which every record is valid.
//!
//! At the end of the readable batches the reader decides between two cases:
//! - **torn tail** (or a clean end): nothing vouches that the log was durable after this position. The reader
//!   takes what follows for a write that was interrupted, of which nothing was acknowledged as durable.
//! - **damage**: a later footer, the control file, or the end of a snapshot vouches for a later position. So
//!   durable bytes are unreadable, which is an error.
//!
//! The rule holds for every durability. With `none` or `interval`, whole batches that were never synced may
//! be missing although later ones are present. No footer vouches for the missing ones, so the log ends before
//! them, and the later ones are a torn tail.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk};
use lsn::Lsn;

use super::{
    control::{Control, Start},
    footer::{FOOTER_BYTES, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Record},
    salvage::Salvage,
    segment::{self, Segment},
    walk::{BatchWalk, Stop, Walked},
};
use crate::{
    Damage, Error,
    snapshot::{self, SnapshotInfo},
};

/// The log is read in pieces of this size.
const READ_BYTES: usize = if cfg!(miri) { 8 << 10 } else { 4 << 20 };

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The end of the last batch that was read; if there was none, the position at which reading began.
    /// Complete batches after a missing batch are not part of the log.
    pub end: Lsn,
    /// Later batches, or pieces of them, extend up to this position; `None` if there are none.
    pub torn_end: Option<Lsn>,
    /// The reason why no batch starts at `end`.
    pub reason: String,
}

/// A complete, verified batch, borrowed from the reader.
pub struct Batch<'r> {
    /// The start of the batch.
    pub start: Lsn,
    /// The end of the batch.
    pub end: Lsn,
    /// The number of the batch in the log, counted from 0.
    pub number: u64,
    /// The epoch of its writer.
    pub epoch: u32,
    /// The position up to which the writer knew the log to be durable when it closed the batch.
    pub durable: Lsn,
    /// When the batch was closed, in milliseconds since 1970; never earlier than the previous batch was
    /// closed.
    pub closed_at_ms: u64,
    /// The reign of its writer; 0 in the earlier format.
    pub reign: u64,
    /// The chain value: identifies this batch and all before it.
    pub chain: u64,
    bytes: &'r [u8],
}

impl<'r> Batch<'r> {
    /// Its records in log order, without the batch-end record.
    pub fn records(&self) -> impl Iterator<Item = Record<'r>> + use<'r> {
        record::verified_records(self.bytes, self.start)
    }
}

/// Reads a log from its files, batch by batch.
pub struct LogReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    control: Control,
    segments: Vec<Segment>,
    /// The start of the next batch.
    position: Lsn,
    /// The predecessor of the next batch.
    before: Predecessor,
    /// The log was durable up to this position; an unreadable byte before it is damage.
    vouched: Lsn,
    /// Bytes of the log. The byte at index `consumed` has the position `position`; earlier ones are no longer
    /// needed.
    window: Vec<u8>,
    consumed: usize,
    /// `Some` for a reader that skips damage.
    pub(super) salvage: Option<Salvage>,
}

impl LogReader {
    /// Opens the log in `dir` for reading from its start. Changes nothing on disk. With
    /// [`Access::ReadWrite`], the page cache is dropped first, so that reads show the contents of the disk
    /// even after a failed sync.
    ///
    /// # Errors
    /// If there is no log, a segment is missing or belongs to another log, or the control file or the header
    /// of a segment is damaged or of another version; I/O errors.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, access: Access) -> Result<LogReader, Error> {
        let Some(control) = Control::load(&*disk, dir)? else {
            refuse_lost_control(&*disk, dir)?;
            let reason = "no log here: the control file is missing".into();
            return Err(Error::Inconsistent { path: dir.to_path_buf(), reason });
        };
        let starts = segment::list(&*disk, dir)?;
        let first = control.log_start.align_down(control.segment_bytes);
        let mut segments = Vec::new();
        for start in starts.into_iter().filter(|&start| start >= first) {
            let expected = segments.last().map_or(first, |segment: &Segment| segment.end);
            if start != expected {
                let reason = "a segment of the log is missing; restore it from a backup or a replica";
                let path = dir.join(segment::file_name(expected));
                return Err(Error::Inconsistent { path, reason: reason.into() });
            }
            let segment = Segment::open(&*disk, dir, access, &control, start)?;
            if access == Access::ReadWrite {
                segment.file.drop_cache().map_err(Error::io("sync", &segment.path))?;
            }
            segments.push(segment);
        }
        LogReader::of(disk, dir, control, segments, None)
    }

    /// A reader of these segments, at the start of the log.
    pub(super) fn of(
        disk: Arc<dyn Disk>,
        dir: &Path,
        control: Control,
        segments: Vec<Segment>,
        salvage: Option<Salvage>,
    ) -> Result<LogReader, Error> {
        let (position, window) = (control.log_start, Vec::new());
        let vouched = vouched_elsewhere(&*disk, dir, &control)?;
        let (dir, before) = (dir.to_path_buf(), Predecessor::default());
        let mut reader = LogReader {
            disk,
            dir,
            control,
            segments,
            position,
            before,
            vouched,
            window,
            consumed: 0,
            salvage,
        };
        if reader.control.start.chain.is_none()
            && let Some(footer) = reader.footer_before(position)?
        {
            reader.control.start = Start::behind(&footer);
        }
        let Start { reign, chain } = reader.control.start;
        reader.before = Predecessor { reign, chain, ..reader.before };
        Ok(reader)
    }

    /// The contents of the control file when the log was opened. If the file has no chain value, `start`
    /// is of the footer before the log, if there is one. A salvage reconstructs a damaged or missing file.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The start of the next batch.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Continues at the beginning of a snapshot, after the batch with the footer `before`, if known. Must be
    /// called before the first batch is read.
    pub(crate) fn start_at(&mut self, snapshot: &SnapshotInfo, before: Option<Footer>) {
        self.before = match before {
            Some(footer) => Predecessor { epoch: snapshot.epoch, ..Predecessor::from(&footer) },
            // Except in a salvage, the snapshot then begins at the start of the log, whose chain value is in
            // `self.before`. In a salvage, the batch before may be damaged, and its chain value is unknown.
            None => {
                let chain = self.before.chain.filter(|_| snapshot.begin_lsn == self.control.log_start);
                let (epoch, closed_at_ms) = (snapshot.epoch, snapshot.created_unix_ms);
                Predecessor { epoch, closed_at_ms, chain, ..self.before }
            }
        };
        self.position = snapshot.begin_lsn;
    }

    /// Continues after the batch that ends at `position`. Must be called before the first batch is read.
    pub(super) fn pass_to(&mut self, position: Lsn) -> Result<(), Error> {
        let Some(before) = self.footer_before(position)? else {
            let (path, reason) = (self.place(position).0, format!("no batch ends at lsn {position}"));
            return Err(Error::Inconsistent { path, reason });
        };
        (self.position, self.before) = (position, Predecessor::from(&before));
        Ok(())
    }

    /// The footer of the batch that ends at `position`; `None` if no batch ends there, or if its segment is
    /// no longer kept.
    pub(crate) fn footer_before(&self, position: Lsn) -> Result<Option<Footer>, Error> {
        let mut footer = [0; FOOTER_BYTES];
        let footer_start = Lsn::new(position.get().saturating_sub(FOOTER_BYTES as u64));
        let Some(segment) = self.segments.iter().find(|it| it.start <= footer_start && position <= it.end)
        else {
            return Ok(None);
        };
        let read = segment.file.read_at(&mut footer, segment.offset(footer_start));
        let read = read.map_err(Error::io("read", &segment.path))?;
        Ok(Footer::decode(&footer[..read], position))
    }

    /// The predecessor of the next batch.
    pub(crate) fn before(&self) -> Predecessor {
        self.before
    }

    /// The open segments, for the writer that continues the log.
    pub(crate) fn into_segments(self) -> Vec<Segment> {
        self.segments
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The end of the existing segments: an upper bound of the log's end.
    pub fn segments_end(&self) -> Lsn {
        self.segments.last().map_or(self.control.log_start, |segment| segment.end)
    }

    /// The next batch, or the end of the log.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for damage, [`Error::Io`] if a segment cannot be read.
    pub fn next_batch(&mut self) -> Result<Result<Batch<'_>, Tail>, Error> {
        let measured = loop {
            match self.measure_batch()? {
                Err(stop) if self.salvage.is_some() => match self.pass_over(stop)? {
                    Ok(()) => {}
                    Err(tail) => return Ok(Err(tail)),
                },
                measured => break measured,
            }
        };
        match measured {
            Ok((batch_bytes, footer)) => {
                let start = self.position;
                self.position = footer.end;
                self.before = Predecessor::from(&footer);
                let (reign, chain) = (footer.reign(), footer.chain());
                let bytes = &self.window[self.consumed..self.consumed + batch_bytes];
                self.consumed += batch_bytes;
                let Footer { end, batch_number: number, epoch, durable, closed_at_ms, .. } = footer;
                Ok(Ok(Batch { start, end, number, epoch, durable, closed_at_ms, reign, chain, bytes }))
            }
            Err(stop) => self.classify(stop).map(Err),
        }
    }

    /// Verifies the batch that starts at `position`: returns its length and footer, or the position and
    /// reason of the failure.
    fn measure_batch(&mut self) -> Result<Result<(usize, Footer), Stop>, Error> {
        let mut walk = BatchWalk::new(self.position, self.before);
        let mut wanted = BatchWalk::BYTES_MIN;
        loop {
            if !self.fill(wanted)? {
                let reason = "the log's files end here".into();
                return Ok(Err(Stop { position: walk.position(), reason }));
            }
            match walk.resume(&self.window[self.consumed..]) {
                Walked::Whole(bytes, footer) => return Ok(Ok((bytes, footer))),
                Walked::Short(bytes) => wanted = bytes,
                Walked::Invalid(stop) => return Ok(Err(stop)),
            }
        }
    }

    /// Makes `bytes` bytes from the start of the batch available; `false` if the files end before.
    fn fill(&mut self, bytes: usize) -> Result<bool, Error> {
        while self.window.len() - self.consumed < bytes {
            self.window.drain(..self.consumed);
            self.consumed = 0;
            let read_from = self.position.advance(self.window.len() as u64);
            let Some(segment) = self.segments.iter().find(|it| it.start <= read_from && read_from < it.end)
            else {
                return Ok(false);
            };
            let length = READ_BYTES.min(segment.end.bytes_since(read_from) as usize);
            let old = self.window.len();
            self.window.resize(old + length, 0);
            let read = segment.file.read_at(&mut self.window[old..], segment.offset(read_from));
            let read = read.map_err(Error::io("read", &segment.path))?;
            self.window.truncate(old + read);
            if read == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The file that holds `position`, and the offset of `position` in that file. If no file holds it, the
    /// path that this file would have, and the offset of the file's first log byte.
    pub(crate) fn place(&self, position: Lsn) -> (PathBuf, u64) {
        match self.segments.iter().find(|it| it.start <= position && position < it.end) {
            Some(segment) => (segment.path.clone(), segment.offset(position)),
            None => (
                self.dir.join(segment::file_name(position.align_down(self.control.segment_bytes))),
                segment::SEGMENT_HEADER_BYTES,
            ),
        }
    }

    /// The position up to which the log is known to have been durable.
    pub(super) fn vouched(&self) -> Lsn {
        self.vouched
    }

    /// Notes that the log was durable up to `durable`.
    pub(super) fn vouch(&mut self, durable: Lsn) {
        self.vouched = self.vouched.max(durable);
    }

    /// Continues at `position`, without requiring a batch number or chain value there.
    pub(super) fn seek(&mut self, position: Lsn) {
        self.position = position;
        (self.before.next_batch_number, self.before.chain) = (None, None);
        self.window.clear();
        self.consumed = 0;
    }

    /// Seeks to `position`; returns whether an intact batch starts there.
    pub(super) fn goes_on_at(&mut self, position: Lsn) -> Result<bool, Error> {
        self.seek(position);
        Ok(self.measure_batch()?.is_ok())
    }

    /// Decides whether the end of the readable batches is a torn tail or damage: see the module
    /// documentation.
    pub(super) fn classify(&mut self, stop: Stop) -> Result<Tail, Error> {
        let end = self.position;
        let mut vouched = self.vouched;
        let (mut torn_end, mut batches_after) = (None, 0);
        let mirrored_epoch = self.control.mirrored_epoch;
        // Nothing was written after a clean end, so the rest of the segments need not be read.
        if self.control.clean_end != Some(end) {
            self.scan_footers(end, |footer| {
                torn_end = Some(footer.end);
                vouched = vouched.max(footer.vouches_for(mirrored_epoch));
                batches_after += u64::from(footer.start > end);
            })?;
        }
        if vouched > end {
            let (path, offset) = self.place(stop.position);
            let (lsn, reason) = (stop.position, stop.reason);
            let damage =
                Damage { path, offset, lsn, intact_end: end, reason, batches_after, durable_lsn: vouched };
            return Err(damage.into());
        }
        // A torn batch without a footer is recognised by the valid records at its beginning.
        let front_end = (stop.position > end).then(|| stop.position.align_up(BLOCK_BYTES));
        Ok(Tail { end, torn_end: torn_end.max(front_end), reason: stop.reason })
    }

    /// Calls `found` for every footer after `from` that is valid at its position and not of an earlier epoch
    /// than the last batch.
    pub(super) fn scan_footers(&self, from: Lsn, mut found: impl FnMut(Footer)) -> Result<(), Error> {
        let mut buffer = Vec::new();
        for segment in self.segments.iter().filter(|segment| segment.end > from) {
            let mut position = segment.start.max(from.align_down(BLOCK_BYTES));
            while position < segment.end {
                let length = READ_BYTES.min(segment.end.bytes_since(position) as usize);
                buffer.resize(length, 0);
                let read = segment.file.read_at(&mut buffer, segment.offset(position));
                let read = read.map_err(Error::io("read", &segment.path))?;
                for block in buffer[..read].chunks_exact(BLOCK_BYTES as usize) {
                    position = position.advance(BLOCK_BYTES);
                    let footer = Footer::decode(&block[block.len() - FOOTER_BYTES..], position);
                    if let Some(footer) = footer.filter(|footer| footer.epoch >= self.before.epoch) {
                        found(footer);
                    }
                }
                if read < length {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Refuses a directory without a control file that may hold acknowledged data: the file was lost. For a
/// caller that has found no control file.
pub(super) fn refuse_lost_control(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let is_lost = match segment::list(disk, dir)?.as_slice() {
        _ if !snapshot::list_begins(disk, dir)?.is_empty() => true,
        [] => false,
        // An interrupted first start has written no control file yet, and has acknowledged nothing.
        [Lsn::ZERO] => has_records(disk, dir)?,
        _ => true,
    };
    if !is_lost {
        return Ok(());
    }
    let reason = "missing although the directory holds a log or snapshots; restore it from a backup".into();
    Err(Error::Inconsistent { path: Control::path(dir), reason })
}

/// Whether the first segment of a log without a control file starts with anything but zeros.
fn has_records(disk: &dyn Disk, dir: &Path) -> Result<bool, Error> {
    let path = dir.join(segment::file_name(Lsn::ZERO));
    let file = disk.open(&path, Access::Read).map_err(Error::io("open", &path))?;
    let mut block = vec![0; BLOCK_BYTES as usize];
    let read = file.read_at(&mut block, segment::SEGMENT_HEADER_BYTES).map_err(Error::io("read", &path))?;
    Ok(block[..read].iter().any(|&byte| byte != 0))
}

/// The highest position that the control file or a snapshot's manifest vouches for as durable.
fn vouched_elsewhere(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<Lsn, Error> {
    let mut vouched = control.clean_end.unwrap_or(Lsn::ZERO);
    for begin_lsn in snapshot::list_begins(disk, dir)? {
        match snapshot::load(disk, dir, begin_lsn) {
            Ok(info) if info.log_id == control.log_id => vouched = vouched.max(info.end_lsn),
            Err(error @ Error::Io { .. }) => return Err(error),
            // The snapshot belongs to another log or is unreadable, so it proves nothing about this log.
            // The fault is reported when the snapshot is loaded or checked.
            _ => {}
        }
    }
    Ok(vouched)
}
