//! Crashes and failures at every I/O of creating a file, making checkpoints, continuing after a crash,
//! building and putting in place. Afterwards the acknowledged checkpoints are present, the state is whole,
//! and further checkpoints succeed.

use env::{
    Disk as _,
    sim::{CrashMode, FaultKind, FaultPlan},
};

use prng::sweep::outcomes;

use super::*;

/// How many outcomes of each crash are looked at; within a budget of time, a third of them ([`outcomes`]).
const OUTCOMES: u64 = 12;
/// The first state of [`History`] that is written under faults; the earlier ones are on disk.
const FIRST: u64 = 4;
const LAST: u64 = 6;
/// Large enough that a checkpoint takes several writes.
const BLOB_BYTES: usize = 1_100_000;

/// The expected state after each LSN. Each state follows from the previous state and the LSN.
struct History(Vec<Models>);

impl History {
    fn new() -> History {
        let mut models = Models::default();
        let next = |lsn| {
            changes_of(lsn).iter().zip(&mut models).for_each(|(changes, model)| change_model(model, changes));
            models.clone()
        };
        History((0..=LAST).map(next).collect())
    }

    /// Asserts that the file holds one complete state, which is not older than `at_least`. Returns the LSN of
    /// that state.
    fn assert_whole(&self, file: &TreeFile, at_least: u64) -> u64 {
        let snapshot = file.snapshot();
        let lsn = snapshot.applied_lsn().get();
        assert!(lsn >= at_least, "checkpoint {at_least} had been promised, the file has {lsn}");
        assert_holds(snapshot, &self.0[lsn as usize]);
        if lsn > 1 {
            assert_eq!(snapshot.metadata()[..8], lsn.to_le_bytes());
            let pointer = Pointer::decode(snapshot.metadata()[8..].try_into().unwrap());
            assert!(snapshot.read_blob(pointer).unwrap() == vec![lsn as u8; BLOB_BYTES]);
        }
        lsn
    }
}

fn changes_of(lsn: u64) -> Vec<Changes> {
    let mut prng = Prng::new(lsn);
    (0..TREES).map(|_| if lsn > 1 { random_changes(&mut prng, 60) } else { Vec::new() }).collect()
}

fn checkpoint_to(file: &mut TreeFile, lsn: u64) -> Result<(), TreeError> {
    let changes = changes_of(lsn);
    let mut checkpoint = file.begin()?;
    let pointer = checkpoint.put_blob(&vec![lsn as u8; BLOB_BYTES])?;
    for (tree, changes) in (0..).map(TreeId).zip(&changes) {
        checkpoint.modify(tree, &mut ops(changes))?;
    }
    checkpoint.finish(&[&lsn.to_le_bytes()[..], &pointer.encode()].concat(), Lsn::new(lsn))?;
    Ok(())
}

/// Makes checkpoints from the current state of the file up to `LAST`. Sets `promised` to the LSN of the
/// newest checkpoint that has returned.
fn go_on(file: &mut TreeFile, promised: &mut u64) -> Result<(), TreeError> {
    for lsn in file.snapshot().applied_lsn().get() + 1..=LAST {
        checkpoint_to(file, lsn)?;
        *promised = lsn;
    }
    Ok(())
}

fn disk_before() -> Arc<SimDisk> {
    let disk = disk();
    let mut file = create(&disk);
    (2..FIRST).for_each(|lsn| checkpoint_to(&mut file, lsn).unwrap());
    disk
}

/// An operation on a disk, which sets its second argument to the LSN of the newest state that is acknowledged
/// as durable.
type Act = fn(&Arc<SimDisk>, &mut u64) -> Result<(), TreeError>;

/// Copies of `disk` after a crash, in several random outcomes.
fn crashed(disk: &SimDisk) -> impl Iterator<Item = Arc<SimDisk>> {
    (0..outcomes(OUTCOMES)).map(|seed| {
        let copy = disk.clone_state();
        copy.reseed(seed);
        copy.crash(match seed {
            0 => CrashMode::LoseAll,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Random,
        });
        copy
    })
}

/// Asserts that the file opens, holds at least the acknowledged state, and takes the remaining checkpoints.
fn assert_goes_on(disk: &Arc<SimDisk>, history: &History, mut promised: u64) {
    let mut file = open(disk).unwrap();
    promised = history.assert_whole(&file, promised);
    go_on(&mut file, &mut promised).unwrap();
    drop(file);
    disk.crash(CrashMode::LoseAll);
    assert_eq!(history.assert_whole(&open(disk).unwrap(), promised), LAST);
}

fn crash_everywhere(before: &SimDisk, act: Act) {
    let history = History::new();
    for io in 0.. {
        let disk = before.clone_state();
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(disk.io_count() + io), ..FaultPlan::default() });
        let mut promised = FIRST - 1;
        let finished = act(&disk, &mut promised).is_ok();
        crashed(&disk).for_each(|disk| assert_goes_on(&disk, &history, promised));
        if finished {
            assert!(io > 3, "it has several steps");
            return;
        }
    }
}

