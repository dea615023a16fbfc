//! `sheaf restore`: the state of a backup, or of the directory of a stopped server, at a position or time of its log, as a
//! new data directory.
//!
//! ```text
//! survey the log: what can be restored -> load the newest snapshot that is old enough, replay up to the target
//!   -> mark DIR -> a new log that starts there -> a snapshot of the state -> durable -> remove the mark
//! ```
//!
//! What it is not: a copy of the files. The new directory has a log of its own, with an identity of its own: what its server
//! writes is another history than what the old one wrote after the target.
//!
//! Invariants
//! - The source is read and not changed; it may be on a file system that cannot be written.
//! - A target that cannot be met exactly is refused, with what could be met. Damage is refused, never skipped.
//! - A directory that was not restored to the end is not served.

mod documents;
mod survey;
#[cfg(test)]
mod tests;

use std::{
    io,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use env::{DirLock, Disk, crashsafe::TMP_SUFFIX};
use keyspace::{DbId, Keyspace, SLOT_COUNT};
use lsn::Lsn;
use recovery::{
    offline::{Place, Report, Stage},
    recover::RecoverError,
    snapshot_task::{PartTask, SnapshotPlan, SnapshotTask},
    unfinished::{self, Unfinished, Work},
    unix_time,
};
use storage::{
    Log, LogOptions, Reached, Recovery,
    snapshot::{self, CHUNK_RAW_BYTES_AIM, Compression, PartSummary, SnapshotInfo},
};

pub use self::survey::Range;
use self::survey::survey;

/// Parts of the snapshot at most, each written by a thread.
const WRITERS_MAX: usize = 8;
const MARK: &str = "A restore into this directory did not finish.\n";

/// What is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Everything.
    End,
    /// The state at the last record that ends at or before this position.
    Lsn(Lsn),
    /// The state after the last batch that was closed at or before this time, in milliseconds since 1970.
    Time(u64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::End => f.write_str("the end"),
            Target::Lsn(lsn) => write!(f, "lsn {lsn}"),
            Target::Time(unix_ms) => write!(f, "the state of {}", unix_time::shown(*unix_ms)),
        }
    }
}

/// Why nothing was restored; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is nothing to restore from.
    #[error("{} is neither a backup nor the data directory of a server", .0.display())]
    NoData(PathBuf),
    /// What there is to restore from is not whole.
    #[error(transparent)]
    Backup(#[from] crate::ManifestError),
    /// Another process uses a directory, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] env::LockError),
    /// An import or a restore was interrupted, in the source or in the directory.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory holds something.
    #[error("{} is not empty: restore into a directory that does not exist yet", .0.display())]
    NotEmpty(PathBuf),
    /// The target lies outside of what the source holds.
    #[error("{target} cannot be restored from {}: it holds {range}{hint}", dir.display())]
    OutOfRange {
        /// What was asked for.
        target: Target,
        /// The source.
        dir: PathBuf,
        /// What could be.
        range: Range,
        /// Where else to look.
        hint: &'static str,
    },
    /// The source cannot be read or is damaged.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Files of document databases do not go back to the target.
    #[error(
        "documents cannot be restored to that position: since then, at lsn {0}, a database was deleted or its file compacted. Restore \
         an older backup, or a later position"
    )]
    DocumentsLater(Lsn),
    /// The OS refused something.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the OS said.
        source: io::Error,
    },
    /// It failed after it had begun to write.
    #[error(
        "{cause}. The restore has not finished, and {} is not served: remove it when the cause is removed, and run the same \
         command again", dir.display()
    )]
    Interrupted {
        /// Why.
        cause: Box<RestoreError>,
        /// The directory.
        dir: PathBuf,
    },
}

impl RestoreError {
    /// An error of the OS while `doing` something with `path`.
    pub fn os(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
        let path = path.to_path_buf();
        move |source| RestoreError::Os { doing, path, source }
    }
}

impl From<storage::Error> for RestoreError {
    fn from(error: storage::Error) -> Self {
        RestoreError::Recover(error.into())
    }
}

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last record, and when it was written.
    pub reached: Reached,
    /// Keys, those that have expired since among them.
    pub keys: u64,
    /// Bytes of the new snapshot.
    pub file_bytes: u64,
}

