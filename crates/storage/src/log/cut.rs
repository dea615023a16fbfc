//! Cuts off the end of a log that has diverged from the log that it mirrors. Called before recovery.
//!
//! The caller has found the point of divergence by comparing with the other log.
//!
//! The steps have this order, and each is durable before the next. After a crash anywhere, the log recovers
//! up to `at` or up to a later batch, and the same call, repeated, completes the cut:
//! 1. the log after `at` is copied to `diverged-<at>.bin`, at most [`KEPT_BYTES_MAX`] of it; if an earlier
//!    cut at this position has kept another log there, to `diverged-<at>-2.bin`, and so on;
//! 2. snapshots that contain any of the log after `at` are set aside;
//! 3. the clean end is removed from the control file;
//! 4. the footers after `at` are overwritten with zeros, from the last to the first. So there is always a log
//!    with a torn tail on disk, and no later footer vouches for the tail;
//! 5. the rest after `at` is overwritten with zeros.

use std::{
    io,
    path::{Path, PathBuf},
};

use env::{Access, AlignedBytes, Disk};
use lsn::Lsn;

use super::{
    footer::Footer,
    record::BLOCK_BYTES,
    segment::{self, SEGMENT_HEADER_BYTES, Segment},
};
use crate::{Control, Error, snapshot};

/// The maximum number of bytes that are kept for inspection.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Segments are read and overwritten in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// The result of cutting a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// The log now ends at `at`. The first 256 MiB of the bytes cut off are in this file.
    Done(PathBuf),
    /// Nothing was changed; a full sync is needed. Either `at` lies before the start of the log, or no usable
    /// snapshot ends at or before `at` although the log needs one, or nothing would remain of a log that is
    /// kept without snapshots.
    NoBase,
}

/// Cuts the log in `dir` at the batch boundary `at`. The directory must not be in use.
///
/// # Errors
/// I/O errors, after which the call can be repeated; [`Error::Inconsistent`] if there is no log; an error if
/// a control file, a segment or a manifest of a snapshot is damaged or of another version.
pub fn cut_log(disk: &dyn Disk, dir: &Path, at: Lsn) -> Result<Cut, Error> {
    let control = load_control(disk, dir)?;
    let snapshots = snapshot::list(disk, dir)?.into_iter().filter(|info| info.log_id == control.log_id);
    let (kept, parted): (Vec<_>, Vec<_>) = snapshots.partition(|info| info.end_lsn <= at);
    let has_base = kept.iter().any(|info| info.begin_lsn >= control.log_start);
    if at < control.log_start || (control.needs_snapshot && !has_base) {
        return Ok(Cut::NoBase);
    }
    let set_aside = || {
        let mut parted = parted.iter();
        parted.try_for_each(|info| snapshot::set_aside(disk, dir, info.begin_lsn).map(drop))
    };
    cut_at(disk, dir, control, at, set_aside).map(Cut::Done)
}

/// Does the same as [`cut_log`], for a log that is kept without the state before it (see
/// [`Recovery::without_state`]). Such a log needs no snapshot.
///
/// [`Recovery::without_state`]: crate::Recovery::without_state
///
/// # Errors
/// As [`cut_log`].
pub fn cut_log_alone(disk: &dyn Disk, dir: &Path, at: Lsn) -> Result<Cut, Error> {
    let control = load_control(disk, dir)?;
    // A log without any batch does not show which log it continues.
    if at <= control.log_start {
        return Ok(Cut::NoBase);
    }
    cut_at(disk, dir, control, at, || Ok(())).map(Cut::Done)
}

fn load_control(disk: &dyn Disk, dir: &Path) -> Result<Control, Error> {
    let missing = || Error::Inconsistent { path: dir.to_path_buf(), reason: "no log here".into() };
    Control::load(disk, dir)?.ok_or_else(missing)
}

/// The steps of a cut; `set_aside` is the second one. Returns the file in which bytes cut off are kept.
fn cut_at(
    disk: &dyn Disk,
    dir: &Path,
    control: Control,
    at: Lsn,
    set_aside: impl FnOnce() -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let segments = segments_behind(disk, dir, &control, at)?;
    let path = keep(disk, &segments, at, dir)?;
    set_aside()?;
    Control { clean_end: None, ..control }.store(disk, dir)?;
    for segment in segments.iter().rev() {
        for_pieces(segment, at, |position, bytes| {
            for (index, block) in bytes.chunks_exact(BLOCK_BYTES as usize).enumerate().rev() {
                let block_start = position.advance(index as u64 * BLOCK_BYTES);
                if Footer::decode(block, block_start.advance(BLOCK_BYTES)).is_some() {
                    blank(segment, block_start, BLOCK_BYTES)?;
                }
            }
            Ok(())
        })?;
    }
    for segment in segments.iter().rev() {
        for_pieces(segment, at, |position, bytes| match bytes.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => blank(segment, position, bytes.len() as u64),
        })?;
    }
    Ok(path)
}

