//! Arbitrary bytes as a node or a header of a tree are refused or can be walked; and a file with changed
//! bytes returns only values that were written.
#![no_main]

use std::{
    ops::Bound,
    path::Path,
    sync::{Arc, LazyLock},
};

use env::{Access, Disk, SimDisk, SimEntropy, sim::SimDiskOptions};
use libfuzzer_sys::fuzz_target;
use lsn::Lsn;
use tree::{
    Change, Direction, NodeCache, Op, Options, Snapshot, Sums, TreeFile, TreeId, Wanted, fuzzing, verify,
};

const PATH: &str = "/1.tree";
const KEYS: u16 = 60;

fn options() -> Options {
    let measure = |_, _: &[u8], value: &[u8]| Sums([1, value.len() as u64, 0, 0]);
    let options = Options::new(1, measure, NodeCache::new(1 << 20));
    Options { leaf_bytes: 100, inner_bytes: 150, ..options }
}

/// The value of a key after the second checkpoint.
fn value(key: u16) -> Vec<u8> {
    vec![key as u8; usize::from(key % 17)]
}

static ENTRIES: LazyLock<Vec<([u8; 2], Vec<u8>)>> =
    LazyLock::new(|| (0..KEYS).map(|key| (key.to_be_bytes(), value(key))).collect());

fn write_tree(disk: &Arc<SimDisk>) {
    let file = TreeFile::create(&**disk, Path::new(PATH), options(), &SimEntropy::new(1), b"", Lsn::new(1));
    let mut file = file.expect("the disk works");
    for (lsn, step) in [(2, 2), (3, 1)] {
        let mut checkpoint = file.begin().expect("the disk works");
        let insert = |(key, value): &'static ([u8; 2], Vec<u8>)| Op { key, change: Change::Insert(value) };
        let mut ops = ENTRIES.iter().step_by(step).map(insert).collect();
        checkpoint.modify(TreeId(0), &mut ops).expect("the disk works");
        checkpoint.finish(b"metadata", Lsn::new(lsn)).expect("the disk works");
    }
}

/// Reads all readable entries and checks that they are right.
fn read_all(disk: &Arc<SimDisk>) {
    let Ok((snapshot, _)) = Snapshot::open(&**disk, Path::new(PATH), options(), Wanted::default()) else {
        return;
    };
    for key in 0..KEYS {
        if let Ok(Some(found)) = snapshot.get(TreeId(0), &key.to_be_bytes()) {
            assert_eq!(found, value(key));
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        for entry in snapshot.range(TreeId(0), Bound::Unbounded, Bound::Unbounded, direction) {
            let Ok((key, found)) = entry else { break };
            assert_eq!(found, value(u16::from_be_bytes(key.try_into().expect("all keys have two bytes"))));
        }
    }
    verify(&snapshot, |_, _, _| Ok(()), |_| ());
    let Ok(mut file) = TreeFile::open(&**disk, Path::new(PATH), options(), Wanted::default()) else { return };
    if let Ok(mut checkpoint) = file.begin() {
        let removed = checkpoint.modify(TreeId(0), &mut vec![Op { key: &[0, 7], change: Change::Remove }]);
        if removed.is_ok() {
            let snapshot = checkpoint.finish(b"", Lsn::new(4)).expect("the disk works");
            assert!(!matches!(snapshot.get(TreeId(0), &[0, 7]), Ok(Some(_))));
        }
    }
}

fuzz_target!(|input: &[u8]| {
    fuzzing::decode_node(input);
    fuzzing::decode_header(input, 0);
    fuzzing::decode_header(input, 1 << 12);

    let Some(([low, high], bytes)) = input.split_first_chunk::<2>() else { return };
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
    write_tree(&disk);
    let file = disk.open(Path::new(PATH), Access::ReadWrite).expect("it exists");
    let offset = u64::from(u16::from_le_bytes([*low, *high])) % file.len().expect("the disk works");
    file.write_all_at(bytes, offset).expect("the disk works");
    read_all(&disk);
});
