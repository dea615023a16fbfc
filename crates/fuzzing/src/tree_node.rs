//! Arbitrary bytes as a node or a header of a tree are refused or can be walked; and a file with changed
//! bytes returns only values that were written.
//!
//! Input: the place (u16), the bytes. The whole input is also decoded as a node and as a header.

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use env::sim::SimDiskOptions;
use env::{Access, Disk, SimDisk, SimEntropy};
use lsn::Lsn;
use tree::{
    Change, Direction, NodeCache, Op, Options, Sums, TreeFile, TreeId, TreeSnapshot, Wanted, fuzzing, verify,
};

use crate::{Outcome, Seed, content};

const PATH: &str = "/1.tree";
const KEYS: u16 = 60;
const PAGE_BYTES: u64 = 1 << 12;

fn options() -> Options {
    let measure = |_, _: &[u8], value: &[u8]| Sums([1, value.len() as u64, 0, 0]);
    let options = Options::new(1, measure, NodeCache::new(1 << 20));
    Options { leaf_bytes: 100, inner_bytes: 150, ..options }
}

/// The value of a key. It is the same in both checkpoints; the first checkpoint has only every second key.
fn value(key: u16) -> Vec<u8> {
    vec![key as u8; usize::from(key % 17)]
}

static ENTRIES: LazyLock<Vec<([u8; 2], Vec<u8>)>> =
    LazyLock::new(|| (0..KEYS).map(|key| (key.to_be_bytes(), value(key))).collect());

fn with_tree() -> Arc<SimDisk> {
    let disk = SimDisk::new(SimDiskOptions { seed: 1, ..Default::default() });
    let file = TreeFile::create(&*disk, Path::new(PATH), options(), &SimEntropy::new(1), b"", Lsn::new(1));
    let mut file = file.expect("the disk works");
    for (lsn, step) in [(2, 2), (3, 1)] {
        let mut checkpoint = file.begin().expect("the disk works");
        let insert = |(key, value): &'static ([u8; 2], Vec<u8>)| Op { key, change: Change::Insert(value) };
        let mut ops = ENTRIES.iter().step_by(step).map(insert).collect();
        checkpoint.modify(TreeId(0), &mut ops).expect("the disk works");
        checkpoint.finish(b"metadata", Lsn::new(lsn)).expect("the disk works");
    }
    disk
}

/// Reads all readable entries and checks that they are right. Then verifies the tree and removes an entry,
/// as far as the damage permits. Returns the number of keys found.
fn read_all(disk: &Arc<SimDisk>) -> u16 {
    let opened = TreeSnapshot::open(&**disk, Path::new(PATH), options(), Wanted::default());
    let Ok((snapshot, _)) = opened else { return 0 };
    let mut read = 0;
    for key in 0..KEYS {
        if let Ok(Some(found)) = snapshot.get(TreeId(0), &key.to_be_bytes()) {
            assert_eq!(found, value(key));
            read += 1;
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        for entry in snapshot.range(TreeId(0), Bound::Unbounded, Bound::Unbounded, direction) {
            let Ok((key, found)) = entry else { break };
            assert_eq!(found, value(u16::from_be_bytes(key.try_into().expect("all keys have two bytes"))));
        }
    }
    verify(&snapshot, |_, _, _| Ok(()), |_| ());
    let opened = TreeFile::open(&**disk, Path::new(PATH), options(), Wanted::default());
    let Ok(mut file) = opened else { return read };
    if let Ok(mut checkpoint) = file.begin() {
        let removed = checkpoint.modify(TreeId(0), &mut vec![Op { key: &[0, 7], change: Change::Remove }]);
        if removed.is_ok() {
            let snapshot = checkpoint.finish(b"", Lsn::new(4)).expect("the disk works");
            assert!(!matches!(snapshot.get(TreeId(0), &[0, 7]), Ok(Some(_))));
        }
    }
    read
}

/// Decodes a node and a header, and reads a damaged file. Accepts a node, a header, and a file of which all
/// is read.
///
/// # Panics
/// If a value is read that was never written, or a node cannot be walked.
pub fn tree_node(input: &[u8]) -> Outcome {
    let is_node = fuzzing::decode_node(input).is_some();
    let is_first_header = fuzzing::decode_header(input, 0);
    let is_header = is_first_header | fuzzing::decode_header(input, PAGE_BYTES);

    let Some(([low, high], bytes)) = input.split_first_chunk::<2>() else { return Outcome::Refused };
    let disk = with_tree();
    let file = disk.open(Path::new(PATH), Access::ReadWrite).expect("it exists");
    let offset = u64::from(u16::from_le_bytes([*low, *high])) % file.len().expect("the disk works");
    file.write_all_at(bytes, offset).expect("the disk works");
    let is_file_intact = read_all(&disk) == KEYS && !bytes.is_empty();
    Outcome::accepted_if(is_node || is_header || is_file_intact)
}

/// The node at the beginning of `bytes`, if there is one: its table says where its last entry ends.
fn node(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let prefix = usize::from(u16::from_le_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    let entries = word(4)? as usize;
    let table = 8 + prefix;
    let last = table.checked_add(entries.checked_sub(1)?.checked_mul(4)?)?;
    let node = bytes.get(..(last + 4).checked_add(word(last)? as usize)?)?;
    // A node of one entry does not count: two small numbers among zeros already decode as a leaf with one
    // empty entry.
    (entries > 1 && fuzzing::decode_node(node).is_some()).then_some(node)
}

pub(crate) fn seeds() -> Vec<Seed> {
    let file = content(&with_tree(), Path::new(PATH));
    let at = |place: u16, bytes: &[u8]| [&place.to_le_bytes()[..], bytes].concat();
    let page = PAGE_BYTES as usize;
    let mut seeds = vec![
        ("header-0", file[..page].to_vec()),
        ("file-up-to-the-second-header", at(0, &file[..2 * page])),
        ("last-page", at((file.len() - page) as u16, &file[file.len() - page..])),
        ("refused-another-header", at((file.len() - page) as u16, &file[..page])),
        ("refused-zeros", vec![0; 64]),
    ];
    let nodes: Vec<&[u8]> = (0..file.len()).filter_map(|at| node(&file[at..])).collect();
    let of_level = |level: u8| nodes.iter().filter(move |node| node[0] == level);
    let longest = |level| of_level(level).max_by_key(|node| node.len()).expect("there are some").to_vec();
    seeds.extend([("leaf", longest(0)), ("inner-node", longest(1))]);
    seeds.extend(of_level(2).next().map(|node| ("root", node.to_vec())));
    seeds
}
