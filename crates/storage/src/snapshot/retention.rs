//! Which snapshots are kept, and removing the others so that a crash at any moment leaves whole ones and leftovers.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use env::{Disk, crashsafe::TMP_SUFFIX};
use lsn::Lsn;

use super::{
    directory, files, list, list_begins,
    manifest::{FileName, manifest_name, parse_file_name},
};
use crate::{Error, Log};

/// Keeps the newest `generations` snapshots that `log` can be replayed behind, removes the others and then the log that
/// only they needed. To be called after a snapshot is published.
///
/// The log is forgotten only when there are `generations` snapshots: till then its whole is what there is to fall back
/// on. What is pinned is kept besides ([`Log::pin`]).
///
/// # Errors
/// I/O errors, and a damaged manifest, in which case nothing is removed. Whatever is missing is done by the next call.
///
/// # Panics
/// If `generations` is 0.
pub fn retain(disk: &dyn Disk, dir: &Path, log: &Log, generations: usize) -> Result<(), Error> {
    assert!(generations > 0, "the newest snapshot is kept");
    if log.is_frozen() {
        // Till it is adopted, what was before it is all there is.
        return Ok(());
    }
    let pins = log.pins();
    // Whatever they are: the log does not reach back to them.
    let void = list_begins(disk, dir)?.into_iter().filter(|&begin_lsn| begin_lsn < log.start_lsn());
    void.into_iter().filter(|&it| !pins.contains(it)).try_for_each(|it| remove(disk, dir, it))?;
    let snapshots = list(disk, dir)?.into_iter().filter(|info| info.log_id == log.id());
    let usable = snapshots.map(|info| info.begin_lsn).filter(|&begin_lsn| begin_lsn >= log.start_lsn());
    let mut usable: Vec<Lsn> = usable.collect();
    let mut obsolete = usable.split_off(generations.min(usable.len()));
    obsolete.retain(|&begin_lsn| !pins.contains(begin_lsn));
    obsolete.into_iter().try_for_each(|begin_lsn| remove(disk, dir, begin_lsn))?;
    match usable.last() {
        Some(&oldest) if usable.len() == generations => log.forget_before_unpinned(oldest, &pins),
        _ => Ok(()),
    }
}

/// Removes the snapshot that begins at `begin_lsn`, also one that is damaged: durably not a snapshot any more, then its
/// parts.
///
/// # Errors
/// I/O errors. The snapshot is then still whole, or none any more, with leftovers.
pub fn remove(disk: &dyn Disk, dir: &Path, begin_lsn: Lsn) -> Result<(), Error> {
    withdraw(disk, &directory(dir), begin_lsn)
}

/// Suffix of the files of a snapshot that was set aside.
const DAMAGED_SUFFIX: &str = ".damaged";

/// Makes the snapshot that begins at `begin_lsn` none, and keeps its files under other names for whoever wants to look.
/// Returns the new name of its manifest.
///
/// # Errors
/// I/O errors. The snapshot is then still one, or none any more, with parts that the next start removes.
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

/// Removes what an interrupted snapshot or removal has left, and returns the names. Not to be called while a snapshot
/// is being written. [`Recovery::finish`](crate::Recovery::finish) does it.
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

/// Makes a snapshot none: its manifest first.
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

/// Removes files that no manifest names, once that is durable: else a crash could bring back a manifest without parts.
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
