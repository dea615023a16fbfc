//! Changing a tree by a sorted batch: one walk from the root that writes every changed node once.
//!
//! On the way down, the operations are split over the children of each node. On the way up, nodes that have
//! become too large are split, nodes that have become too small are joined with a neighbour, and finished
//! nodes are appended to the file. Existing nodes are never changed: where nothing changed, the new tree
//! refers to the old nodes.
//!
//! Invariants
//! - A node is appended before the node that points to it, so that pointers lead backwards.
//! - A node without an effective change is not written, unless a small neighbour is joined with it. Lookups,
//!   removals of missing keys and inserts of the value that is already stored are no effective changes.
//! - The lower bound of the keys below a node comes from its parent (`low`), not from its own first key.

use std::sync::Arc;

use crate::{
    Options, Pointer, TreeError, TreeId,
    appender::Appender,
    encode::{Entry, NewNode, Packing, Shape},
    header::Root,
    node::{Key, Node},
    pointer::Child,
    reader::{FileReader, Leaves},
};

/// A new node smaller than its target size divided by this is joined with a neighbour that does not exceed
/// the target size, unless more entries are expected at its end.
const SMALL_SHARE: usize = 4;

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The operation on it.
    pub change: Change<'a>,
}

/// An operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Stores this value, replacing the old one.
    Insert(&'a [u8]),
    /// Removes the key, if it exists.
    Remove,
    /// Changes nothing; only reports the value, see
    /// [`Checkpoint::modify_seeing`](crate::Checkpoint::modify_seeing).
    Look,
}

/// A batch while it is applied to a tree.
pub(crate) struct Batch<'a> {
    pub(crate) tree: TreeId,
    pub(crate) reader: &'a FileReader,
    pub(crate) options: &'a Options,
    pub(crate) appender: &'a mut Appender,
    /// Called for each operation with the value that its key had before.
    pub(crate) seen: &'a mut dyn FnMut(&Op<'_>, Option<&[u8]>),
}

/// A child of a node, while the node is rewritten.
enum Slot {
    /// The child with this index in the old node.
    Old(usize),
    New(NewNode),
}

