//! Salvage: reading the intact parts of a damaged log, on the operator's request.
//!
//! The reader is the usual one. For a salvage, it records each unreadable place before the highest position
//! known to be durable as a [`Hole`], and continues at the next batch that is intact by itself. Such batches
//! are found by their footers, by searching all blocks after the damage. Salvage does not repair: nothing on
//! disk is changed, and every byte returned has passed its checksums.
//!
//! Invariants
//! - Every byte of the log that is known to have been durable is read or lies in a hole.
//! - As everywhere, bytes that nothing vouches for are a torn tail, not a loss.
//! - A log with holes is never continued: see [`Recovery::freeze`](super::recovery::Recovery::freeze).

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk};
use lsn::Lsn;

use super::{
    control::{Control, ControlState, Start},
    footer::Footer,
    reader::{LogReader, Tail},
    segment::{self, HeaderState, Identity, Segment},
    walk::Stop,
};
use crate::{Error, snapshot};

/// Segments that start after this position are ignored, so that no arithmetic on positions overflows.
const START_MAX: Lsn = Lsn::new(1 << 62);

/// The kind of a damaged place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleKind {
    /// The control file is damaged or missing. Its contents were reconstructed from segments and snapshots.
    Control,
    /// The header of a segment is damaged. The records of the segment are intact, except for records in other
    /// holes.
    SegmentHeader,
    /// A segment file is missing or belongs to another log.
    Segment,
    /// Records are damaged.
    Records,
    /// A large record was written in parts, some of which lie in another hole.
    Chain,
}

/// A damaged place of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The kind of the damaged place.
    pub kind: HoleKind,
    /// The file with the first damage; for [`HoleKind::Chain`], the file in which the record begins.
    pub path: PathBuf,
    /// Byte offset in this file: of the first damage, or of the beginning of the record. `lsns` begins
    /// earlier if the damaged batch has intact records before the damage.
    pub offset: u64,
    /// Length of the hole in bytes; 0 if it is unknown or counted in another hole.
    pub bytes: u64,
    /// The lost range of the log, from the first position to the second; `None` if the hole loses no range,
    /// or its range is in another hole.
    pub lsns: Option<(Lsn, Lsn)>,
    /// Number of lost batches; `None` if unknown.
    pub batches: Option<u64>,
    /// When the batches before and after the hole were closed, in milliseconds since 1970; `None` if unknown.
    pub closed_at_ms: (Option<u64>, Option<u64>),
    /// The reason why the place is unreadable.
    pub reason: String,
}

impl Hole {
    fn of_file(kind: HoleKind, path: PathBuf, bytes: u64, reason: String) -> Hole {
        Hole { kind, path, offset: 0, bytes, lsns: None, batches: None, closed_at_ms: (None, None), reason }
    }
}

/// The state of a salvaging reader.
#[derive(Default)]
pub(super) struct Salvage {
    pub(super) holes: Vec<Hole>,
    /// The footers after the beginning of the first hole that were not tried yet, in the order of the log.
    /// After a hole, reading continues at the first intact batch of these footers. `None` before the first
    /// hole.
    footers: Option<VecDeque<Footer>>,
}

impl LogReader {
    /// Opens the log in `dir` even if its control file or the headers of its segments are damaged, provided
    /// that the log can be identified.
    ///
    /// # Errors
    /// If the log cannot be identified, the control file is of another version, or a file cannot be read.
    pub(crate) fn salvage(disk: Arc<dyn Disk>, dir: &Path) -> Result<LogReader, Error> {
        let mut holes = Vec::new();
        let starts: Vec<Lsn> =
            segment::list(&*disk, dir)?.into_iter().filter(|&start| start <= START_MAX).collect();
        let control = match Control::inspect(&*disk, dir)? {
            ControlState::Intact(control) => control,
            ControlState::Unknown(error) => return Err(error),
            ControlState::Damaged(reason) => {
                let path = Control::path(dir);
                holes.push(Hole::of_file(HoleKind::Control, path, 0, reason.to_owned()));
                control_without_file(&*disk, dir, &starts)?
            }
        };
        let mut segments: Vec<Segment> = Vec::new();
        let first = control.log_start.align_down(control.segment_bytes);
        let is_one = |start: &Lsn| *start >= first && start.is_aligned(control.segment_bytes);
        for start in starts.into_iter().filter(is_one) {
            let (segment, state) = Segment::open_in_any_state(&*disk, dir, &control, start)?;
            if state == HeaderState::Foreign {
                let reason = "the segment is of another log".to_owned();
                holes.push(Hole::of_file(HoleKind::Segment, segment.path, control.segment_bytes, reason));
                continue;
            }
            let expected = segments.last().map_or(first, |before| before.end);
            if start > expected {
                let (path, bytes) = (dir.join(segment::file_name(expected)), start.bytes_since(expected));
                let reason = "the segment is missing".to_owned();
                holes.push(Hole::of_file(HoleKind::Segment, path, bytes, reason));
            }
            if state == HeaderState::Damaged {
                let (path, bytes) = (segment.path.clone(), segment::SEGMENT_HEADER_BYTES);
                let reason = "the segment header is damaged".to_owned();
                holes.push(Hole::of_file(HoleKind::SegmentHeader, path, bytes, reason));
            }
            segment.file.drop_cache().map_err(Error::io("sync", &segment.path))?;
            segments.push(segment);
        }
        if segments.is_empty() {
            let path = dir.join(segment::file_name(first));
            let reason = "no segment of the log is there".to_owned();
            holes.push(Hole::of_file(HoleKind::Segment, path, 0, reason));
        }
        LogReader::of(disk, dir, control, segments, Some(Salvage { holes, footers: None }))
    }

