//! Rank trees: the order of one big sorted set.
//!
//! What it is: a B+tree of (score, member), ordered by score and then by the bytes of the member, in which
//! every inner node knows how many items lie below each child. So one walk from the root to a leaf finds the
//! rank of an item, or the item of a rank. Most items with neighbouring ranks lie side by side in memory.
//! What it is not: a set. Members are small copies (in production: addresses of entries); the tree neither
//! owns nor frees them and does not find an item by its member alone. The owner of the tree keeps the members
//! alive and unchanged, looks up their scores, and inserts an item only if it is absent.
//!
//! A search takes a score and a member and returns a rank; nodes are changed by rank. A search compares all
//! scores of a node, without a branch: the processor then loads the cache lines of the node together, while
//! the steps of a binary search wait for one another. The search reads the bytes of a member, which is a
//! cache miss, only where scores are equal.
//!
//! Invariants
//! - Items are strictly ascending. Scores are never NaN; 0.0 and -0.0 are equal.
//! - All leaves have the same depth; only the root may be an empty leaf, and an inner root has two children
//!   or more.
//! - An inner node knows exactly the first item below each child and the number of items there.
//! - Every node has at least `LEN_MIN` items or children, except the root and the last node of each depth.
//! - An insertion or a removal changes at most three nodes per level. Nodes are allocated and freed one by
//!   one.
//!
//! # Measured
//! The table shows processor time with random scores, the best of two or three runs on a busy machine. It
//! compares a `LEN_MAX` of 63 with half and twice as many.
//!
//! | `LEN_MAX` | items | bytes an item | insert | rank | remove and insert | range of 10 |
//! |-----------|-------|---------------|--------|------|-------------------|-------------|
//! | 31 | 1 M | 21.6 | 453 ns | 383 ns | 783 ns | 250 ns |
//! | 63 | 1 M | 20.3 | 342 ns | 292 ns | 702 ns | 185 ns |
//! | 127 | 1 M | 19.8 | 301 ns | 301 ns | 746 ns | 182 ns |
//! | 31 | 10 M | 21.6 | 799 ns | 653 ns | 1191 ns | 539 ns |
//! | 63 | 10 M | 20.4 | 664 ns | 526 ns | 1121 ns | 380 ns |
//! | 127 | 10 M | 19.8 | 693 ns | 602 ns | 1113 ns | 353 ns |
//!
//! In these runs, `ROOM_MIN` was an eighth of `LEN_MAX`. With binary search and a `LEN_MAX` of 63, an insert
//! took 459 ns (1 M items) and 989 ns (10 M), a rank 438 ns and 748 ns. Separate arrays for scores and
//! members gained nothing. Ascending inserts take 40 ns, and an item then takes 17.1 bytes; after nine of ten
//! items were removed at random, each remaining item takes 26 bytes.

mod node;
mod range;

use std::cmp::Ordering;
use std::ops;

use node::{Inner, Leaf, Node};
pub(crate) use range::Range;

/// The handle of a member: cheap to copy, with bytes behind it that do not change while it is in a tree.
pub(crate) trait Member: Copy {
    /// The name of the member, by which items of equal score are ordered.
    fn bytes(&self) -> &[u8];
}

/// The item of a leaf.
#[derive(Clone, Copy)]
struct Item<M> {
    score: f64,
    member: M,
}

impl<M: Member> Item<M> {
    #[inline]
    fn cmp(&self, score: f64, bytes: &[u8]) -> Ordering {
        // Not `total_cmp`: 0.0 and -0.0 are one score.
        if self.score < score {
            Ordering::Less
        } else if self.score > score {
            Ordering::Greater
        } else {
            self.member.bytes().cmp(bytes)
        }
    }
}

/// The number of items that do not come after this score and these bytes.
#[inline]
fn count_not_after<M: Member>(items: &[Item<M>], score: f64, bytes: &[u8]) -> usize {
    let below = items.iter().filter(|item| item.score < score).count();
    match items.get(below) {
        Some(item) if item.score == score => {
            below + items[below..].partition_point(|item| item.cmp(score, bytes).is_le())
        }
        _ => below,
    }
}

/// The order of one sorted set: its items by score, then by member.
pub(crate) struct RankTree<M> {
    root: Node<M>,
    len: usize,
    /// Memory of all nodes.
    bytes: usize,
}

impl<M: Member> RankTree<M> {
    /// An empty tree. It has one leaf already.
    pub(crate) fn new() -> Self {
        RankTree { root: Node::Leaf(Box::default()), len: 0, bytes: size_of::<Leaf<M>>() }
    }

    /// A tree of these items, which are in ascending order. Each node has room for exactly one more item or
    /// child; the last node of each depth may have more room.
    pub(crate) fn from_sorted(items: impl Iterator<Item = (f64, M)>) -> Self {
        let mut tree = RankTree::new();
        for (score, member) in items {
            debug_assert!(tree.last().is_none_or(|last| last.cmp(score, member.bytes()).is_lt()));
            tree.insert_at(tree.len, Item { score, member });
        }
        tree
    }

