//! Examples of CouchDB's rules, and random paths compared with sets of edges.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;

/// A leaf with a deletion flag and a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Text(bool, u8);

impl Leaf for Text {
    fn deleted(&self) -> bool {
        self.0
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([u8::from(self.0), self.1]);
    }

    fn decode(input: &mut Input<'_>) -> Option<Text> {
        let deleted = input.byte()?;
        Some(Text(deleted == 1, input.byte().filter(|_| deleted < 2)?))
    }
}

fn rev(number: u32, name: u8) -> Rev {
    Rev::new(number, [name; 16]).expect("not 0")
}

/// The path of revisions with these names, newest first; `newest` is the number of the newest revision.
fn path(newest: u32, names: &str) -> RevPath {
    RevPath::new(newest, names.bytes().map(|name| [name; 16]).collect()).expect("a path")
}

fn tree(paths: &[(u32, &str, bool)]) -> RevTree<Text> {
    let mut tree = RevTree::default();
    for (newest, names, deleted) in paths {
        tree.merge(&path(*newest, names), Text(*deleted, names.as_bytes()[0]));
    }
    tree
}

/// The leaves, as `3c` or `3c-` if deleted, the winner first.
fn leaves(tree: &RevTree<Text>) -> Vec<String> {
    let name = |(rev, leaf): (Rev, &Text)| {
        format!("{}{}{}", rev.number(), char::from(rev.hash()[0]), if leaf.0 { "-" } else { "" })
    };
    tree.leaves().map(name).collect()
}

fn names_of(tree: &RevTree<Text>, of: Rev) -> String {
    tree.path_of(of)
        .map_or_else(String::new, |path| path.revs().map(|rev| char::from(rev.hash()[0])).collect())
}

#[test]
fn the_winner_is_alive_then_longer_then_larger() {
    assert_eq!(leaves(&tree(&[(1, "a", false), (2, "ba", false)])), ["2b"]);
    assert_eq!(leaves(&tree(&[(2, "ba", false), (2, "ca", false)])), ["2c", "2b"]);
    assert_eq!(leaves(&tree(&[(3, "cba", false), (2, "za", false)])), ["3c", "2z"]);
    assert_eq!(leaves(&tree(&[(3, "cba", true), (2, "za", false)])), ["2z", "3c-"]);
    assert_eq!(leaves(&tree(&[(3, "cba", true), (2, "za", true)])), ["3c-", "2z-"]);
    assert_eq!(leaves(&tree(&[(1, "b", false), (1, "a", false)])), ["1b", "1a"]);
}

#[test]
fn merging_reports_its_outcome() {
    let mut tree = tree(&[(2, "ba", false)]);
    assert_eq!(tree.merge(&path(2, "ba"), Text(true, b'x')), Merged::Known);
    assert_eq!(tree.leaf(rev(2, b'b')), Some(&Text(false, b'b')), "a leaf that is known stays as it is");
    assert_eq!(tree.merge(&path(1, "a"), Text(false, b'a')), Merged::Known);
    assert_eq!(tree.leaf(rev(1, b'a')), None, "an ancestor is no leaf");
    assert_eq!(tree.merge(&path(4, "dcb"), Text(false, b'd')), Merged::Extended);
    assert_eq!(tree.merge(&path(2, "ea"), Text(false, b'e')), Merged::Branched);
    assert_eq!(tree.merge(&path(3, "fe"), Text(true, b'f')), Merged::Extended);
    assert_eq!(leaves(&tree), ["4d", "3f-"]);
    assert_eq!((names_of(&tree, rev(4, b'd')), names_of(&tree, rev(3, b'f'))), ("dcba".into(), "fea".into()));
    assert_eq!(tree.path_of(rev(3, b'z')), None);
}

#[test]
fn a_revision_between_two_branches_joins_them() {
    let mut tree = tree(&[(5, "ed", false), (3, "cba", false)]);
    assert_eq!(leaves(&tree), ["5e", "3c"]);
    assert_eq!(tree.merge(&path(4, "dc"), Text(false, b'd')), Merged::Known);
    assert_eq!(leaves(&tree), ["5e"]);
    assert_eq!(names_of(&tree, rev(5, b'e')), "edcba");
}

#[test]
fn a_forged_parent_is_not_believed() {
    let mut tree = tree(&[(3, "cba", false), (2, "xa", false)]);
    // If x became the parent of c, x would no longer be a leaf, and its content would be lost.
    assert_eq!(tree.merge(&path(4, "dcxa"), Text(false, b'd')), Merged::Extended);
    assert_eq!(leaves(&tree), ["4d", "2x"]);
    assert_eq!(names_of(&tree, rev(4, b'd')), "dcba");
}