/// Restores from `source`, whose end is known to be the state up to `known_until_ms`. Both directories must be locked.
///
/// # Errors
/// See [`RestoreError`].
pub fn restore(
    source: &Place<'_>,
    known_until_ms: Option<u64>,
    dir: &Path,
    target: Target,
    report: Report<'_>,
) -> Result<Restored, RestoreError> {
    let disk = &*source.disk;
    if !is_empty(disk, dir)? {
        return Err(RestoreError::NotEmpty(dir.to_path_buf()));
    }
    let until = match target {
        Target::End => Lsn::MAX,
        _ => survey(source, known_until_ms, target, report)?,
    };
    let (keyspace, recovery) = source.load_until(until, report)?;
    let reached = recovery.reached();
    let keys = DbId::all().map(|db| keyspace.len(db)).sum();

    disk.create_dir_all(dir).map_err(RestoreError::os("create", dir))?;
    unfinished::begin(disk, dir, Work::Restore, MARK).map_err(RestoreError::os("mark", dir))?;
    let options = LogOptions { segment_bytes: recovery.segment_bytes(), ..source.options }.fitting();
    let place = Place { dir, options, ..source.clone() };
    let write = || -> Result<SnapshotInfo, RestoreError> {
        let log = open_log(&place, reached.lsn, recovery.reign())?;
        documents::restore(source, dir, until, log.start_lsn())?;
        let info = write_snapshot(&place, &log, &keyspace, report)?;
        log.close()?;
        unfinished::end(disk, dir, Work::Restore).map_err(RestoreError::os("unmark", dir))?;
        Ok(info)
    };
    match write() {
        Ok(info) => Ok(Restored { reached, keys, file_bytes: info.file_bytes() }),
        Err(cause) => Err(RestoreError::Interrupted { cause: Box::new(cause), dir: dir.to_path_buf() }),
    }
}

/// Whether a directory holds nothing, or does not exist. The lock, which never goes, and what a crash has left of a mark
/// count as nothing.
fn is_empty(disk: &dyn Disk, dir: &Path) -> Result<bool, RestoreError> {
    for dir in [dir, &snapshot::directory(dir), &::documents::directory(dir)] {
        match disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(RestoreError::os("list", dir)(error)),
            Ok(names) if names.iter().all(|name| name == DirLock::NAME || name.ends_with(TMP_SUFFIX)) => {}
            Ok(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// A new log that goes on behind `reached`: positions do not go back, so that no record seems older than what it changes.
/// `reign`: the last one of the log that the state is of.
fn open_log(place: &Place<'_>, reached: Lsn, reign: u64) -> Result<Log, storage::Error> {
    let start = reached.align_up(env::BLOCK_BYTES as u64);
    let Place { disk, clock, entropy, dir, options, .. } = place.clone();
    Recovery::create_behind(disk, dir, options, entropy, clock, (start, reign))
}

/// Writes the snapshot that the log starts behind, on as many threads as load.
pub(crate) fn write_snapshot(
    place: &Place<'_>,
    log: &Log,
    keyspace: &Keyspace,
    report: Report<'_>,
) -> Result<SnapshotInfo, RestoreError> {
    let disk: &Arc<dyn Disk> = &place.disk;
    let plan = SnapshotPlan {
        disk,
        dir: place.dir,
        log,
        begin_lsn: None,
        parts: place.appliers.clamp(1, WRITERS_MAX) as u32,
        chunk_bytes_aim: CHUNK_RAW_BYTES_AIM,
        compression: Compression::Lz4,
    };
    let begun = SnapshotTask::begin(plan, keyspace)?;
    let (task, parts) = begun.expect("a new directory has no snapshot");
    let slots_done = AtomicU64::new(0);
    let write = |mut part: PartTask<'_>| -> Result<PartSummary, storage::Error> {
        let mut slots_left = part.slots_left();
        while part.step()?.is_some() {
            let done = (slots_left - part.slots_left()) as u64;
            slots_left = part.slots_left();
            report(Stage::Writing, slots_done.fetch_add(done, Relaxed) + done, SLOT_COUNT as u64);
        }
        part.finish()
    };
    let write = |part| write(part).map_err(RestoreError::from);
    let summaries: Result<Vec<PartSummary>, RestoreError> = if place.appliers == 0 {
        parts.into_iter().map(write).collect()
    } else {
        thread::scope(|scope| {
            let start = |(index, part)| {
                let builder = thread::Builder::new().name(format!("restore-{index}"));
                builder.spawn_scoped(scope, || write(part)).map_err(RecoverError::Thread)
            };
            let started: Vec<_> = parts.into_iter().enumerate().map(start).collect();
            let ended = started.into_iter().map(|it| it?.join().unwrap_or_else(|panic| resume_unwind(panic)));
            // Join all of them, even if one has failed.
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    };
    Ok(task.publish(summaries?)?)
}
