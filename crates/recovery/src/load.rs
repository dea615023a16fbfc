//! Loads a snapshot; the replay of the log continues from it.
//!
//! Each thread takes the next run of chunks, reads and verifies it, and fills its slots. Runs share no slot,
//! so the threads share only the number of the next run, and slot locks without contention.
//!
//! By default, the snapshot is the newest from which the log can be replayed. If it is damaged, the server
//! does not start, and names the alternatives; the operator must choose, because damage must not go
//! unnoticed.
//!
//! Invariants
//! - Memory in flight is bounded: per thread one chunk as stored, one decompressed, and a copy of the latter
//!   with what the chunk before it has left incomplete.
//! - The replay compares records with the LSNs in [`Loaded`], which do not change. The LSN of the slot itself
//!   changes with each effect. After the first effect of a record, a second effect of the same record on the
//!   same slot would look as if the snapshot included it.

use std::{
    panic::resume_unwind,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use env::{Disk, RealClock};
use keyspace::{AccessClock, Effect, KeyOp, Keyspace, LoadError, Loader, Scope, SlotId, slot_of};
use lsn::Lsn;
use storage::{
    Error, Recovery, SnapshotDamage,
    snapshot::{self, ReadBuffers, Run, SnapshotInfo, SnapshotReader},
};

use crate::{
    error::{RecoverError, Remedy},
    progress::LoadProgress,
    source::Mode,
};

/// The state that was loaded from a snapshot, before the replay.
pub struct Loaded {
    /// The LSN of the last record of each slot in the snapshot; empty without a snapshot.
    lsns: Box<[Lsn]>,
    /// Where the replay begins.
    begin_lsn: Lsn,
    /// No slot was captured at a greater LSN.
    end_lsn: Lsn,
}

impl Loaded {
    /// Without a snapshot; the log begins at `begin_lsn`.
    pub(crate) fn nothing(begin_lsn: Lsn) -> Loaded {
        Loaded { lsns: Box::default(), begin_lsn, end_lsn: Lsn::ZERO }
    }

    pub(crate) fn of(lsns: Box<[Lsn]>, info: &SnapshotInfo) -> Loaded {
        Loaded { lsns, begin_lsn: info.begin_lsn, end_lsn: info.end_lsn }
    }

    /// The end of the snapshot: no slot was captured at a greater LSN. Zero without a snapshot.
    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn
    }

    /// Where the replay begins.
    pub fn begin_lsn(&self) -> Lsn {
        self.begin_lsn
    }

    /// Whether the captured state of the slot includes this record.
    #[inline]
    pub fn has(&self, slot: SlotId, lsn: Lsn) -> bool {
        lsn <= self.end_lsn && self.lsns.get(slot.index()).is_some_and(|&captured| lsn <= captured)
    }

    /// The part of an effect that the snapshot does not include, if any. A global effect is returned whole;
    /// the caller must check each slot.
    ///
    /// # Errors
    /// [`RecoverError::Moved`], if the snapshot has a moved value in neither place.
    #[inline]
    pub fn left_of<'e>(&self, effect: Effect<'e>, lsn: Lsn) -> Result<Option<Effect<'e>>, RecoverError> {
        if lsn > self.end_lsn {
            return Ok(Some(effect));
        }
        let has = |key| self.has(slot_of(key), lsn);
        match (effect.scope(), &effect) {
            (Scope::Slot(key), _) => Ok((!has(key)).then_some(effect)),
            (Scope::Two(from, to), &Effect::Move { db, key, .. }) => match (has(from), has(to)) {
                (false, false) => Ok(Some(effect)),
                (false, true) => Ok(Some(KeyOp::Delete.on(db, key))),
                (true, true) => Ok(None),
                (true, false) => Err(RecoverError::Moved { lsn }),
            },
            _ => Ok(Some(effect)),
        }
    }
}