#[test]
fn stemming_forgets_the_oldest_of_each_leaf() {
    let mut stemmed = tree(&[(5, "edcba", false), (3, "xba", false)]);
    stemmed.stem(5);
    assert_eq!(names_of(&stemmed, rev(5, b'e')), "edcba");
    stemmed.stem(2);
    assert_eq!(leaves(&stemmed), ["5e", "3x"]);
    assert_eq!(
        (names_of(&stemmed, rev(5, b'e')), names_of(&stemmed, rev(3, b'x'))),
        ("ed".into(), "xb".into())
    );
    assert!(!stemmed.contains(rev(3, b'c')));
    let mut one = tree(&[(5, "edcba", false)]);
    one.stem(0);
    assert_eq!(names_of(&one, rev(5, b'e')), "e", "one revision stays");
    // An edit can extend a leaf with stemmed ancestors.
    assert_eq!(one.merge(&path(6, "fe"), Text(false, b'f')), Merged::Extended);
}

#[test]
fn revisions_that_are_missing_have_possible_ancestors() {
    let tree = tree(&[(3, "cba", false), (2, "xa", true)]);
    let asked = [rev(3, b'c'), rev(2, b'b'), rev(3, b'y')];
    assert_eq!(tree.missing(&asked), [rev(3, b'y')]);
    assert_eq!(tree.possible_ancestors(&[rev(3, b'y')]), [rev(2, b'x')]);
    assert_eq!(tree.possible_ancestors(&[rev(4, b'y')]), [rev(3, b'c'), rev(2, b'x')]);
    assert_eq!(tree.possible_ancestors(&[]), []);
    let descend: Vec<Rev> = tree.leaves_of(rev(1, b'a')).into_iter().map(|(rev, _)| rev).collect();
    assert_eq!(descend, [rev(3, b'c'), rev(2, b'x')]);
    assert!(tree.leaves_of(rev(1, b'z')).is_empty());
}

#[test]
fn purging_removes_a_leaf_and_its_unshared_ancestors() {
    let mut tree = tree(&[(3, "cba", false), (3, "yxa", false)]);
    assert_eq!(tree.purge(&[rev(2, b'x'), rev(1, b'q')]), [], "only leaves are purged");
    assert_eq!(tree.purge(&[rev(3, b'y')]), [rev(3, b'y')]);
    assert_eq!(leaves(&tree), ["3c"]);
    assert!(!tree.contains(rev(2, b'x')) && tree.contains(rev(1, b'a')));
    tree.purge(&[rev(3, b'c')]);
    assert!(tree.is_empty() && tree.winner().is_none());
}

#[test]
fn bytes_that_are_no_tree_are_refused() {
    let decode = |bytes: &[u8]| RevTree::<Text>::decode(&mut Input::new(bytes));
    let branch = |first: u8, count: u8, joins: u8, name: u8| {
        let mut bytes = vec![first, count, joins];
        bytes.extend((0..count).flat_map(|_| [name; 16]));
        bytes.extend([0, name]);
        bytes
    };
    let tree = |branches: &[Vec<u8>]| [vec![branches.len() as u8], branches.concat()].concat();
    assert!(decode(&tree(&[branch(1, 2, 0, 9), branch(2, 1, 1, 8)])).is_some());
    assert!(decode(&tree(&[branch(1, 2, 0, 8), branch(2, 1, 1, 9)])).is_none(), "the winner is first");
    assert!(decode(&tree(&[branch(1, 2, 0, 9), branch(2, 1, 2, 8)])).is_none(), "joins itself");
    assert!(decode(&tree(&[branch(2, 1, 0, 9), branch(2, 1, 1, 8)])).is_none(), "joins what is not there");
    assert!(decode(&tree(&[branch(0, 1, 0, 9)])).is_none(), "number 0");
    assert!(decode(&tree(&[branch(1, 0, 0, 9)])).is_none(), "no leaf");
    assert!(decode(&tree(&[branch(1, 1, 1, 9)])).is_none(), "revision 1 has no parent");
    assert!(decode(&tree(&[branch(1, 1, 0, 9)])[..18]).is_none(), "cut");
    assert!(decode(&[0xff, 0xff, 3]).is_none(), "more than can be there");
}

/// A history: each revision has a random earlier one as its parent, or none.
fn histories() -> impl Strategy<Value = Vec<(Rev, Option<Rev>, bool)>> {
    let parent = (proptest::option::weighted(0.9, any::<Index>()), any::<bool>());
    proptest::collection::vec(parent, 1..14).prop_map(|parents| {
        let mut revs: Vec<(Rev, Option<Rev>, bool)> = Vec::new();
        for (name, (parent, deleted)) in (b'a'..).zip(parents) {
            let parent = parent.filter(|_| !revs.is_empty()).map(|index| index.get(&revs).0);
            // Hashes that do not grow with the numbers.
            let hash = [name.wrapping_mul(91); 16];
            let rev = parent.map_or(Rev::first(hash), |parent| parent.next(hash).expect("few"));
            revs.push((rev, parent, deleted));
        }
        revs
    })
}

