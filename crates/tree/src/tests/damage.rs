//! Flipped bits and truncated files: every read detects them, errors name the file and offset, and no wrong
//! data is returned.

use std::collections::BTreeSet;

use prng::sweep::spread_at_least;

use super::*;
use crate::format::PAGE_BYTES;

/// A file of five checkpoints with the positions of its parts.
struct Written {
    disk: Arc<SimDisk>,
    bytes: Vec<u8>,
    models: Models,
    blob: Pointer,
    /// Offset and length of each node.
    nodes: Vec<Pointer>,
    /// Offset of each header.
    headers: Vec<u64>,
    ends: Vec<u64>,
}

/// Writes a file of five checkpoints and closes it.
fn written() -> Written {
    let disk = disk();
    let mut file = create(&disk);
    let (mut models, mut prng) = (Models::default(), Prng::new(11));
    let (mut headers, mut ends) = (vec![0], vec![4096]);
    let mut blob = None;
    for lsn in 2..7 {
        blob = Some(checkpoint(&mut file, &mut models, &mut prng, 40, lsn).unwrap().1);
        ends.push(file.snapshot().file_end());
        headers.push(file.snapshot().header.offset);
    }
    let nodes = nodes_of(file.snapshot());
    drop(file);
    let bytes = disk.read_file(&path()).unwrap();
    Written { disk, bytes, models, blob: blob.unwrap(), nodes, headers, ends }
}

/// Pointers to all nodes that a snapshot reaches.
fn nodes_of(snapshot: &TreeSnapshot) -> Vec<Pointer> {
    let mut found = Vec::new();
    for tree in (0..TREES).map(TreeId) {
        let root = snapshot.root(tree).unwrap();
        let mut open = vec![(root.level, root.child.pointer)];
        while let Some((level, pointer)) = open.pop() {
            found.push(pointer);
            if level > 0 {
                let node = snapshot.reader.read_node(&pointer).unwrap();
                open.extend((0..node.len()).map(|index| (level - 1, node.child_pointer(index))));
            }
        }
    }
    found
}

/// Reads all entries through every kind of access; asserts that each result without an error is right.
/// Returns the errors.
fn read_all(snapshot: &TreeSnapshot, models: &Models) -> Vec<TreeError> {
    let mut errors = Vec::new();
    for (tree, model) in (0..).map(TreeId).zip(models) {
        for (key, value) in model {
            match snapshot.get(tree, key) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value)),
                Err(error) => errors.push(error),
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut range = snapshot.range(tree, Bound::Unbounded, Bound::Unbounded, direction);
            let mut read = 0;
            let complete = loop {
                match range.next_entry() {
                    Ok(Some((key, value))) => assert_eq!(model.get(key).map(Vec::as_slice), Some(value)),
                    Ok(None) => break true,
                    Err(error) => {
                        errors.push(error);
                        break false;
                    }
                }
                read += 1;
            };
            assert!(!complete || read == model.len(), "entries were passed by in silence");
        }
        match snapshot.get_many(tree, &model.keys().collect::<Vec<_>>()) {
            Ok(values) => assert!(values.iter().flatten().eq(model.values())),
            Err(error) => errors.push(error),
        }
    }
    errors
}

fn offset_of(error: &TreeError) -> u64 {
    match error {
        TreeError::Damaged { path: at, offset, .. } if *at == path() => *offset,
        other => panic!("{other}"),
    }
}

/// Opens the newest state while the file is still intact, like a server that is running when the damage
/// occurs.
fn open_before_damage(written: &Written) -> TreeSnapshot {
    TreeSnapshot::open(&*written.disk, &path(), options(), Wanted::default()).unwrap().0
}

#[test]
fn a_flipped_bit_in_a_node_is_named_and_the_others_stay_readable() {
    let written = written();
    let kinds: BTreeSet<u8> =
        written.nodes.iter().map(|node| written.bytes[node.offset() as usize]).collect();
    assert!(kinds.len() >= 3, "leaves, inner nodes, and inner nodes of those");
    let mut prng = Prng::new(1);
    for node in &written.nodes {
        for _ in 0..6 {
            let bit = prng.below(node.len() as u64 * 8);
            let at = node.offset() as usize + bit as usize / 8;
            let mut bytes = written.bytes.clone();
            bytes[at] ^= 1 << (bit % 8);
            let snapshot = open_before_damage(&written);
            written.disk.write_file(&path(), &bytes);
            let snapshot = TreeSnapshot { reader: reopened(&written, &snapshot), ..snapshot };
            let errors = read_all(&snapshot, &written.models);
            assert!(!errors.is_empty(), "offset {at}");
            assert!(errors.iter().all(|error| offset_of(error) == node.offset()), "{errors:?}");
            let mut damage = Vec::new();
            let report = verify(&snapshot, |_, _, _| Ok(()), |error| damage.push(offset_of(&error)));
            assert_eq!((report.damaged, damage), (1, vec![node.offset()]));
            written.disk.write_file(&path(), &written.bytes);
        }
    }
}

