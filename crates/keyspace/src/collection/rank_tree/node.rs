//! Nodes of a rank tree: how items and children are kept in nodes of limited length.
//!
//! What it is: inserting and removing one item below a node, and the ways to keep nodes filled meanwhile:
//! sharing with a neighbour, splits, merges. All three are one operation, which moves the border between two
//! neighbours. What it is not: an order. Nodes never compare scores.

use std::mem;

use arrayvec::ArrayVec;

use super::Item;

/// The maximum number of items of a leaf, and of children of an inner node. With this maximum, a leaf of
/// 16-byte items takes 1016 bytes and an inner node 2544, just below the allocator's classes of 1024 and 2560
/// bytes.
pub(super) const LEN_MAX: usize = 63;

/// The minimum length of a node, except of the root and of the last node of each depth. A node that a removal
/// leaves shorter merges with a neighbour, or gets items or children from a neighbour.
pub(super) const LEN_MIN: usize = LEN_MAX / 2;

/// The minimum room of a neighbour, in items, for a full node to move items to it. If no neighbour has this
/// room, the node is split. The number must be at least 2, so that both nodes have room afterwards. After a
/// million inserts in random order, an item takes 19.9 bytes; with an eighth of `LEN_MAX` as this minimum, it
/// takes about half a byte more, in the same time.
const ROOM_MIN: usize = LEN_MAX / 16;

pub(super) type Leaf<M> = ArrayVec<Item<M>, LEN_MAX>;

pub(super) enum Node<M> {
    Leaf(Box<Leaf<M>>),
    Inner(Box<Inner<M>>),
}

/// Children, with the number of items below each and the first of these items.
pub(super) struct Inner<M> {
    pub(super) firsts: ArrayVec<Item<M>, LEN_MAX>,
    pub(super) counts: ArrayVec<usize, LEN_MAX>,
    pub(super) children: ArrayVec<Node<M>, LEN_MAX>,
}

impl<M: Copy> Node<M> {
    pub(super) fn is_full(&self) -> bool {
        self.len() == LEN_MAX
    }

    /// Takes the item with this rank out. The node may be empty afterwards.
    pub(super) fn remove(&mut self, rank: usize, bytes: &mut usize) -> Item<M> {
        match self {
            Node::Leaf(leaf) => leaf.remove(rank),
            Node::Inner(inner) => inner.remove(rank, bytes),
        }
    }

    /// Puts an inner node above this one.
    pub(super) fn raise(&mut self, bytes: &mut usize) {
        let below = mem::replace(self, Node::Inner(Box::new(Inner::empty())));
        *bytes += self.size_bytes();
        if let Node::Inner(inner) = self {
            inner.insert_child(0, below);
        }
    }

    /// Takes the child of an inner node out, if the node has exactly one child.
    pub(super) fn take_only_child(&mut self) -> Option<Node<M>> {
        match self {
            Node::Inner(inner) if inner.children.len() == 1 => inner.children.pop(),
            _ => None,
        }
    }

    /// The number of items of a leaf, or of children of an inner node.
    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    /// The number of items in the subtree of this node.
    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.counts.iter().sum(),
        }
    }

    /// The first item in the subtree of this node, which must not be empty.
    fn first(&self) -> Item<M> {
        match self {
            Node::Leaf(leaf) => leaf[0],
            Node::Inner(inner) => inner.firsts[0],
        }
    }

    /// Moves the border between this node and its right neighbour so that this node has `len` items or
    /// children.
    fn move_border(&mut self, right: &mut Self, len: usize) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => move_border(left, right, len),
            (Node::Inner(left), Node::Inner(right)) => {
                move_border(&mut left.firsts, &mut right.firsts, len);
                move_border(&mut left.counts, &mut right.counts, len);
                move_border(&mut left.children, &mut right.children, len);
            }
            _ => unreachable!("neighbours have one depth"),
        }
    }

    /// An empty node of the same kind.
    fn empty_alike(&self) -> Self {
        match self {
            Node::Leaf(_) => Node::Leaf(Box::default()),
            Node::Inner(_) => Node::Inner(Box::new(Inner::empty())),
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Node::Leaf(_) => size_of::<Leaf<M>>(),
            Node::Inner(_) => size_of::<Inner<M>>(),
        }
    }
}

impl<M: Copy> Inner<M> {
    fn empty() -> Self {
        Inner { firsts: ArrayVec::new(), counts: ArrayVec::new(), children: ArrayVec::new() }
    }

    /// The index of the child with the item of this rank, and the rank of the child's first item.
    pub(super) fn child_of(&self, rank: usize) -> (usize, usize) {
        let mut start = 0;
        for (index, count) in self.counts.iter().enumerate() {
            if rank < start + count {
                return (index, start);
            }
            start += count;
        }
        unreachable!("rank {rank} of {start}")
    }

