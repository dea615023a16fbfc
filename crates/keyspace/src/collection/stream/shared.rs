//! `SharedEntries`: entries of a stream that can still be read when the stream is changed again.
//!
//! What it is: the blocks of a range of ids, shared with the stream, for replies that are too long to be
//! written under the lock of a slot. Sharing costs one reference count for each block, and reads only the
//! first and the last one. What it is not: counted as memory of the stream. Blocks that the stream has since
//! changed or removed stay in memory as long as the `SharedEntries`.
//!
//! Invariants
//! - A `SharedEntries` has the entries that the stream had when it was made, even if the stream changes.

use std::ops::RangeInclusive;

use super::StreamId;
use super::block::{Block, Entries, StreamEntry};
use super::view::{Within, WithinBack};

/// Entries in less memory than this, in bytes, are not shared: copying them takes only some microseconds.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// The order of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamOrder {
    /// By rising ids.
    Ascending,
    /// By falling ids.
    Descending,
}

/// Entries that a reply shares with a stream.
#[derive(Debug)]
pub struct SharedEntries {
    ids: RangeInclusive<StreamId>,
    order: StreamOrder,
    /// The blocks, in the order of `order`.
    blocks: Vec<Block>,
    len: usize,
}

impl SharedEntries {
    /// The first `count` entries with ids in a range. `blocks` are the blocks that may have such entries.
    pub(super) fn of<'a>(
        blocks: impl Iterator<Item = &'a Block>,
        ids: RangeInclusive<StreamId>,
        order: StreamOrder,
        count: usize,
    ) -> SharedEntries {
        let mut shared = SharedEntries { ids, order, blocks: Vec::new(), len: 0 };
        let mut blocks = blocks.peekable();
        while shared.len < count
            && let Some(block) = blocks.next()
        {
            // Only the first and the last block can have entries outside the range.
            let is_inner = !shared.blocks.is_empty() && blocks.peek().is_some();
            shared.len += match is_inner {
                true => block.len(),
                false => block.entries().filter(|entry| shared.ids.contains(&entry.id)).count(),
            };
            shared.blocks.push(block.clone());
        }
        shared.len = shared.len.min(count);
        shared
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Visits all entries in their order.
    pub fn for_each<'a>(&'a self, visit: impl FnMut(StreamEntry<'a>)) {
        let (ids, blocks) = (self.ids.clone(), self.blocks.iter());
        match self.order {
            StreamOrder::Ascending => {
                Within { ids, blocks, entries: Entries::NONE }.take(self.len).for_each(visit);
            }
            StreamOrder::Descending => {
                WithinBack { ids, blocks, entries: Vec::new() }.take(self.len).for_each(visit);
            }
        }
    }
}

/// Whether the first `count` entries may take so much memory that sharing them is quicker than reading them.
/// Reads no further than the block that decides.
pub(super) fn is_long<'a>(blocks: impl Iterator<Item = &'a Block>, count: usize) -> bool {
    let (mut bytes, mut entries) = (0, 0);
    for (at, block) in blocks.enumerate() {
        if entries >= count {
            return false;
        }
        bytes += block.as_block().bytes().len();
        if bytes >= SHARED_BYTES_MIN {
            return true;
        }
        // All entries of the first block may lie outside the range.
        entries += if at > 0 { block.len() } else { 0 };
    }
    false
}
