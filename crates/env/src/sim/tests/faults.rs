//! Planned faults: stops, errors, lost syncs, a full disk, the trace.

use super::*;

fn fail(disk: &SimDisk, kind: FaultKind, sticky: bool) {
    let fail_io = Some((disk.io_count(), kind));
    disk.set_fault_plan(FaultPlan { fail_io, sticky, ..FaultPlan::default() });
}

fn stop(disk: &SimDisk, ios_from_now: u64) {
    let crash_at_io = Some(disk.io_count() + ios_from_now);
    disk.set_fault_plan(FaultPlan { crash_at_io, ..FaultPlan::default() });
}

/// Runs one I/O of each kind, up to the first error.
fn one_of_each(disk: &SimDisk) -> io::Result<()> {
    disk.create_dir_all(Path::new("/d/sub"))?;
    let file = disk.create_new(Path::new("/d/f"))?;
    file.write_all_at(b"x", 0)?;
    file.write_durable_at(&blocks(1, 1), 0)?;
    file.set_len(100)?;
    file.sync_data()?;
    file.drop_cache()?;
    disk.rename(Path::new("/d/f"), Path::new("/d/g"))?;
    disk.remove(Path::new("/d/g"))?;
    disk.sync_dir(Path::new("/d"))
}

const ONE_OF_EACH: u64 = 10;

#[test]
fn every_io_can_be_the_last() {
    for io in 0..ONE_OF_EACH {
        let disk = disk();
        stop(&disk, io);
        let before = disk.io_count();
        assert!(is_crash(&one_of_each(&disk).unwrap_err()), "{io}");
        assert!(disk.has_stopped());
        assert_eq!(disk.io_count() - before, io + 1);
        assert!(is_crash(&disk.list(Path::new("/d")).unwrap_err()), "nothing works on a stopped machine");
        assert!(is_crash(&one_of_each(&disk).unwrap_err()));
        assert_eq!(disk.io_count() - before, io + 1, "nor counts");
        disk.crash(CrashMode::LoseAll);
        assert!(!disk.has_stopped());
        one_of_each(&disk).unwrap_or_else(|error| panic!("reborn after {io}: {error}"));
    }
    let disk = disk();
    stop(&disk, ONE_OF_EACH);
    one_of_each(&disk).unwrap();
}

#[test]
fn every_io_can_fail_once_or_for_ever() {
    for io in 0..ONE_OF_EACH {
        for sticky in [false, true] {
            let disk = disk();
            let fail_io = Some((disk.io_count() + io, FaultKind::Eio));
            disk.set_fault_plan(FaultPlan { fail_io, sticky, ..FaultPlan::default() });
            let error = one_of_each(&disk).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{io}");
            assert!(!is_crash(&error) && !disk.has_stopped());
            let next = disk.create_new(Path::new("/d/other"));
            assert_eq!(next.is_err(), sticky, "{io}");
        }
    }
}

#[test]
fn handles_die_with_their_machine() {
    let (disk, file) = disk_with_file("/d/f");
    disk.crash(CrashMode::KeepAll);
    assert!(is_crash(&file.read_at(&mut [0], 0).unwrap_err()));
    assert!(is_crash(&file.write_all_at(b"x", 0).unwrap_err()));
    drop(file);
    assert_eq!(disk.open(Path::new("/d/f"), Access::Read).unwrap().len().unwrap(), 0);
}

#[test]
fn a_write_that_is_cut_by_the_stop_is_unsynced() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_durable_at(&blocks(1, 4), 0).unwrap();
    stop(&disk, 0);
    assert!(is_crash(&file.write_durable_at(&blocks(2, 4), 0).unwrap_err()));
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f").unwrap(), blocks(1, 4)[..]);
    let count_new =
        |disk: &SimDisk| contents(disk, "/d/f").unwrap().iter().filter(|&&byte| byte == 2).count();
    let seen = outcomes(&disk, count_new);
    assert!(seen.contains(&0) && seen.len() > 5, "lost, or arrived in part: {seen:?}");
}

#[test]
fn a_sync_that_is_cut_by_the_stop_proves_nothing() {
    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(b"x", 0).unwrap();
    stop(&disk, 0);
    assert!(is_crash(&file.sync_data().unwrap_err()));
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f").unwrap(), b"");
    assert_eq!(after(&disk, CrashMode::KeepAll, "/d/f").unwrap(), b"x");

    let (disk, file) = disk_with_file("/d/f");
    file.write_all_at(b"x", 0).unwrap();
    stop(&disk, 0);
    assert!(is_crash(&file.drop_cache().unwrap_err()));
    assert_eq!(contents(&disk, "/d/f").unwrap(), b"x", "stopped before anything was dropped");
    assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f").unwrap(), b"");
}

