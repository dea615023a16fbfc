//! Reading a stream: [`StreamView`] finds entries by id, groups by name, and the id up to which a trim goes.

use std::collections::btree_map;
use std::ops::RangeInclusive;

use super::block::{Block, Entries, StreamBlock, StreamEntry};
use super::group::GroupView;
use super::image::StreamImage;
use super::shared::{SharedEntries, StreamOrder, is_long};
use super::{Stream, StreamHead, StreamId};

/// A stream, to be read.
#[derive(Clone, Copy)]
pub struct StreamView<'a>(pub(in crate::collection) &'a Stream);

impl<'a> StreamView<'a> {
    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there is no entry. An empty stream keeps its key.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The ids and the counter that outlive the entries of the stream.
    pub fn head(&self) -> StreamHead {
        self.0.head
    }

    /// The first entry.
    pub fn first(&self) -> Option<StreamEntry<'a>> {
        self.range(StreamId::ZERO..=StreamId::MAX).next()
    }

    /// The last entry.
    pub fn last(&self) -> Option<StreamEntry<'a>> {
        self.range_back(StreamId::ZERO..=StreamId::MAX).next()
    }

    /// The entry with this id.
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'a>> {
        self.range(id..=id).next()
    }

    /// The block that has the entry with this id.
    pub fn block_with(&self, id: StreamId) -> Option<StreamBlock<'a>> {
        let (_, block) = self.0.blocks.range(..=id).next_back()?;
        let block = block.as_block();
        block.entries().any(|entry| entry.id == id).then_some(block)
    }

    /// The entries with ids in a range, in order.
    pub fn range(
        &self,
        ids: RangeInclusive<StreamId>,
    ) -> impl Iterator<Item = StreamEntry<'a>> + Clone + use<'a> {
        Within { blocks: self.blocks_of(&ids), ids, entries: Entries::NONE }
    }

    /// The entries with ids in a range, the last one first.
    pub fn range_back(
        &self,
        ids: RangeInclusive<StreamId>,
    ) -> impl Iterator<Item = StreamEntry<'a>> + use<'a> {
        WithinBack { blocks: self.blocks_of(&ids).rev(), ids, entries: Vec::new() }
    }

    /// The first `count` entries of a range in either order, shared with the stream, so that they can still
    /// be read after the stream has changed. `None` if they lie in so little memory that reading them at once
    /// is quicker.
    pub fn share(
        &self,
        ids: RangeInclusive<StreamId>,
        order: StreamOrder,
        count: usize,
    ) -> Option<SharedEntries> {
        let blocks = self.blocks_of(&ids);
        let is_long = match order {
            StreamOrder::Ascending => is_long(blocks, count),
            StreamOrder::Descending => is_long(blocks.rev(), count),
        };
        is_long.then(|| self.share_any(ids, order, count))
    }

    /// As [`StreamView::share`], however few the entries are.
    pub(super) fn share_any(
        &self,
        ids: RangeInclusive<StreamId>,
        order: StreamOrder,
        count: usize,
    ) -> SharedEntries {
        let blocks = self.blocks_of(&ids);
        match order {
            StreamOrder::Ascending => SharedEntries::of(blocks, ids, order, count),
            StreamOrder::Descending => SharedEntries::of(blocks.rev(), ids, order, count),
        }
    }

    /// The blocks in which entries with these ids may be.
    fn blocks_of(
        &self,
        ids: &RangeInclusive<StreamId>,
    ) -> impl DoubleEndedIterator<Item = &'a Block> + Clone + use<'a> {
        let (&from, &to) = (ids.start(), ids.end());
        let blocks = &self.0.blocks;
        let start = blocks.range(..=from).next_back().map_or(from, |(&base, _)| base);
        // A range whose bounds are in the wrong order is empty.
        let found = if from <= to { blocks.range(start..=to) } else { btree_map::Range::default() };
        found.map(|(_, block)| block)
    }

    /// The id up to which entries are to be removed so that `len` entries stay; `None` if none is to be
    /// removed. With `whole_blocks`, only whole blocks are removed, with at most `limit` entries together, so
    /// that more than `len` entries may stay. Without `whole_blocks`, `limit` must be at least the number of
    /// entries.
    pub fn trim_to_len(&self, len: usize, whole_blocks: bool, limit: usize) -> Option<StreamId> {
        let excess = self.0.len.checked_sub(len)?;
        let (whole, rest) = self.passed_blocks(limit, |block, passed| passed + block.len() <= excess);
        let within =
            |passed| rest.filter(|_| !whole_blocks && passed < excess)?.entries().nth(excess - passed - 1);
        let (passed, last) = whole;
        within(passed).map(|entry| entry.id).or(last)
    }

    /// The id up to which entries are to be removed so that no id below `min` stays; `None` if none is to be
    /// removed. With `whole_blocks`, only whole blocks are removed, with at most `limit` entries together, so
    /// that ids below `min` may stay.
    /// Without `whole_blocks`, `limit` is ignored.
    pub fn trim_to_id(&self, min: StreamId, whole_blocks: bool, limit: usize) -> Option<StreamId> {
        if !whole_blocks {
            return min.previous().filter(|_| self.first().is_some_and(|first| first.id < min));
        }
        let is_below = |block: &Block| block.entries().last().is_some_and(|last| last.id < min);
        self.passed_blocks(limit, |block, _| is_below(block)).0.1
    }

    /// Passes over the first blocks for which `may_go` is true, with at most `limit` entries together.
    /// `may_go` gets a block and the number of entries before that block. Returns the number of passed
    /// entries, the last id among them, and the next block.
    fn passed_blocks(
        &self,
        limit: usize,
        may_go: impl Fn(&Block, usize) -> bool,
    ) -> ((usize, Option<StreamId>), Option<&'a Block>) {
        let (mut passed, mut last) = (0, None);
        for block in self.0.blocks.values() {
            if passed + block.len() > limit || !may_go(block, passed) {
                return ((passed, last_id(last)), Some(block));
            }
            passed += block.len();
            last = Some(block);
        }
        ((passed, last_id(last)), None)
    }

    /// The entries block by block.
    pub fn blocks(&self) -> impl Iterator<Item = StreamBlock<'a>> + use<'a> {
        self.0.blocks.values().map(Block::as_block)
    }

    /// The number of blocks of the stream.
    pub fn blocks_len(&self) -> usize {
        self.0.blocks.len()
    }

    /// The number of groups of the stream.
    pub fn groups_len(&self) -> usize {
        self.0.groups.len()
    }

    /// The groups in the order of their names.
    pub fn groups(&self) -> impl Iterator<Item = (&'a [u8], GroupView<'a>)> + use<'a> {
        self.0.groups.iter().map(|(name, group)| (&**name, GroupView(group)))
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<GroupView<'a>> {
        self.0.groups.get(name).map(GroupView)
    }

    /// A copy of the whole stream.
    pub(crate) fn image(&self) -> StreamImage {
        self.0.image()
    }
}

