//! `--force-recovery`: recovers the undamaged data of a damaged directory, and lets the operator accept the
//! loss.
//!
//! ```text
//! salvage: the snapshot that lost least -> the log after it, past the log's holes -> report
//!          -> log frozen: read-only
//! confirm: snapshot of memory -> documents saved -> the frozen log becomes the directory's log
//!          -> report renamed -> writes
//! ```
//!
//! A salvage is a recovery on one thread that continues where an ordinary recovery refuses, and reports every
//! omission. A salvage neither repairs files nor guesses their contents. Without damage it is an ordinary
//! recovery.
//!
//! Invariants
//! - If data is lost, nothing on disk changes before the operator has confirmed, except that the report is
//!   written and leftovers of interrupted writes are removed. A crash before the control file is replaced
//!   leaves a directory that an ordinary start refuses: for the same reason as before, or because the
//!   snapshot of memory belongs to another log. Therefore the snapshot is written before the documents:
//!   saving the documents may remove the first reason.
//! - A damaged chunk of a snapshot loses all keys of the slots in its run. The log's effects on these keys
//!   are applied only to keys that the log creates again, not to those whose earlier state is lost.
//! - A confirmed recovery begins a new log. Messages of durable channels are in the old one alone, so all of
//!   them are lost: the report counts them, and the data say so to their readers (`messages`).
//! - After a hole in the log, whole records are applied as far as they fit the data. A key changed by a lost
//!   record has its earlier value, with later changes on top: the report names the lost positions.

mod messages;
mod report;

use std::{
    ops::{ControlFlow, RangeInclusive},
    path::Path,
    sync::Arc,
};

use documents::{Documents, Due, StoreError};
use env::Disk;
use keyspace::{
    AccessClock, Effect, Freed, GlobalOp, Item, KeyOp, Keyspace, SLOT_COUNT, Scope, SlotGuard, SlotId,
    slot_of,
};
use lsn::Lsn;
use storage::{
    Error, Log, Recovery, retain_snapshots,
    snapshot::{self, ReadBuffers, SnapshotInfo, SnapshotReader},
};

pub(crate) use self::messages::note as note_lost_messages;
use self::{
    messages::Messages,
    report::{DamageLocation, Kind},
};
pub use self::{
    messages::{OF_RECOVERY, messages_lost_before},
    report::Losses,
};
use crate::{
    error::RecoverError,
    load::{Loaded, Loading},
    opening::{require_documents, require_together},
    progress::LoadProgress,
    replay::decode,
    snapshot_task::GENERATIONS,
    source::Source,
};

/// Recovers the undamaged data into `keyspace`, which must be empty.
///
/// # Errors
/// I/O errors; damage after which the log cannot be identified; data of another version.
pub fn salvage(
    source: Source<'_>,
    keyspace: &Keyspace,
    progress: &LoadProgress,
) -> Result<(Recovery, Losses), RecoverError> {
    let Source { ref disk, dir, options, ref clock, entropy, documents, .. } = source;
    let mut recovery = Recovery::salvage(disk.clone(), dir, options, entropy)?;
    let now = AccessClock { now_ms: clock.unix_ms(), ..AccessClock::default() };
    let mut losses = Losses::new(clock.unix_ms());
    let base = choose(&recovery, (&**disk, dir), &mut losses)?;
    let mut slots =
        Slots { keyspace, documents, now, lost: vec![false; SLOT_COUNT], freed: Freed::new(), left_out: 0 };
    let loaded = match &base {
        Some(info) => {
            recovery.start_at(info)?;
            let bytes = info.file_bytes();
            progress.begin(bytes, info.begin_lsn, recovery.end_estimate());
            slots.load((&**disk, dir), info, progress, &mut losses)?
        }
        None => {
            progress.begin(0, recovery.start(), recovery.end_estimate());
            slots.lost.fill(recovery.needs_snapshot());
            Loaded::nothing(recovery.start())
        }
    };
    losses.note_slots(&slots.lost);
    if require_documents(&recovery, loaded.begin_lsn(), documents).is_err() {
        losses.note(DamageLocation::without_documents(dir, loaded.begin_lsn()));
    }
    recovery.replay(
        |lsn, payload| {
            progress.count_record();
            slots.apply_record(&loaded, lsn, payload)
        },
        |lsn| progress.reached(lsn),
    )?;
    if let Err(RecoverError::Apart { saved, begin, end }) =
        require_together(&recovery, loaded.begin_lsn(), documents)
    {
        losses.note(DamageLocation::documents_apart(dir, saved, (begin, end)));
    }
    losses.note_log(recovery.holes());
    losses.base = base.map(|info| info.begin_lsn);
    losses.log_end = recovery.tail().map(|tail| tail.end);
    losses.changes_left_out = slots.left_out;
    losses.keys = keyspace::DbId::all().map(|db| keyspace.len(db)).sum();
    (losses.rows, losses.records) = (progress.rows(), progress.records());
    if !losses.is_empty() {
        // The messages are counted in a pass of their own, because the replay began at the snapshot.
        losses.messages = Messages::count(&source);
    }
    Ok((recovery, losses))
}