#[test]
fn a_name_change_that_is_cut_by_the_stop_may_have_happened() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk();
        disk.reseed(seed);
        stop(&disk, 0);
        assert!(is_crash(&disk.create_new(Path::new("/d/f")).err().unwrap()));
        assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f"), None);
        seen.insert(after(&disk, CrashMode::KeepAll, "/d/f").is_some());
    }
    assert_eq!(seen, [false, true].into());
}

#[test]
fn a_failed_sync_reports_once_and_loses_data() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..SEEDS {
        let (disk, file) = disk_with_file("/d/f");
        disk.reseed(seed);
        file.write_durable_at(&blocks(1, 1), 0).unwrap();
        file.write_all_at(&blocks(2, 1), 0).unwrap();
        fail(&disk, FaultKind::Eio, false);
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
        file.sync_data().unwrap(); // wrongly reports success
        assert_eq!(contents(&disk, "/d/f").unwrap(), blocks(2, 1)[..], "the cache shows what was written");
        let found = after(&disk, CrashMode::KeepAll, "/d/f").unwrap();
        file.drop_cache().unwrap();
        assert_eq!(contents(&disk, "/d/f").unwrap(), found, "without the cache the truth is seen");
        if found == blocks(2, 1)[..] { kept += 1 } else { lost += 1 }
    }
    assert!(lost > SEEDS / 4 && kept > SEEDS / 4, "{lost} lost, {kept} kept");
}

#[test]
fn a_failed_sync_can_lose_a_size_and_a_cut() {
    let (mut sizes, mut cuts) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..SEEDS {
        let (disk, file) = disk_with_file("/d/f");
        disk.reseed(seed);
        file.write_all_at(&[1; 100], 0).unwrap();
        fail(&disk, FaultKind::Eio, false);
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        sizes.insert(after(&disk, CrashMode::KeepAll, "/d/f").unwrap().len());

        file.write_durable_at(&blocks(1, 1), 0).unwrap();
        file.set_len(10).unwrap();
        fail(&disk, FaultKind::Eio, false);
        file.drop_cache().unwrap_err();
        file.set_len(100).unwrap();
        assert!(contents(&disk, "/d/f").unwrap()[10..].iter().all(|&byte| byte == 0), "growth shows zeros");
        cuts.insert(after(&disk, CrashMode::LoseAll, "/d/f").unwrap().len());
    }
    assert_eq!(sizes, [0, 100].into());
    assert_eq!(cuts, [10, BLOCK_BYTES].into());
}

#[test]
fn drop_cache_shows_the_truth_even_if_it_fails() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let (disk, file) = disk_with_file("/d/f");
        disk.reseed(seed);
        file.write_durable_at(&blocks(1, 1), 0).unwrap();
        file.write_all_at(&blocks(2, 1), 0).unwrap();
        fail(&disk, FaultKind::Eio, false);
        file.drop_cache().unwrap_err();
        assert_eq!(contents(&disk, "/d/f"), after(&disk, CrashMode::LoseAll, "/d/f"));
        seen.insert(contents(&disk, "/d/f").unwrap()[0]);
    }
    assert_eq!(seen, [1, 2].into());
}

#[test]
fn a_failed_sync_dir_loses_names() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = disk();
        disk.reseed(seed);
        disk.create_new(Path::new("/d/f")).unwrap();
        fail(&disk, FaultKind::Eio, false);
        disk.sync_dir(Path::new("/d")).unwrap_err();
        disk.sync_dir(Path::new("/d")).unwrap();
        seen.insert(after(&disk, CrashMode::KeepAll, "/d/f").is_some());
    }
    assert_eq!(seen, [false, true].into());
}

#[test]
fn a_failed_durable_write_leaves_any_part_and_hides_nothing() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        for fault in [FaultKind::Eio, FaultKind::ShortWrite] {
            let (disk, file) = disk_with_file("/d/f");
            disk.reseed(seed);
            file.write_durable_at(&blocks(1, 2), 0).unwrap();
            fail(&disk, fault, false);
            file.write_durable_at(&blocks(2, 2), 0).unwrap_err();
            let found = contents(&disk, "/d/f").unwrap();
            assert_eq!(after(&disk, CrashMode::LoseAll, "/d/f"), Some(found.clone()));
            let is_prefix = found.is_sorted_by(|one, next| one >= next);
            assert!(is_prefix || fault == FaultKind::Eio, "a short write leaves a prefix");
            seen.insert((is_prefix, found.contains(&1), found.contains(&2)));
        }
    }
    assert!(seen.contains(&(false, true, true)), "scattered sectors: {seen:?}");
    assert!(seen.contains(&(true, true, false)) && seen.contains(&(true, false, true)), "{seen:?}");
}

