//! Reading a stream.

use std::collections::btree_map;
use std::iter::Rev;
use std::ops::RangeInclusive;

use super::block::{Block, Entries, StreamBlock, StreamEntry};
use super::group::GroupView;
use super::image::StreamImage;
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

    /// Whether there is none, which does not mean that the key is to go.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// What it knows of the entries that it had.
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
    pub fn range(&self, ids: RangeInclusive<StreamId>) -> StreamRange<'a> {
        let (from, to) = ids.into_inner();
        let blocks = &self.0.blocks;
        let start = blocks.range(..=from).next_back().map_or(from, |(&base, _)| base);
        // A range that is the wrong way round has nothing in it.
        let blocks = if from <= to { blocks.range(start..=to) } else { btree_map::Range::default() };
        StreamRange { from, to, blocks, entries: Entries::NONE }
    }

    /// The same, the last one first.
    pub fn range_back(&self, ids: RangeInclusive<StreamId>) -> StreamRangeBack<'a> {
        let StreamRange { from, to, blocks, .. } = self.range(ids);
        StreamRangeBack { from, to, blocks: blocks.rev(), entries: Vec::new() }
    }

    /// Through which id entries have to go so that `len` stay: exactly so many, or more if only whole blocks may go, and of
    /// these at most `limit` entries. `None` if nothing has to go.
    pub fn trim_to_len(&self, len: usize, whole_blocks: bool, limit: usize) -> Option<StreamId> {
        let excess = self.0.len.checked_sub(len)?;
        let (whole, rest) = self.passed_blocks(limit, |block, passed| passed + block.len() <= excess);
        let within =
            |passed| rest.filter(|_| !whole_blocks && passed < excess)?.entries().nth(excess - passed - 1);
        let (passed, last) = whole;
        within(passed).map(|entry| entry.id).or(last)
    }

    /// The same so that all ids are at least `min`.
    pub fn trim_to_id(&self, min: StreamId, whole_blocks: bool, limit: usize) -> Option<StreamId> {
        if !whole_blocks {
            return min.previous().filter(|_| self.first().is_some_and(|first| first.id < min));
        }
        let is_below = |block: &Block| block.entries().last().is_some_and(|last| last.id < min);
        self.passed_blocks(limit, |block, _| is_below(block)).0.1
    }

    /// Passes over the first blocks while they may go, which depends on a block and on how many entries were passed, and at most
    /// `limit` entries. Returns how many they are, the last of them, and the block behind.
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

    /// How many blocks it has.
    pub fn blocks_len(&self) -> usize {
        self.0.blocks.len()
    }

    /// How many groups it has.
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

    /// All of it, copied.
    pub(crate) fn image(&self) -> StreamImage {
        self.0.image()
    }
}

fn last_id(block: Option<&Block>) -> Option<StreamId> {
    block?.entries().last().map(|last| last.id)
}

/// Entries of a stream in order.
#[derive(Clone)]
pub struct StreamRange<'a> {
    from: StreamId,
    to: StreamId,
    blocks: btree_map::Range<'a, StreamId, Block>,
    entries: Entries<'a>,
}

impl<'a> Iterator for StreamRange<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            for entry in self.entries.by_ref() {
                if entry.id > self.to {
                    return None;
                }
                if entry.id >= self.from {
                    return Some(entry);
                }
            }
            self.entries = self.blocks.next()?.1.entries();
        }
    }
}

/// Entries of a stream, the last one first.
pub struct StreamRangeBack<'a> {
    from: StreamId,
    to: StreamId,
    blocks: Rev<btree_map::Range<'a, StreamId, Block>>,
    /// What is left of a block.
    entries: Vec<StreamEntry<'a>>,
}

impl<'a> Iterator for StreamRangeBack<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(entry);
            }
            let (from, to) = (self.from, self.to);
            let entries = self.blocks.next()?.1.entries();
            self.entries.extend(entries.filter(|entry| from <= entry.id && entry.id <= to));
        }
    }
}