/// Chooses the snapshot to load: the newest intact one; else, if the log does not hold everything, the newest
/// that is readable in part. Notes the snapshots that are skipped.
fn choose(
    recovery: &Recovery,
    (disk, dir): (&dyn Disk, &Path),
    losses: &mut Losses,
) -> Result<Option<SnapshotInfo>, RecoverError> {
    let mut damages = Vec::new();
    let mut intact = None;
    for check in snapshot::check(disk, dir, |_, _| ControlFlow::Continue(()))? {
        if check.begin_lsn < recovery.start() {
            continue;
        }
        match check.outcome {
            Ok(info) if info.log_id != recovery.log_id() => {
                losses.note(DamageLocation::of_another_log(dir, info.begin_lsn));
            }
            Ok(info) => {
                intact = Some(info);
                break;
            }
            Err(Error::SnapshotCorrupt(damage)) => damages.push(*damage),
            Err(error) => return Err(error.into()),
        }
    }
    let salvaged = || {
        let mut readable = damages.iter().filter_map(|it| snapshot::load(disk, dir, it.begin_lsn).ok());
        readable.find(|info| info.log_id == recovery.log_id())
    };
    let base = intact.or_else(|| if recovery.needs_snapshot() { salvaged() } else { None });
    for damage in damages.iter().filter(|it| base.as_ref().is_none_or(|base| base.begin_lsn != it.begin_lsn))
    {
        losses.note(DamageLocation::of_snapshot(damage, Kind::SnapshotPassedOver));
    }
    if base.is_none() && recovery.needs_snapshot() {
        losses.note(DamageLocation::without_snapshot(dir, recovery.start()));
    }
    Ok(base)
}

/// The memory that a salvage fills, and which slots have lost their state.
struct Slots<'k> {
    keyspace: &'k Keyspace,
    documents: Option<&'k Documents>,
    now: AccessClock,
    /// Whether the state of each slot at the start of the replay was lost, and no FLUSHALL has followed.
    lost: Vec<bool>,
    freed: Freed,
    left_out: u64,
}

