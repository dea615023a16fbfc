//! Streams: entries in the order of their ids, and the groups that read them.
//!
//! What it is: entries packed into blocks, in an ordered map by base id (see below); groups with their
//! pending entries; the changes that effects make to these; and the view that reads them. What it is not:
//! commands on streams. No stream lies inside the entry of its key: even a short stream is a structure of its
//! own.
//!
//! ```text
//! Stream: head | BTreeMap: id -> Block (packed entries)        | BTreeMap: name -> Group
//!                                                               position | consumers | PendingMap: id -> Run
//! ```
//!
//! Invariants
//! - Blocks are not empty, their ranges of ids do not overlap, and the key of a block in the map is its base
//!   id: the ids of its entries are stored as distances from it.
//! - A stream keeps its key when its last entry is removed.
//! - [`SharedEntries`] and captures share blocks with the stream. The bytes of a shared block are never
//!   changed: a change is made to a copy.
//! - Adding, finding or removing one entry touches at most two blocks, found in O(log n). A trim takes whole
//!   blocks out, and passes them to [`Freed`] or to a capture in progress.

mod block;
mod capture;
mod group;
mod id;
mod image;
mod pending;
mod shared;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use block::{StreamBlock, StreamEntry, StreamFields};
pub use group::{
    ConsumerTimes, ConsumerView, Delivery, ENTRIES_READ_MAX, GroupPosition, GroupView, PendingView,
};
pub use id::StreamId;
pub use image::StreamImage;
pub use shared::{SharedEntries, StreamOrder};
pub use view::StreamView;

use super::Big;
use crate::apply::Applied;
use crate::effect::{Items, KeyOp, Listed};
use crate::entry::Entry;
use crate::freed::Freed;
use block::Block;
use capture::Capture;
use group::Group;

/// About the bytes of memory that a block takes in the map, not counting its entries.
const BLOCK_BYTES: usize = 90;

/// The ids and the counter of a stream that outlive its entries. XSETID sets them to other values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamHead {
    /// The id of the last entry that was added, even if that entry was removed. The next entry must have a
    /// higher id.
    pub last_id: StreamId,
    /// The highest id of an entry that was deleted, other than by trimming.
    pub max_deleted_id: StreamId,
    /// How many entries were ever added.
    pub entries_added: u64,
}

#[derive(Default)]
pub(crate) struct Stream {
    head: StreamHead,
    /// The number of entries.
    len: usize,
    blocks: BTreeMap<StreamId, Block>,
    groups: BTreeMap<Arc<[u8]>, Group>,
    /// Bytes of memory of all blocks.
    block_bytes: usize,
    /// Bytes of memory of all groups.
    group_bytes: usize,
    /// The number of captures that were begun.
    captures: u32,
    capture: Option<Box<Capture>>,
}

