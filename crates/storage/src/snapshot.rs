//! Snapshot files: chunks of bytes, each with an LSN, written by several threads and read back by several.
//!
//! ```text
//! SnapshotWriter::create -> PartWriter (one per thread): append*, finish -> SnapshotWriter::publish
//! list -> SnapshotReader::open -> runs, read (from any thread)               check, remove
//! ```
//!
//! This module manages the files of `snapshots/` in the data directory: framing, compression, checksums,
//! publication, removal. It does not know the format of rows or how slots are captured, owns no thread and
//! sets no pace.
//!
//! A snapshot is exact although it is taken while the server writes: see [`SnapshotMeta::begin_lsn`] and
//! [`ChunkInfo::lsn`]. Each slot is captured as of one moment, with its LSN of that moment. Replay starts at
//! `begin_lsn` and applies a record to a slot only if the record is newer than that LSN.
//!
//! Invariants
//! - A snapshot exists if and only if its manifest does. The manifest is written last, when every part is
//!   durable under its name. The manifest is removed first, durably, before any part is removed.
//! - Parts without a manifest are leftovers, unless their snapshot is being written. Leftovers are removed at
//!   the next start.
//! - A payload is returned only if every checksum on the path to it matches: manifest, footer, index, chunk.
//! - When a snapshot is read, no allocation depends on an unverified length, and no allocation for a chunk is
//!   larger than [`CHUNK_RAW_BYTES_MAX`] plus the header.
//! - A failure here fails the snapshot, never the log.

mod check;
mod format;
mod manifest;
mod reader;
mod removal;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use env::Disk;
use lsn::Lsn;

use self::manifest::{FileName, parse_file_name};
use crate::Error;

pub use check::{SnapshotCheck, check};
pub use format::{CHUNK_RAW_BYTES_AIM, CHUNK_RAW_BYTES_MAX, ChunkInfo};
pub use manifest::{PARTS_MAX, PartSummary, SnapshotInfo};
pub use reader::{ReadBuffers, Run, SnapshotReader};
pub use removal::{remove, remove_leftovers, set_aside};
pub use writer::{Compression, PartWriter, SnapshotMeta, SnapshotWriter};

/// The directory of the snapshots of the data directory `dir`.
pub fn directory(dir: &Path) -> PathBuf {
    dir.join("snapshots")
}

/// The LSNs at which the published snapshots of the data directory `dir` begin, newest first, from the file
/// names alone.
///
/// # Errors
/// If the directory cannot be listed.
pub fn list_begins(disk: &dyn Disk, dir: &Path) -> Result<Vec<Lsn>, Error> {
    let mut begins: Vec<Lsn> = (files(disk, &directory(dir))?.iter())
        .filter_map(|name| match parse_file_name(name)? {
            FileName::Manifest(begin_lsn) => Some(begin_lsn),
            FileName::Part(..) => None,
        })
        .collect();
    begins.sort_unstable_by(|a, b| b.cmp(a));
    Ok(begins)
}

/// The published snapshots of the data directory `dir`, newest first. Reads the manifests, not the parts.
///
/// # Errors
/// If the directory cannot be listed, or [`load`] fails for a snapshot: skipping that snapshot could silently
/// restore an older state. Use [`load`] to read the others.
pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<SnapshotInfo>, Error> {
    list_begins(disk, dir)?.into_iter().map(|begin_lsn| load(disk, dir, begin_lsn)).collect()
}

/// Reads the manifest of the snapshot that begins at `begin_lsn`.
///
/// # Errors
/// I/O errors, also if there is no such snapshot; [`Error::SnapshotCorrupt`] for a damaged manifest;
/// [`Error::Inconsistent`] for another format version.
pub fn load(disk: &dyn Disk, dir: &Path, begin_lsn: Lsn) -> Result<SnapshotInfo, Error> {
    SnapshotInfo::load(disk, &directory(dir), begin_lsn)
}

/// The error for a log that starts at `log_start` and needs a snapshot, if none is found.
pub fn missing(dir: &Path, log_start: Lsn) -> Error {
    let reason = format!(
        "the log starts at lsn {log_start}, what was before is in a snapshot, and there is none to start from; restore \
         it from a backup or a replica"
    );
    Error::Inconsistent { path: directory(dir), reason }
}

/// The files in the directory of the snapshots; none if it does not exist yet.
fn files(disk: &dyn Disk, snapshots: &Path) -> Result<Vec<String>, Error> {
    match disk.list(snapshots) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(Error::io("list", snapshots)),
    }
}
