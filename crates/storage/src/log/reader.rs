//! Reading the log back: batch by batch, trusting nothing, telling an interrupted write from damage.
//!
//! Used by recovery, `sheaf check` and `sheaf log` alike. Yields only complete batches whose every record is valid.
//!
//! Where the batches end, one of two things is true, and the reader finds out which:
//! - **torn tail** (or a clean end): no intact batch behind the place says that it had been durable. The last write was
//!   interrupted; nothing in it was ever acknowledged as durable.
//! - **damage**: a footer further on vouches for a position past the place, or the control file does, or a snapshot that
//!   ends there. Acknowledged bytes are unreadable: an error.
//!
//! This rule holds for every durability: with `none` or `interval`, whole batches that were never synced may be missing
//! with later ones present; no footer vouches for them, so they are a torn tail.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk};
use lsn::Lsn;

use super::{
    footer::{FOOTER_BYTES, Footer, Predecessor},
    record::{self, BLOCK_BYTES, Record},
    salvage::Salvage,
    segment::{self, Segment},
    walk::{BatchWalk, Stop, Walked},
};
use crate::{
    Control, Damage, Error,
    control::Start,
    snapshot::{self, SnapshotInfo},
};

/// How much is read at a time.
const READ_BYTES: usize = 4 << 20;

/// How the log ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// The end of the last complete batch.
    pub end: Lsn,
    /// Bytes behind it, up to this position, hold pieces of a batch that was never finished.
    pub torn_end: Option<Lsn>,
    /// What stands at `end`.
    pub reason: String,
}

/// A complete, verified batch, borrowed from the reader.
pub struct Batch<'r> {
    /// Where it starts.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// Its number over the life of the log.
    pub number: u64,
    /// The epoch it was written in.
    pub epoch: u32,
    /// Up to where the log was known to be durable when it was written.
    pub durable: Lsn,
    /// When it was closed, in milliseconds since 1970; never less than that of the batch before.
    pub closed_at_ms: u64,
    /// The reign of its writer; 0 in the earlier format.
    pub reign: u64,
    /// Stands for this batch and all before it.
    pub chain: u64,
    bytes: &'r [u8],
}

impl<'r> Batch<'r> {
    /// Its records in order, the batch end left out.
    pub fn records(&self) -> impl Iterator<Item = Record<'r>> + use<'r> {
        record::verified_records(self.bytes, self.start)
    }
}

/// See the module documentation.
pub struct LogReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    control: Control,
    segments: Vec<Segment>,
    /// The start of the next batch.
    position: Lsn,
    /// What the next batch has to continue.
    before: Predecessor,
    /// The log was durable up to here; what cannot be read before is damage.
    vouched: Lsn,
    /// Log bytes `[position, position + window.len() - consumed)`, from `consumed` on.
    window: Vec<u8>,
    consumed: usize,
    /// Set for a reader that passes over damage.
    pub(super) salvage: Option<Salvage>,
}