impl Stream {
    /// Bytes of memory of the whole stream.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Stream>() + self.block_bytes + self.group_bytes
    }

    /// Adds an entry if its id is above the last id of the head; returns whether it was added.
    fn add(&mut self, id: StreamId, pairs: Items<'_>) -> bool {
        if id <= self.head.last_id {
            return false;
        }
        let Stream { blocks, block_bytes, capture, captures, .. } = self;
        // The spare memory of a full block goes to the next block.
        let mut room = Some(Vec::new());
        if let Some(mut last) = blocks.last_entry() {
            let block = last.get_mut();
            let before = block.allocated_bytes();
            if let Some(capture) = capture {
                capture.block(block, *captures);
            }
            room = (!block.push(id, pairs)).then(|| block.seal());
            *block_bytes = *block_bytes - before + block.allocated_bytes();
        }
        if let Some(room) = room {
            self.insert(id, Block::new(id, pairs, self.captures, room));
        }
        self.len += 1;
        self.head.last_id = id;
        self.head.entries_added = self.head.entries_added.saturating_add(1);
        true
    }

    /// Adds the entries of a block, and returns their number. Adds no entry, and returns 0, if the block's
    /// range of ids overlaps that of an existing block, or an id is above the last id of the head.
    fn add_block(&mut self, block: StreamBlock<'_>) -> usize {
        let (base, last) = (block.base(), block.entries().last().map_or(StreamId::MAX, |entry| entry.id));
        if last > self.head.last_id {
            return 0;
        }
        let before = self.blocks.range(..=last).next_back();
        if before.is_some_and(|(_, before)| before.entries().last().is_some_and(|entry| entry.id >= base)) {
            return 0;
        }
        let block = Block::of(block, self.captures);
        let added = block.len();
        self.len += added;
        self.insert(base, block);
        added
    }

    fn insert(&mut self, base: StreamId, block: Block) {
        self.block_bytes += BLOCK_BYTES + block.allocated_bytes();
        self.blocks.insert(base, block);
    }

    /// Removes an entry; returns whether it was there.
    fn delete(&mut self, id: StreamId) -> bool {
        let Some((&base, block)) = self.blocks.range_mut(..=id).next_back() else { return false };
        let before = block.allocated_bytes();
        if let Some(capture) = &mut self.capture {
            capture.block(block, self.captures);
        }
        if !block.remove(id) {
            return false;
        }
        self.block_bytes = self.block_bytes - before + block.allocated_bytes();
        if block.len() == 0 {
            self.block_bytes -= BLOCK_BYTES + block.allocated_bytes();
            self.blocks.remove(&base);
        }
        self.len -= 1;
        self.head.max_deleted_id = self.head.max_deleted_id.max(id);
        true
    }

    /// Removes the entries up to and including an id; returns their number.
    fn trim(&mut self, through: StreamId, freed: &mut Freed) -> usize {
        let mut removed = 0;
        let behind = through.next().map_or_else(BTreeMap::new, |next| self.blocks.split_off(&next));
        let mut trimmed = std::mem::replace(&mut self.blocks, behind);
        // The last block that begins at or before the id may have entries after the id.
        if let Some(mut last) = trimmed.last_entry() {
            let block = last.get_mut();
            let before = block.allocated_bytes();
            if let Some(capture) = &mut self.capture {
                capture.block(block, self.captures);
            }
            removed += block.remove_through(through);
            self.block_bytes = self.block_bytes - before + block.allocated_bytes();
            if block.len() > 0 {
                let (base, block) = last.remove_entry();
                self.blocks.insert(base, block);
            }
        }
        let detached: usize = trimmed.values().map(|block| BLOCK_BYTES + block.allocated_bytes()).sum();
        removed += trimmed.values().map(Block::len).sum::<usize>();
        self.block_bytes -= detached;
        self.len -= removed;
        match &mut self.capture {
            Some(capture) => {
                trimmed.into_values().for_each(|block| capture.removed_block(block, self.captures))
            }
            None => freed.big(Big::Stream(Box::new(Stream {
                blocks: trimmed,
                block_bytes: detached,
                ..Stream::default()
            }))),
        }
        removed
    }

    /// Replaces the head, but keeps its last id at least as high as the id of the last entry; returns whether
    /// the head has changed.
    fn set_head(&mut self, head: StreamHead) -> bool {
        let last = self.blocks.last_key_value().and_then(|(_, block)| block.entries().last());
        let last_id = head.last_id.max(last.map_or(StreamId::ZERO, |entry| entry.id));
        let head = StreamHead { last_id, ..head };
        std::mem::replace(&mut self.head, head) != head
    }

    /// Removes a group; returns whether it was there.
    fn drop_group(&mut self, name: &[u8], freed: &mut Freed) -> bool {
        let Some((name, mut group)) = self.groups.remove_entry(name) else { return false };
        let group_bytes = group.bytes();
        self.group_bytes -= group_bytes;
        if let Some(capture) = &mut self.capture {
            for mut run in group.take_runs() {
                capture.run(&name, &group, &mut run, self.captures);
            }
        }
        let groups = BTreeMap::from([(name, group)]);
        freed.big(Big::Stream(Box::new(Stream { groups, group_bytes, ..Stream::default() })));
        true
    }

    /// Changes a group and updates the count of bytes; `None` if no group has this name. `change` gets a
    /// function to which it must pass each run before it changes the run, so that a capture in progress can
    /// copy the run.
    fn change_group<R>(
        &mut self,
        name: &[u8],
        change: impl FnOnce(&mut Group, &mut dyn FnMut(&Group, &mut pending::Run)) -> R,
    ) -> Option<R> {
        let (name, _) = self.groups.get_key_value(name)?;
        let (name, number) = (name.clone(), self.captures);
        let group = self.groups.get_mut(&name)?;
        let before = group.bytes();
        let mut capture = self.capture.as_mut();
        let result = change(group, &mut |group, run| {
            if let Some(capture) = &mut capture {
                capture.run(&name, group, run, number);
            }
        });
        self.group_bytes = self.group_bytes - before + group.bytes();
        Some(result)
    }

    fn put_group(&mut self, name: &[u8], position: GroupPosition) -> Applied {
        if let Some(changed) = self.change_group(name, |group, _| group.set_position(position)) {
            return Applied { changed, updated: changed.into(), ..Applied::default() };
        }
        let mut group = Group::default();
        group.set_position(position);
        self.group_bytes += group.bytes();
        self.groups.insert(name.into(), group);
        Applied { changed: true, added: 1, ..Applied::default() }
    }

    fn pend(&mut self, group: &[u8], consumer: &[u8], deliveries: Listed<'_, Delivery>) -> Applied {
        let number = self.captures;
        let delivered = self.change_group(group, |group, capture| {
            let Some(consumer) = group.number_of(consumer) else { return (0, 0) };
            deliveries.iter().fold((0, 0), |(added, updated), delivery| {
                match group.pend(consumer, delivery, number, &mut *capture) {
                    true => (added, updated + 1),
                    false => (added + 1, updated),
                }
            })
        });
        let (added, updated) = delivered.unwrap_or_default();
        Applied { changed: added + updated > 0, added, updated, ..Applied::default() }
    }

    /// Checks the invariants.
    #[cfg(test)]
    fn check(&self) {
        let (mut len, mut bytes, mut before) = (0, 0, None);
        for (base, block) in &self.blocks {
            assert!(block.len() > 0 && block.as_block().base() == *base);
            for entry in block.entries() {
                assert!(before < Some(entry.id) && entry.id >= *base && entry.id <= self.head.last_id);
                before = Some(entry.id);
            }
            len += block.len();
            bytes += BLOCK_BYTES + block.allocated_bytes();
        }
        assert_eq!((self.len, self.block_bytes), (len, bytes));
        self.groups.values().for_each(Group::check);
        assert_eq!(self.group_bytes, self.groups.values().map(Group::bytes).sum::<usize>());
    }
}

