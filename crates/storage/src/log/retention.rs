//! Retention: which snapshots are kept, and from which position on the log is kept.

use std::path::{Path, PathBuf};

use env::Disk;
use lsn::Lsn;

use super::Log;
use crate::{
    Error,
    snapshot::{self, list, list_begins, remove},
};

/// Keeps the newest `generations` snapshots from which `log` can be replayed. Removes older ones, and then
/// the part of the log that only the removed ones needed. Call it after a snapshot is published. Pinned
/// snapshots and positions are kept as well ([`Log::pin`]). Does nothing for a frozen log.
///
/// The log is forgotten only if there are `generations` snapshots: until then the whole log is the fallback.
///
/// # Errors
/// I/O errors, after which the next call completes the work; a manifest that is damaged or of another
/// version, in which case no usable snapshot is removed.
///
/// # Panics
/// If `generations` is 0.
pub fn retain_snapshots(disk: &dyn Disk, dir: &Path, log: &Log, generations: usize) -> Result<(), Error> {
    assert!(generations > 0, "the newest snapshot is kept");
    if log.is_frozen() {
        // While the log is not adopted, the damaged log and its snapshots are the only data on disk.
        return Ok(());
    }
    let pins = log.pins();
    // This log cannot be replayed from a snapshot that begins before its start. Such a snapshot is removed
    // even if it is damaged or belongs to another log.
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

/// Sets a damaged snapshot of `log` aside, as [`snapshot::set_aside`] does, unless it is pinned: a copy reads
/// its files by their names. Returns the new path of its manifest; `None` if it is pinned.
///
/// # Errors
/// As [`snapshot::set_aside`].
pub fn set_aside_unpinned(
    disk: &dyn Disk,
    dir: &Path,
    log: &Log,
    begin_lsn: Lsn,
) -> Result<Option<PathBuf>, Error> {
    let pins = log.pins();
    if pins.contains(begin_lsn) {
        return Ok(None);
    }
    let kept = snapshot::set_aside(disk, dir, begin_lsn)?;
    drop(pins);
    Ok(Some(kept))
}
