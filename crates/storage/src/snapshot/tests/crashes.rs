//! Crashes and failures at every I/O: listed snapshots are complete, and earlier ones survive.

use env::{
    Disk as _,
    sim::{CrashMode, FaultKind, FaultPlan},
};

use prng::sweep::outcomes;

use super::*;

/// How many outcomes of each crash are looked at; within a budget of time, a third of them ([`outcomes`]).
const OUTCOMES: u64 = 12;

/// The content of the older of two snapshots. The newer one takes more than one write per part.
fn old_content() -> Vec<PartContent> {
    content(1, 3000)
}

fn new_content() -> Vec<PartContent> {
    content(2, 700_000)
}

fn disk_with_old() -> Arc<SimDisk> {
    let disk = disk();
    write(&disk, meta(4096), &old_content(), 9000).unwrap();
    disk
}

/// Checks that every listed snapshot is one of the two and complete, and that leftovers can be removed
/// without harm. Returns the beginnings of the listed snapshots.
fn whole_snapshots(disk: &SimDisk) -> Vec<u64> {
    let expect_whole = || -> Vec<u64> {
        let listed = list(disk, dir()).unwrap();
        for info in &listed {
            let expected = if info.begin_lsn == Lsn::new(4096) { old_content() } else { new_content() };
            assert!(
                read(disk, info).unwrap() == expected.concat(),
                "snapshot {} has other contents",
                info.begin_lsn
            );
        }
        listed.iter().map(|info| info.begin_lsn.get()).collect()
    };
    let listed = expect_whole();
    remove_leftovers(disk, dir()).unwrap();
    assert_eq!(expect_whole(), listed, "leftovers are no part of a snapshot");
    assert_eq!(files_on(disk).len(), listed.len() * 3, "no leftovers are left");
    listed
}

/// For every I/O of `act`: runs `act` and stops it there, crashes the disk in many ways, and calls `judge`
/// with the snapshots found afterwards and with whether `act` had succeeded.
fn crash_everywhere(act: impl Fn(&Arc<SimDisk>) -> Result<(), Error>, judge: impl Fn(&[u64], bool)) {
    for io in 0.. {
        let disk = disk_with_old();
        let crash_at_io = Some(disk.io_count() + io);
        disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
        let finished = act(&disk).is_ok();
        for seed in 0..outcomes(OUTCOMES) {
            let copy = disk.clone_state();
            copy.reseed(seed);
            copy.crash(match seed {
                0 => CrashMode::LoseAll,
                1 => CrashMode::KeepAll,
                _ => CrashMode::Random,
            });
            judge(&whole_snapshots(&copy), finished);
        }
        if finished {
            assert!(io > 3, "it has several steps");
            return;
        }
    }
}

/// Does the same as [`crash_everywhere`], but an I/O operation fails instead; the machine continues and may
/// crash later.
fn fail_everywhere(act: impl Fn(&Arc<SimDisk>) -> Result<(), Error>, judge: impl Fn(&[u64], bool)) {
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite] {
        for sticky in [false, true] {
            for io in 0.. {
                let disk = disk_with_old();
                let fail_at = disk.io_count() + io;
                disk.set_fault_plan(FaultPlan {
                    fail_io: Some((fail_at, kind)),
                    sticky,
                    ..FaultPlan::default()
                });
                let finished = act(&disk).is_ok();
                let reached = disk.io_count() > fail_at;
                disk.set_fault_plan(FaultPlan::default());
                let copy = disk.clone_state();
                judge(&whole_snapshots(&copy), finished);
                for seed in 0..outcomes(3) {
                    let copy = disk.clone_state();
                    copy.reseed(seed);
                    copy.crash(CrashMode::Random);
                    judge(&whole_snapshots(&copy), finished);
                }
                if !reached {
                    assert!(finished && io > 3, "it has several steps");
                    break;
                }
            }
        }
    }
}

fn write_new(disk: &Arc<SimDisk>) -> Result<(), Error> {
    write(disk, meta(1 << 20), &new_content(), 2 << 20).map(|_| ())
}

fn judge_written(listed: &[u64], finished: bool) {
    assert!(listed.contains(&4096), "the older snapshot survives");
    assert!(!finished || listed.contains(&(1 << 20)), "a published snapshot is durable");
}

#[test]
fn writing_may_stop_anywhere() {
    crash_everywhere(write_new, judge_written);
}

#[test]
fn writing_may_fail_anywhere() {
    fail_everywhere(write_new, judge_written);
}

/// A new snapshot, then the removal of the old one.
fn replace(disk: &Arc<SimDisk>) -> Result<(), Error> {
    write_new(disk)?;
    remove(&**disk, dir(), Lsn::new(4096))
}

fn judge_replaced(listed: &[u64], finished: bool) {
    assert!(!listed.is_empty(), "there is always one to start from");
    assert!(!finished || listed == [1 << 20], "what was removed stays removed");
}

#[test]
fn replacing_may_stop_anywhere() {
    crash_everywhere(replace, judge_replaced);
}

#[test]
fn replacing_may_fail_anywhere() {
    fail_everywhere(replace, judge_replaced);
}

#[test]
fn removing_leftovers_may_stop_anywhere() {
    // The leftovers of an attempt that stopped before it renamed its manifest.
    let stopped = disk_with_old();
    let io_before = stopped.io_count();
    write_new(&stopped).unwrap();
    let manifest_sync = stopped.io_count() - 3;
    for io in 0.. {
        let disk = disk_with_old();
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(manifest_sync), ..FaultPlan::default() });
        assert_eq!(disk.io_count(), io_before);
        write_new(&disk).unwrap_err();
        disk.crash(CrashMode::KeepAll);
        assert!(files_on(&disk).len() > 4, "{:?}", files_on(&disk));
        disk.set_fault_plan(FaultPlan { crash_at_io: Some(disk.io_count() + io), ..FaultPlan::default() });
        let finished = remove_leftovers(&*disk, dir()).is_ok();
        disk.crash(CrashMode::Random);
        judge_written(&whole_snapshots(&disk), false);
        if finished {
            return assert!(io > 2);
        }
    }
}

#[test]
fn an_attempt_that_could_not_clean_up_does_not_hinder_the_next() {
    let disk = disk_with_old();
    let fail_io = Some((disk.io_count() + 8, FaultKind::Eio));
    disk.set_fault_plan(FaultPlan { fail_io, sticky: true, ..FaultPlan::default() });
    write_new(&disk).unwrap_err();
    disk.set_fault_plan(FaultPlan::default());
    assert!(disk.list(&directory(dir())).unwrap().len() > 3, "parts were left");
    write_new(&disk).unwrap();
    assert_eq!(whole_snapshots(&disk), [1 << 20, 4096]);
}
