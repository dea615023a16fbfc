//! The operations of `crashsafe`, with crashes and failures at every I/O.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::RealDisk;
use crate::sim::{CrashMode, FaultKind, FaultPlan, IoKind, SimDisk, SimDiskOptions};
use crate::testing::TempDir;

const DIR: &str = "/d";
const SEEDS_PER_CRASH: u64 = 60;

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn disk_with(files: &[(&str, &[u8])]) -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions::default());
    disk.create_dir_all(Path::new(DIR)).unwrap();
    files.iter().for_each(|(name, bytes)| disk.write_file(&path(name), bytes));
    disk
}

/// For every I/O of `dance`: runs `dance` and stops it there, crashes the disk with `SEEDS_PER_CRASH` seeds,
/// and calls `judge` with each resulting disk and with whether `dance` had reported success.
fn crash_everywhere(
    files: &[(&str, &[u8])],
    dance: impl Fn(&SimDisk) -> io::Result<()>,
    judge: impl Fn(&SimDisk, bool),
) {
    for io in 0.. {
        let disk = disk_with(files);
        let crash_at_io = Some(disk.io_count() + io);
        disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
        let finished = dance(&disk).is_ok();
        for seed in 0..SEEDS_PER_CRASH {
            let copy = disk.clone_state();
            copy.reseed(seed);
            copy.crash(CrashMode::Random);
            remove_leftovers(&*copy, Path::new(DIR)).unwrap();
            judge(&copy, finished);
        }
        if finished {
            assert!(io > 1, "a dance has several steps");
            return;
        }
    }
}

#[test]
fn a_replaced_file_is_old_or_new_and_new_once_reported() {
    let (old, new) = (vec![1u8; 9_000], vec![2u8; 7_000]);
    crash_everywhere(
        &[("f", &old)],
        |disk| write_atomically(disk, &path("f"), &new),
        |disk, finished| {
            let found = disk.read_file(&path("f")).unwrap();
            assert!(found == new || (found == old && !finished));
            assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["f"], "no leftovers");
        },
    );
}

#[test]
fn a_new_file_is_absent_or_whole() {
    crash_everywhere(
        &[],
        |disk| write_atomically(disk, &path("f"), b"contents"),
        |disk, finished| match disk.read_file(&path("f")) {
            Ok(found) => assert_eq!(found, b"contents"),
            Err(_) => assert!(!finished),
        },
    );
}

#[test]
fn a_durable_rename_across_directories_keeps_one_name() {
    crash_everywhere(
        &[("f", b"x"), ("e/placeholder", b"")],
        |disk| rename_durably(disk, &path("f"), &path("e/g")),
        |disk, finished| {
            let (here, there) = (disk.read_file(&path("f")).is_ok(), disk.read_file(&path("e/g")).is_ok());
            assert!(here != there && (there || !finished));
        },
    );
}

