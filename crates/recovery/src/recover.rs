//! Recovery: a snapshot, the newest unless told otherwise, is loaded, then the log behind it is replayed into the keyspace, in parallel by slot.
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

/// What a recovery starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The newest snapshot. Damage is refused.
    #[default]
    Newest,
    /// The snapshot that begins here, or the log itself if it begins here and holds everything: newer snapshots are damaged,
    /// and are set aside. Other damage is refused.
    From(Lsn),
    /// Whatever is left, in a server that takes no writes until the operator has accepted what is lost: see `salvage`. Not
    /// for [`load`].
    Force,
}

/// Where and how to recover.
pub struct Source<'a> {
    /// The simulated disk.
    pub disk: Arc<dyn Disk>,
    /// The directory of the log.
    pub dir: &'a Path,
    /// How the log is kept afterwards.
    pub options: LogOptions,
    /// The time; entries that have expired since are kept, invisible, until a logged delete.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for a new log's id.
    pub entropy: &'a dyn Entropy,
    /// Threads that apply; 0 applies on the calling thread, for simulations.
    pub appliers: usize,
    /// What to start from.
    pub mode: Mode,
    /// The document databases as their files have them, to which the log has more; `None`: what it has of them is passed over.
    pub documents: Option<&'a Documents>,
}

/// What a recovery fills.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// Must be empty.
    pub keyspace: &'a Keyspace,
    /// See [`Source::documents`].
    pub documents: Option<&'a Documents>,
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and opens the log for writing.
///
/// # Errors
/// See [`RecoverError`]. Nothing on disk was changed then, unless the last step failed.
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

/// As [`recover`], but opens the log as a mirror: its batches come from another server. Whoever goes on applying them needs the
/// chains. With [`Mode::Force`] as with [`Mode::Newest`]: what is damaged is copied anew.
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

/// Leaves out what is damaged; without damage, recovers as always.
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

/// Sees to it that the next start does not meet the snapshots that this one was told to pass over.
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

/// Recovers snapshot and log into `keyspace`, which must be empty, and leaves the directory as it is: [`Recovery::finish`]
/// opens the log for writing.
///
/// # Errors
/// See [`RecoverError`].
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

/// Recovers snapshot and log, which was opened in `dir` and not read yet, into `memory`.
///
/// # Errors
/// See [`RecoverError`].
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

/// Does what [`load_opened`] does with [`Mode::Newest`], for whoever wants to know whether it would succeed: every record that is to be
/// replayed is decoded, and document databases change in memory, but no keys are kept. `documents` must not be used afterwards.
///
/// # Errors
/// See [`RecoverError`].
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

/// Refuses to go on without files of documents that were there, where the log that is replayed from `begin` on has not all of them.
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

/// Refuses files of documents of another moment than the log that was replayed from `begin` on.
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
