//! Streams in DUMP payloads and RDB files.

use engine::{CommandError, Context};
use keyspace::{
    ConsumerTimes, DbId, Delivery, Effect, GroupPosition, GroupView, Items, KeyOp, Listed, StreamHead,
    StreamId, StreamView, Value,
};
use rdb::{Output, StreamElement, StreamNode, Writer};

/// Writes the type number and the value.
pub(super) fn encode(stream: StreamView<'_>, writer: &mut Writer<impl Output>) {
    writer.begin_stream(stream.blocks_len());
    for block in stream.blocks() {
        let mut node = None;
        for entry in block.entries() {
            let names = || entry.fields().map(|(name, _)| name);
            node.get_or_insert_with(|| StreamNode::new(pair(entry.id), names()))
                .add(pair(entry.id), entry.fields());
        }
        node.iter().for_each(|node| writer.stream_node(node));
    }
    let StreamHead { last_id, max_deleted_id, entries_added } = stream.head();
    let head =
        rdb::StreamHead { last_id: pair(last_id), max_deleted_id: pair(max_deleted_id), entries_added };
    let first = stream.first().map_or(StreamId::ZERO, |entry| entry.id);
    writer.stream_head(head, stream.len(), pair(first), stream.groups_len());
    stream.groups().for_each(|(name, group)| encode_group(name, group, writer));
}

fn encode_group(name: &[u8], group: GroupView<'_>, writer: &mut Writer<impl Output>) {
    let all = StreamId::ZERO..=StreamId::MAX;
    let GroupPosition { last_id, entries_read } = group.position();
    writer.stream_group(name, pair(last_id), entries_read, group.pending_len());
    for pending in group.pending_in(all.clone()) {
        let Delivery { id, time_ms, count } = pending.delivery;
        writer.stream_pending(pair(id), time_ms, count.into());
    }
    writer.number(group.consumers_len() as u64);
    for consumer in group.consumers() {
        let ConsumerTimes { seen_ms, active_ms } = consumer.times();
        writer.stream_consumer(consumer.name(), seen_ms, active_ms, consumer.pending_len());
        consumer.pending_ids(all.clone()).for_each(|id| writer.stream_id(pair(id)));
    }
}

fn pair(StreamId { ms, seq }: StreamId) -> rdb::StreamId {
    (ms, seq)
}

fn id((ms, seq): rdb::StreamId) -> StreamId {
    StreamId { ms, seq }
}

/// Stores a decoded stream at a key.
pub(super) fn put(
    cx: &mut Context<'_, '_>,
    db: DbId,
    key: &[u8],
    stream: &rdb::Stream,
    expire_at_ms: Option<u64>,
) -> Result<(), CommandError> {
    let mut bytes = 0;
    each_effect(db, key, stream, expire_at_ms, |effect| bytes += effect.encoded_len() as u64);
    cx.require_room(bytes)?;
    each_effect(db, key, stream, expire_at_ms, |effect| _ = cx.unit.apply(effect));
    Ok(())
}

fn each_effect(
    db: DbId,
    key: &[u8],
    stream: &rdb::Stream,
    expire_at_ms: Option<u64>,
    mut visit: impl FnMut(&Effect<'_>),
) {
    visit(&KeyOp::Put { value: Value::Stream(StreamHead::default()), expire_at_ms }.on(db, key));
    for (id, pairs) in &stream.entries {
        stream_effect(db, key, (&[], &[]), &StreamElement::Entry { id: *id, pairs }, &mut visit);
    }
    stream_effect(db, key, (&[], &[]), &StreamElement::Head(stream.head), &mut visit);
    for group in &stream.groups {
        let rdb::StreamGroup { name, last_id, entries_read, .. } = group;
        let shown = StreamElement::Group { name, last_id: *last_id, entries_read: *entries_read };
        stream_effect(db, key, (&[], &[]), &shown, &mut visit);
        for consumer in &group.consumers {
            let rdb::StreamConsumer { name, seen_ms, active_ms, .. } = consumer;
            let shown = StreamElement::Consumer { name, seen_ms: *seen_ms, active_ms: *active_ms };
            stream_effect(db, key, (&group.name, &[]), &shown, &mut visit);
            for (id, time_ms, count) in &consumer.pending {
                let shown = StreamElement::Pending { id: *id, time_ms: *time_ms, count: *count };
                stream_effect(db, key, (&group.name, name), &shown, &mut visit);
            }
        }
    }
}

/// Visits the effect that adds an element to the stream at a key. A consumer is added to `group`, a pending
/// entry to `group` and `consumer`; other elements need neither name.
pub fn stream_effect(
    db: DbId,
    key: &[u8],
    (group, consumer): (&[u8], &[u8]),
    element: &StreamElement<'_>,
    visit: &mut dyn FnMut(&Effect<'_>),
) {
    match *element {
        StreamElement::Entry { id: own, pairs } => {
            let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
            visit(&KeyOp::StreamAdd { id: id(own), pairs: Items::Slices(&pairs) }.on(db, key));
        }
        StreamElement::Head(rdb::StreamHead { last_id, max_deleted_id, entries_added }) => {
            let (last_id, max_deleted_id) = (id(last_id), id(max_deleted_id));
            let head = StreamHead { last_id, max_deleted_id, entries_added };
            visit(&KeyOp::StreamSetHead { head }.on(db, key));
        }
        StreamElement::Group { name: group, last_id, entries_read } => {
            let position = GroupPosition { last_id: id(last_id), entries_read };
            visit(&KeyOp::StreamPutGroup { group, position }.on(db, key));
        }
        StreamElement::Consumer { name: consumer, seen_ms, active_ms } => {
            let times = ConsumerTimes { seen_ms, active_ms };
            visit(&KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key));
        }
        StreamElement::Pending { id: own, time_ms, count } => {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let deliveries = Listed::Slices(&[Delivery { id: id(own), time_ms, count }]);
            visit(&KeyOp::StreamPend { group, consumer, deliveries }.on(db, key));
        }
    }
}
