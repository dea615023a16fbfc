//! Bit rot: every byte of every file is protected, so every change is detected, and only correct contents are
//! returned.

use std::ops::ControlFlow;

use super::*;

/// Loads all snapshots: their contents, or the damage.
fn load_all(disk: &SimDisk) -> Result<Vec<PartContent>, Error> {
    list(disk, dir())?.iter().map(|info| read(disk, info)).collect()
}

fn is_damage(outcome: &Result<Vec<PartContent>, Error>) -> bool {
    matches!(outcome, Err(Error::SnapshotCorrupt(_)))
}

#[test]
fn every_byte_of_a_small_snapshot_is_protected() {
    let disk = disk();
    write(&disk, meta(4096), &content(1, 90), 9000).unwrap();
    let mut prng = Prng::new(5);
    for name in files_on(&disk) {
        let path = directory(dir()).join(name);
        for offset in 0..disk.read_file(&path).unwrap().len() as u64 {
            let flip = 1 << prng.below(8);
            disk.corrupt(&path, offset, flip).unwrap();
            let Err(Error::SnapshotCorrupt(damage)) = load_all(&disk) else {
                panic!("a flipped bit at offset {offset} of {} was not found", path.display());
            };
            assert_eq!((&damage.path, damage.begin_lsn), (&path, Lsn::new(4096)));
            assert!(damage.offset <= offset, "{damage}");
            disk.corrupt(&path, offset, flip).unwrap();
        }
    }
    assert!(load_all(&disk).is_ok());
}

#[test]
fn random_flips_in_a_larger_snapshot_are_found() {
    const FLIPS: usize = 20_000;
    let disk = disk();
    write(&disk, meta(4096), &content(1, 9000), 9000).unwrap();
    let mut prng = Prng::new(6);
    let names = files_on(&disk);
    let files: Vec<_> = (names.iter())
        .map(|name| directory(dir()).join(name))
        .map(|path| (disk.read_file(&path).unwrap().len() as u64, path))
        .collect();
    let mut flips = 0;
    while flips < FLIPS {
        let count = if prng.chance(50) { 1 } else { 2 + prng.below(7) };
        let mut flipped = std::collections::HashMap::new();
        for _ in 0..count {
            let (bytes, path) = &files[prng.below(files.len() as u64) as usize];
            *flipped.entry((path.clone(), prng.below(*bytes))).or_insert(0u8) ^= 1 << prng.below(8);
        }
        flipped.retain(|_, xor| *xor != 0);
        let flip =
            |_| flipped.iter().for_each(|((path, offset), xor)| disk.corrupt(path, *offset, *xor).unwrap());
        flip(());
        assert!(flipped.is_empty() || is_damage(&load_all(&disk)), "not found: {flipped:?}");
        flip(());
        flips += flipped.len();
    }
    assert!(load_all(&disk).is_ok());
}

#[test]
fn every_cut_and_every_missing_file_is_found() {
    let disk = disk();
    write(&disk, meta(4096), &content(1, 3000), 9000).unwrap();
    for name in files_on(&disk) {
        let path = directory(dir()).join(&name);
        let bytes = disk.read_file(&path).unwrap();
        for length in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
            disk.write_file(&path, &bytes[..length]);
            assert!(is_damage(&load_all(&disk)), "{name} cut to {length} bytes");
        }
        disk.write_file(&path, &[&bytes[..], &[0; 4096]].concat());
        assert!(is_damage(&load_all(&disk)), "{name} has grown");
        if name.ends_with(".part") {
            disk.remove(&path).unwrap();
            assert!(is_damage(&load_all(&disk)), "{name} is missing");
        }
        disk.write_file(&path, &bytes);
    }
    assert!(load_all(&disk).is_ok());
}

#[test]
fn files_of_another_snapshot_are_not_taken_for_those_of_this() {
    let disk = disk();
    write(&disk, meta(4096), &content(1, 3000), 9000).unwrap();
    write(&disk, meta(8192), &content(2, 3000), 9000).unwrap();
    let path = |name: &str| directory(dir()).join(name);
    let exchanges = [
        ("snap-0000000000001000.0.part", "snap-0000000000002000.0.part"),
        ("snap-0000000000001000.0.part", "snap-0000000000001000.1.part"),
        ("snap-0000000000001000.manifest", "snap-0000000000002000.manifest"),
    ];
    for (to, from) in exchanges {
        let old = disk.read_file(&path(to)).unwrap();
        disk.write_file(&path(to), &disk.read_file(&path(from)).unwrap());
        assert!(is_damage(&load_all(&disk)), "{from} as {to}");
        disk.write_file(&path(to), &old);
    }
    assert!(load_all(&disk).is_ok());
}

#[test]
fn a_chunk_left_over_from_another_snapshot_is_found_although_it_is_intact() {
    let disk = disk();
    let other_disk = super::disk();
    write(&disk, meta(4096), &content(1, 3000), 9000).unwrap();
    write(&other_disk, meta(4096), &content(2, 3000), 9000).unwrap();
    // Simulates a lost write: all pages between header and footer still have the bytes of another file that
    // happens to have equal lengths.
    let path = directory(dir()).join("snap-0000000000001000.0.part");
    let (mut bytes, stale) = (disk.read_file(&path).unwrap(), other_disk.read_file(&path).unwrap());
    assert_eq!(bytes.len(), stale.len());
    let body = 4096..bytes.len() - 4096;
    bytes[body.clone()].copy_from_slice(&stale[body]);
    disk.write_file(&path, &bytes);
    assert!(is_damage(&load_all(&disk)));
}

#[test]
fn the_check_names_damaged_files_and_goes_on() {
    let disk = disk();
    for begin in [4096, 8192, 12288] {
        write(&disk, meta(begin), &content(begin, 3000), 20_000).unwrap();
    }
    let path = directory(dir()).join("snap-0000000000002000.1.part");
    disk.corrupt(&path, 4096 + 60, 1).unwrap();
    disk.corrupt(&directory(dir()).join("snap-0000000000001000.manifest"), 70, 1).unwrap();
    let mut last = (0, 0);
    let watch = |done, total| {
        last = (done, total);
        ControlFlow::Continue(())
    };
    let checks = check(&*disk, dir(), watch).unwrap();
    let begins: Vec<u64> = checks.iter().map(|check| check.begin_lsn.get()).collect();
    assert_eq!(begins, [12288, 8192, 4096]);
    assert_eq!(checks[0].outcome.as_ref().unwrap().rows(), 24);
    let Err(Error::SnapshotCorrupt(damage)) = &checks[1].outcome else { panic!("{:?}", checks[1]) };
    assert_eq!((&damage.path, damage.offset, damage.slots), (&path, 4096, Some((8192, 8193))));
    assert!(damage.to_string().contains("slots 8192 to 8193 cannot be loaded"), "{damage}");
    assert!(matches!(checks[2].outcome, Err(Error::SnapshotCorrupt(_))));
    assert!(last.0 > 0 && last.0 <= last.1);
    let ended = check(&*disk, dir(), |_, _| ControlFlow::Break(())).unwrap();
    assert!(matches!(ended[0].outcome, Err(Error::Ended)), "{:?}", ended[0]);
}
