//! Tests of every rule of the simulated disk. For a rule that says "can be lost", some seeds must lose the
//! data and others keep it; for a rule that says "survives", all seeds must keep it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::{Access, AlignedBytes, BLOCK_BYTES, Disk, File};

mod faults;
mod model;

/// Number of crashes for a rule that depends on randomness.
const SEEDS: u64 = 300;

fn disk() -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..SimDiskOptions::default() });
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

/// A disk with an empty file whose name is durable.
fn disk_with_file(path: &str) -> (Arc<SimDisk>, Arc<dyn File>) {
    let disk = disk();
    let file = disk.create_new(Path::new(path)).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    (disk, file)
}

fn blocks(byte: u8, count: usize) -> AlignedBytes {
    AlignedBytes::from(&vec![byte; count * BLOCK_BYTES][..])
}

/// The results of `look` after random crashes of copies of `disk`, one per seed.
fn outcomes<T: Ord>(disk: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    let crashed = |seed| {
        let copy = disk.clone_state();
        copy.reseed(seed);
        copy.crash(CrashMode::Random);
        look(&copy)
    };
    (0..SEEDS).map(crashed).collect()
}

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    disk.read_file(Path::new(path)).ok()
}

fn after(disk: &SimDisk, mode: CrashMode, path: &str) -> Option<Vec<u8>> {
    let copy = disk.clone_state();
    copy.crash(mode);
    contents(&copy, path)
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().unwrap().kind()
}

#[test]
fn a_missing_sync_dir_can_lose_a_synced_file() {
    let disk = disk();
    let file = disk.create_new(Path::new("/d/f")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f"), None);
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f"));
    assert_eq!(seen, [None, Some(b"synced".to_vec())].into());

    disk.sync_dir(Path::new("/d")).unwrap();
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f"));
    assert_eq!(seen, [Some(b"synced".to_vec())].into(), "contents and name are synced: it survives");
}

#[test]
fn a_missing_sync_can_lose_and_reorder_writes() {
    let (disk, file) = disk_with_file("/d/f");
    let at = 511; // tearing mixes in a prefix of a sector, never its last byte
    file.write_all_at(&blocks(b'0', 2), 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(b"1", at as u64).unwrap();
    file.write_all_at(b"3", at as u64).unwrap();
    file.write_all_at(b"2", BLOCK_BYTES as u64).unwrap();
    let seen = outcomes(&disk, |disk| {
        let bytes = contents(disk, "/d/f").unwrap();
        (bytes[at], bytes[BLOCK_BYTES])
    });
    // The outcomes are: everything lost, writes kept in order, a write kept without an earlier one ("2"
    // without "3"), and an older version although a later write was kept ("1", "2").
    let all = [b'0', b'1', b'3'].into_iter().flat_map(|first| [(first, b'0'), (first, b'2')]).collect();
    assert_eq!(seen, all);
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f").unwrap(), blocks(b'0', 2)[..]);
    assert_eq!(after(&disk, CrashMode::KeepAll, "/d/f").unwrap()[at], b'3');

    file.sync_data().unwrap();
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f").unwrap()[at]);
    assert_eq!(seen, [b'3'].into());
}

#[test]
fn a_missing_sync_can_tear_a_write_between_and_inside_sectors() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(&[1; 1024], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[2; 1024], 0).unwrap();
    let count_new = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 2).count();
    let seen = outcomes(&disk, |disk| {
        let bytes = contents(disk, "/d/f").unwrap();
        (count_new(&bytes[..512]), count_new(&bytes[512..]))
    });
    assert!(
        [(0, 0), (512, 512), (0, 512), (512, 0)].iter().all(|outcome| seen.contains(outcome)),
        "{seen:?}"
    );
    assert!(seen.iter().any(|(first, _)| (1..512).contains(first)), "torn inside a sector: {seen:?}");
}

#[test]
fn sizes_and_contents_are_lost_separately() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(b"data", 0).unwrap();
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f").unwrap());
    assert!(seen.contains(&b"data"[..]) && seen.contains(&b""[..]), "{seen:?}");
    assert!(seen.contains(&[0; 4][..]), "a size that arrives before its contents shows zeros: {seen:?}");
}

