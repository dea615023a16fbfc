//! Random sequences of operations on a file: its trees and every snapshot held open must equal a `BTreeMap`.

use proptest::{collection::vec, option, prelude::*};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Checkpoint {
        tree: u8,
        changes: Changes,
    },
    /// Removes most keys of a range, so that nodes become small and empty.
    Thin {
        tree: u8,
        from: Vec<u8>,
        keep_every: usize,
    },
    Abandon {
        changes: Changes,
    },
    Reopen,
    Compact,
}

/// Keys of many lengths, often with common beginnings; the empty key is one of them.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(prop::sample::select(&b"abc"[..]), 0..7),
        4 => (0u64..2000).prop_map(|n| n.to_be_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..300),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![6 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 0..700)]
}

fn changes() -> impl Strategy<Value = Changes> {
    vec((key(), option::weighted(0.7, value())), 0..150)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..TREES, changes()).prop_map(|(tree, changes)| Step::Checkpoint { tree, changes }),
        3 => (0..TREES, key(), 1usize..12)
            .prop_map(|(tree, from, keep_every)| Step::Thin { tree, from, keep_every }),
        1 => changes().prop_map(|changes| Step::Abandon { changes }),
        1 => Just(Step::Reopen),
        1 => Just(Step::Compact),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

/// A file and open snapshots, each with its expected contents.
struct World {
    disk: Arc<SimDisk>,
    file: TreeFile,
    models: Models,
    held: Vec<(TreeSnapshot, Models)>,
    lsn: u64,
}

impl World {
    fn change(&mut self, tree: u8, changes: &[(Vec<u8>, Option<Vec<u8>>)]) {
        self.lsn += 1;
        let mut checkpoint = self.file.begin().unwrap();
        checkpoint.modify(TreeId(tree), &mut ops(changes)).unwrap();
        let snapshot = checkpoint.finish(b"", Lsn::new(self.lsn)).unwrap();
        change_model(&mut self.models[usize::from(tree)], changes);
        self.held.push((snapshot, self.models.clone()));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Checkpoint { tree, changes } => self.change(tree, &changes),
            Step::Thin { tree, from, keep_every } => {
                let keys = self.models[usize::from(tree)].range(from..).map(|(key, _)| (key.clone(), None));
                let removed: Vec<_> =
                    keys.enumerate().filter(|(n, _)| n % keep_every != 0).map(|(_, key)| key).collect();
                self.change(tree, &removed);
            }
            Step::Abandon { changes } => {
                let mut checkpoint = self.file.begin().unwrap();
                checkpoint.modify(TreeId(0), &mut ops(&changes)).unwrap();
            }
            Step::Reopen => self.file = open(&self.disk).unwrap(),
            Step::Compact => {
                self.lsn += 1;
                let (file, _) = build(&self.disk, &self.models, self.lsn).unwrap();
                self.file = file.put_in_place(&*self.disk, &path()).unwrap();
            }
        }
    }
}

