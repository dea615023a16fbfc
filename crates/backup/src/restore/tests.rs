//! Restores of histories with known steps, on a simulated disk that crashes.

use std::{ops::ControlFlow, sync::LazyLock};

use env::{
    Clock, SimClock, SimDisk, SimEntropy,
    sim::{CrashMode, FaultPlan, SimDiskOptions},
};
use keyspace::{AccessClock, Digest, Effect, Freed, GlobalOp, KeyOp, SlotId, Value, slot_of};
use recovery::unfinished::refuse_unfinished;
use storage::Appender;

use super::*;

const DIR: &str = "/data";
const RESTORED: &str = "/restored";
const START_MS: u64 = 1_700_000_000_000;
static ENTROPY: LazyLock<SimEntropy> = LazyLock::new(|| SimEntropy::new(7));

fn place<'a>(disk: &Arc<SimDisk>, dir: &'a str) -> Place<'a> {
    let options = LogOptions {
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        unwritten_bytes_max: 16 << 10,
        appenders_max: 1,
        ..LogOptions::default()
    };
    let clock = Arc::new(SimClock::new(START_MS));
    Place { disk: disk.clone(), clock, entropy: &*ENTROPY, dir: Path::new(dir), options, appliers: 0 }
}

/// A server that writes, and its content after each write.
struct History {
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    keyspace: Keyspace,
    log: Log,
    appender: Appender,
    steps: Vec<Step>,
}

/// The last record, the time at which its batch was closed, and the content then.
#[derive(Clone, Copy)]
struct Step {
    lsn: Lsn,
    closed_at_ms: u64,
    digest: Digest,
}

impl History {
    fn new() -> History {
        let disk = SimDisk::new(SimDiskOptions { seed: 3, ..Default::default() });
        let (keyspace, recovery) = place(&disk, DIR).load(&|_, _, _| {}).unwrap();
        let clock = Arc::new(SimClock::new(START_MS));
        let log = recovery.finish(clock.clone()).unwrap();
        let appender = log.appender();
        History { disk, clock, keyspace, log, appender, steps: Vec::new() }
    }

    /// Writes one value a second later, as a separate batch.
    fn put(&mut self, number: usize) {
        self.clock.advance_ms(1000);
        let (key, value) = (format!("key {}", number % 40), vec![number as u8; 3000]);
        let (db, key, value) = (DbId::ZERO, key.as_bytes(), Value::String(&value));
        let effect = KeyOp::Put { value, expire_at_ms: None }.on(db, key);
        let mut payload = Vec::new();
        effect.encode_into(&mut payload);
        let mut slot = self.keyspace.lock(slot_of(key));
        slot.apply(&effect, AccessClock::default(), &mut Freed::new());
        let lsn = append(&mut self.appender, &payload);
        slot.set_last_lsn(lsn);
        drop(slot);
        self.log.flush_all().unwrap();
        let closed_at_ms = self.clock.unix_ms();
        self.steps.push(Step { lsn, closed_at_ms, digest: self.keyspace.digest() });
    }

    /// Removes all keys; the log is cut a little before, as by a server that continues to write meanwhile.
    fn flush_all_keys(&mut self) {
        let boundary = self.log.durable_lsn();
        self.put(7);
        let mut payload = Vec::new();
        Effect::Global(GlobalOp::FlushAll).encode_into(&mut payload);
        self.clock.advance_ms(1000);
        let lsn = append(&mut self.appender, &payload);
        for slot in SlotId::all() {
            let mut slot = self.keyspace.lock(slot);
            slot.apply(&Effect::Global(GlobalOp::FlushAll), AccessClock::default(), &mut Freed::new());
            slot.set_last_lsn(lsn);
        }
        self.log.flush_all().unwrap();
        assert!(self.log.truncate_before(boundary).unwrap());
        let closed_at_ms = self.clock.unix_ms();
        self.steps.push(Step { lsn, closed_at_ms, digest: self.keyspace.digest() });
    }

    fn take_snapshot(&self) {
        write_snapshot(&place(&self.disk, DIR), &self.log, &self.keyspace, &|_, _, _| {}).unwrap();
    }

    /// 120 writes with snapshots in between; with two of them, the log before the first is removed.
    fn with_snapshots(snapshots_after: &[usize]) -> History {
        let mut history = History::new();
        for number in 0..120 {
            history.put(number);
            if snapshots_after.contains(&number) {
                history.take_snapshot();
            }
        }
        history.log.close().unwrap();
        history
    }

    /// Restores on a clone of the disk.
    fn restore(&self, target: Target) -> Result<(Restored, Digest), RestoreError> {
        let disk = self.disk.clone_state();
        let restored = restore(&place(&disk, DIR), None, Path::new(RESTORED), target, &|_, _, _| {})?;
        refuse_unfinished(&*disk, Path::new(RESTORED)).unwrap();
        // The restored data must be durable.
        disk.crash(CrashMode::LoseAll);
        Ok((restored, digest(&disk)))
    }
}

