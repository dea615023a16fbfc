//! Arbitrary bytes as a revision tree, and arbitrary paths merged into one: no panic, no revision lost, and
//! an encoded tree decodes to an equal one.

#![no_main]

use documents::codec::Input;
use documents::{Leaf, Merged, Rev, RevPath, RevTree};
use libfuzzer_sys::fuzz_target;

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

/// Few numbers and few hashes, so that paths overlap.
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

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    if let Some(mut tree) = RevTree::<Deleted>::decode(&mut input) {
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
});