/// A reader of the file as it is now, with an empty cache.
fn reopened(written: &Written, snapshot: &TreeSnapshot) -> Arc<crate::reader::FileReader> {
    let file = env::Disk::open(&*written.disk, &path(), env::Access::Read).unwrap();
    Arc::new(crate::reader::FileReader::new(file, path(), &snapshot.options.cache))
}

#[test]
fn a_flipped_bit_in_a_blob_is_named() {
    let written = written();
    let snapshot = open_before_damage(&written);
    assert_eq!(snapshot.read_blob(written.blob).unwrap(), 6u64.to_le_bytes());
    for bit in 0..64 {
        let mut bytes = written.bytes.clone();
        bytes[written.blob.offset() as usize + bit / 8] ^= 1 << (bit % 8);
        written.disk.write_file(&path(), &bytes);
        let snapshot = TreeSnapshot { reader: reopened(&written, &snapshot), ..snapshot.clone() };
        assert_eq!(offset_of(&snapshot.read_blob(written.blob).unwrap_err()), written.blob.offset());
    }
}

#[test]
fn a_flipped_bit_in_the_last_checkpoint_is_told_when_the_file_is_opened() {
    let written = written();
    let (begin, end) = (written.ends[4] as usize, written.ends[5] as usize);
    let header = written.headers[5];
    let mut prng = Prng::new(2);
    for at in (begin..end).step_by(7).chain(header as usize..header as usize + 600) {
        let mut bytes = written.bytes.clone();
        bytes[at] ^= 1 << prng.below(8);
        written.disk.write_file(&path(), &bytes);
        let file = open(&written.disk).unwrap();
        assert_eq!(file.snapshot().applied_lsn(), Lsn::new(5), "offset {at}");
        // A page is recognised as a header only by an intact magic, file id and own offset.
        let is_nameless = (header as usize..header as usize + 40).contains(&at);
        assert_eq!(
            file.passed_over().map(|passed| passed.offset),
            (!is_nameless).then_some(header),
            "offset {at}"
        );
        // A caller that knows the durable LSN gets an error that names the file.
        let wanted = Wanted { at_least: Lsn::new(6), ..Wanted::default() };
        let refused = TreeFile::open(&*written.disk, &path(), options(), wanted).unwrap_err();
        assert!(matches!(&refused, TreeError::NoCheckpoint { newest, .. } if *newest == Some(Lsn::new(5))));
        assert!(refused.to_string().contains("/data/documents/1.tree"), "{refused}");
        assert!(is_nameless || refused.to_string().contains(&header.to_string()), "{refused}");
    }
}

#[test]
fn a_flipped_bit_in_header_0_is_named() {
    let written = written();
    for at in (0..100).chain([2000, 4095]) {
        let mut bytes = written.bytes.clone();
        bytes[at] ^= 4;
        written.disk.write_file(&path(), &bytes);
        assert_eq!(offset_of(&open(&written.disk).unwrap_err()), 0);
    }
}

#[test]
fn a_damaged_header_in_the_middle_is_passed_over_on_the_way_back() {
    let written = written();
    let mut bytes = written.bytes.clone();
    bytes[written.headers[3] as usize + 60] ^= 1;
    written.disk.write_file(&path(), &bytes);
    let back_to = |lsn| {
        let wanted = Wanted { at_most: Lsn::new(lsn), ..Wanted::default() };
        TreeSnapshot::open(&*written.disk, &path(), options(), wanted).unwrap()
    };
    assert_eq!(back_to(5).0.applied_lsn(), Lsn::new(5));
    let (snapshot, passed_over) = back_to(4);
    assert_eq!(snapshot.applied_lsn(), Lsn::new(3));
    assert_eq!(passed_over.unwrap().offset, written.headers[3]);
}

