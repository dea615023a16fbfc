//! `sheaf restore`: the command-line interface of `backup::restore`.

use std::{path::Path, sync::Arc};

use backup::restore::{RestoreError, Restored, Target, restore};
use env::{DirLock, Disk, RealDisk};
use recovery::{
    offline::{Place, ProgressBars},
    unfinished::refuse_unfinished,
    unix_time,
};
use storage::Control;

/// `sheaf restore`: restores `target` from `source` into `dir` and prints the result.
///
/// # Errors
/// [`RestoreError`].
pub fn run(source: &Path, dir: &Path, target: Target) -> Result<(), RestoreError> {
    backup::refuse_incomplete(&RealDisk, source)?;
    let (disk, manifest) = backup::view(Arc::new(RealDisk), source)?;
    if Control::load(&*disk, source)?.is_none() {
        return Err(RestoreError::NoData(source.to_path_buf()));
    }
    let _source_lock = match &manifest {
        // Backups are not modified, and may be on a read-only file system: no lock is taken.
        Some(manifest) => {
            manifest.check_sizes(&RealDisk, source)?;
            None
        }
        None => {
            refuse_unfinished(&RealDisk, source)?;
            Some(DirLock::acquire(source)?)
        }
    };
    refuse_unfinished(&RealDisk, dir)?;
    let is_new = !dir.exists();
    RealDisk.create_dir_all(dir).map_err(RestoreError::os("create", dir))?;
    let lock = DirLock::acquire(dir)?;
    let bars = ProgressBars::default();
    let known_until_ms = manifest.map(|manifest| manifest.end_unix_ms);
    let report = |stage, done, total| bars.show(stage, done, total);
    let restored = restore(&Place { disk, ..Place::real(source) }, known_until_ms, dir, target, &report);
    bars.finish();
    if restored.is_err() && is_new {
        lock.discard_directory();
    }
    let Restored { reached, keys, file_bytes, ack_replicas } = restored?;
    let time =
        reached.closed_at_ms.map_or(String::new(), |ms| format!(", written at {}", unix_time::shown(ms)));
    println!("restored   the state of the last record, at lsn {}{time}", reached.lsn);
    println!("content    {keys} keys, a snapshot of {file_bytes} bytes");
    if ack_replicas > 0 {
        println!(
            "settings   ack-replicas is {ack_replicas}: without so many replicas the server acknowledges nothing, and shows little \
             of this. To serve it alone: CONFIG SET ack-replicas 0"
        );
    }
    println!(
        "not here   settings that CONFIG SET has made on the source server (its settings.toml), such as requirepass and maxmemory: \
         set them again"
    );
    println!("start      sheaf --dir {}", dir.display());
    Ok(())
}
