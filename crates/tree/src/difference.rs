//! `Difference`: the entries in which two states of one file differ.
//!
//! A subtree that both states share is skipped by its pointer, except for some neighbours of changed
//! subtrees. So the work is in proportion to the nodes that were written between the two states, not to the
//! size of the tree.
//!
//! Invariants
//! - Each side is a stack of the parts that are still to be compared, the first part at the end: subtrees,
//!   and at most one leaf that is begun. So a side takes as much memory as a path from the root to a leaf.

use std::{cmp::Ordering, sync::Arc};

use crate::{
    Pointer, TreeError, TreeId, TreeSnapshot,
    node::{Key, Node},
    reader::Leaves,
};

/// A key with its new value; `None` if the new state does not have the key.
pub type Changed = (Vec<u8>, Option<Vec<u8>>);

/// Iterator over the keys whose values in the old and the new state differ, in ascending order, each with its
/// value in the new state. The iterator ends after an error.
pub struct Difference {
    tree: TreeId,
    old: Side,
    new: Side,
}

/// The rest of one state, still to be compared.
struct Side {
    snapshot: TreeSnapshot,
    rest: Vec<Part>,
    #[cfg(test)]
    nodes_read: usize,
}

enum Part {
    Subtree {
        level: u8,
        pointer: Pointer,
    },
    /// The entries of a leaf from `next` on.
    Leaf {
        leaf: Arc<Node>,
        next: usize,
    },
}

/// The side whose first subtree is opened.
enum Turn {
    Old,
    New,
}

impl Side {
    fn new(snapshot: TreeSnapshot, tree: TreeId) -> Side {
        let root = snapshot.root(tree).map(|root| (root.level, root.child.pointer));
        let rest = root.into_iter().map(|(level, pointer)| Part::Subtree { level, pointer }).collect();
        Side {
            snapshot,
            rest,
            #[cfg(test)]
            nodes_read: 0,
        }
    }

    /// The entry that comes first, if it is known without reading.
    fn entry(&self) -> Option<(Key<'_>, &[u8])> {
        match self.rest.last()? {
            Part::Leaf { leaf, next } => Some((leaf.key(*next), leaf.value(*next))),
            Part::Subtree { .. } => None,
        }
    }

    /// The part that comes first, if it is a subtree.
    fn subtree(&self) -> Option<(u8, Pointer)> {
        match *self.rest.last()? {
            Part::Subtree { level, pointer } => Some((level, pointer)),
            Part::Leaf { .. } => None,
        }
    }

    /// Removes the first entry from the rest.
    fn pass(&mut self) {
        if let Some(Part::Leaf { leaf, next }) = self.rest.last_mut() {
            *next += 1;
            if *next == leaf.len() {
                self.rest.pop();
            }
        }
    }

    /// Replaces the first subtree by its parts: the children of its node, or the entries of its leaf.
    fn open(&mut self, tree: TreeId) -> Result<(), TreeError> {
        let Some((level, pointer)) = self.subtree() else { return Ok(()) };
        let node = self.snapshot.reader.node(tree, level, &pointer, Leaves::Passing)?;
        #[cfg(test)]
        {
            self.nodes_read += 1;
        }
        self.rest.pop();
        match level.checked_sub(1) {
            None => self.rest.push(Part::Leaf { leaf: node, next: 0 }),
            Some(level) => self.rest.extend((0..node.len()).rev().map(|child| {
                let pointer = node.child_pointer(child);
                Part::Subtree { level, pointer }
            })),
        }
        Ok(())
    }
}

impl Difference {
    pub(crate) fn new(old: TreeSnapshot, new: TreeSnapshot, tree: TreeId) -> Difference {
        assert_eq!(old.file_id(), new.file_id(), "two states of one file");
        Difference { tree, old: Side::new(old, tree), new: Side::new(new, tree) }
    }

    #[cfg(test)]
    pub(crate) fn nodes_read(&self) -> usize {
        self.old.nodes_read + self.new.nodes_read
    }

    fn next_change(&mut self) -> Result<Option<Changed>, TreeError> {
        loop {
            match (self.old.subtree(), self.new.subtree()) {
                (Some(old), Some(new)) if old == new => {
                    self.old.rest.pop();
                    self.new.rest.pop();
                    continue;
                }
                (None, None) => {}
                (old, new) => {
                    match turn(old, new) {
                        Turn::Old => self.old.open(self.tree)?,
                        Turn::New => self.new.open(self.tree)?,
                    }
                    continue;
                }
            }
            let order = match (self.old.entry(), self.new.entry()) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.bytes().cmp(new.bytes()),
            };
            let is_same = order == Ordering::Equal
                && self.old.entry().map(|(_, value)| value) == self.new.entry().map(|(_, value)| value);
            let changed = match order {
                Ordering::Less => self.old.entry().map(|(key, _)| (key.to_vec(), None)),
                _ => self.new.entry().map(|(key, value)| (key.to_vec(), Some(value.to_vec()))),
            };
            if order.is_le() {
                self.old.pass();
            }
            if order.is_ge() {
                self.new.pass();
            }
            if !is_same {
                return Ok(changed);
            }
        }
    }
}

/// The side to open: the only one with a subtree, or the one whose subtree has the higher level. At equal
/// levels, the subtree with the higher offset is opened, because it is the newer one. The older subtree may
/// still come later on the side that is opened, and is then skipped on both sides.
fn turn(old: Option<(u8, Pointer)>, new: Option<(u8, Pointer)>) -> Turn {
    let rank = |(level, pointer): (u8, Pointer)| (level, pointer.offset());
    if old.map(rank) > new.map(rank) { Turn::Old } else { Turn::New }
}

impl Iterator for Difference {
    type Item = Result<Changed, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_change();
        if next.is_err() {
            self.old.rest.clear();
            self.new.rest.clear();
        }
        next.transpose()
    }
}
