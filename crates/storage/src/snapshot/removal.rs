//! Removal of snapshots. A crash at any moment leaves a snapshot as it was, or only leftovers, which the next
//! start removes, and files that were set aside.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use env::{Disk, crashsafe::TMP_SUFFIX};
use lsn::Lsn;

use super::{
    directory, files,
    manifest::{FileName, manifest_name, parse_file_name},
};
use crate::Error;

/// Removes the snapshot that begins at `begin_lsn`, even if it is damaged: first its manifest, durably, then
/// its parts.
///
/// # Errors
/// I/O errors. The snapshot is then still complete, or only leftovers of it remain.
pub fn remove(disk: &dyn Disk, dir: &Path, begin_lsn: Lsn) -> Result<(), Error> {
    withdraw(disk, &directory(dir), begin_lsn)
}

/// Suffix of the files of a snapshot that was set aside.
const DAMAGED_SUFFIX: &str = ".damaged";

/// Withdraws the snapshot that begins at `begin_lsn`, but keeps its files under other names for inspection.
/// Returns the new path of its manifest.
///
/// # Errors
/// I/O errors. The snapshot is then unchanged, or withdrawn, possibly with parts that the next start removes.
pub fn set_aside(disk: &dyn Disk, dir: &Path, begin_lsn: Lsn) -> Result<PathBuf, Error> {
    let snapshots = directory(dir);
    let renamed = |name: &str| -> Result<PathBuf, Error> {
        let (path, aside) = (snapshots.join(name), snapshots.join(format!("{name}{DAMAGED_SUFFIX}")));
        disk.rename(&path, &aside).map_err(Error::io("rename", &path))?;
        Ok(aside)
    };
    let names = files(disk, &snapshots)?;
    let manifest = renamed(&manifest_name(begin_lsn))?;
    disk.sync_dir(&snapshots).map_err(Error::io("sync", &snapshots))?;
    for name in names.iter().filter(|name| is_part_of(name, begin_lsn)) {
        renamed(name)?;
    }
    disk.sync_dir(&snapshots).map_err(Error::io("sync", &snapshots))?;
    Ok(manifest)
}

/// Removes the files that an interrupted snapshot or removal has left, and returns their names. Must not be
/// called while a snapshot is being written. [`Recovery::finish`](crate::Recovery::finish) calls it.
///
/// # Errors
/// I/O errors; some leftovers may still be there.
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, Error> {
    let snapshots = directory(dir);
    let names = files(disk, &snapshots)?;
    let parsed = || names.iter().filter_map(|name| parse_file_name(name));
    let published: BTreeSet<FileName> =
        parsed().filter(|name| matches!(name, FileName::Manifest(_))).collect();
    let is_leftover = |name: &String| match parse_file_name(name) {
        Some(FileName::Part(begin_lsn, _)) => !published.contains(&FileName::Manifest(begin_lsn)),
        Some(FileName::Manifest(_)) => false,
        None => name.strip_suffix(TMP_SUFFIX).is_some_and(|rest| parse_file_name(rest).is_some()),
    };
    let leftovers: Vec<String> = names.iter().filter(|name| is_leftover(name)).cloned().collect();
    if !leftovers.is_empty() {
        remove_unnamed(disk, &snapshots, &leftovers)?;
    }
    Ok(leftovers)
}

/// Withdraws a snapshot: removes its manifest durably, then its parts.
pub(super) fn withdraw(disk: &dyn Disk, snapshots: &Path, begin_lsn: Lsn) -> Result<(), Error> {
    let path = snapshots.join(manifest_name(begin_lsn));
    let parts: Vec<String> =
        files(disk, snapshots)?.into_iter().filter(|name| is_part_of(name, begin_lsn)).collect();
    remove_if_present(disk, &path)?;
    remove_unnamed(disk, snapshots, &parts)
}

fn is_part_of(name: &str, begin_lsn: Lsn) -> bool {
    matches!(parse_file_name(name), Some(FileName::Part(begin, _)) if begin == begin_lsn)
}

/// Removes files of snapshots without a manifest, after making the removal of the manifests durable:
/// otherwise a crash could bring back a manifest without parts.
fn remove_unnamed(disk: &dyn Disk, snapshots: &Path, names: &[String]) -> Result<(), Error> {
    disk.sync_dir(snapshots).map_err(Error::io("sync", snapshots))?;
    names.iter().try_for_each(|name| remove_if_present(disk, &snapshots.join(name)))
}

fn remove_if_present(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
