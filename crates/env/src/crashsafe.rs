//! The file dances that survive a crash, once, so that no caller invents its own.
//!
//! What it is: atomic replacement, durable rename, durable removal, and the cleaning of what a crash left behind.
//! What it is not: for files that grow (log, trees); those have protocols of their own.
//!
//! Which sync is needed, and why
//! - *Contents before name*: a rename may reach the disk before the data of the file. Without the sync of the
//!   temporary file a crash can leave the final name with an empty or torn file.
//! - *Directory after name*: a name lives in its directory. Without the sync of the directory a crash can bring
//!   back the old file although the caller was told that it is replaced.
//! - *Destination before source*, if the directories differ: where a file system does not tie the two halves of a
//!   rename together, a crash in between leaves two names rather than none.
//!
//! Invariants
//! - A reader of `path` sees the old or the new contents, whole, at any moment and after any crash.
//! - Everything unfinished ends in `.tmp`, and nothing else does.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Disk, File, RealDisk};

/// Suffix of files that are being written; whatever bears it after a crash is garbage.
pub const TMP_SUFFIX: &str = ".tmp";

/// Replaces or creates `path` with `bytes`, durably and atomically: the way for small files.
///
/// # Errors
/// If one is returned, `path` holds the old or the new contents, whole.
pub fn write_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_atomically_with(disk, path, |file| file.write_all_at(bytes, 0))
}

/// Replaces or creates `path` with what `write` writes to a new file, durably and atomically.
///
/// # Errors
/// If one is returned, `path` holds the old or the new contents, whole.
pub fn write_atomically_with(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(Arc<dyn File>) -> io::Result<()>,
) -> io::Result<()> {
    let tmp = tmp_path(path);
    remove_if_present(disk, &tmp)?;
    if let Err(error) = write_new(disk, &tmp, write) {
        // Frees the space now if the disk is full; the first error is the one to report.
        let _ = disk.remove(&tmp);
        return Err(error);
    }
    rename_durably(disk, &tmp, path)
}

/// As [`write_atomically`], on the disk of this machine and with these permissions: for files with secrets.
///
/// # Errors
/// If one is returned, `path` holds the old or the new contents, whole.
pub fn write_atomically_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (disk, tmp) = (&RealDisk, tmp_path(path));
    remove_if_present(disk, &tmp)?;
    let written = RealDisk.create_new_with_mode(&tmp, mode).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        file.sync_all()
    });
    if let Err(error) = written {
        let _ = disk.remove(&tmp);
        return Err(error);
    }
    rename_durably(disk, &tmp, path)
}

/// The temporary name for `path`: in the same directory, because a rename does not cross file systems.
pub fn tmp_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(TMP_SUFFIX);
    PathBuf::from(name)
}

/// Renames, replacing `to`; durable on return. The contents must have been synced before.
pub fn rename_durably(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    disk.rename(from, to)?;
    disk.sync_dir(dir_of(to))?;
    if dir_of(from) == dir_of(to) { Ok(()) } else { disk.sync_dir(dir_of(from)) }
}

/// Removes a file; it stays removed after a crash.
pub fn remove_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.remove(path)?;
    disk.sync_dir(dir_of(path))
}

/// Removes the `*.tmp` files that a crash left in `dir` and returns their names. To be called before anything is
/// written there.
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<String>> {
    let mut names = disk.list(dir)?;
    names.retain(|name| name.ends_with(TMP_SUFFIX));
    for name in &names {
        disk.remove(&dir.join(name))?;
    }
    if !names.is_empty() {
        disk.sync_dir(dir)?;
    }
    Ok(names)
}

fn write_new(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(Arc<dyn File>) -> io::Result<()>,
) -> io::Result<()> {
    let file = disk.create_new(path)?;
    write(file.clone())?;
    file.sync_all()
}

fn remove_if_present(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests;
