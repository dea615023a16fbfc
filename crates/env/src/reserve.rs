//! A file that keeps room on the disk for small files that must be written although the disk is full, such as
//! the vote of a member of a group.
//!
//! ```text
//! keep: the disk has room -> the file `reserve` is written, full of zeros
//! crashsafe::write_atomically: the disk is full -> the file is removed -> the write is tried again
//! a restart within the process: the disk is full -> the file is removed -> the room is measured again
//! the directory leaves its group -> the file is removed
//! ```
//!
//! What it is not: a promise. Whatever else writes to the disk may take the room once the file is removed.
//!
//! Invariants
//! - The file has its full size, or another name: it is renamed when it is complete.
//! - The file is made only where at least three times its size is left for other files.

use std::{io, path::Path};

use crate::{Access, Disk, crashsafe::write_atomically_with};

/// The name of the file.
pub const NAME: &str = "reserve";
/// The size of the file.
pub const BYTES: u64 = 512 << 10;
/// The file is made only if at least this much is free. On a full disk, its removal frees less, so the file
/// is not made again at once from the room that it has given back.
const FREE_BYTES_MIN: u64 = 4 * BYTES;
/// The bytes of one write.
const CHUNK_BYTES: usize = 64 << 10;

/// Whether the directory has its reserve.
pub fn is_kept(disk: &dyn Disk, dir: &Path) -> bool {
    disk.open(&dir.join(NAME), Access::Read).is_ok()
}

/// Whether the directory has no reserve, and the disk has room for one.
pub fn is_wanted(disk: &dyn Disk, dir: &Path) -> bool {
    !is_kept(disk, dir) && disk.free_bytes(dir).is_ok_and(|free| free >= FREE_BYTES_MIN)
}

/// Makes the reserve of the directory, if it is [wanted](is_wanted). Blocks.
///
/// # Errors
/// I/O errors.
pub fn keep(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    if !is_wanted(disk, dir) {
        return Ok(());
    }
    write_atomically_with(disk, &dir.join(NAME), |file| {
        let zeros = [0; CHUNK_BYTES];
        (0..BYTES).step_by(CHUNK_BYTES).try_for_each(|at| file.write_all_at(&zeros, at))
    })
}

/// Gives the room of the reserve back to the disk. Returns whether there was a reserve, and its removal is
/// durable.
pub fn release(disk: &dyn Disk, dir: &Path) -> bool {
    disk.remove(&dir.join(NAME)).is_ok() && disk.sync_dir(dir).is_ok()
}

/// Whether an error says that the disk is full.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