#[test]
fn failed_buffered_writes() {
    let mut short_sizes = BTreeSet::new();
    for seed in 0..SEEDS {
        let (disk, file) = disk_with_file("/d/f");
        disk.reseed(seed);
        fail(&disk, FaultKind::Enospc, false);
        assert_eq!(kind(file.write_all_at(b"0123456789", 0)), io::ErrorKind::StorageFull);
        assert_eq!(contents(&disk, "/d/f").unwrap(), b"");
        fail(&disk, FaultKind::ShortWrite, false);
        assert_eq!(file.write_all_at(b"0123456789", 0).unwrap_err().raw_os_error(), Some(libc::EIO));
        let found = contents(&disk, "/d/f").unwrap();
        assert!(b"0123456789".starts_with(&found), "{found:?}");
        short_sizes.insert(found.len());
    }
    assert_eq!(short_sizes.len(), 11, "any prefix");
}

#[test]
fn a_full_disk_refuses_growth_and_allows_overwrites() {
    let (disk, file) = disk_with_file("/d/f");
    let dir = Path::new("/d");
    let limit = 4 * BLOCK_BYTES as u64;
    disk.set_space_limit(Some(limit));
    assert_eq!(disk.free_bytes(dir).unwrap(), limit);
    file.write_all_at(&blocks(0, 3), 0).unwrap();
    assert_eq!(disk.free_bytes(dir).unwrap(), BLOCK_BYTES as u64, "zeros take space");
    assert_eq!(kind(file.write_all_at(&blocks(1, 2), 3 * BLOCK_BYTES as u64)), io::ErrorKind::StorageFull);
    assert_eq!(kind(file.write_durable_at(&blocks(1, 5), 0)), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 3 * BLOCK_BYTES as u64, "refused as a whole");
    file.write_durable_at(&blocks(1, 4), 0).unwrap();
    assert_eq!(disk.free_bytes(dir).unwrap(), 0);
    file.write_durable_at(&blocks(2, 4), 0).unwrap();
    file.set_len(100 * BLOCK_BYTES as u64).unwrap();
    assert_eq!(kind(file.write_all_at(b"x", 9 * BLOCK_BYTES as u64)), io::ErrorKind::StorageFull, "a hole");
    file.set_len(BLOCK_BYTES as u64).unwrap();
    assert_eq!(disk.free_bytes(dir).unwrap(), 3 * BLOCK_BYTES as u64);

    disk.remove(Path::new("/d/f")).unwrap();
    assert_eq!(disk.free_bytes(dir).unwrap(), 3 * BLOCK_BYTES as u64, "held by the handle");
    drop(file);
    assert_eq!(disk.free_bytes(dir).unwrap(), limit);
    disk.set_space_limit(None);
    assert!(disk.free_bytes(dir).unwrap() > limit);
}

#[test]
fn a_crash_frees_the_space_of_lost_bytes() {
    let (disk, file) = disk_with_file("/d/f");
    let dir = Path::new("/d");
    let limit = 4 * BLOCK_BYTES as u64;
    disk.set_space_limit(Some(limit));
    file.write_durable_at(&blocks(1, 1), 0).unwrap();
    file.write_all_at(&blocks(1, 2), BLOCK_BYTES as u64).unwrap();
    disk.crash(CrashMode::LoseAll);
    assert_eq!(disk.free_bytes(dir).unwrap(), 3 * BLOCK_BYTES as u64, "the size was not synced");

    let _never_dropped = disk.open(Path::new("/d/f"), Access::Read).unwrap();
    disk.remove(Path::new("/d/f")).unwrap();
    disk.sync_dir(dir).unwrap();
    assert_eq!(disk.free_bytes(dir).unwrap(), 3 * BLOCK_BYTES as u64);
    disk.crash(CrashMode::LoseAll);
    assert_eq!(disk.free_bytes(dir).unwrap(), limit, "no handle outlives the machine");
}

#[test]
fn the_trace_names_every_operation_that_a_plan_can_hit() {
    let disk = disk();
    disk.enable_trace();
    let first = disk.io_count();
    one_of_each(&disk).unwrap();
    let trace = disk.trace();
    let kinds: Vec<IoKind> = trace.iter().map(|event| event.kind).collect();
    use IoKind::*;
    let expected = [CreateDir, Create, Write, WriteDurable, SetLen, Sync, DropCache, Rename, Remove, SyncDir];
    assert_eq!(kinds, expected);
    assert!(trace.iter().zip(first..).all(|(event, io)| event.io == io));
    assert_eq!(trace[3].to_string(), format!("#{} WriteDurable /d/f @0+4096", first + 3));
    assert_eq!(trace[4].to_string(), format!("#{} SetLen /d/f to 100", first + 4));
    disk.enable_trace();
    assert!(disk.trace().is_empty());
}