#[test]
fn a_durable_rename_syncs_the_destination_first_and_each_directory_once() {
    let disk = disk_with(&[("f", b"x"), ("e/placeholder", b"")]);
    disk.enable_trace();
    rename_durably(&*disk, &path("f"), &path("e/g")).unwrap();
    rename_durably(&*disk, &path("e/g"), &path("e/h")).unwrap();
    let steps: Vec<_> = disk.trace().into_iter().map(|event| (event.kind, event.path)).collect();
    let (here, there) = (PathBuf::from(DIR), path("e"));
    let expected = [
        (IoKind::Rename, path("f")),
        (IoKind::SyncDir, there.clone()),
        (IoKind::SyncDir, here),
        (IoKind::Rename, path("e/g")),
        (IoKind::SyncDir, there),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn a_durable_removal_stays() {
    crash_everywhere(
        &[("f", b"x")],
        |disk| remove_durably(disk, &path("f")),
        |disk, finished| assert!(!finished || disk.read_file(&path("f")).is_err()),
    );
}

#[test]
fn every_failed_step_leaves_the_old_or_the_new_file() {
    for io in 0..5 {
        let disk = disk_with(&[("f", b"old")]);
        let fail_io = Some((disk.io_count() + io, FaultKind::Eio));
        disk.set_fault_plan(FaultPlan { fail_io, ..FaultPlan::default() });
        write_atomically(&*disk, &path("f"), b"new").unwrap_err();
        let found = disk.read_file(&path("f")).unwrap();
        // The I/Os are create, write, sync, rename, and sync of the directory. Before the rename is done, the
        // old file is seen; after it, the new one, which may not be durable yet.
        assert_eq!(found, if io < 4 { b"old" } else { b"new" }, "{io}");
    }
}

#[test]
fn a_full_disk_keeps_the_old_file_and_no_leftover() {
    let disk = disk_with(&[("f", b"old")]);
    disk.set_space_limit(Some(8192));
    let error = write_atomically(&*disk, &path("f"), &[1; 5000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["f"]);
    assert_eq!(disk.read_file(&path("f")).unwrap(), b"old");
    write_atomically(&*disk, &path("f"), b"fits").unwrap();
}

#[test]
fn leftovers_are_named_and_do_not_disturb() {
    let disk = disk_with(&[("a.tmp", b"1"), ("b", b"2"), ("c.tmp", b"3")]);
    write_atomically(&*disk, &path("a"), b"new").unwrap();
    assert_eq!(disk.read_file(&path("a")).unwrap(), b"new");
    assert_eq!(remove_leftovers(&*disk, Path::new(DIR)).unwrap(), ["c.tmp"]);
    assert!(remove_leftovers(&*disk, Path::new(DIR)).unwrap().is_empty());
    disk.crash(CrashMode::LoseAll);
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["a", "b"]);
}

#[test]
fn the_same_on_a_real_disk() {
    let temp = TempDir::new("crashsafe");
    let (first, second) = (temp.path().join("f"), temp.path().join("g"));
    write_atomically(&RealDisk, &first, b"one").unwrap();
    write_atomically(&RealDisk, &first, b"two").unwrap();
    rename_durably(&RealDisk, &first, &second).unwrap();
    assert_eq!(std::fs::read(&second).unwrap(), b"two");
    RealDisk.create_new(&tmp_path(&first)).unwrap();
    assert_eq!(remove_leftovers(&RealDisk, temp.path()).unwrap(), ["f.tmp"]);
    remove_durably(&RealDisk, &second).unwrap();
    assert!(RealDisk.list(temp.path()).unwrap().is_empty());
}

#[test]
fn a_created_file_replaces_nothing() {
    let dir = TempDir::new("crashsafe-new");
    let file = dir.path().join("f");
    create_with_mode(&file, b"first", 0o600).unwrap();
    let refused = create_with_mode(&file, b"second", 0o600).unwrap_err();
    assert_eq!(
        (refused.kind(), std::fs::read(&file).unwrap()),
        (io::ErrorKind::AlreadyExists, b"first".to_vec())
    );
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
    assert!(create_with_mode(&link, b"", 0o600).is_err() && !dir.path().join("nowhere").exists());
}

#[test]
fn a_full_disk_takes_small_files_from_the_reserve_alone() {
    let (dir, left) = (Path::new(DIR), 8 << 20);
    let disk = SimDisk::new(SimDiskOptions { space_limit_bytes: Some(left), ..SimDiskOptions::default() });
    disk.create_dir_all(dir).unwrap();
    reserve::keep(&*disk, dir).unwrap();
    assert_eq!(disk.list(dir).unwrap(), [reserve::NAME]);
    let free = disk.free_bytes(dir).unwrap();
    disk.write_file(&path("others"), &vec![1; free as usize]);
    assert!(write_atomically_with(&*disk, &path("f"), |file| file.write_all_at(b"1", 0)).is_err());
    for contents in ["1", "2", "3"] {
        write_atomically(&*disk, &path("f"), contents.as_bytes()).unwrap();
        assert_eq!(disk.read_file(&path("f")).unwrap(), contents.as_bytes());
        assert!(!reserve::is_kept(&*disk, dir));
        reserve::keep(&*disk, dir).unwrap();
        assert!(!reserve::is_kept(&*disk, dir), "it is not made anew of its own room");
    }
    let free = disk.free_bytes(dir).unwrap();
    disk.write_file(&path("more"), &vec![1; free as usize]);
    assert!(write_atomically(&*disk, &path("f"), b"4").is_err(), "there is no reserve left");
    assert_eq!(disk.read_file(&path("f")).unwrap(), b"3");
    disk.remove(&path("others")).unwrap();
    reserve::keep(&*disk, dir).unwrap();
    assert!(reserve::is_kept(&*disk, dir));
}