fn fail_everywhere(before: &SimDisk, act: Act) {
    let history = History::new();
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
        for sticky in [false, true] {
            for io in 0.. {
                let disk = before.clone_state();
                let fail_at = disk.io_count() + io;
                disk.set_fault_plan(FaultPlan {
                    fail_io: Some((fail_at, kind)),
                    sticky,
                    ..FaultPlan::default()
                });
                let mut promised = FIRST - 1;
                let finished = act(&disk, &mut promised).is_ok();
                let reached = disk.io_count() > fail_at;
                disk.set_fault_plan(FaultPlan::default());
                assert_goes_on(&disk.clone_state(), &history, promised);
                crashed(&disk).take(4).for_each(|disk| assert_goes_on(&disk, &history, promised));
                if !reached {
                    assert!(finished && io > 3, "it has several steps");
                    break;
                }
            }
        }
    }
}

fn checkpoints(disk: &Arc<SimDisk>, promised: &mut u64) -> Result<(), TreeError> {
    go_on(&mut open(disk)?, promised)
}

#[test]
fn checkpoints_may_stop_anywhere() {
    crash_everywhere(&disk_before(), checkpoints);
}

#[test]
fn checkpoints_may_fail_anywhere() {
    fail_everywhere(&disk_before(), checkpoints);
}

#[test]
fn going_on_behind_a_torn_checkpoint_may_stop_anywhere() {
    // The crash is near the end of a checkpoint, so that a long torn tail may follow the intact checkpoints.
    let disk = disk_before();
    let mut file = open(&disk).unwrap();
    disk.enable_trace();
    checkpoint_to(&mut file, FIRST).unwrap();
    let ios = disk.trace().len() as u64;
    drop(file);
    let mut torn = 0;
    for seed in 0..3 {
        let disk = disk_before();
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(disk.io_count() + ios), ..FaultPlan::default() });
        assert!(checkpoints(&disk, &mut 0).is_err());
        disk.reseed(seed);
        disk.crash(CrashMode::Random);
        torn += u64::from(
            open(&disk).unwrap().snapshot().file_end() != disk.read_file(&path()).unwrap().len() as u64,
        );
        crash_everywhere(&disk, checkpoints);
    }
    assert!(torn > 0, "some have a tail");
}

/// Builds a file from the previous state, lets it catch up with a checkpoint, and puts it in place.
fn compact(disk: &Arc<SimDisk>, promised: &mut u64) -> Result<(), TreeError> {
    let old = open(disk)?;
    let snapshot = old.snapshot();
    let lsn = snapshot.applied_lsn();
    let mut builder =
        Builder::create(&**disk, &crashsafe::tmp_path(&path()), options(), &SimEntropy::new(9))?;
    let pointer = Pointer::decode(snapshot.metadata()[8..].try_into().unwrap());
    let pointer = builder.put_blob(&snapshot.read_blob(pointer)?)?;
    for tree in (0..TREES).map(TreeId) {
        let mut range = snapshot.range(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = range.next_entry()? {
            builder.append(tree, key, value)?;
        }
    }
    let metadata = [&lsn.get().to_le_bytes()[..], &pointer.encode()].concat();
    let mut new = builder.finish(&metadata, lsn)?;
    checkpoint_to(&mut new, lsn.get() + 1)?;
    let mut new = new.put_in_place(&**disk, &path())?;
    *promised = lsn.get() + 1;
    go_on(&mut new, promised)
}

#[test]
fn compaction_may_stop_anywhere() {
    crash_everywhere(&disk_before(), compact);
}

#[test]
fn compaction_may_fail_anywhere() {
    fail_everywhere(&disk_before(), compact);
}

#[test]
fn a_file_is_created_whole_or_not_at_all() {
    let make = |disk: &SimDisk| {
        TreeFile::create(disk, &path(), options(), &SimEntropy::new(1), b"", Lsn::new(1)).is_ok()
    };
    for io in 0.. {
        let disk = disk();
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(disk.io_count() + io), ..FaultPlan::default() });
        let finished = make(&disk);
        for disk in crashed(&disk) {
            let names = disk.list(Path::new("/data/documents")).unwrap();
            let exists = names.contains(&"1.tree".to_owned());
            assert!(exists || !finished);
            if exists {
                assert_holds(open(&disk).unwrap().snapshot(), &Models::default());
            }
        }
        if finished {
            assert!(io > 3, "it has several steps");
            return;
        }
    }
}

#[test]
fn after_a_failure_the_file_takes_nothing_and_its_snapshots_are_still_read() {
    let history = History::new();
    for io in 0..3 {
        let disk = disk_before();
        let mut file = open(&disk).unwrap();
        let fail_io = Some((disk.io_count() + io, FaultKind::Eio));
        disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
        let failed = checkpoint_to(&mut file, FIRST).unwrap_err();
        assert!(matches!(&failed, TreeError::Io { path: at, .. } if *at == path()), "{failed}");
        disk.set_fault_plan(FaultPlan::default());
        let refused = checkpoint_to(&mut file, FIRST).unwrap_err();
        assert!(refused.to_string().contains(&failed.to_string()), "{refused}");
        assert_eq!(history.assert_whole(&file, FIRST - 1), FIRST - 1);
    }
}
