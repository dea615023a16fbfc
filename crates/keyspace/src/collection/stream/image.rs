//! `StreamImage`: a copy of a stream, or of a part of one, in pieces that effects carry.
//!
//! What it is: the parts of a stream that one step of a capture copies, or the whole stream if a value is
//! copied out of the keyspace. What it is not: sorted. Blocks and deliveries name their ids, so they can be
//! put back in any order.

use std::sync::Arc;

use super::block::{Block, StreamBlock, StreamEntry};
use super::group::{ConsumerTimes, Delivery, GroupPosition};
use super::{StreamHead, StreamId};
use crate::effect::{Effect, KeyOp, Listed};
use crate::id::DbId;
use crate::value::Value;

/// The image of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamImage {
    /// `Some` in the first part, which also has the groups and consumers.
    head: Option<StreamHead>,
    groups: Vec<GroupImage>,
    blocks: Vec<Block>,
    pending: Vec<PendingImage>,
    size_bytes: usize,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct GroupImage {
    name: Arc<[u8]>,
    position: (StreamId, Option<u64>),
    consumers: Vec<(Arc<[u8]>, u64, Option<u64>)>,
}

/// Pending entries of one consumer that were added one after the other.
#[derive(Clone, Debug)]
struct PendingImage {
    group: Arc<[u8]>,
    consumer: Arc<[u8]>,
    deliveries: Vec<Delivery>,
}

impl StreamImage {
    /// Adds the head of the stream.
    pub(super) fn set_head(&mut self, head: StreamHead) {
        self.head = Some(head);
        self.size_bytes += 64;
    }

    /// Adds a group, without its pending entries.
    pub(super) fn add_group(
        &mut self,
        name: &Arc<[u8]>,
        GroupPosition { last_id, entries_read }: GroupPosition,
        consumers: impl Iterator<Item = (Arc<[u8]>, ConsumerTimes)>,
    ) {
        let consumers: Vec<_> =
            consumers.map(|(name, times)| (name, times.seen_ms, times.active_ms)).collect();
        let names: usize = consumers.iter().map(|(consumer, ..)| consumer.len() + name.len() + 32).sum();
        self.size_bytes += name.len() + 32 + names;
        self.groups.push(GroupImage { name: name.clone(), position: (last_id, entries_read), consumers });
    }

    pub(super) fn add_block(&mut self, block: Block) {
        self.size_bytes += block.as_block().bytes().len() + 16;
        self.blocks.push(block);
    }

    pub(super) fn add_pending(&mut self, group: &Arc<[u8]>, consumer: &Arc<[u8]>, delivery: Delivery) {
        self.size_bytes += 18;
        let last = self
            .pending
            .last_mut()
            .filter(|last| Arc::ptr_eq(&last.group, group) && Arc::ptr_eq(&last.consumer, consumer));
        match last {
            Some(last) => last.deliveries.push(delivery),
            None => {
                self.size_bytes += group.len() + consumer.len() + 16;
                let (group, consumer) = (group.clone(), consumer.clone());
                self.pending.push(PendingImage { group, consumer, deliveries: vec![delivery] });
            }
        }
    }

    /// About the number of bytes that the effects of the image take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Whether the image has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.size_bytes == 0
    }

    /// The head, for a Put, if it is in this part.
    pub(crate) fn head(&self) -> Option<StreamHead> {
        self.head
    }

    /// Visits the effects that make the content of the image. The first is a Put of the head, if this part
    /// has the head.
    pub(crate) fn for_each_effect(
        &self,
        db: DbId,
        key: &[u8],
        expire_at_ms: Option<u64>,
        mut visit: impl FnMut(&Effect<'_>),
    ) {
        if let Some(head) = self.head {
            visit(&KeyOp::Put { value: Value::Stream(head), expire_at_ms }.on(db, key));
        }
        for GroupImage { name: group, position: (last_id, entries_read), consumers } in &self.groups {
            let position = GroupPosition { last_id: *last_id, entries_read: *entries_read };
            visit(&KeyOp::StreamPutGroup { group, position }.on(db, key));
            for (consumer, seen_ms, active_ms) in consumers {
                let times = ConsumerTimes { seen_ms: *seen_ms, active_ms: *active_ms };
                visit(&KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key));
            }
        }
        for block in &self.blocks {
            visit(&KeyOp::StreamAddBlock { block: block.as_block() }.on(db, key));
        }
        for PendingImage { group, consumer, deliveries } in &self.pending {
            let deliveries = Listed::Slices(deliveries);
            visit(&KeyOp::StreamPend { group, consumer, deliveries }.on(db, key));
        }
    }

    fn blocks(&self) -> impl Iterator<Item = StreamBlock<'_>> {
        self.blocks.iter().map(Block::as_block)
    }
}

impl PartialEq for StreamImage {
    /// Whether both images have the same stream, however it is divided into blocks and runs, and in whatever
    /// order its groups and consumers were added.
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for StreamImage {}

type Canonical<'a> = (
    Option<StreamHead>,
    Vec<GroupImage>,
    Vec<(StreamId, Vec<(&'a [u8], Vec<u8>)>)>,
    Vec<(&'a [u8], StreamId, &'a [u8], u64, u32)>,
);

impl StreamImage {
    fn canonical<'a>(&'a self) -> Canonical<'a> {
        let fields = |entry: StreamEntry<'a>| {
            (entry.id, entry.fields().map(|(name, value)| (name, value.to_vec())).collect())
        };
        let mut entries: Vec<_> = self.blocks().flat_map(|block| block.entries()).map(fields).collect();
        entries.sort_unstable_by_key(|(id, _)| *id);
        let mut pending: Vec<_> = self
            .pending
            .iter()
            .flat_map(|image| {
                let (group, consumer) = (&*image.group, &*image.consumer);
                image.deliveries.iter().map(move |it| (group, it.id, consumer, it.time_ms, it.count))
            })
            .collect();
        pending.sort_unstable();
        let mut groups = self.groups.clone();
        groups.iter_mut().for_each(|group| group.consumers.sort_unstable());
        groups.sort_unstable();
        (self.head, groups, entries, pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_groups_and_consumers_were_added_does_not_count() {
        let times = |ms| ConsumerTimes { seen_ms: ms, active_ms: None };
        let image = |order: &[usize], late_ms: u64| {
            let mut image = StreamImage::default();
            for group in order {
                let consumers = order.iter().map(|it| (Arc::from(it.to_le_bytes()), times(late_ms)));
                let position = GroupPosition { last_id: StreamId::ZERO, entries_read: None };
                image.add_group(&Arc::from(group.to_le_bytes()), position, consumers);
            }
            image
        };
        assert_eq!(image(&[1, 2, 3], 7), image(&[3, 1, 2], 7));
        assert_ne!(image(&[1, 2, 3], 7), image(&[3, 1, 2], 8));
    }
}
