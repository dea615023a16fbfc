//! Recovery: loads a snapshot, by default the newest, and replays the log behind it into the keyspace, in
//! parallel by slot.
//!
//! ```text
//! load-0..n: runs of the snapshot's chunks (see `load`)      then the log behind it (see `replay::split`)
//! ```

mod error;

use std::{path::Path, sync::Arc};

use documents::Documents;
use env::{Clock, Disk, Entropy};
use keyspace::{AccessClock, Keyspace};
use lsn::Lsn;
use storage::{Chains, Log, LogOptions, Mirror, Recovery, snapshot};

pub use self::error::DOCUMENTS_REMEDY;
pub use self::error::{RecoverError, Remedy};
use crate::{
    load::{is_whole_log, load_base, rehearse_base},
    progress::LoadProgress,
    replay::split::{Target, rehearse_replay, replay_here, replay_in_parallel},
    salvage::salvage,
};

/// The starting point of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The newest snapshot. Damage is refused.
    #[default]
    Newest,
    /// The snapshot that begins here, or the log alone if it begins here and holds everything. Newer
    /// snapshots are assumed to be damaged and set aside. Other damage is refused.
    From(Lsn),
    /// All data that is not damaged, in a server that is read-only until the operator has accepted the loss:
    /// see `salvage`. Not for [`load`].
    Force,
}

/// The source and options of a recovery.
pub struct Source<'a> {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory of the log.
    pub dir: &'a Path,
    /// The options of the log afterwards.
    pub options: LogOptions,
    /// The clock. Entries that have expired meanwhile are kept, invisible, until a delete is logged.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the id of a new log.
    pub entropy: &'a dyn Entropy,
    /// Threads that apply; 0 applies on the calling thread, for simulations.
    pub appliers: usize,
    /// The starting point.
    pub mode: Mode,
    /// The document databases as opened from their files, to which the log's later changes are applied;
    /// `None`: document changes are skipped.
    pub documents: Option<&'a Documents>,
}

/// The destination of a recovery.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// The keyspace; must be empty.
    pub keyspace: &'a Keyspace,
    /// See [`Source::documents`].
    pub documents: Option<&'a Documents>,
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and opens the log for writing.
///
/// # Errors
/// [`RecoverError`]. Nothing on disk was changed then, unless the last step failed.
pub fn recover(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    if source.mode == Mode::Force {
        return recover_by_force(source, keyspace, progress);
    }
    let (clock, disk, dir, mode) = (source.clock.clone(), source.disk.clone(), source.dir, source.mode);
    let recovery = load(source, keyspace, progress)?;
    if let Mode::From(base) = mode {
        let newer = snapshot::list_begins(&*disk, dir)?.into_iter();
        let newer = newer.filter(|&begin| begin > base || begin == base && is_whole_log(&recovery, base));
        set_aside(&*disk, dir, newer)?;
    }
    Ok(recovery.finish(clock)?)
}

