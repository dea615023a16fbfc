//! Cuts off the end of a log that has diverged from the log it mirrors, before it is recovered.
//!
//! The caller has found the point of divergence by comparing with the other log.
//!
//! The order of the steps, each durable before the next, so that a crash anywhere leaves a log that recovers
//! up to `at` or up to one of the batches after it, and the same cut completes it:
//! 1. the log after `at` is copied to `diverged-<at>.bin`, at most [`KEPT_BYTES_MAX`] of it;
//! 2. snapshots that contain any of it are set aside;
//! 3. the clean end is removed from the control file;
//! 4. the footers after `at` are overwritten with zeros, the last first: the remainder is always a log with a
//!    torn tail, without a later footer that vouches for it;
//! 5. the rest after `at` is overwritten with zeros.

use std::path::{Path, PathBuf};

use env::{Access, AlignedBytes, Disk};
use lsn::Lsn;

use super::{
    footer::Footer,
    record::BLOCK_BYTES,
    segment::{self, SEGMENT_HEADER_BYTES, Segment},
};
use crate::{Control, Error, snapshot};

/// At most this many bytes are kept for inspection.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Segments are read and overwritten in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// The result of cutting a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// The log now ends at the position. The bytes cut off are in this file.
    Done(PathBuf),
    /// `at` lies before the start of the log, or no remaining snapshot ends at or before it: nothing was
    /// changed; a full sync is needed.
    NoBase,
}

/// Cuts the log in `dir` at the batch boundary `at`. The directory must not be in use.
///
/// # Errors
/// I/O errors, after which the call can be repeated; [`Error::Inconsistent`] if there is no log.
pub fn cut_log(disk: &dyn Disk, dir: &Path, at: Lsn) -> Result<Cut, Error> {
    let Some(control) = Control::load(disk, dir)? else {
        return Err(Error::Inconsistent { path: dir.to_path_buf(), reason: "no log here".into() });
    };
    let snapshots = snapshot::list(disk, dir)?.into_iter().filter(|info| info.log_id == control.log_id);
    let (kept, parted): (Vec<_>, Vec<_>) = snapshots.partition(|info| info.end_lsn <= at);
    let has_base = kept.iter().any(|info| info.begin_lsn >= control.log_start);
    if at < control.log_start || (control.needs_snapshot && !has_base) {
        return Ok(Cut::NoBase);
    }
    let segments = segments_behind(disk, dir, &control, at)?;
    let path = dir.join(format!("diverged-{:016x}.bin", at.get()));
    keep(disk, &segments, at, &path)?;
    for info in parted {
        snapshot::set_aside(disk, dir, info.begin_lsn)?;
    }
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
    Ok(Cut::Done(path))
}

/// Reads the bytes of a segment after `at` in pieces of whole blocks, the last first.
fn for_pieces(
    segment: &Segment,
    at: Lsn,
    mut look: impl FnMut(Lsn, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let file_bytes = segment.file.len().map_err(Error::io("measure", &segment.path))?;
    // In a truncated file, an incomplete block at the end contains nothing complete.
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

/// Copies the log after `at` to `path`, unless an interrupted cut has done so.
fn keep(disk: &dyn Disk, segments: &[Segment], at: Lsn, path: &Path) -> Result<(), Error> {
    if disk.open(path, Access::Read).is_ok() {
        return Ok(());
    }
    let mut kept = Vec::new();
    for segment in segments {
        let from = segment.start.max(at);
        let bytes = segment.end.bytes_since(from).min(KEPT_BYTES_MAX - kept.len() as u64) as usize;
        let old = kept.len();
        kept.resize(old + bytes, 0);
        let read = segment.file.read_at(&mut kept[old..], segment.offset(from));
        kept.truncate(old + read.map_err(Error::io("read", &segment.path))?);
    }
    let used = kept.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    kept.truncate(used);
    env::crashsafe::write_atomically(disk, path, &kept).map_err(Error::io("write", path))
}

#[cfg(all(test, not(loom)))]
mod tests;