proptest! {
    #[test]
    fn trees_are_sorted_maps(
        steps in vec(step(), 1..25),
        lookups in vec(key(), 1..40),
        ranges in vec((0..TREES, bound(), bound()), 1..12),
    ) {
        let disk = disk();
        let file = create(&disk);
        let mut world = World { disk, file, models: Models::default(), held: Vec::new(), lsn: 1 };
        for step in steps {
            world.take(step);
        }
        world.held.push((world.file.snapshot().clone(), world.models.clone()));
        let mut sorted = lookups;
        sorted.sort();
        for (snapshot, models) in &world.held {
            assert_holds(snapshot, models);
        }
        for distance in 1..4 {
            for (old, new) in world.held.iter().zip(world.held.iter().skip(distance)) {
                check_difference(old, new);
            }
        }
        for (snapshot, models) in world.held.iter().rev().take(3) {
            for (tree, model) in (0..).map(TreeId).zip(models) {
                let expected: Vec<_> = sorted.iter().map(|key| model.get(key).cloned()).collect();
                prop_assert_eq!(&snapshot.get_many(tree, &sorted).unwrap(), &expected);
                for (key, value) in sorted.iter().zip(expected) {
                    prop_assert_eq!(snapshot.get(tree, key).unwrap(), value);
                }
            }
            for (tree, from, to) in &ranges {
                check_range(snapshot, TreeId(*tree), &models[usize::from(*tree)], from, to);
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_node_or_header_do_no_harm(
        mut bytes in vec(any::<u8>(), 0..200),
        plausible in any::<bool>(),
        entries in 1u8..6,
    ) {
        if plausible && bytes.len() > 8 {
            // Makes the bytes a leaf with a possible number of entries, so that they pass more than the first
            // check.
            bytes[..8].copy_from_slice(&[0, 0, 0, 0, entries, 0, 0, 0]);
            bytes.iter_mut().skip(8).for_each(|byte| *byte %= 16);
        }
        if let Some(decoded) = crate::node::decode_any(&bytes) {
            prop_assert!(decoded.is_sorted_by(|a, b| a.0 < b.0));
        }
        prop_assert!(!crate::header::decode_any(&bytes, 0), "nothing random has a checksum");
    }
}

/// Asserts that the changes between two states of a file turn the older state into the newer one, and that no
/// change is without effect.
fn check_difference((old, before): &(TreeSnapshot, Models), (new, after): &(TreeSnapshot, Models)) {
    if old.file_id() != new.file_id() {
        return;
    }
    for (tree, (before, after)) in (0..).map(TreeId).zip(before.iter().zip(after)) {
        let changes: Changes = new.changes_since(old, tree).map(|change| change.unwrap()).collect();
        assert!(changes.is_sorted_by(|a, b| a.0 < b.0));
        assert!(changes.iter().all(|(key, value)| before.get(key) != value.as_ref()));
        let mut changed = before.clone();
        change_model(&mut changed, &changes);
        assert_eq!(changed, *after);
    }
}

#[test]
fn what_two_states_share_is_not_read() {
    let disk = disk();
    let mut file = create(&disk);
    let mut put = |numbers: &mut dyn Iterator<Item = u64>, value: &[u8], lsn| {
        let changes: Changes = numbers.map(|n| (n.to_be_bytes().to_vec(), Some(value.to_vec()))).collect();
        let mut checkpoint = file.begin().unwrap();
        checkpoint.modify(TreeId(0), &mut ops(&changes)).unwrap();
        checkpoint.finish(b"", Lsn::new(lsn)).unwrap()
    };
    let old = put(&mut (0..20_000), b"old", 2);
    let new = put(&mut [7, 5000, 5001, 19_999].into_iter(), b"new", 3);
    let mut difference = new.changes_since(&old, TreeId(0));
    let keys: Vec<_> = difference.by_ref().map(|change| change.unwrap().0).collect();
    assert_eq!(keys, [7u64, 5000, 5001, 19_999].map(|n| n.to_be_bytes().to_vec()));
    // The changed keys are on three paths, which are read in both states. The tree has more than a thousand
    // leaves.
    assert!(difference.nodes_read() < 60, "{} nodes", difference.nodes_read());
    assert_eq!(new.changes_since(&new, TreeId(0)).count(), 0);
}

fn check_range(
    snapshot: &TreeSnapshot,
    tree: TreeId,
    model: &Model,
    from: &Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
) {
    let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    // `BTreeMap::range` panics if the bounds are in the wrong order; such a range is empty here.
    let within = |key: &[u8]| {
        (match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        }) && match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        }
    };
    let pairs = model.iter().filter(|(key, _)| within(key)).map(|(key, value)| (key.clone(), value.clone()));
    let mut expected: Vec<_> = pairs.collect();
    assert_eq!(
        snapshot.sums_of_range(tree, from, to).unwrap(),
        sums_of(tree, expected.iter().map(|(k, v)| (k, v)))
    );
    assert_eq!(entries(snapshot.range(tree, from, to, Direction::Forward)), expected);
    expected.reverse();
    assert_eq!(entries(snapshot.range(tree, from, to, Direction::Backward)), expected);
}

#[test]
fn snapshots_are_read_while_checkpoints_are_made() {
    let disk = disk();
    let mut file = create(&disk);
    let (mut models, mut prng) = (Models::default(), Prng::new(8));
    checkpoint(&mut file, &mut models, &mut prng, 500, 2).unwrap();
    std::thread::scope(|scope| {
        for lsn in 3..20 {
            let (snapshot, expected) = (file.snapshot().clone(), models.clone());
            scope.spawn(move || (0..5).for_each(|_| assert_holds(&snapshot, &expected)));
            checkpoint(&mut file, &mut models, &mut prng, 50, lsn).unwrap();
        }
    });
}