impl LogReader {
    /// Opens the log in `dir` for reading from its start. Changes no byte on disk. With [`Access::ReadWrite`], what
    /// is read is what the disk holds: pages that a failed sync left in the cache are dropped first.
    ///
    /// # Errors
    /// If there is no log, a segment is missing or foreign, or a file cannot be read.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, access: Access) -> Result<LogReader, Error> {
        let Some(control) = Control::load(&*disk, dir)? else {
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

    /// The control file as it was read.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The start of the next batch.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Goes on reading where a snapshot begins, behind the batch with the footer `before`, if that is known. To be called
    /// before the first batch is read.
    pub(crate) fn start_at(&mut self, snapshot: &SnapshotInfo, before: Option<Footer>) {
        self.before = match before {
            Some(footer) => Predecessor { epoch: snapshot.epoch, ..Predecessor::from(&footer) },
            // It begins where the log does, whose control file knows the chain.
            None => {
                Predecessor { epoch: snapshot.epoch, closed_at_ms: snapshot.created_unix_ms, ..self.before }
            }
        };
        self.position = snapshot.begin_lsn;
    }

    /// Goes on reading behind the batch that ends at `position`. To be called before the first batch is read.
    pub(super) fn pass_to(&mut self, position: Lsn) -> Result<(), Error> {
        let Some(before) = self.footer_before(position)? else {
            let (path, reason) = (self.place(position).0, format!("no batch ends at lsn {position}"));
            return Err(Error::Inconsistent { path, reason });
        };
        (self.position, self.before) = (position, Predecessor::from(&before));
        Ok(())
    }

    /// The footer of the batch that ends at `position`, if there is one and its segment is still kept.
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

    /// What the next batch has to continue.
    pub(crate) fn before(&self) -> Predecessor {
        self.before
    }

    /// Gives the open segments to who goes on writing.
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

    /// Where the existing segments end: an upper bound of the log's end.
    pub fn segments_end(&self) -> Lsn {
        self.segments.last().map_or(self.control.log_start, |segment| segment.end)
    }

    /// The next batch, or how the log ends.
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

    /// Verifies the batch that starts at `position`: its length and footer, or where and why it is none.
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

    /// Makes `bytes` bytes from the batch start on available; `false` if the files end before.
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

    /// The file and the offset of a position.
    pub(crate) fn place(&self, position: Lsn) -> (PathBuf, u64) {
        match self.segments.iter().find(|it| it.start <= position && position < it.end) {
            Some(segment) => (segment.path.clone(), segment.offset(position)),
            None => (
                self.dir.join(segment::file_name(position.align_down(self.control.segment_bytes))),
                segment::SEGMENT_HEADER_BYTES,
            ),
        }
    }

    /// Up to where the log is known to have been durable.
    pub(super) fn vouched(&self) -> Lsn {
        self.vouched
    }

    /// Something says that the log was durable up to here.
    pub(super) fn vouch(&mut self, durable: Lsn) {
        self.vouched = self.vouched.max(durable);
    }

    /// Goes on reading at `position`, whatever was before.
    pub(super) fn seek(&mut self, position: Lsn) {
        self.position = position;
        (self.before.next_batch_number, self.before.chain) = (None, None);
        self.window.clear();
        self.consumed = 0;
    }

    /// Goes on reading at `position` if an intact batch starts there.
    pub(super) fn goes_on_at(&mut self, position: Lsn) -> Result<bool, Error> {
        self.seek(position);
        Ok(self.measure_batch()?.is_ok())
    }

    /// Decides what the end of the readable batches is: see the module documentation.
    pub(super) fn classify(&mut self, stop: Stop) -> Result<Tail, Error> {
        let end = self.position;
        let mut vouched = self.vouched;
        let (mut torn_end, mut batches_after) = (None, 0);
        let mirrored_epoch = self.control.mirrored_epoch;
        // Behind the end of a server that stopped in order nothing was written: a start need not read segments for that.
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
        // Without a footer the torn batch still shows itself by the records at its front.
        let front_end = (stop.position > end).then(|| stop.position.align_up(BLOCK_BYTES));
        Ok(Tail { end, torn_end: torn_end.max(front_end), reason: stop.reason })
    }

    /// Calls `found` for every footer at or behind `from` that this or a later epoch wrote at its own position.
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

/// The highest position that the control file or the manifest of a snapshot says the log was durable up to.
fn vouched_elsewhere(disk: &dyn Disk, dir: &Path, control: &Control) -> Result<Lsn, Error> {
    let mut vouched = control.clean_end.unwrap_or(Lsn::ZERO);
    for begin_lsn in snapshot::list_begins(disk, dir)? {
        match snapshot::load(disk, dir, begin_lsn) {
            Ok(info) if info.log_id == control.log_id => vouched = vouched.max(info.end_lsn),
            Err(error @ Error::Io { .. }) => return Err(error),
            // Of another log, or unreadable: it says nothing about this log. Who loads or checks snapshots is told.
            _ => {}
        }
    }
    Ok(vouched)
}
