//! Cutting off the end of a log that has parted from the log it mirrors, before it is recovered.
//!
//! What it is not: a decision. Whoever calls it knows from the other log where the two part.
//!
//! Order, each step durable before the next, so that a crash anywhere leaves a log that recovers up to `at` or up to one of the
//! batches behind it, and the same cut finishes it:
//! 1. what is behind `at` is copied to `diverged-<at>.bin`, as far as [`KEPT_BYTES_MAX`] goes;
//! 2. snapshots that hold anything of it are set aside;
//! 3. the control file no longer says where the log ended;
//! 4. the ends of batches behind `at` are overwritten with zeros, the last first: what is left is always a log with a torn tail,
//!    and nothing behind it that vouches for it;
//! 5. so is the rest.

use std::path::{Path, PathBuf};

use env::{Access, AlignedBytes, Disk};
use lsn::Lsn;

use super::{
    footer::Footer,
    record::BLOCK_BYTES,
    segment::{self, SEGMENT_HEADER_BYTES, Segment},
};
use crate::{Control, Error, snapshot};

/// At most so many bytes are kept aside for whoever wants to look.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Segments are read, and overwritten, in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// What came of cutting a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// It ends at the position now. What was behind is in this file.
    Done(PathBuf),
    /// No snapshot that is left reaches back so far: nothing was changed, everything has to be copied anew.
    NoBase,
}

/// Cuts the log in `dir`, which nobody uses, at the batch boundary `at`.
///
/// # Errors
/// I/O errors; [`Error::Inconsistent`] if there is no log. To be called again then.
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

/// Reads what a segment holds behind `at` in pieces of whole blocks, the last first.
fn for_pieces(
    segment: &Segment,
    at: Lsn,
    mut look: impl FnMut(Lsn, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let file_bytes = segment.file.len().map_err(Error::io("measure", &segment.path))?;
    // A file that was cut short holds nothing complete in a part of a block.
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

/// Overwrites whole blocks, durably.
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

/// Copies what is behind `at`, unless a cut that was interrupted has done so.
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