impl Slots<'_> {
    /// Loads the intact parts of a snapshot.
    fn load(
        &mut self,
        (disk, dir): (&dyn Disk, &Path),
        info: &SnapshotInfo,
        progress: &LoadProgress,
        losses: &mut Losses,
    ) -> Result<Loaded, RecoverError> {
        let (reader, damages) = SnapshotReader::salvage(disk, dir, info)?;
        let mut captured = vec![false; SLOT_COUNT];
        let mut buffers = ReadBuffers::default();
        let loading = Loading::new(&reader, self.keyspace, self.now, progress);
        for run in reader.runs() {
            let (first, last) = (reader.chunk(run.chunks.start), reader.chunk(run.chunks.end - 1));
            let slots = usize::from(first.first_slot)..=usize::from(last.last_slot);
            captured[slots.clone()].fill(true);
            // The whole run is verified before any of it is loaded.
            let mut chunks = run.chunks.clone();
            let verified = chunks.try_for_each(|chunk| reader.read(chunk, &mut buffers).map(drop));
            let outcome = verified.map_err(RecoverError::from);
            match outcome.and_then(|()| loading.load_run(run, &mut buffers)) {
                Err(RecoverError::Storage(Error::SnapshotCorrupt(damage))) => {
                    self.lose(slots);
                    let slots = Some((first.first_slot, last.last_slot));
                    let place = DamageLocation::of_snapshot(&damage, Kind::SnapshotChunk);
                    losses.note(DamageLocation {
                        slots,
                        bytes: run.file_bytes,
                        rows: Some(run.rows),
                        ..place
                    });
                }
                other => other?,
            }
        }
        for damage in &damages {
            losses.note(DamageLocation::of_snapshot(damage, Kind::SnapshotPart));
        }
        if !damages.is_empty() {
            for slot in captured.iter().enumerate().filter(|(_, captured)| !**captured).map(|(slot, _)| slot)
            {
                self.lost[slot] = true;
            }
        }
        let lsn = |slot: SlotId| match self.lost[slot.index()] {
            true => Lsn::ZERO,
            false => self.keyspace.lock(slot).last_lsn(),
        };
        Ok(Loaded::of(SlotId::all().map(lsn).collect(), info))
    }

    /// Empties slots that could not be loaded completely.
    fn lose(&mut self, slots: RangeInclusive<usize>) {
        self.lost[slots.clone()].fill(true);
        for slot in SlotId::all().skip(*slots.start()).take(slots.count()) {
            self.keyspace.lock(slot).apply(&Effect::Global(GlobalOp::FlushAll), self.now, &mut self.freed);
        }
    }

    /// Applies a change of documents; one that does not fit the remaining state of its database is left out.
    fn apply_documents(&mut self, change: &[u8], lsn: Lsn) {
        if self.documents.is_some_and(|documents| documents.apply(change, lsn).is_err()) {
            self.left_out += 1;
        }
    }

    fn apply_record(&mut self, loaded: &Loaded, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        while let Some(item) = decode(&mut rest, lsn)? {
            let effect = match item {
                Item::Effect(effect) => effect,
                Item::Documents(change) => {
                    self.apply_documents(change, lsn);
                    continue;
                }
                // Messages change no data. The module `messages` counts them.
                Item::Message(_) => continue,
            };
            match loaded.left_of(effect, lsn) {
                Ok(Some(effect)) => self.apply(loaded, lsn, &effect),
                Ok(None) => {}
                Err(RecoverError::Moved { .. }) => self.lose_moved(lsn, &effect),
                Err(error) => return Err(error),
            }
        }
        self.freed = Freed::new();
        Ok(())
    }

    fn apply(&mut self, loaded: &Loaded, lsn: Lsn, effect: &Effect<'_>) {
        match (effect.scope(), effect) {
            (Scope::Slot(key), _) => {
                let mut slot = self.keyspace.lock(slot_of(key));
                let found = effect.db().and_then(|db| slot.get_raw(db, &self.keyspace.hash(key), key));
                if is_applicable(effect, found.is_some(), self.lost[slot_of(key).index()]) {
                    let applied = slot.apply(effect, self.now, &mut self.freed);
                    self.left_out += u64::from(applied.wrong_type);
                    reach(&mut slot, lsn);
                } else {
                    self.left_out += 1;
                }
            }
            (Scope::Two(from, to), Effect::Move { db, key, .. }) => {
                let is_there = {
                    let slot = self.keyspace.lock(slot_of(from));
                    slot.get_raw(*db, &self.keyspace.hash(key), key).is_some()
                };
                if !is_there {
                    return self.lose_moved(lsn, effect);
                }
                let mut slots = self.keyspace.lock_many([from, to].map(slot_of));
                slots.apply(effect, self.now, &mut self.freed);
                slots.iter_mut().for_each(|slot| reach(slot, lsn));
            }
            _ => {
                for slot in SlotId::all().filter(|&slot| !loaded.has(slot, lsn)) {
                    let mut guard = self.keyspace.lock(slot);
                    guard.apply(effect, self.now, &mut self.freed);
                    reach(&mut guard, lsn);
                    // After FLUSHALL the slot is empty, so nothing of its state is unknown.
                    self.lost[slot.index()] &= !matches!(effect, Effect::Global(GlobalOp::FlushAll));
                }
            }
        }
    }

    /// Removes the destination of a Move whose value is lost: the value there is not the moved one.
    fn lose_moved(&mut self, lsn: Lsn, effect: &Effect<'_>) {
        self.left_out += 1;
        if let &Effect::Move { to_db: db, to_key: key, .. } = effect {
            let mut slot = self.keyspace.lock(slot_of(key));
            slot.apply(&KeyOp::Delete.on(db, key), self.now, &mut self.freed);
            reach(&mut slot, lsn);
        }
    }
}