/// Loads a snapshot of the data directory `dir` into `keyspace`, which must be empty, and starts the replay
/// at the beginning of the snapshot. Loads on `threads` additional threads; 0 for the calling thread. Without
/// a snapshot it loads nothing.
pub(crate) fn load_base(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    mode: Mode,
    keyspace: &Keyspace,
    now: AccessClock,
    threads: usize,
    progress: &LoadProgress,
) -> Result<Loaded, RecoverError> {
    let loaded = open_base(recovery, (disk, dir), mode, progress, |reader, info| {
        Loading::new(reader, keyspace, now, progress).load(threads)?;
        Ok(Loaded::of(SlotId::all().map(|slot| keyspace.lock(slot).last_lsn()).collect(), info))
    })?;
    let loaded = loaded.unwrap_or_else(|| Loaded::nothing(recovery.start()));
    warn_of_older(recovery.start(), (disk, dir), loaded.begin_lsn());
    Ok(loaded)
}

/// Warns of snapshots from before `used` that cannot be opened. Their chunks are not read: the scrubber does
/// that.
fn warn_of_older(log_start: Lsn, (disk, dir): (&dyn Disk, &Path), used: Lsn) {
    let begins = snapshot::list_begins(disk, dir).unwrap_or_default().into_iter();
    for begin in begins.filter(|begin| (log_start..used).contains(begin)) {
        let opened = snapshot::load(disk, dir, begin).and_then(|info| SnapshotReader::open(disk, dir, &info));
        if let Err(error) = opened {
            tracing::warn!(
                target: "server", begin_lsn = begin.get(), %error,
                "an older snapshot is damaged: nothing is lost, and the next snapshot takes its place. Until then there is none to \
                 start from if the newest one is damaged as well"
            );
        }
    }
}

/// Loads a snapshot run by run, each into a keyspace of its own, so that only the memory of one run is
/// needed. `visit` gets each keyspace with the slots in it, and returns whether to go on; if not, the result
/// is `None`.
///
/// # Errors
/// If the snapshot cannot be read.
pub fn visit_runs(
    (disk, dir): (&dyn Disk, &Path),
    info: &SnapshotInfo,
    now: AccessClock,
    visit: &mut dyn FnMut(&Keyspace, &[SlotId]) -> bool,
) -> Result<Option<Loaded>, RecoverError> {
    let reader = SnapshotReader::open(disk, dir, info)?;
    let progress = LoadProgress::new(Arc::new(RealClock));
    let mut buffers = ReadBuffers::default();
    let mut lsns: Box<[Lsn]> = SlotId::all().map(|_| Lsn::ZERO).collect();
    for run in reader.runs() {
        let keyspace = Keyspace::new(keyspace::Options { hash_seed: 0 });
        Loading::new(&reader, &keyspace, now, &progress).load_run(run, &mut buffers)?;
        let mut slots = Vec::new();
        for slot in SlotId::all() {
            let lsn = keyspace.lock(slot).last_lsn();
            if lsn > Lsn::ZERO {
                lsns[slot.index()] = lsn;
                slots.push(slot);
            }
        }
        if !visit(&keyspace, &slots) {
            return Ok(None);
        }
    }
    Ok(Some(Loaded::of(lsns, info)))
}

/// As [`load_base`] with [`Mode::Newest`], but without loading: returns where the replay begins. The chunks
/// of a snapshot are verified by `snapshot::check`; `damaged` is the damage that this check has found.
pub(crate) fn rehearse_base(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    damaged: Option<&SnapshotDamage>,
    progress: &LoadProgress,
) -> Result<Lsn, RecoverError> {
    let opened = open_base(recovery, (disk, dir), Mode::Newest, progress, |_, info| {
        match damaged.filter(|damaged| damaged.begin_lsn == info.begin_lsn) {
            Some(damaged) => Err(Error::SnapshotCorrupt(Box::new(damaged.clone())).into()),
            None => Ok(info.begin_lsn),
        }
    })?;
    Ok(opened.unwrap_or(recovery.start()))
}