fn last_id(block: Option<&Block>) -> Option<StreamId> {
    block?.entries().last().map(|last| last.id)
}

/// Iterates over the entries with ids in a range, in ascending order. `blocks` must be in ascending order.
#[derive(Clone)]
pub(super) struct Within<'a, B> {
    pub(super) ids: RangeInclusive<StreamId>,
    pub(super) blocks: B,
    /// The rest of the current block.
    pub(super) entries: Entries<'a>,
}

impl<'a, B: Iterator<Item = &'a Block>> Iterator for Within<'a, B> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            for entry in self.entries.by_ref() {
                if entry.id > *self.ids.end() {
                    return None;
                }
                if entry.id >= *self.ids.start() {
                    return Some(entry);
                }
            }
            self.entries = self.blocks.next()?.entries();
        }
    }
}

/// Iterates over the entries with ids in a range, in descending order. `blocks` must be in descending order.
pub(super) struct WithinBack<'a, B> {
    pub(super) ids: RangeInclusive<StreamId>,
    pub(super) blocks: B,
    /// The rest of the current block, in ascending order.
    pub(super) entries: Vec<StreamEntry<'a>>,
}

impl<'a, B: Iterator<Item = &'a Block>> Iterator for WithinBack<'a, B> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(entry);
            }
            let entries = self.blocks.next()?.entries();
            self.entries.extend(entries.filter(|entry| self.ids.contains(&entry.id)));
        }
    }
}