/// As [`recover`], but opens the log as a mirror, whose batches come from another server. The chains are
/// needed to apply further batches. [`Mode::Force`] acts as [`Mode::Newest`]: damaged data is copied anew
/// from the leader.
///
/// # Errors
/// As [`recover`].
pub fn recover_mirror(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<(Log, Mirror, Chains), RecoverError> {
    let clock = source.clock.clone();
    let mode = if source.mode == Mode::Force { Mode::Newest } else { source.mode };
    let mut recovery = load(Source { mode, ..source }, keyspace, progress)?;
    let chains = recovery.take_chains();
    let (log, mirror) = recovery.finish_as_mirror(clock)?;
    Ok((log, mirror, chains))
}

/// Recovers without the damaged parts; without damage, an ordinary recovery.
fn recover_by_force(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    let (clock, entropy, disk, dir) = (source.clock.clone(), source.entropy, source.disk.clone(), source.dir);
    let (recovery, losses) = salvage(source, keyspace, progress)?;
    if losses.is_empty() {
        tracing::info!(target: "server", "nothing is damaged: --force-recovery has done nothing");
        return Ok(recovery.finish(clock)?);
    }
    let report = losses.write(&*disk, dir).map_err(RecoverError::Report)?;
    tracing::warn!(
        target: "server", places = losses.places(), report = %report.display(),
        "what is damaged was left out, and the server is read-only. Read the report; to accept the loss: CONFIG SET \
         force-recovery confirmed"
    );
    Ok(recovery.freeze(clock, entropy)?)
}

/// Sets snapshots aside that were skipped by request, so that the next start does not use them.
fn set_aside(disk: &dyn Disk, dir: &Path, begins: impl Iterator<Item = Lsn>) -> Result<(), RecoverError> {
    for begin_lsn in begins {
        let kept = snapshot::set_aside(disk, dir, begin_lsn)?;
        tracing::warn!(
            target: "server", %begin_lsn, kept = %kept.display(),
            "a snapshot was skipped and set aside; nothing was lost. Remove its files once they have been examined"
        );
    }
    Ok(())
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and leaves the directory unchanged.
/// [`Recovery::finish`] then opens the log for writing.
///
/// # Errors
/// [`RecoverError`].
pub fn load(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Recovery, RecoverError> {
    let Source { disk, dir, options, clock, entropy, appliers, mode, documents } = source;
    let mut recovery = Recovery::open(disk.clone(), dir, options, entropy)?;
    let memory = Memory { keyspace, documents };
    load_opened(&mut recovery, (&*disk, dir), mode, clock.unix_ms(), appliers, memory, progress)?;
    Ok(recovery)
}

/// Recovers snapshot and log into `memory`. `recovery` must be newly opened in `dir`, and not read yet.
///
/// # Errors
/// [`RecoverError`].
pub(crate) fn load_opened(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    mode: Mode,
    now_ms: u64,
    appliers: usize,
    memory: Memory<'_>,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let Memory { keyspace, documents } = memory;
    let now = AccessClock { now_ms, ..AccessClock::default() };
    let loaded = &load_base(recovery, (disk, dir), mode, keyspace, now, appliers, progress)?;
    let target = Target { keyspace, documents, now, loaded };
    let begin = loaded.begin_lsn();
    require_documents(recovery, begin, documents)?;
    if appliers == 0 {
        replay_here(recovery, target, progress)?;
    } else {
        replay_in_parallel(recovery, target, appliers, progress)?;
    }
    require_together(recovery, begin, documents)
}

/// As [`load_opened`] with [`Mode::Newest`], to check whether that would succeed: every record to be replayed
/// is decoded, and document databases change in memory, but no keys are kept. `documents` must not be used
/// afterwards.
///
/// # Errors
/// [`RecoverError`].
pub fn rehearse(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    documents: &Documents,
    progress: &LoadProgress,
) -> Result<(), RecoverError> {
    let begin = rehearse_base(recovery, (disk, dir), progress)?;
    require_documents(recovery, begin, Some(documents))?;
    rehearse_replay(recovery, documents, progress)?;
    require_together(recovery, begin, Some(documents))
}

/// Refuses to continue without the document files if they existed and the log from `begin` on does not hold
/// all documents.
///
/// # Errors
/// [`RecoverError::NoDocuments`].
pub fn require_documents(
    recovery: &Recovery,
    begin: Lsn,
    documents: Option<&Documents>,
) -> Result<(), RecoverError> {
    let is_saved = documents.is_none_or(Documents::is_saved);
    let are_missing = !is_saved && recovery.has_documents() && begin > Lsn::ZERO;
    if are_missing { Err(RecoverError::NoDocuments { begin }) } else { Ok(()) }
}

/// Refuses document files whose state does not lie within the log replayed from `begin` on.
fn require_together(
    recovery: &Recovery,
    begin: Lsn,
    documents: Option<&Documents>,
) -> Result<(), RecoverError> {
    let end = recovery.tail().map_or(begin, |tail| tail.end);
    match documents.and_then(Documents::replay_from) {
        Some(saved) if saved < begin || saved > end => Err(RecoverError::Apart { saved, begin, end }),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