/// Opens the snapshot to load, starts the replay there, and calls `load`. `None` if the log alone is
/// replayed.
fn open_base<T>(
    recovery: &mut Recovery,
    (disk, dir): (&dyn Disk, &Path),
    mode: Mode,
    progress: &LoadProgress,
    load: impl FnOnce(&SnapshotReader, &SnapshotInfo) -> Result<T, RecoverError>,
) -> Result<Option<T>, RecoverError> {
    let Some(begin_lsn) = base_of(recovery, (disk, dir), mode)? else {
        progress.begin(0, recovery.start(), recovery.end_estimate());
        return Ok(None);
    };
    let opened = || {
        let info = snapshot::load(disk, dir, begin_lsn)?;
        recovery.start_at(&info)?;
        let reader = SnapshotReader::open(disk, dir, &info)?;
        let file_bytes = reader.runs().iter().map(|run| run.file_bytes).sum();
        progress.begin(file_bytes, begin_lsn, recovery.end_estimate());
        load(&reader, &info).map(Some)
    };
    opened().map_err(|error| match error {
        RecoverError::Storage(Error::SnapshotCorrupt(damage)) => {
            let base = older_base(recovery, (disk, dir), begin_lsn);
            RecoverError::Snapshot { damage, remedy: Remedy::new(dir, base) }
        }
        other => other,
    })
}

/// The beginning of the snapshot to load; `None` to replay the log alone.
fn base_of(
    recovery: &Recovery,
    (disk, dir): (&dyn Disk, &Path),
    mode: Mode,
) -> Result<Option<Lsn>, RecoverError> {
    // A snapshot that begins before the log is void: the log before a later snapshot or FLUSHALL was
    // forgotten.
    let usable = snapshot::list_begins(disk, dir)?.into_iter().filter(|&begin| begin >= recovery.start());
    let mut usable: Vec<Lsn> = usable.collect();
    match mode {
        Mode::Newest | Mode::Force => {
            // A snapshot that ends after the last position of the replay is of no use. A damaged snapshot is
            // not passed over: loading it reports the damage.
            let is_behind =
                |begin| snapshot::load(disk, dir, begin).is_ok_and(|info| info.end_lsn > recovery.until());
            Ok(usable.into_iter().find(|&begin| !is_behind(begin)))
        }
        Mode::From(from) if is_whole_log(recovery, from) => Ok(None),
        Mode::From(from) if usable.contains(&from) => Ok(Some(from)),
        Mode::From(from) => {
            usable.extend((!recovery.needs_snapshot()).then_some(recovery.start()));
            Err(RecoverError::NoBase { from, possible: usable })
        }
    }
}

/// Whether the log begins at `from` and holds everything, without a snapshot.
pub(crate) fn is_whole_log(recovery: &Recovery, from: Lsn) -> bool {
    from == recovery.start() && !recovery.needs_snapshot()
}

/// An alternative start if the snapshot that begins at `damaged` cannot be loaded. The alternative is only
/// checked superficially, because a start from it verifies everything.
fn older_base(recovery: &mut Recovery, (disk, dir): (&dyn Disk, &Path), damaged: Lsn) -> Option<Lsn> {
    let start = recovery.start();
    let opens = |&begin: &Lsn| {
        let info = snapshot::load(disk, dir, begin);
        info.is_ok_and(|info| {
            recovery.start_at(&info).is_ok() && SnapshotReader::open(disk, dir, &info).is_ok()
        })
    };
    let begins = snapshot::list_begins(disk, dir).ok()?.into_iter();
    let older = begins.filter(|&begin| begin < damaged && begin >= start).find(opens);
    older.or((!recovery.needs_snapshot()).then_some(start))
}

/// The state shared by the loading threads.
pub struct Loading<'a> {
    reader: &'a SnapshotReader,
    keyspace: &'a Keyspace,
    now: AccessClock,
    progress: &'a LoadProgress,
    next_run: AtomicUsize,
}

impl<'a> Loading<'a> {
    pub fn new(
        reader: &'a SnapshotReader,
        keyspace: &'a Keyspace,
        now: AccessClock,
        progress: &'a LoadProgress,
    ) -> Self {
        Loading { reader, keyspace, now, progress, next_run: AtomicUsize::new(0) }
    }

