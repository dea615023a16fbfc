//! `Range`: iterates over neighbouring entries, in either direction.
//!
//! A range holds the path to one leaf, so its memory does not depend on the number of entries. Concurrent
//! writes do not affect it, because it reads a snapshot.

use std::{ops::Bound, sync::Arc};

use crate::{
    TreeError, TreeId, TreeSnapshot,
    node::Node,
    reader::Leaves,
    snapshot::{begin_of, end_of, key_of},
};

/// A key and its value, borrowed from a [`Range`] until its next step.
pub type EntryRef<'a> = (&'a [u8], &'a [u8]);

/// The direction of a [`Range`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the smallest key to the largest.
    Forward,
    /// From the largest key to the smallest.
    Backward,
}

/// Iterator over the entries between two keys. The iterator ends after an error.
pub struct Range {
    snapshot: TreeSnapshot,
    tree: TreeId,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    state: State,
    /// The inner nodes from the root to the leaf, each with the index of the child on the path.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<Arc<Node>>,
    /// The indices of the leaf's entries that are not returned yet: from `begin` up to, but not including,
    /// `end`.
    begin: usize,
    end: usize,
    key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unstarted,
    Walking,
    Ended,
}

impl Range {
    pub(crate) fn new(
        snapshot: TreeSnapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Range {
        Range {
            snapshot,
            tree,
            from: from.map(<[u8]>::to_vec),
            to: to.map(<[u8]>::to_vec),
            direction,
            state: State::Unstarted,
            path: Vec::new(),
            leaf: None,
            begin: 0,
            end: 0,
            key: Vec::new(),
        }
    }

    /// The next key and value, borrowed. (The iterator copies both.)
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn next_entry(&mut self) -> Result<Option<EntryRef<'_>>, TreeError> {
        if self.state != State::Ended
            && let Err(error) = self.find_entry()
        {
            self.end_walk();
            return Err(error);
        }
        let Some(leaf) = &self.leaf else { return Ok(None) };
        let index = match self.direction {
            Direction::Forward => {
                self.begin += 1;
                self.begin - 1
            }
            Direction::Backward => {
                self.end -= 1;
                self.end
            }
        };
        leaf.key(index).copy_into(&mut self.key);
        Ok(Some((&self.key, leaf.value(index))))
    }

    /// Advances to the next leaf with remaining entries, or to the end.
    fn find_entry(&mut self) -> Result<(), TreeError> {
        if self.state == State::Unstarted {
            self.state = State::Walking;
            if let Some(root) = self.snapshot.root(self.tree).copied() {
                let edge = match self.direction {
                    Direction::Forward => self.from.clone(),
                    Direction::Backward => self.to.clone(),
                };
                self.descend(root.level, &root.child.pointer, key_of(edge.as_ref().map(Vec::as_slice)))?;
            }
        }
        while self.begin >= self.end && self.leaf.is_some() {
            self.next_leaf()?;
        }
        if self.leaf.is_none() {
            self.state = State::Ended;
        }
        Ok(())
    }

    /// Advances to the neighbour of the current leaf, unless the range ends in the leaf.
    fn next_leaf(&mut self) -> Result<(), TreeError> {
        let leaf = self.leaf.take();
        let ends_here = match (self.direction, &leaf) {
            (_, None) => true,
            (Direction::Forward, Some(leaf)) => {
                end_of(leaf, self.to.as_ref().map(Vec::as_slice)) < leaf.len()
            }
            (Direction::Backward, Some(leaf)) => begin_of(leaf, self.from.as_ref().map(Vec::as_slice)) > 0,
        };
        while !ends_here && let Some((node, child)) = self.path.pop() {
            let next = match self.direction {
                Direction::Forward => (child + 1 < node.len()).then_some(child + 1),
                Direction::Backward => child.checked_sub(1),
            };
            if let Some(next) = next {
                let (level, pointer) = (node.level() - 1, node.child_pointer(next));
                self.path.push((node, next));
                return self.descend(level, &pointer, None);
            }
        }
        Ok(())
    }

    /// Descends to the only leaf in which `edge` can be; without an edge, to the first leaf in the direction
    /// of the walk.
    fn descend(&mut self, level: u8, pointer: &crate::Pointer, edge: Option<&[u8]>) -> Result<(), TreeError> {
        let mut pointer = *pointer;
        for level in (1..=level).rev() {
            let node = self.snapshot.reader.node(self.tree, level, &pointer, Leaves::Passing)?;
            let child = match (edge, self.direction) {
                (Some(key), _) => node.child_for(key),
                (None, Direction::Forward) => 0,
                (None, Direction::Backward) => node.len() - 1,
            };
            pointer = node.child_pointer(child);
            self.path.push((node, child));
        }
        let leaf = self.snapshot.reader.node(self.tree, 0, &pointer, Leaves::Passing)?;
        self.begin = begin_of(&leaf, self.from.as_ref().map(Vec::as_slice));
        self.end = end_of(&leaf, self.to.as_ref().map(Vec::as_slice));
        self.leaf = Some(leaf);
        Ok(())
    }

    fn end_walk(&mut self) {
        self.state = State::Ended;
        self.leaf = None;
        self.path.clear();
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Vec<u8>), TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}