fn append(appender: &mut Appender, payload: &[u8]) -> Lsn {
    let pending = appender.reserve(payload).unwrap();
    let lsn = pending.lsn();
    pending.publish();
    lsn
}

fn digest(disk: &Arc<SimDisk>) -> Digest {
    place(disk, RESTORED).load(&|_, _, _| {}).unwrap().0.digest()
}

/// The end of the batch whose only record ends here.
fn boundary_behind(lsn: Lsn) -> Lsn {
    lsn.align_up(env::BLOCK_BYTES as u64)
}

#[test]
fn every_position_and_every_time_of_a_log_can_be_restored() {
    for snapshots_after in [&[][..], &[50], &[30, 90]] {
        let history = History::with_snapshots(snapshots_after);
        // With two snapshots, the records before the first snapshot are gone.
        let first = if snapshots_after.len() > 1 { snapshots_after[0] + 1 } else { 0 };
        for (number, step) in history.steps[..119].iter().enumerate().skip(first).step_by(7) {
            let Step { lsn, closed_at_ms, digest } = *step;
            for target in [
                Target::Lsn(lsn),
                // Between this record and the next.
                Target::Lsn(lsn.advance(8)),
                Target::Time(closed_at_ms),
                Target::Time(closed_at_ms + 999),
            ] {
                let (restored, found) =
                    history.restore(target).unwrap_or_else(|error| panic!("{target}: {error}"));
                let reached = Reached { lsn, closed_at_ms: Some(closed_at_ms) };
                assert_eq!((restored.reached, found), (reached, digest), "{target}");
                assert_eq!(restored.keys, (number as u64 + 1).min(40), "{target}");
            }
        }
        // At the begin of a snapshot there is nothing to replay.
        for step in snapshots_after.iter().map(|&number| history.steps[number]) {
            for target in [Target::Lsn(boundary_behind(step.lsn)), Target::Time(step.closed_at_ms)] {
                let (restored, found) = history.restore(target).unwrap();
                let reached = Reached { lsn: boundary_behind(step.lsn), closed_at_ms: None };
                assert_eq!((restored.reached, found), (reached, step.digest), "{target}");
            }
        }
        let last = history.steps.last().unwrap();
        let (restored, found) = history.restore(Target::End).unwrap();
        assert_eq!((restored.reached.lsn, found), (last.lsn, last.digest));
    }
}

#[test]
fn a_target_outside_the_backup_is_refused_with_the_range_it_holds() {
    let history = History::with_snapshots(&[30, 90]);
    let (oldest, last) = (history.steps[30], history.steps.last().unwrap());
    let first_lsn = boundary_behind(oldest.lsn);
    let end = history.log.durable_lsn();
    let expected =
        Range { first_lsn, first_ms: oldest.closed_at_ms, last_lsn: end, last_ms: last.closed_at_ms };
    for target in [
        Target::Lsn(Lsn::ZERO),
        Target::Lsn(Lsn::new(first_lsn.get() - 1)),
        Target::Lsn(end.advance(1)),
        Target::Time(oldest.closed_at_ms - 1),
        Target::Time(last.closed_at_ms + 1),
    ] {
        let Err(RestoreError::OutOfRange { range, .. }) = history.restore(target) else { panic!("{target}") };
        assert_eq!(range, expected, "{target}");
    }
    assert_eq!(history.restore(Target::Lsn(end)).unwrap().1, last.digest);
    // Nothing was written between the last batch and the backup.
    let later = Target::Time(last.closed_at_ms + 60_000);
    let (source, dir) = (place(&history.disk, DIR), Path::new(RESTORED));
    let known_until_ms = Some(last.closed_at_ms + 60_000);
    let restored = restore(&source, known_until_ms, dir, later, &|_, _, _| {}).unwrap();
    assert_eq!((restored.reached.lsn, digest(&history.disk)), (last.lsn, last.digest));
    let again = restore(&source, None, dir, Target::End, &|_, _, _| {});
    assert!(matches!(again, Err(RestoreError::NotEmpty(_))));
}

#[test]
fn positions_before_a_flushall_that_cut_the_log_cannot_be_restored() {
    let mut history = History::new();
    (0..20).for_each(|number| history.put(number));
    history.flush_all_keys();
    (0..20).for_each(|number| history.put(number));
    history.take_snapshot();
    history.put(20);
    history.log.close().unwrap();
    let flush = 21;
    for target in
        [Target::Lsn(history.steps[flush - 1].lsn), Target::Time(history.steps[flush - 1].closed_at_ms)]
    {
        let Err(RestoreError::OutOfRange { range, .. }) = history.restore(target) else { panic!("{target}") };
        let Step { lsn, closed_at_ms, .. } = history.steps[flush];
        assert_eq!((range.first_lsn, range.first_ms), (lsn, closed_at_ms), "{target}");
    }
    for Step { lsn, closed_at_ms, digest } in history.steps[flush..].iter().step_by(5).copied() {
        assert_eq!(history.restore(Target::Lsn(lsn)).unwrap().1, digest);
        assert_eq!(history.restore(Target::Time(closed_at_ms)).unwrap().1, digest);
    }
}