    /// Continues after a place where no intact batch starts, or returns the end of the log.
    pub(super) fn pass_over(&mut self, stop: Stop) -> Result<Result<(), Tail>, Error> {
        let (end, mirrored_epoch) = (self.position(), self.control().mirrored_epoch);
        if self.salvaged().footers.is_none() {
            let mut footers = VecDeque::new();
            self.scan_footers(end, |footer| footers.push_back(footer))?;
            self.salvaged().footers = Some(footers);
        }
        let footers = self.salvaged().footers.get_or_insert_default();
        let vouching =
            footers.iter().map(|footer| footer.vouches_for(mirrored_epoch)).max().unwrap_or(Lsn::ZERO);
        self.vouch(vouching);
        if self.vouched() <= end {
            return self.classify(stop).map(Err);
        }
        // Without a predecessor, the number of the next batch is known only at the very first position: 0.
        let number = self.before().next_batch_number.or((end == Lsn::ZERO).then_some(0));
        let closed_before = self.before().closed_at_ms;
        let mut found = None;
        while let Some(footer) = self.salvaged().footers.get_or_insert_default().pop_front() {
            if footer.start > end && self.goes_on_at(footer.start)? {
                found = Some(footer);
                break;
            }
        }
        let to = found.map_or(self.vouched(), |footer| footer.start);
        if found.is_none() {
            self.seek(end);
        }
        let (path, offset) = self.place(stop.position);
        let hole = Hole {
            kind: HoleKind::Records,
            path,
            offset,
            bytes: to.bytes_since(end),
            lsns: Some((end, to)),
            batches: found.and_then(|footer| footer.batch_number.checked_sub(number?)),
            closed_at_ms: (
                (closed_before > 0).then_some(closed_before),
                found.map(|footer| footer.closed_at_ms),
            ),
            reason: stop.reason.clone(),
        };
        self.salvaged().holes.push(hole);
        Ok(match found {
            Some(_) => Ok(()),
            None => Err(Tail { end, torn_end: None, reason: stop.reason }),
        })
    }

    /// Adds a hole for a record whose parts reach from `id` to `lsn` and were partly lost.
    pub(super) fn note_cut_chain(&mut self, id: Lsn, lsn: Lsn) {
        let (path, offset) = self.place(id);
        let reason = "a large record of which a part is lost".to_owned();
        let (lsns, bytes) = (Some((id, lsn)), 0);
        let hole = Hole { lsns, offset, ..Hole::of_file(HoleKind::Chain, path, bytes, reason) };
        self.salvaged().holes.push(hole);
    }

    fn salvaged(&mut self) -> &mut Salvage {
        self.salvage.as_mut().expect("this reader salvages")
    }
}

/// Reconstructs the control file from segments and snapshots. These may belong to several logs, because a
/// confirmed or interrupted salvage has begun another log. The log of the newest readable snapshot is then
/// taken; without such a snapshot, the log of the last segment.
fn control_without_file(disk: &dyn Disk, dir: &Path, starts: &[Lsn]) -> Result<Control, Error> {
    let mut identities: Vec<(Lsn, Identity)> = Vec::new();
    for &start in starts {
        let identity = segment::identity(disk, dir, start)?.filter(|it| it.start == start);
        identities.extend(identity.map(|it| (start, it)));
    }
    let begins = snapshot::list_begins(disk, dir)?.into_iter();
    let newest = begins.filter_map(|begin| snapshot::load(disk, dir, begin).ok()).next();
    let last = identities.last().map(|(_, identity)| *identity);
    let log_id = newest.as_ref().map(|info| info.log_id).or(last.map(|identity| identity.log_id));
    let (Some(log_id), Some(last)) = (log_id, last) else {
        let reason = "damaged, and nothing else says which log this is; restore it from a backup".into();
        return Err(Error::Inconsistent { path: Control::path(dir), reason });
    };
    let first = identities.iter().find(|(_, identity)| identity.log_id == log_id).map(|(start, _)| *start);
    let log_start = first.or(newest.map(|info| info.begin_lsn)).unwrap_or(Lsn::ZERO);
    Ok(Control {
        epoch: 0,
        log_id,
        segment_bytes: last.segment_bytes,
        log_start,
        clean_end: None,
        needs_snapshot: log_start > Lsn::ZERO,
        mirrored_epoch: 0,
        start: match log_start {
            Lsn::ZERO => Start::of_log(&log_id, 0),
            _ => Start { reign: 0, chain: None },
        },
        has_documents: false,
        has_settings: false,
    })
}

impl Segment {
    fn open_in_any_state(
        disk: &dyn Disk,
        dir: &Path,
        control: &Control,
        start: Lsn,
    ) -> Result<(Segment, HeaderState), Error> {
        let path = dir.join(segment::file_name(start));
        let file = disk.open(&path, Access::ReadWrite).map_err(Error::io("open", &path))?;
        let state = segment::header_state(&*file, &path, control, start)?;
        Ok((Segment { start, end: start.advance(control.segment_bytes), path, file }, state))
    }
}