#[test]
fn some_crashes_keep_a_prefix_in_time_of_the_whole_disk() {
    let disk = disk();
    let paths: Vec<String> = (0..8).map(|number| format!("/d/{number}")).collect();
    for path in &paths {
        disk.write_file(Path::new(path), &[0]);
    }
    for path in &paths {
        disk.open(Path::new(path), Access::ReadWrite).unwrap().write_all_at(&[1], 0).unwrap();
    }
    let halves = (0..SEEDS).filter(|&seed| {
        let copy = disk.clone_state();
        copy.reseed(seed);
        copy.crash(CrashMode::Random);
        let found: Vec<u8> = paths.iter().map(|path| contents(&copy, path).unwrap()[0]).collect();
        found[0] == 1 && found[7] == 0 && found.is_sorted_by(|one, next| one >= next)
    });
    // If each file were settled independently, about 4 of 1000 seeds would give this.
    assert!(halves.count() > SEEDS as usize / 10);
}

#[test]
fn a_durable_write_survives_alone() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(&blocks(1, 3), 0).unwrap();
    file.write_durable_at(&blocks(2, 1), BLOCK_BYTES as u64).unwrap();
    let seen = outcomes(&disk, |disk| {
        let bytes = contents(disk, "/d/f").unwrap();
        assert!(bytes[BLOCK_BYTES..2 * BLOCK_BYTES] == blocks(2, 1)[..]);
        bytes[0]
    });
    assert_eq!(seen, [0, 1].into(), "the earlier buffered write beside it is still unsynced");
}

#[test]
fn a_durable_write_after_a_cut_cannot_be_cut_off() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(&blocks(1, 4), 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(0).unwrap();
    file.write_durable_at(&blocks(2, 1), 0).unwrap();
    outcomes(&disk, |disk| assert!(contents(disk, "/d/f").unwrap().starts_with(&blocks(2, 1))));
}

#[test]
fn a_cut_not_yet_synced_can_come_undone() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(b"0123456789", 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(4).unwrap();
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f").unwrap());
    assert!(seen.contains(&b"0123"[..]) && seen.contains(&b"0123456789"[..]), "{seen:?}");
    file.sync_all().unwrap();
    assert_eq!(outcomes(&disk, |disk| contents(disk, "/d/f").unwrap()), [b"0123".to_vec()].into());
}

#[test]
fn bytes_cut_off_by_a_crash_never_reappear() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(&[1; 1000], 0).unwrap();
    let grown = outcomes(&disk, |disk| {
        let file = disk.open(Path::new("/d/f"), Access::ReadWrite).unwrap();
        let size = file.len().unwrap() as usize;
        file.set_len(1000).unwrap();
        assert!(contents(disk, "/d/f").unwrap()[size..].iter().all(|&byte| byte == 0));
        size == 0
    });
    assert!(grown.contains(&true));
}

#[test]
fn a_crash_settles_names_for_good() {
    let disk = disk();
    let kept_open = disk.create_new(Path::new("/d/f")).unwrap();
    disk.crash(CrashMode::LoseAll);
    disk.crash(CrashMode::KeepAll);
    assert_eq!(contents(&disk, "/d/f"), None);
    drop(kept_open);
    disk.create_new(Path::new("/d/f")).unwrap();
    disk.write_file(Path::new("/d/f"), b"put in place");
    let seen = outcomes(&disk, |disk| contents(disk, "/d/f"));
    assert_eq!(seen, [Some(b"put in place".to_vec())].into());
}

#[test]
fn a_rename_is_atomic_and_needs_sync_dir() {
    let disk = disk();
    disk.write_file(Path::new("/d/new"), b"new");
    disk.write_file(Path::new("/d/cur"), b"old");
    disk.rename(Path::new("/d/new"), Path::new("/d/cur")).unwrap();
    assert_eq!(contents(&disk, "/d/cur").unwrap(), b"new");
    let look = |disk: &SimDisk| (contents(disk, "/d/new"), contents(disk, "/d/cur"));
    let renamed = (None, Some(b"new".to_vec()));
    let not_renamed = (Some(b"new".to_vec()), Some(b"old".to_vec()));
    assert_eq!(outcomes(&disk, look), [renamed.clone(), not_renamed].into());
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(outcomes(&disk, look), [renamed].into());
}