/// Whether an effect still has its logged meaning, given whether its key is there, and whether the earlier
/// state of its slot is lost. Applying the effect tells whether it meets a value of another type.
fn is_applicable(effect: &Effect<'_>, is_there: bool, is_lost: bool) -> bool {
    let Effect::Key { op, .. } = effect else { return true };
    match op {
        KeyOp::Put { .. } | KeyOp::Delete | KeyOp::SetExpiry { .. } => true,
        _ => is_there || !is_lost,
    }
}

/// Advances the slot's position to `lsn`, but never back: the position of an emptied slot may be greater.
fn reach(slot: &mut SlotGuard<'_>, lsn: Lsn) {
    let lsn = lsn.max(slot.last_lsn());
    slot.set_last_lsn(lsn);
}

/// The first step of a confirmation: returns the snapshot of memory if an earlier attempt has written it.
/// Foreign and damaged snapshots that begin at or after the start of the log are set aside.
///
/// # Errors
/// I/O errors.
pub fn confirmed_before(disk: &dyn Disk, dir: &Path, log: &Log) -> Result<Option<SnapshotInfo>, Error> {
    let mut own = None;
    for begin_lsn in snapshot::list_begins(disk, dir)?.into_iter().filter(|&begin| begin >= log.start_lsn()) {
        match snapshot::load(disk, dir, begin_lsn) {
            Ok(info) if info.log_id == log.id() => own = Some(info),
            Err(error @ Error::Io { .. }) => return Err(error),
            _ => _ = snapshot::set_aside(disk, dir, begin_lsn)?,
        }
    }
    Ok(own)
}

/// Why a confirmation fails.
#[derive(Debug, thiserror::Error)]
pub enum ConfirmError {
    /// An error of the log or of a snapshot.
    #[error(transparent)]
    Storage(#[from] Error),
    /// Documents cannot be saved.
    #[error("documents cannot be saved: {0}")]
    Documents(#[from] StoreError),
}

/// The last step of a confirmation. Saves the documents, which are saved nowhere else while the log is
/// frozen. Then makes the log the directory's log, with this snapshot of memory, and lets it take writes.
///
/// # Errors
/// [`ConfirmError`]; the call may be repeated.
pub fn confirm(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    log: &Log,
    documents: Option<&Documents>,
    snapshot: &SnapshotInfo,
) -> Result<(), ConfirmError> {
    if let Some(documents) = documents {
        save(documents, log)?;
    }
    log.adopt(snapshot)?;
    if let Err(error) = report::confirmed(&**disk, dir, snapshot.begin_lsn) {
        tracing::warn!(target: "server", %error, "cannot rename the report of the forced recovery; it is confirmed all the same");
    }
    log.thaw();
    // A reader of durable channels that is told where the log begins may come back there after a crash, so
    // the epoch of that position must be on disk.
    log.mark_epoch()?;
    if let Err(error) = retain_snapshots(&**disk, dir, log, GENERATIONS) {
        tracing::warn!(target: "server", %error, "cannot remove the files that the forced recovery has replaced; the next snapshot tries again");
    }
    Ok(())
}

/// Saves all documents up to the beginning of the frozen log, which has none of their changes.
fn save(documents: &Documents, log: &Log) -> Result<(), ConfirmError> {
    let due = Due { now_ms: 0, upto: log.appended_lsn(), everything: true };
    // After a failed attempt, the first pass saves the changes that the attempt has frozen, and the second
    // one the rest.
    for _ in 0..2 {
        documents.checkpoint(&due, &mut |_| true)?;
    }
    if documents.saved_lsn().is_some_and(|saved| saved < due.upto) {
        return Err(StoreError::NotCommitted.into());
    }
    if documents.is_saved() {
        log.note_documents()?;
    }
    Ok(())
}
