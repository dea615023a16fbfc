//! `sheaf restore`: makes a new data directory from a backup, or from the directory of a stopped server, with
//! the state at a position or time of its log.
//!
//! ```text
//! mark DIR -> unless the target is the end, survey the log: the restorable range
//!   -> load the newest snapshot old enough, replay up to the target
//!   -> a new log that starts there -> a snapshot of the state -> durable -> remove the mark
//! ```
//!
//! Log and snapshots are not copied as they are. The new directory has a log with its own identity: after the
//! target, the writes of its server form another history than the writes of the old server.
//!
//! Invariants
//! - The source is only read; it may be on a read-only file system.
//! - A target outside of the restorable range is refused, and the error names the range. Damage is refused,
//!   never skipped.
//! - An unfinished restore is not served: the mark is there before the source is read, which can take long. A
//!   refused restore leaves no mark.

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

/// Maximum number of parts of the snapshot, each written by a thread.
const WRITERS_MAX: usize = 8;
const MARK: &str = "A restore into this directory did not finish.\n";

/// The state to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The end of the log.
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

/// Why the restore failed; the message says how to proceed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The source has no data.
    #[error("{} is neither a backup nor the data directory of a server", .0.display())]
    NoData(PathBuf),
    /// The source is an incomplete or damaged backup.
    #[error(transparent)]
    Backup(#[from] crate::ManifestError),
    /// Another process uses a directory, or it cannot be locked.
    #[error("{}", .0.with_remedy("Stop it, or make a backup of it (sheaf backup) and restore that"))]
    Lock(#[from] env::LockError),
    /// An import or a restore was interrupted, in the source or in the directory.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The directory is not empty.
    #[error("{} is not empty: restore into a directory that does not exist yet", .0.display())]
    NotEmpty(PathBuf),
    /// The target lies outside of the source's range.
    #[error("{target} cannot be restored from {}: it holds {range}{hint}", dir.display())]
    OutOfRange {
        /// The requested target.
        target: Target,
        /// The source.
        dir: PathBuf,
        /// The restorable range.
        range: Range,
        /// Advice on the alternatives.
        hint: &'static str,
    },
    /// The source cannot be read or is damaged, or log and snapshot cannot be written.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Document files cannot be restored to the target.
    #[error(
        "documents cannot be restored to that position: since then, at lsn {0}, a database was deleted or its file compacted. Restore \
         an older backup, or a later position"
    )]
    DocumentsLater(Lsn),
    /// An operation on a file or directory failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Os {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The restore has failed after it had begun to write.
    #[error(
        "{cause}. The restore has not finished, and {} is not served: remove it when the cause is removed, and run the same \
         command again", dir.display()
    )]
    Interrupted {
        /// The failure.
        cause: Box<RestoreError>,
        /// The directory.
        dir: PathBuf,
    },
}

impl RestoreError {
    /// An I/O error while `doing` something with `path`; for `map_err`.
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

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last record and the time of its batch.
    pub reached: Reached,
    /// Number of keys, including those that have expired since.
    pub keys: u64,
    /// Bytes of the new snapshot.
    pub file_bytes: u64,
    /// The setting `ack-replicas` of the data; 0 if the data does not have it.
    pub ack_replicas: u64,
}

/// Restores from `source` into `dir`. If `known_until_ms` is given, the end of the source's log is known to
/// be the state of its server at that time. `dir` must be locked, and the source as well unless it is a
/// backup.
///
/// # Errors
/// [`RestoreError`].
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
    disk.create_dir_all(dir).map_err(RestoreError::os("create", dir))?;
    unfinished::begin(disk, dir, Work::Restore, MARK).map_err(RestoreError::os("mark", dir))?;
    let read = || -> Result<_, RestoreError> {
        let until = match target {
            Target::End => Lsn::MAX,
            _ => survey(source, known_until_ms, target, report)?,
        };
        let (keyspace, recovery) = source.load_until(until, report)?;
        Ok((until, keyspace, recovery))
    };
    let unmark = || unfinished::end(disk, dir, Work::Restore).map_err(RestoreError::os("unmark", dir));
    let (until, keyspace, recovery) = match read() {
        Ok(read) => read,
        // Nothing but the mark was written, so the directory is empty again without it.
        Err(error) => return Err(unmark().err().unwrap_or(error)),
    };
    let reached = recovery.reached();
    let keys = DbId::all().map(|db| keyspace.len(db)).sum();
    let settings = keyspace.data_settings();
    let ack_replicas = settings.get(&b"ack-replicas"[..]).map(String::from_utf8_lossy);
    let ack_replicas = ack_replicas.and_then(|value| value.parse().ok()).unwrap_or(0);

    let options = LogOptions { segment_bytes: recovery.segment_bytes(), ..source.options }.fitting();
    let place = Place { dir, options, ..source.clone() };
    let write = || -> Result<SnapshotInfo, RestoreError> {
        let log = open_log(&place, reached.lsn, recovery.reign())?;
        documents::restore(source, dir, until, log.start_lsn())?;
        let info = write_snapshot(&place, &log, &keyspace, report)?;
        log.close()?;
        unmark()?;
        Ok(info)
    };
    match write() {
        Ok(info) => Ok(Restored { reached, keys, file_bytes: info.file_bytes(), ack_replicas }),
        Err(cause) => Err(RestoreError::Interrupted { cause: Box::new(cause), dir: dir.to_path_buf() }),
    }
}

/// Whether a directory is empty or does not exist. The lock file and temporary files, such as the temporary
/// file of a mark after a crash, are ignored.
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

/// Creates a log that begins at `reached`, rounded up to a whole block: positions never go back, so that no
/// record seems older than the data it changes. `reign` is the last reign of the log that the state comes
/// from.
fn open_log(place: &Place<'_>, reached: Lsn, reign: u64) -> Result<Log, storage::Error> {
    let start = reached.align_up(env::BLOCK_BYTES as u64);
    let Place { disk, clock, entropy, dir, options, .. } = place.clone();
    Recovery::create_behind(disk, dir, options, entropy, clock, (start, reign))
}

/// Writes the snapshot with which the log begins, in as many parts as there are `appliers`, but at most
/// [`WRITERS_MAX`]. A thread of its own writes each part; without `appliers`, the caller's thread writes one
/// part.
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