#[test]
fn a_rename_can_arrive_before_the_contents() {
    let disk = disk();
    disk.write_file(Path::new("/d/cur"), b"old");
    let file = disk.create_new(Path::new("/d/new")).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    disk.rename(Path::new("/d/new"), Path::new("/d/cur")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/cur"), Some(vec![]), "neither old nor new");
}

#[test]
fn a_rename_between_directories_moves_the_file_once() {
    let disk = disk();
    disk.create_dir_all(Path::new("/e")).unwrap();
    disk.create_new(Path::new("/d/f")).unwrap();
    disk.rename(Path::new("/d/f"), Path::new("/e/f")).unwrap();
    disk.rename(Path::new("/e/f"), Path::new("/e/g")).unwrap();
    let look = |disk: &SimDisk| ["/d/f", "/e/f", "/e/g"].map(|path| contents(disk, path).is_some());
    let seen = outcomes(&disk, look);
    assert!(seen.iter().all(|names| names.iter().filter(|&&there| there).count() <= 1), "{seen:?}");
    assert_eq!(seen.len(), 4, "nowhere, or any one of the names: {seen:?}");
    disk.sync_dir(Path::new("/e")).unwrap();
    assert_eq!(outcomes(&disk, look), [[false, false, true]].into());
}

#[test]
fn a_removed_file_can_come_back() {
    let disk = disk();
    disk.write_file(Path::new("/d/f"), b"x");
    disk.remove(Path::new("/d/f")).unwrap();
    assert_eq!(outcomes(&disk, |disk| contents(disk, "/d/f").is_some()), [false, true].into());
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(outcomes(&disk, |disk| contents(disk, "/d/f").is_some()), [false].into());
}

#[test]
fn an_open_file_outlives_its_name() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(b"x", 0).unwrap();
    disk.remove(Path::new("/d/f")).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(file.read_at(&mut [0], 0).unwrap(), 1);
    assert_eq!(file.len().unwrap(), 1);
}

#[test]
fn names_directories_and_access_are_checked() {
    let (disk, _file) = disk_with_file("/d/f");
    let before = disk.io_count();
    assert_eq!(kind(disk.create_new(Path::new("/d/f"))), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.create_new(Path::new("/x/f"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open(Path::new("/d/g"), Access::Read)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(Path::new("/d/g"), Path::new("/d/h"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(Path::new("/d/f"), Path::new("/x/f"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.remove(Path::new("/d/g"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir(Path::new("/x"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.list(Path::new("/x"))), io::ErrorKind::NotFound);
    let reader = disk.open(Path::new("/d/f"), Access::Read).unwrap();
    assert_eq!(kind(reader.write_all_at(b"x", 0)), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(reader.write_durable_at(&blocks(1, 1)[..100], 0)), io::ErrorKind::InvalidInput);
    disk.create_dir_all(Path::new("/d")).unwrap();
    assert_eq!(disk.io_count(), before, "what is refused or changes nothing is no I/O");

    disk.create_dir_all(Path::new("/d/sub/deep")).unwrap();
    disk.create_new(Path::new("/d/sub/z")).unwrap();
    disk.create_new(Path::new("/d/a")).unwrap();
    assert_eq!(disk.list(Path::new("/d")).unwrap(), ["a", "f"]);
    disk.crash(CrashMode::LoseAll);
    assert!(disk.list(Path::new("/d/sub/deep")).unwrap().is_empty(), "created directories are durable");
}

#[test]
fn damage_reaches_disk_and_cache() {
    let (disk, path) = (disk(), Path::new("/d/f"));
    disk.write_file(path, &[0; 10_000]);
    disk.corrupt(path, 9_999, 0x81).unwrap();
    assert_eq!(disk.read_file(path).unwrap()[9_999], 0x81);
    assert_eq!(kind(disk.corrupt(path, 10_000, 1)), io::ErrorKind::InvalidInput);
    disk.crash(CrashMode::LoseAll);
    assert_eq!(disk.read_file(path).unwrap()[9_999], 0x81);

    disk.truncate(path, 5_000).unwrap();
    let offsets = disk.flip_bits(path, 1).unwrap();
    disk.crash(CrashMode::LoseAll);
    let bytes = disk.read_file(path).unwrap();
    assert_eq!(bytes.len(), 5_000);
    let flipped: Vec<u64> = (0..5_000).filter(|&at| bytes[at as usize].count_ones() == 1).collect();
    assert_eq!(flipped, offsets);
    disk.truncate(path, 0).unwrap();
    assert_eq!(kind(disk.flip_bits(path, 1)), io::ErrorKind::InvalidInput);
}

#[test]
fn copies_are_independent_and_crash_by_the_same_seed() {
    let (disk, file) = disk_with_file("/d/f");
    file.set_len(64 * 1024).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&vec![7; 64 * 1024], 0).unwrap();
    let (one, two) = (disk.clone_state(), disk.clone_state());
    one.crash(CrashMode::Random);
    two.crash(CrashMode::Random);
    assert_eq!(contents(&one, "/d/f"), contents(&two, "/d/f"), "same state, same seed");
    assert!(outcomes(&disk, |disk| contents(disk, "/d/f")).len() > 100, "other seeds, other outcomes");
    assert_eq!(contents(&disk, "/d/f").unwrap(), vec![7; 64 * 1024], "the original is untouched");
    file.write_all_at(b"still open", 0).unwrap();
}