    /// The number of items.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that the nodes occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an item, which must be absent, and returns its rank.
    ///
    /// # Panics
    /// If the score is NaN, for which there is no place in the order.
    pub(crate) fn insert(&mut self, score: f64, member: M) -> usize {
        assert!(!score.is_nan(), "a score is NaN");
        let bytes = member.bytes();
        let rank = if self.last().is_none_or(|last| last.cmp(score, bytes).is_lt()) {
            self.len
        } else {
            let (rank, leaf, index) = self.seek(|items| count_not_after(items, score, bytes));
            debug_assert!(index == 0 || leaf[index - 1].cmp(score, bytes).is_ne(), "the item was there");
            rank
        };
        self.insert_at(rank, Item { score, member });
        rank
    }

    /// Removes the item with this score and these bytes, and returns its member.
    pub(crate) fn remove(&mut self, score: f64, bytes: &[u8]) -> Option<M> {
        let rank = self.rank(score, bytes)?;
        self.remove_at(rank).map(|(_, member)| member)
    }

    /// Removes the item with this rank.
    pub(crate) fn remove_at(&mut self, rank: usize) -> Option<(f64, M)> {
        if rank >= self.len {
            return None;
        }
        let item = self.root.remove(rank, &mut self.bytes);
        self.len -= 1;
        while let Some(only) = self.root.take_only_child() {
            self.root = only;
            self.bytes -= size_of::<Inner<M>>();
        }
        Some((item.score, item.member))
    }

    #[cfg(test)]
    pub(crate) fn pop_first(&mut self) -> Option<(f64, M)> {
        self.remove_at(0)
    }

    #[cfg(test)]
    pub(crate) fn pop_last(&mut self) -> Option<(f64, M)> {
        self.remove_at(self.len.checked_sub(1)?)
    }

    /// How many items are before the item with this score and these bytes; `None` if it is absent.
    pub(crate) fn rank(&self, score: f64, bytes: &[u8]) -> Option<usize> {
        // If the item is present, it is the last item that is not greater than the wanted one, and it is in
        // the leaf in which the search ends.
        let (rank, leaf, index) = self.seek(|items| count_not_after(items, score, bytes));
        let candidate = &leaf[index.checked_sub(1)?];
        candidate.cmp(score, bytes).is_eq().then(|| rank - 1)
    }

    /// Returns the number of leading items that satisfy `pred`. `pred` must be true for all items up to some
    /// rank and false for all others.
    #[inline]
    pub(crate) fn partition_point(&self, pred: impl Fn(f64, M) -> bool) -> usize {
        self.seek(|items| items.partition_point(|item| pred(item.score, item.member))).0
    }

    /// Does the same as `partition_point`, for a predicate on the score alone, which it applies to all items
    /// of a node.
    #[inline]
    pub(crate) fn partition_by_score(&self, pred: impl Fn(f64) -> bool) -> usize {
        self.seek(|items| items.iter().filter(|item| pred(item.score)).count()).0
    }

    /// The item with this rank.
    #[cfg(test)]
    pub(crate) fn get(&self, rank: usize) -> Option<(f64, M)> {
        let (leaf, index) = (rank < self.len).then(|| self.leaf_of(rank))?;
        Some((leaf[index].score, leaf[index].member))
    }

    /// The items with these ranks, from either end. Ranks past the last item are ignored.
    pub(crate) fn range(&self, ranks: ops::Range<usize>) -> Range<'_, M> {
        Range::new(self, ranks)
    }

    /// Finds how many items at the start of the tree satisfy a condition that no later item satisfies.
    /// `count` returns how many items of an ascending slice satisfy the condition. Returns the number for the
    /// whole tree, and the leaf and the index in the leaf at which these items end. The index is 0 only if no
    /// item satisfies the condition.
    #[inline]
    fn seek(&self, count: impl Fn(&[Item<M>]) -> usize) -> (usize, &[Item<M>], usize) {
        let (mut node, mut start) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let index = count(leaf);
                    return (start + index, leaf, index);
                }
                Node::Inner(inner) => {
                    let index = count(&inner.firsts).saturating_sub(1);
                    start += inner.counts[..index].iter().sum::<usize>();
                    node = &inner.children[index];
                }
            }
        }
    }

    /// The leaf with the item of this rank (below `len`), and the index of the item in it.
    fn leaf_of(&self, mut rank: usize) -> (&[Item<M>], usize) {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return (leaf, rank),
                Node::Inner(inner) => {
                    let (index, start) = inner.child_of(rank);
                    node = &inner.children[index];
                    rank -= start;
                }
            }
        }
    }

    fn last(&self) -> Option<&Item<M>> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.last(),
                Node::Inner(inner) => node = inner.children.last()?,
            }
        }
    }

    /// Inserts an item that belongs at this rank, in one walk from the root: a full node is split, or moves
    /// items to a neighbour, before it is entered.
    fn insert_at(&mut self, mut rank: usize, item: Item<M>) {
        let appends = rank == self.len;
        if self.root.is_full() {
            self.root.raise(&mut self.bytes);
        }
        self.len += 1;
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.insert(rank, item),
                Node::Inner(inner) => {
                    let (index, start) = inner.open(rank, appends, &mut self.bytes);
                    if rank == 0 {
                        inner.firsts[0] = item;
                    }
                    inner.counts[index] += 1;
                    rank -= start;
                    node = &mut inner.children[index];
                }
            }
        }
    }
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