impl Batch<'_> {
    /// Applies `ops`, whose keys must be strictly ascending, and returns the new root of the tree.
    pub(crate) fn apply(&mut self, root: Option<Root>, ops: &[Op<'_>]) -> Result<Option<Root>, TreeError> {
        let (mut level, nodes) = match &root {
            None => (0, self.leaf(None, &[], ops)),
            Some(root) => (root.level, self.below(root.level, &root.child.pointer, &[], ops)?),
        };
        let Some(mut nodes) = nodes else { return Ok(root) };
        while nodes.len() > 1 {
            let packing = packing_behind(nodes.last());
            let children = nodes.iter().map(|node| self.place(level, node)).collect::<Result<Vec<_>, _>>()?;
            let mut entries: Vec<Entry<'_>> = nodes.iter().zip(&children).map(entry_of).collect();
            level += 1;
            nodes = self.shape(level).build(&[], &mut entries, packing);
        }
        let Some(top) = nodes.pop() else { return Ok(None) };
        if level > 0
            && let top = self.parse(top.bytes.clone())
            && top.len() == 1
        {
            return Ok(Some(Root { level: level - 1, child: top.child(0) }));
        }
        let child = Child::decode(&self.place(level, &top)?).expect("just encoded");
        Ok(Some(Root { level, child }))
    }

    /// Applies operations below a node; returns the nodes that replace it, or `None` if it is unchanged.
    fn below(
        &mut self,
        level: u8,
        pointer: &Pointer,
        low: &[u8],
        ops: &[Op<'_>],
    ) -> Result<Option<Vec<NewNode>>, TreeError> {
        let node = self.reader.node(self.tree, level, pointer, Leaves::Passing)?;
        if level == 0 { Ok(self.leaf(Some(&node), low, ops)) } else { self.inner(&node, low, ops) }
    }

    fn leaf(&mut self, node: Option<&Node>, low: &[u8], ops: &[Op<'_>]) -> Option<Vec<NewNode>> {
        let len = node.map_or(0, Node::len);
        let mut entries = Vec::with_capacity(len + ops.len());
        let (mut next, mut changed, mut behind_all) = (0, false, true);
        let keep = |entries: &mut Vec<_>, from: usize, to: usize| {
            entries.extend(node.into_iter().flat_map(|node| (from..to).map(|index| old_entry(node, index))));
        };
        for op in ops {
            let found = node.map_or(Err(0), |node| node.search(op.key));
            let (Ok(index) | Err(index)) = found;
            let value = found.ok().and_then(|index| Some(node?.value(index)));
            (self.seen)(op, value);
            let inserted = match op.change {
                Change::Insert(new) if value != Some(new) => Some(new),
                Change::Remove if value.is_some() => None,
                _ => continue,
            };
            changed = true;
            behind_all &= index == len;
            keep(&mut entries, next, index);
            next = index + usize::from(value.is_some());
            entries.extend(inserted.map(|value| Entry { key: Key::whole(op.key), value }));
        }
        if !changed {
            return None;
        }
        keep(&mut entries, next, len);
        let packing = if behind_all { Packing::Full } else { Packing::Even };
        Some(self.shape(0).build(low, &mut entries, packing))
    }

    fn inner(&mut self, node: &Node, low: &[u8], ops: &[Op<'_>]) -> Result<Option<Vec<NewNode>>, TreeError> {
        let mut slots = Vec::with_capacity(node.len() + 8);
        let (mut next, mut rest) = (0, ops);
        let mut changed_from = None;
        while let Some(first) = rest.first() {
            let child = node.child_for(first.key);
            let count = node.count_below(child, rest, |op| op.key);
            let (here, behind) = rest.split_at(count);
            slots.extend((next..child).map(Slot::Old));
            let child_low = low_of(node, low, child);
            match self.below(node.level() - 1, &node.child_pointer(child), &child_low, here)? {
                None => slots.push(Slot::Old(child)),
                Some(nodes) => {
                    changed_from.get_or_insert(child);
                    slots.extend(nodes.into_iter().map(Slot::New));
                }
            }
            (next, rest) = (child + 1, behind);
        }
        slots.extend((next..node.len()).map(Slot::Old));
        let Some(changed_from) = changed_from else { return Ok(None) };
        self.join_small(node, low, &mut slots)?;
        let packing = match slots.last() {
            Some(Slot::New(last)) if changed_from + 1 == node.len() => packing_behind(Some(last)),
            _ => Packing::Even,
        };
        self.rebuild(node, low, &slots, packing).map(Some)
    }

    /// Appends the new children of an inner node and returns the nodes that replace it.
    fn rebuild(
        &mut self,
        node: &Node,
        low: &[u8],
        slots: &[Slot],
        packing: Packing,
    ) -> Result<Vec<NewNode>, TreeError> {
        let mut children = Vec::with_capacity(slots.len());
        for slot in slots {
            children.push(match slot {
                Slot::Old(_) => Vec::new(),
                Slot::New(new) => self.place(node.level() - 1, new)?,
            });
        }
        let entry = |(slot, child)| match slot {
            &Slot::Old(index) => old_entry(node, index),
            Slot::New(new) => entry_of((new, child)),
        };
        let mut entries: Vec<Entry<'_>> = slots.iter().zip(&children).map(entry).collect();
        Ok(self.shape(node.level()).build(low, &mut entries, packing))
    }

    /// Joins new children that are too small with a neighbour.
    fn join_small(&self, node: &Node, low: &[u8], slots: &mut Vec<Slot>) -> Result<(), TreeError> {
        let level = node.level() - 1;
        let target = self.shape(level).target_bytes;
        let mut index = 0;
        while index < slots.len() {
            let Some(left) = pair_to_join(node, slots, index, target) else {
                index += 1;
                continue;
            };
            let (first, second) = (self.load(node, &slots[left])?, self.load(node, &slots[left + 1])?);
            let low_of_slot = |slot: &Slot| match slot {
                &Slot::Old(index) => low_of(node, low, index),
                Slot::New(new) => new.low.clone(),
            };
            let (low, middle) = (low_of_slot(&slots[left]), low_of_slot(&slots[left + 1]));
            let mut entries: Vec<Entry<'_>> = (0..first.len()).map(|i| old_entry(&first, i)).collect();
            entries.extend((0..second.len()).map(|i| old_entry(&second, i)));
            if level > 0 {
                entries[first.len()].key = Key::whole(&middle);
            }
            let joined = self.shape(level).build(&low, &mut entries, Packing::Even);
            // A single joined node may still be too small, so it is checked again. Several nodes are passed
            // over, even if one of them is small: joining them again could give the same nodes, without end.
            index = if joined.len() == 1 { left } else { left + joined.len() };
            slots.splice(left..left + 2, joined.into_iter().map(Slot::New));
        }
        Ok(())
    }

    fn load(&self, node: &Node, slot: &Slot) -> Result<Arc<Node>, TreeError> {
        match slot {
            &Slot::Old(index) => {
                self.reader.node(self.tree, node.level() - 1, &node.child_pointer(index), Leaves::Passing)
            }
            Slot::New(new) => Ok(Arc::new(self.parse(new.bytes.clone()))),
        }
    }

    fn parse(&self, bytes: Vec<u8>) -> Node {
        Node::parse(bytes.into(), self.appender.end()).expect("just encoded")
    }

    /// Appends a node; returns the encoded child entry for its parent.
    fn place(&mut self, level: u8, node: &NewNode) -> Result<Vec<u8>, TreeError> {
        let pointer = self.appender.put(&node.bytes)?;
        if level > 0 {
            self.reader.remember(&pointer, &node.bytes);
        }
        let node_bytes = node.bytes_below.wrapping_add(node.bytes.len() as u64);
        Ok(Child { pointer, sums: node.sums, node_bytes }.encode())
    }

    fn shape(&self, level: u8) -> Shape {
        self.options.shape(self.tree, level)
    }
}

fn old_entry(node: &Node, index: usize) -> Entry<'_> {
    Entry { key: node.key(index), value: node.value(index) }
}

fn entry_of<'a>((node, child): (&'a NewNode, &'a Vec<u8>)) -> Entry<'a> {
    Entry { key: Key::whole(&node.low), value: child }
}

/// The lower bound of the keys below a child; `low` is the lower bound of the node itself.
fn low_of(node: &Node, low: &[u8], child: usize) -> Vec<u8> {
    if child == 0 { low.to_vec() } else { node.key(child).to_vec() }
}

fn packing_behind(last: Option<&NewNode>) -> Packing {
    if last.is_some_and(|last| last.grows) { Packing::Full } else { Packing::Even }
}

/// The index of the left one of two children to be joined: the child at `index`, and the child before or
/// after it. `None` unless the child at `index` is new, too small and not expected to grow, and one of these
/// neighbours is no larger than `target`.
fn pair_to_join(node: &Node, slots: &[Slot], index: usize, target: usize) -> Option<usize> {
    let Some(Slot::New(new)) = slots.get(index) else { return None };
    if new.grows || new.bytes.len() >= target / SMALL_SHARE {
        return None;
    }
    let fits = |neighbour: &usize| match slots.get(*neighbour) {
        None => false,
        Some(&Slot::Old(index)) => node.child_pointer(index).len() <= target,
        Some(Slot::New(new)) => new.bytes.len() <= target,
    };
    let left = index.checked_sub(1).filter(fits);
    left.or_else(|| fits(&(index + 1)).then_some(index))
}
