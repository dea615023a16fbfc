//! Arbitrary bytes as a revision tree, and arbitrary paths merged into one: no panic, no revision lost, and
//! an encoded tree decodes to an equal one.
//!
//! Input: the whole input as a tree; and the input as paths. Each path is the number of the newest revision
//! (4 bits of a u8), a count (3 bits of a u8, bit 3: deleted) and names (4 bits of a u8).

use documents::codec::Input;
use documents::{Leaf, Merged, Rev, RevPath, RevTree};

use crate::{Outcome, Seed};

#[derive(Debug, Clone, Copy, PartialEq)]
struct Deleted(bool);

impl Leaf for Deleted {
    fn deleted(&self) -> bool {
        self.0
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0.into());
    }

    fn decode(input: &mut Input<'_>) -> Option<Deleted> {
        input.byte().map(|byte| Deleted(byte & 1 == 1))
    }
}

/// Reads a path. There are few numbers and few hashes, so that paths overlap.
fn path(input: &mut Input<'_>) -> Option<(RevPath, Deleted)> {
    let (newest, count) = (input.byte()?, input.byte()?);
    let hashes = input.take(usize::from(count & 7))?.iter().map(|name| [*name & 15; 16]).collect();
    Some((RevPath::new(u32::from(newest & 15), hashes)?, Deleted(count & 8 == 8)))
}

fn check(tree: &RevTree<Deleted>) {
    let mut bytes = Vec::new();
    tree.encode(&mut bytes);
    assert_eq!(RevTree::decode(&mut Input::new(&bytes)).as_ref(), Some(tree));
    for (rev, _) in tree.leaves() {
        let path = tree.path_of(rev).expect("a leaf is known");
        assert!(path.newest() == rev && path.count() <= rev.number() as usize);
    }
}

/// Decodes a tree, and merges paths. Accepts a whole tree, or nothing but paths.
///
/// # Panics
/// If a revision is lost, or a tree does not decode to an equal one.
pub fn revision_merge(bytes: &[u8]) -> Outcome {
    let mut input = Input::new(bytes);
    let mut is_tree = false;
    if let Some(mut tree) = RevTree::<Deleted>::decode(&mut input) {
        is_tree = input.is_empty() && !tree.is_empty();
        check(&tree);
        tree.merge(&RevPath::of(Rev::first([0; 16])), Deleted(false));
        tree.stem(2);
        check(&tree);
    }
    let mut input = Input::new(bytes);
    let mut tree = RevTree::default();
    let mut known: Vec<Rev> = Vec::new();
    while let Some((path, leaf)) = path(&mut input) {
        tree.merge(&path, leaf);
        assert_eq!(tree.merge(&path, leaf), Merged::Known);
        known.push(path.newest());
        assert!(known.iter().all(|rev| tree.contains(*rev)));
        check(&tree);
    }
    let leaves = tree.leaves().count();
    tree.stem(3);
    check(&tree);
    assert_eq!(tree.leaves().count(), leaves);
    Outcome::accepted_if(is_tree || (input.is_empty() && !known.is_empty()))
}

pub(crate) fn seeds() -> Vec<Seed> {
    const CONFLICT: &[u8] = b"\x03\x03\x03\x02\x01\x02\x02\x04\x01\x03\x02\x05\x01\x02\x09\x06";
    const BRANCHES: &[u8] =
        b"\x06\x05\x06\x05\x04\x03\x02\x05\x03\x07\x04\x03\x0f\x07\x0f\x0e\x0d\x0c\x0b\x0a\x09";
    let tree = |paths: &[u8]| {
        let (mut input, mut tree) = (Input::new(paths), RevTree::default());
        while let Some((path, leaf)) = path(&mut input) {
            tree.merge(&path, leaf);
        }
        let mut bytes = Vec::new();
        tree.encode(&mut bytes);
        bytes
    };
    let mut cut = tree(CONFLICT);
    cut.pop();
    vec![
        ("paths-with-a-conflict", CONFLICT.to_vec()),
        ("paths-that-are-joined-later", BRANCHES.to_vec()),
        ("tree-with-a-conflict", tree(CONFLICT)),
        ("tree-of-branches", tree(BRANCHES)),
        ("tree-of-one-revision", tree(b"\x01\x01\x00")),
        ("refused-cut", cut),
        ("refused-no-path", b"\x00\x01\x01".to_vec()),
    ]
}