    /// Makes room in the child into which an item of this rank goes. Returns the index of the child, and the
    /// rank of the child's first item. This node must not be full, because it may get another child. An item
    /// that belongs between two children goes to the end of the left child.
    pub(super) fn open(&mut self, rank: usize, appends: bool, bytes: &mut usize) -> (usize, usize) {
        let (index, start) = self.child_of(rank.saturating_sub(1));
        if !self.children[index].is_full() {
            return (index, start);
        }
        self.make_room(index, appends, bytes);
        self.child_of(rank.saturating_sub(1))
    }

    /// Makes room in a full child. If the new item comes after all others, only one item or child moves to a
    /// new node: when items come in ascending order, the nodes left behind stay nearly full.
    fn make_room(&mut self, index: usize, appends: bool, bytes: &mut usize) {
        let has_room = |child: &Node<M>| child.len() <= LEN_MAX - ROOM_MIN;
        let next = index + 1;
        if appends {
            self.split(index, LEN_MAX - 1, bytes);
        } else if self.children.get(next).is_some_and(has_room) {
            self.balance(index);
        } else if index > 0 && has_room(&self.children[index - 1]) {
            self.balance(index - 1);
        } else {
            self.split(index, LEN_MAX / 2, bytes);
        }
    }

    /// Splits a child, in which `left_len` items or children stay.
    fn split(&mut self, index: usize, left_len: usize, bytes: &mut usize) {
        let left = &mut self.children[index];
        let mut right = left.empty_alike();
        left.move_border(&mut right, left_len);
        *bytes += right.size_bytes();
        self.counts[index] = left.count();
        self.insert_child(index + 1, right);
    }

    /// Shares items or children evenly between a child and its right neighbour.
    fn balance(&mut self, index: usize) {
        let [left, right] = &mut self.children[index..index + 2] else { unreachable!("two children") };
        left.move_border(right, left.len().midpoint(right.len()));
        self.counts[index] = left.count();
        self.counts[index + 1] = right.count();
        self.firsts[index + 1] = right.first();
    }

    fn insert_child(&mut self, index: usize, child: Node<M>) {
        self.firsts.insert(index, child.first());
        self.counts.insert(index, child.count());
        self.children.insert(index, child);
    }

    fn remove(&mut self, rank: usize, bytes: &mut usize) -> Item<M> {
        let (index, start) = self.child_of(rank);
        let child = &mut self.children[index];
        let item = child.remove(rank - start, bytes);
        self.counts[index] -= 1;
        if rank == start && self.counts[index] > 0 {
            self.firsts[index] = child.first();
        }
        if child.len() < LEN_MIN {
            self.refill(index, bytes);
        }
        item
    }

    /// Merges a short child with a neighbour if both fit in one node; otherwise shares items or children
    /// evenly with a neighbour. An only child stays short, and is removed when it is empty.
    fn refill(&mut self, index: usize, bytes: &mut usize) {
        let fit = |left: usize| self.child_len(left) + self.child_len(left + 1) <= LEN_MAX;
        let (has_left, has_right) = (index > 0, index + 1 < self.children.len());
        if has_right && fit(index) {
            self.merge(index, bytes);
        } else if has_left && fit(index - 1) {
            self.merge(index - 1, bytes);
        } else if has_right {
            self.balance(index);
        } else if has_left {
            self.balance(index - 1);
        } else if self.counts[index] == 0 {
            self.remove_child(index, bytes);
        }
    }

    /// Moves the content of a child's right neighbour into the child.
    fn merge(&mut self, index: usize, bytes: &mut usize) {
        let [left, right] = &mut self.children[index..index + 2] else { unreachable!("two children") };
        left.move_border(right, left.len() + right.len());
        self.counts[index] += self.counts[index + 1];
        self.firsts[index] = left.first();
        self.remove_child(index + 1, bytes);
    }

    fn remove_child(&mut self, index: usize, bytes: &mut usize) {
        self.firsts.remove(index);
        self.counts.remove(index);
        *bytes -= self.children.remove(index).size_bytes();
    }

    /// Does the same as `len` of the child. The memory of a leaf is not read: `counts` has its length.
    fn child_len(&self, index: usize) -> usize {
        match &self.children[index] {
            Node::Leaf(_) => self.counts[index],
            Node::Inner(inner) => inner.children.len(),
        }
    }
}

/// Moves the border between two neighbours so that `left` has `left_len` elements.
fn move_border<T>(left: &mut ArrayVec<T, LEN_MAX>, right: &mut ArrayVec<T, LEN_MAX>, left_len: usize) {
    if let Some(moved) = left_len.checked_sub(left.len()) {
        left.extend(right.drain(..moved));
    } else {
        let moved = left.len() - left_len;
        right.extend(left.drain(left_len..));
        right.rotate_right(moved);
    }
}
