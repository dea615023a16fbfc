//! Multi-step file operations that survive a crash, in one place so that no caller invents its own.
//!
//! These are atomic replacement, durable creation, rename and removal, and the removal of temporary files
//! after a crash. Files that grow (log, trees) have protocols of their own.
//!
//! Which sync is needed, and why
//! - *Contents before name*: a rename may reach the disk before the data of the file. Without the sync of the
//!   temporary file a crash can leave the final name with an empty or torn file.
//! - *Directory after name*: a name lives in its directory. Without the sync of the directory a crash can
//!   bring back the old file although success was reported.
//! - *Destination before source*, if the directories differ: on a file system whose renames are not atomic
//!   across directories, a crash in between leaves two names rather than none.
//!
//! Invariants of all operations except [`create_with_mode`]
//! - A reader of `path` sees the complete old or the complete new contents, at any moment and after any
//!   crash.
//! - An unfinished file has a name that ends in `.tmp`.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Disk, File, RealDisk, reserve};

/// Suffix of files that are being written; such a file is garbage after a crash.
pub const TMP_SUFFIX: &str = ".tmp";

/// Replaces or creates `path` with `bytes`, durably and atomically. It is for small files. If the disk is
/// full and the directory has a [`reserve`], the reserve is removed, and the file is written into its room.
///
/// # Errors
/// I/O errors; `path` then holds the complete old or the complete new contents.
pub fn write_atomically(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = || write_atomically_with(disk, path, |file| file.write_all_at(bytes, 0));
    match write() {
        Err(error) if reserve::is_disk_full(&error) && reserve::release(disk, dir_of(path)) => write(),
        written => written,
    }
}

/// Replaces or creates `path` with a new file that `write` fills, durably and atomically.
///
/// # Errors
/// I/O errors, including the errors of `write`; `path` then holds the complete old or the complete new
/// contents.
pub fn write_atomically_with(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(Arc<dyn File>) -> io::Result<()>,
) -> io::Result<()> {
    let tmp = tmp_path(path);
    remove_if_present(disk, &tmp)?;
    if let Err(error) = write_new(disk, &tmp, write) {
        // Frees the space now if the disk is full; only the first error is reported.
        let _ = disk.remove(&tmp);
        return Err(error);
    }
    rename_durably(disk, &tmp, path)
}

/// Replaces or creates `path` with `bytes` and the permissions `mode`, durably and atomically, on
/// [`RealDisk`]. Does not use the [`reserve`].
///
/// # Errors
/// I/O errors; `path` then holds the complete old or the complete new contents.
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

/// Creates `path`, which must not exist, with `bytes` and the permissions `mode`, durably, on [`RealDisk`].
/// It is for files that nobody uses before success is reported: a crash may leave a part of the file.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if there is anything at `path`, which is left as it was. If writing or
/// syncing the file fails, the file is removed if possible. After any other I/O error, it may stay.
pub fn create_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let file = RealDisk.create_new_with_mode(path, mode)?;
    let written = file.write_all_at(bytes, 0).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = RealDisk.remove(path);
        return Err(error);
    }
    RealDisk.sync_dir(dir_of(path))
}

/// The temporary name for `path`. It is in the same directory, because a rename does not cross file systems.
pub fn tmp_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(TMP_SUFFIX);
    PathBuf::from(name)
}

/// Renames a file, replacing `to`; durable on return. The caller must have synced the contents.
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

/// Removes the `*.tmp` files that a crash left in `dir` and returns their names. Must be called before
/// anything is written there.
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
