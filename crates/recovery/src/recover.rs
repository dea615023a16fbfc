//! Recovery: loads a snapshot, by default the newest, and replays the log after it into the keyspace, in
//! parallel by slot.
//!
//! ```text
//! load-0..n: runs of the snapshot's chunks (see `load`)      then the log after it (see `replay::split`)
//! ```

use std::path::Path;

use documents::Documents;
use env::Disk;
use keyspace::{AccessClock, Keyspace};
use lsn::Lsn;
use storage::{Chains, Log, Mirror, Recovery, SnapshotDamage, snapshot};

pub use crate::{
    error::{DOCUMENTS_REMEDY, RecoverError, Remedy},
    source::{Mode, Source},
};
use crate::{
    load::{is_whole_log, load_base, rehearse_base},
    opening::{require_documents, require_together},
    progress::LoadProgress,
    replay::{
        settings::replay_settings,
        split::{Target, rehearse_replay, replay_here, replay_in_parallel},
    },
    salvage::{note_lost_messages, salvage},
};

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
/// [`RecoverError`]. If the data cannot be recovered, neither log nor snapshots are changed. A later error
/// may leave snapshots set aside, a report, or changes of the log.
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

/// As [`recover`], but opens the log as a mirror, whose batches come from another server. The returned chains
/// are needed to apply further batches. [`Mode::From`] sets no snapshot aside. [`Mode::Force`] acts as
/// [`Mode::Newest`]: damaged data is copied anew from the leader.
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

/// As [`recover_mirror`], for a witness: it keeps the log and no memory, so the log needs no snapshot, and
/// only settings of the data come into `keyspace`. [`Source::mode`], [`Source::appliers`] and
/// [`Source::documents`] mean nothing here.
///
/// # Errors
/// As [`recover`].
pub fn recover_witness(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<(Log, Mirror), RecoverError> {
    let mut recovery = Recovery::open(source.disk, source.dir, source.options, source.entropy)?;
    recovery.without_state();
    replay_settings(&mut recovery, keyspace, progress)?;
    Ok(recovery.finish_as_mirror(source.clock)?)
}

/// Recovers without the damaged parts; without damage, an ordinary recovery.
fn recover_by_force(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<Log, RecoverError> {
    let (clock, entropy, disk, dir) = (source.clock.clone(), source.entropy, source.disk.clone(), source.dir);
    let documents = source.documents;
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
    let reached = documents.map_or(Lsn::ZERO, Documents::reached);
    let log = recovery.freeze(reached, clock, entropy)?;
    note_lost_messages(keyspace, &losses, &log);
    if losses.messages() > 0 {
        tracing::warn!(
            target: "server", messages = losses.messages(), report = %report.display(),
            "to accept the loss drops all messages of durable channels, also those that are not damaged: only the damaged log has them. \
             Their readers are told (LOST, xlost)"
        );
    }
    Ok(log)
}

/// Sets aside the snapshots that were skipped by request, so that the next start does not use them.
fn set_aside(disk: &dyn Disk, dir: &Path, begins: impl Iterator<Item = Lsn>) -> Result<(), RecoverError> {
    for begin_lsn in begins {
        let kept = snapshot::set_aside(disk, dir, begin_lsn)?;
        tracing::warn!(
            target: "server", begin_lsn = begin_lsn.get(), kept = %kept.display(),
            "a snapshot was skipped and set aside; nothing was lost. Remove its files once they have been examined"
        );
    }
    Ok(())
}

/// Recovers snapshot and log into `keyspace`, which must be empty, and leaves both unchanged on disk.
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
/// afterwards. The chunks of snapshots are not read: `damaged` is the damage that a check has found there.
/// Returns where the replay begins.
///
/// # Errors
/// [`RecoverError`].
pub fn rehearse(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    documents: &Documents,
    damaged: Option<&SnapshotDamage>,
    progress: &LoadProgress,
) -> Result<Lsn, RecoverError> {
    let begin = rehearse_base(recovery, (disk, dir), damaged, progress)?;
    require_documents(recovery, begin, Some(documents))?;
    rehearse_replay(recovery, documents, progress)?;
    require_together(recovery, begin, Some(documents))?;
    Ok(begin)
}

/// As [`recover_witness`], to check whether that would succeed. `recovery` must be newly opened.
///
/// # Errors
/// [`RecoverError`].
pub fn rehearse_witness(recovery: &mut Recovery, progress: &LoadProgress) -> Result<(), RecoverError> {
    recovery.without_state();
    replay_settings(recovery, &Keyspace::new(keyspace::Options { hash_seed: 0 }), progress)
}

#[cfg(test)]
pub(crate) mod tests;