/// Some paths of a history, truncated at random, in random order.
fn merges() -> impl Strategy<Value = Vec<(RevPath, Text)>> {
    histories().prop_flat_map(|history| {
        let parents: BTreeMap<Rev, Option<Rev>> =
            history.iter().map(|(rev, parent, _)| (*rev, *parent)).collect();
        let full = move |rev| {
            std::iter::successors(Some(rev), |rev| parents[rev]).map(Rev::hash).collect::<Vec<_>>()
        };
        let paths: Vec<_> = history
            .into_iter()
            .map(|(rev, _, deleted)| {
                let path = RevPath::new(rev.number(), full(rev)).expect("a path");
                (path, Text(deleted, rev.hash()[0]))
            })
            .collect();
        let count = paths.len();
        let cut = |(mut path, leaf): (RevPath, Text), keep: usize| {
            path.truncate(keep);
            (path, leaf)
        };
        (subsequence(paths, 1..=count).prop_shuffle(), proptest::collection::vec(1usize..6, count)).prop_map(
            move |(paths, keep)| paths.into_iter().zip(keep).map(|(path, keep)| cut(path, keep)).collect(),
        )
    })
}

/// The expected tree: the parent of each revision, and the last content merged for it.
fn model(merges: &[(RevPath, Text)]) -> (BTreeMap<Rev, Option<Rev>>, BTreeMap<Rev, Text>) {
    let (mut parents, mut texts) = (BTreeMap::new(), BTreeMap::new());
    for (path, text) in merges {
        texts.insert(path.newest(), *text);
        for rev in path.revs() {
            parents.entry(rev).or_insert(None);
        }
        for (rev, parent) in path.revs().zip(path.revs().skip(1)) {
            parents.insert(rev, Some(parent));
        }
    }
    (parents, texts)
}

fn merged(merges: &[(RevPath, Text)]) -> RevTree<Text> {
    let mut tree = RevTree::default();
    merges.iter().for_each(|(path, text)| {
        tree.merge(path, *text);
    });
    tree
}

proptest! {
    #[test]
    fn a_tree_is_the_union_of_its_paths(merges in merges(), limit in 1u32..6) {
        let (parents, texts) = model(&merges);
        let mut tree = merged(&merges);
        let inner: BTreeSet<Rev> = parents.values().flatten().copied().collect();
        let mut expected: Vec<(Rev, Text)> =
            parents.keys().filter(|rev| !inner.contains(rev)).map(|rev| (*rev, texts[rev])).collect();
        expected.sort_by_key(|(rev, text)| std::cmp::Reverse((!text.0, *rev)));
        let leaves: Vec<(Rev, Text)> = tree.leaves().map(|(rev, text)| (rev, *text)).collect();
        prop_assert_eq!(&leaves, &expected);
        for rev in parents.keys() {
            let path: Vec<Rev> = std::iter::successors(Some(*rev), |rev| parents[rev]).collect();
            let known = tree.path_of(*rev).expect("known");
            prop_assert_eq!(known.revs().collect::<Vec<_>>(), path);
        }

        let whole = tree.clone();
        tree.stem(limit);
        prop_assert_eq!(leaves.len(), tree.leaves().len());
        for (rev, _) in leaves {
            let mut path = whole.path_of(rev).expect("a leaf");
            path.truncate(limit as usize);
            let kept = tree.path_of(rev).expect("a leaf");
            // A leaf may keep more ancestors if they are on the path of another leaf.
            let revs: Vec<Rev> = kept.revs().take(limit as usize).collect();
            prop_assert_eq!(revs, path.revs().collect::<Vec<_>>());
        }
    }

    #[test]
    fn order_and_repetition_change_nothing(merges in merges(), turn: Index) {
        let tree = merged(&merges);
        let mut turned = merges.clone();
        turned.rotate_left(turn.index(merges.len()));
        turned.reverse();
        prop_assert_eq!(&merged(&turned), &tree);
        let mut again = tree.clone();
        for (path, text) in &merges {
            prop_assert_eq!(again.merge(path, *text), Merged::Known);
        }
        prop_assert_eq!(&again, &tree);

        let mut bytes = Vec::new();
        tree.encode(&mut bytes);
        let mut input = Input::new(&bytes);
        prop_assert_eq!(RevTree::decode(&mut input), Some(tree));
        prop_assert!(input.is_empty());
        for end in 0..bytes.len() {
            prop_assert_eq!(RevTree::<Text>::decode(&mut Input::new(&bytes[..end])), None);
        }
    }

    #[test]
    fn purged_leaves_take_their_unshared_ancestors(merges in merges(), index: Index) {
        let whole = merged(&merges);
        let purged = index.get(&whole.leaves().map(|(rev, _)| rev).collect::<Vec<_>>()).to_owned();
        let mut tree = whole.clone();
        prop_assert_eq!(tree.purge(&[purged]), [purged]);
        let others: BTreeSet<Rev> = whole.leaves().map(|(rev, _)| rev).filter(|rev| *rev != purged)
            .flat_map(|rev| whole.path_of(rev).expect("a leaf").revs().collect::<Vec<_>>()).collect();
        for (rev, _) in model(&merges).0 {
            prop_assert_eq!(tree.contains(rev), others.contains(&rev));
        }
    }
}