/// Reads the bytes of a segment after `at` in pieces of whole blocks, the last first.
fn for_pieces(
    segment: &Segment,
    at: Lsn,
    mut look: impl FnMut(Lsn, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let file_bytes = segment.file.len().map_err(Error::io("measure", &segment.path))?;
    // In a truncated file, an incomplete block at the end contains no complete footer.
    let held_bytes = file_bytes.saturating_sub(SEGMENT_HEADER_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
    let (first, mut end) = (segment.start.max(at), segment.start.advance(held_bytes).min(segment.end));
    let mut piece = Vec::new();
    while end > first {
        let start = first.max(Lsn::new(end.get().saturating_sub(PIECE_BYTES)));
        piece.resize(end.bytes_since(start) as usize, 0);
        let read = segment.file.read_exact_at(&mut piece, segment.offset(start));
        read.map_err(Error::io("read", &segment.path))?;
        look(start, &piece)?;
        end = start;
    }
    Ok(())
}

/// Overwrites whole blocks with zeros, durably.
fn blank(segment: &Segment, position: Lsn, bytes: u64) -> Result<(), Error> {
    let zeros = AlignedBytes::zeroed(bytes as usize);
    let written = segment.file.write_durable_at(&zeros, segment.offset(position));
    written.map_err(Error::io("write", &segment.path))
}

fn segments_behind(disk: &dyn Disk, dir: &Path, control: &Control, at: Lsn) -> Result<Vec<Segment>, Error> {
    let starts = segment::list(disk, dir)?.into_iter();
    let behind = starts.filter(|start| start.advance(control.segment_bytes) > at);
    behind.map(|start| Segment::open(disk, dir, Access::ReadWrite, control, start)).collect()
}

/// Copies the log after `at` to a file of its own, unless an interrupted cut has done so; returns the file.
fn keep(disk: &dyn Disk, segments: &[Segment], at: Lsn, dir: &Path) -> Result<PathBuf, Error> {
    let tail = read_tail(segments, at)?;
    for number in 1_u32.. {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("diverged-{:016x}{suffix}.bin", at.get()));
        match disk.open(&path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                env::crashsafe::write_atomically(disk, &path, &tail).map_err(Error::io("write", &path))?;
                return Ok(path);
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
            Ok(file) => {
                let mut kept = vec![0; file.len().map_err(Error::io("measure", &path))? as usize];
                file.read_exact_at(&mut kept, 0).map_err(Error::io("read", &path))?;
                if is_rest_of(&tail, &kept) {
                    return Ok(path);
                }
            }
        }
    }
    unreachable!("the disk holds fewer files")
}

/// Returns up to [`KEPT_BYTES_MAX`] bytes of the log after `at`, without the zeros at its end.
fn read_tail(segments: &[Segment], at: Lsn) -> Result<Vec<u8>, Error> {
    let mut tail = Vec::new();
    for segment in segments {
        let from = segment.start.max(at);
        let bytes = segment.end.bytes_since(from).min(KEPT_BYTES_MAX - tail.len() as u64) as usize;
        let old = tail.len();
        tail.resize(old + bytes, 0);
        let read = segment.file.read_at(&mut tail[old..], segment.offset(from));
        tail.truncate(old + read.map_err(Error::io("read", &segment.path))?);
    }
    let used = tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    tail.truncate(used);
    Ok(tail)
}

/// Whether `tail` equals `kept` except for blocks overwritten with zeros. If so, an interrupted cut has
/// already written the kept file.
fn is_rest_of(tail: &[u8], kept: &[u8]) -> bool {
    let blocks = tail.chunks(BLOCK_BYTES as usize).zip(kept.chunks(BLOCK_BYTES as usize));
    let is_blank = |block: &[u8]| block.iter().all(|&byte| byte == 0);
    tail.len() <= kept.len() && blocks.into_iter().all(|(now, then)| is_blank(now) || then.starts_with(now))
}

#[cfg(all(test, not(loom)))]
mod tests;