/// The payload of a new entry that is about to become a stream.
pub(super) const EMPTY: &[u8] = &[];

/// Gives a new entry its stream.
pub(super) fn promote(entry: &mut Entry) {
    entry.promote(Big::Stream(Box::default()));
}

/// Sets the head of a new stream.
pub(super) fn fill(entry: &mut Entry, head: StreamHead) {
    stream_mut(entry).head = head;
}

fn stream_mut(entry: &mut Entry) -> &mut Stream {
    match entry.big_mut() {
        Some(Big::Stream(stream)) => stream,
        _ => unreachable!("the entry of a stream holds one"),
    }
}

/// Applies an operation of an effect to a stream.
pub(super) fn edit(entry: &mut Entry, op: &KeyOp<'_>, freed: &mut Freed) -> Applied {
    let stream = stream_mut(entry);
    let added = |added: usize| Applied { changed: added > 0, added: added as u64, ..Applied::default() };
    let removed =
        |removed: usize| Applied { changed: removed > 0, removed: removed as u64, ..Applied::default() };
    match *op {
        KeyOp::StreamAdd { id, pairs } => added(stream.add(id, pairs).into()),
        KeyOp::StreamAddBlock { block } => added(stream.add_block(block)),
        KeyOp::StreamTrim { through } => removed(stream.trim(through, freed)),
        KeyOp::StreamDelete { ids } => removed(ids.iter().filter(|&id| stream.delete(id)).count()),
        KeyOp::StreamSetHead { head } => {
            let changed = stream.set_head(head);
            Applied { changed, ..Applied::default() }
        }
        KeyOp::StreamPutGroup { group, position } => stream.put_group(group, position),
        KeyOp::StreamDropGroup { group } => removed(stream.drop_group(group, freed).into()),
        KeyOp::StreamPutConsumer { group, consumer, times } => {
            let is_new = stream.change_group(group, |group, _| group.put_consumer(consumer, times));
            let added = u64::from(is_new == Some(true));
            Applied { changed: is_new.is_some(), added, ..Applied::default() }
        }
        KeyOp::StreamDropConsumer { group, consumer } => {
            let dropped =
                stream.change_group(group, |group, capture| group.remove_consumer(consumer, capture));
            let removed = dropped.flatten();
            let (changed, removed) = (removed.is_some(), removed.unwrap_or_default() as u64);
            Applied { changed, removed, ..Applied::default() }
        }
        KeyOp::StreamPend { group, consumer, deliveries } => stream.pend(group, consumer, deliveries),
        KeyOp::StreamUnpend { group, ids } => {
            let count = stream.change_group(group, |group, capture| {
                ids.iter().filter(|&id| group.unpend(id, &mut *capture)).count()
            });
            removed(count.unwrap_or_default())
        }
        _ => unreachable!("only operations on streams come here"),
    }
}

#[cfg(test)]
mod tests;