    fn load(&self, threads: usize) -> Result<(), RecoverError> {
        if threads == 0 {
            return self.load_runs();
        }
        thread::scope(|scope| {
            let start = |index: usize| {
                thread::Builder::new()
                    .name(format!("load-{index}"))
                    .spawn_scoped(scope, || self.load_runs())
                    .map_err(RecoverError::Thread)
            };
            let started: Result<Vec<_>, _> = (0..threads).map(start).collect();
            if started.is_err() {
                self.leave_the_rest();
            }
            started?.into_iter().try_for_each(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    fn load_runs(&self) -> Result<(), RecoverError> {
        let mut buffers = ReadBuffers::default();
        while let Some(run) = self.reader.runs().get(self.next_run.fetch_add(1, Relaxed)) {
            self.load_run(run, &mut buffers).inspect_err(|_| self.leave_the_rest())?;
        }
        Ok(())
    }

    fn leave_the_rest(&self) {
        self.next_run.store(self.reader.runs().len(), Relaxed);
    }

    pub(crate) fn load_run(&self, run: &Run, buffers: &mut ReadBuffers) -> Result<(), RecoverError> {
        let mut loader = Loader::new(self.keyspace, self.now);
        let mut told_bytes = 0;
        for chunk in run.chunks.clone() {
            let not_understood = |error: LoadError| self.reader.damaged(chunk, &error.to_string());
            loader.feed(self.reader.read(chunk, buffers)?).map_err(not_understood)?;
            // Progress is attributed to the chunks of a run evenly, as they have about the same size.
            let bytes = run.file_bytes / run.chunks.len() as u64;
            told_bytes += bytes;
            self.progress.loaded(bytes, self.reader.chunk(chunk).rows.into());
        }
        self.progress.loaded(run.file_bytes - told_bytes, 0);
        let last_chunk = run.chunks.end - 1;
        let cut_short = |error: LoadError| self.reader.damaged(last_chunk, &error.to_string());
        loader.finish().map_err(cut_short)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{DbId, GlobalOp, SLOT_COUNT};

    use super::*;

    /// The remaining part of an effect of the record at 10, if the slots of `a` and `b` were captured at
    /// these records.
    fn left(effect: Effect<'_>, a: u64, b: u64) -> Result<Option<Effect<'_>>, RecoverError> {
        let mut lsns = vec![Lsn::ZERO; SLOT_COUNT];
        lsns[slot_of(b"a").index()] = Lsn::new(a);
        lsns[slot_of(b"b").index()] = Lsn::new(b);
        Loaded { lsns: lsns.into(), begin_lsn: Lsn::ZERO, end_lsn: Lsn::new(a.max(b)) }
            .left_of(effect, Lsn::new(10))
    }

    #[test]
    fn replay_applies_the_part_of_an_effect_that_no_capture_has() {
        let (db, key, to_key) = (DbId::ZERO, &b"a"[..], &b"b"[..]);
        let (delete, moved) = (KeyOp::Delete.on(db, key), Effect::Move { db, key, to_db: db, to_key });
        let cases = [
            (delete, 9, 20, Some(delete)),
            (delete, 10, 20, None),
            (moved, 9, 9, Some(moved)),
            (moved, 9, 10, Some(delete)),
            (moved, 10, 10, None),
            (Effect::Global(GlobalOp::FlushAll), 20, 20, Some(Effect::Global(GlobalOp::FlushAll))),
        ];
        for (effect, a, b, expected) in cases {
            let found = left(effect, a, b).expect("possible");
            assert_eq!(found, expected, "{effect:?}, captured at {a} and {b}");
        }
        assert!(matches!(left(moved, 10, 9), Err(RecoverError::Moved { .. })), "in neither place");
    }

    #[test]
    fn without_a_snapshot_every_record_is_still_to_be_replayed() {
        let nothing = Loaded::nothing(Lsn::ZERO);
        assert!(!nothing.has(SlotId::LAST, Lsn::ZERO));
    }
}
