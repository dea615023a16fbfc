//! Which snapshots are kept, and removing the others so that a crash at any moment leaves whole ones and leftovers.

use std::{collections::BTreeSet, io, path::Path};

use env::{Disk, crashsafe::TMP_SUFFIX};
use lsn::Lsn;

use super::{
    directory, files, list,
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
    let pins = log.pins();
    let snapshots = list(disk, dir)?.into_iter().filter(|info| info.log_id == log.id());
    let (mut usable, mut obsolete): (Vec<Lsn>, Vec<Lsn>) =
        snapshots.map(|info| info.begin_lsn).partition(|&begin_lsn| begin_lsn >= log.start_lsn());
    if usable.len() > generations {
        obsolete.extend(usable.drain(generations..));
    }
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
    let is_part =
        |name: &String| matches!(parse_file_name(name), Some(FileName::Part(begin, _)) if begin == begin_lsn);
    let parts: Vec<String> = files(disk, snapshots)?.into_iter().filter(is_part).collect();
    remove_if_present(disk, &path)?;
    remove_unnamed(disk, snapshots, &parts)
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