#[test]
fn a_file_cut_anywhere_opens_with_the_last_checkpoint_before_the_cut() {
    let written = written();
    let (begin, end) = (written.ends[3] as usize, written.ends[5] as usize);
    for len in spread_at_least(1000, (end - begin) as u64).map(|further| begin + further as usize) {
        written.disk.write_file(&path(), &written.bytes[..len]);
        let expected = if (len as u64) < written.ends[4] { 4 } else { 5 };
        let (snapshot, _) =
            TreeSnapshot::open(&*written.disk, &path(), options(), Wanted::default()).unwrap();
        assert_eq!(snapshot.applied_lsn(), Lsn::new(expected), "cut at {len}");
        if len % 257 == 0 {
            let report = verify(&snapshot, |_, _, _| Ok(()), |error| panic!("{error}"));
            assert!(report.entries > 0);
        }
    }
    for len in 0..4096 {
        written.disk.write_file(&path(), &written.bytes[..len]);
        assert_eq!(offset_of(&open(&written.disk).unwrap_err()), 0);
    }
}

#[test]
fn a_header_of_another_file_or_place_is_not_taken() {
    let written = written();
    let last = written.headers[5] as usize;
    let foreign = {
        let disk = disk();
        let mut file =
            TreeFile::create(&*disk, &path(), options(), &SimEntropy::new(99), b"", Lsn::new(1)).unwrap();
        let (mut models, mut prng) = (Models::default(), Prng::new(11));
        (2..7).for_each(|lsn| drop(checkpoint(&mut file, &mut models, &mut prng, 40, lsn).unwrap()));
        disk.read_file(&path()).unwrap()
    };
    assert_eq!(foreign.len(), written.bytes.len(), "the same contents under another id");
    let own = written.bytes[last..].to_vec();
    let tails = [foreign[last..].to_vec(), [own.clone(), own].concat(), written.bytes[..4096].to_vec()];
    for tail in tails {
        // Headers of another file, or at a wrong offset, are not taken for headers. Such bytes could be in a
        // user's blob, or be a write that the disk has misplaced.
        let mut bytes = written.bytes[..last].to_vec();
        bytes.extend_from_slice(&[0; 4096]);
        bytes.extend_from_slice(&tail);
        written.disk.write_file(&path(), &bytes);
        assert_eq!(open(&written.disk).unwrap().snapshot().applied_lsn(), Lsn::new(5));
    }
}

#[test]
fn wrong_sums_and_keys_in_the_wrong_place_are_found_by_the_walk() {
    // Every checksum of this file is right, so only a bug could write it.
    let disk = disk();
    let mut file = create(&disk);
    let mut models = Models::default();
    checkpoint(&mut file, &mut models, &mut Prng::new(4), 200, 2).unwrap();
    let snapshot = file.snapshot();
    let mut header = (*snapshot.header).clone();
    header.roots.swap(0, 1);
    let swapped = TreeSnapshot { header: Arc::new(header.clone()), ..snapshot.clone() };
    let mut damage = Vec::new();
    verify(&swapped, |_, _, _| Ok(()), |error| damage.push(error.to_string()));
    assert_eq!(damage.len(), 2);
    assert!(damage[0].contains("another tree"), "{damage:?}");
    assert!(swapped.get(TreeId(0), b"key 001").is_err(), "nor is it read from another tree");
    header.roots.swap(0, 1);
    header.roots[2].as_mut().unwrap().child.sums.0[0] += 1;
    let miscounted = TreeSnapshot { header: Arc::new(header), ..snapshot.clone() };
    damage.clear();
    verify(&miscounted, |_, _, _| Ok(()), |error| damage.push(error.to_string()));
    assert!(damage.len() == 1 && damage[0].contains("sums"), "{damage:?}");
}

#[test]
fn only_appended_bytes_are_read_and_verified() {
    let written = written();
    let end = *written.ends.last().unwrap();
    let verify = |bytes: &[u8], from| {
        written.disk.write_file(&path(), bytes);
        verify_appended(&*written.disk, &path(), from)
    };
    let bytes = &written.bytes[..end as usize];
    for &from in &written.ends {
        verify(bytes, from).unwrap();
        for at in (0..end).step_by(509).filter(|&at| at >= PAGE_BYTES as u64) {
            let mut flipped = bytes.to_vec();
            flipped[at as usize] ^= 16;
            assert_eq!(verify(&flipped, from).is_err(), at >= from, "byte {at} of {end}, from {from}");
        }
        if from < end {
            assert!(verify(&bytes[..bytes.len() - PAGE_BYTES], from).is_err(), "cut off");
            assert!(verify(&[bytes, &[0; PAGE_BYTES]].concat(), from).is_err(), "too long");
            assert!(verify(bytes, from + PAGE_BYTES as u64).is_err(), "no checkpoint ends there");
        }
    }
    assert!(verify(b"", 0).is_err());
}
