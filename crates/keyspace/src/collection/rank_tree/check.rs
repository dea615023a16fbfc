//! The invariants of a rank tree, checked node by node.

use super::node::{Inner, LEN_MIN, Leaf, Node};
use super::{Item, Member, RankTree};

/// The properties of a subtree.
struct Subtree<M> {
    depth: usize,
    count: usize,
    bytes: usize,
    first: Option<Item<M>>,
}

impl<M: Member> RankTree<M> {
    /// Checks those invariants of the module documentation that one state of the tree can show: order,
    /// depths, first items, counts and fill.
    ///
    /// # Panics
    /// If one of these invariants does not hold.
    pub(crate) fn check(&self) {
        let found = check_node(&self.root, true);
        assert_eq!((found.count, found.bytes), (self.len, self.bytes));
        if let Node::Inner(inner) = &self.root {
            assert!(inner.children.len() >= 2, "a root with one child");
        }
        let items: Vec<_> = self.range(0..self.len).collect();
        assert_eq!(items.len(), self.len);
        for pair in items.windows(2) {
            let (score, member) = pair[1];
            let before = Item { score: pair[0].0, member: *pair[0].1 };
            assert!(before.cmp(score, member.bytes()).is_lt(), "out of order");
        }
    }
}

/// Checks a node and all nodes below. `is_last` is true for the root and for the last node of each depth.
fn check_node<M: Member>(node: &Node<M>, is_last: bool) -> Subtree<M> {
    assert!(is_last || len(node) >= LEN_MIN, "a node less than half full");
    let inner = match node {
        Node::Leaf(leaf) => {
            let bytes = size_of::<Leaf<M>>();
            return Subtree { depth: 0, count: leaf.len(), bytes, first: leaf.first().copied() };
        }
        Node::Inner(inner) => inner,
    };
    assert!(!inner.children.is_empty(), "an inner node without children");
    assert_eq!(inner.children.len(), inner.firsts.len());
    assert_eq!(inner.children.len(), inner.counts.len());
    let last = inner.children.len() - 1;
    let found: Vec<_> = inner
        .children
        .iter()
        .enumerate()
        .map(|(index, child)| check_node(child, is_last && index == last))
        .collect();
    for (index, child) in found.iter().enumerate() {
        assert_eq!(child.depth, found[0].depth, "leaves of different depth");
        assert_eq!(child.count, inner.counts[index], "a wrong count");
        let (first, known) = (child.first.expect("an empty child"), inner.firsts[index]);
        assert_eq!(first.score.to_bits(), known.score.to_bits(), "a wrong first item");
        assert_eq!(first.member.bytes(), known.member.bytes(), "a wrong first item");
    }
    Subtree {
        depth: found[0].depth + 1,
        count: found.iter().map(|child| child.count).sum(),
        bytes: size_of::<Inner<M>>() + found.iter().map(|child| child.bytes).sum::<usize>(),
        first: found[0].first,
    }
}

fn len<M>(node: &Node<M>) -> usize {
    match node {
        Node::Leaf(leaf) => leaf.len(),
        Node::Inner(inner) => inner.children.len(),
    }
}