#[test]
fn a_restored_directory_goes_on() {
    let history = History::with_snapshots(&[50]);
    let target = history.steps[70];
    let disk = history.disk;
    restore(&place(&disk, DIR), None, Path::new(RESTORED), Target::Lsn(target.lsn), &|_, _, _| {}).unwrap();
    let (keyspace, recovery) = place(&disk, RESTORED).load(&|_, _, _| {}).unwrap();
    let log = recovery.finish(Arc::new(SimClock::new(START_MS))).unwrap();
    assert!(log.durable_lsn() > target.lsn);
    assert_ne!(log.id(), history.log.id(), "another history");
    let appender = log.appender();
    let mut history = History { disk, keyspace, log, appender, ..history };
    history.put(500);
    history.take_snapshot();
    history.put(501);
    let expected = history.keyspace.digest();
    history.log.close().unwrap();
    assert_eq!(digest(&history.disk), expected);
    storage::check(history.disk.clone(), Path::new(RESTORED), |_, _| ControlFlow::Continue(())).unwrap();
}

#[test]
fn damage_is_refused_and_nothing_is_written() {
    let history = History::with_snapshots(&[50]);
    let segment = Path::new(DIR).join("log-0000000000000000.seg");
    let intact = history.disk.read_file(&segment).unwrap();
    let mut damaged = intact;
    let at = damaged.len() - 100_000;
    damaged[at] ^= 1;
    history.disk.write_file(&segment, &damaged);
    for target in [Target::Lsn(history.steps[10].lsn), Target::Time(START_MS + 10_000)] {
        assert!(matches!(history.restore(target), Err(RestoreError::Recover(_))), "{target}");
    }
    assert!(is_empty(&*history.disk, Path::new(RESTORED)).unwrap());
}

/// A restore that is killed while it reads its source must not leave what looks like an empty data directory.
#[test]
fn the_directory_is_marked_while_the_source_is_read() {
    let history = History::with_snapshots(&[50]);
    let (disk, dir, seen) = (&history.disk, Path::new(RESTORED), AtomicU64::new(0));
    let report = |stage, _, _| {
        if stage == Stage::Verifying {
            refuse_unfinished(&**disk, dir).unwrap_err();
            seen.fetch_add(1, Relaxed);
        }
    };
    let later = Target::Time(START_MS + 1_000_000_000);
    let refused = restore(&place(disk, DIR), None, dir, later, &report);
    assert!(matches!(refused, Err(RestoreError::OutOfRange { .. })));
    assert!(seen.into_inner() > 0);
    refuse_unfinished(&**disk, dir).unwrap();
    assert!(is_empty(&**disk, dir).unwrap(), "nothing was begun");
    restore(&place(disk, DIR), None, dir, Target::End, &|_, _, _| {}).unwrap();
}

/// At any crash point the directory is empty, marked as unusable, or complete.
#[test]
fn a_crash_at_any_io_leaves_a_directory_that_says_so() {
    let history = History::with_snapshots(&[50]);
    let (dir, target) = (Path::new(RESTORED), history.steps[60]);
    let run =
        |disk: &Arc<SimDisk>| restore(&place(disk, DIR), None, dir, Target::Lsn(target.lsn), &|_, _, _| {});
    let complete = history.disk.clone_state();
    let first_io = complete.io_count();
    run(&complete).unwrap();
    let io_count = complete.io_count();
    let (mut empty, mut refused, mut whole) = (0, 0, 0);
    for crash_at_io in first_io..io_count {
        for mode in [CrashMode::LoseAll, CrashMode::KeepAll, CrashMode::Random] {
            let disk = history.disk.clone_state();
            disk.reseed(crash_at_io);
            disk.set_fault_plan(FaultPlan { crash_at_io: Some(crash_at_io), ..FaultPlan::default() });
            assert!(run(&disk).is_err(), "io {crash_at_io}");
            disk.crash(mode);
            disk.set_fault_plan(FaultPlan::default());
            if refuse_unfinished(&*disk, dir).is_err() {
                refused += 1;
            } else if is_empty(&*disk, dir).unwrap() {
                empty += 1;
            } else {
                assert_eq!(digest(&disk), target.digest, "io {crash_at_io}, {mode:?}");
                whole += 1;
            }
        }
    }
    assert!(empty > 0 && refused > 50 && whole > 0, "{empty} empty, {refused} refused, {whole} whole");
}
