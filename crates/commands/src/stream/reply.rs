//! Replies with entries and ids.

use std::ops::RangeInclusive;

use engine::deferred_reply::DeferredReply;
use keyspace::{StreamEntry, StreamId, StreamOrder, StreamView};
use wire::ReplyWriter;

pub(super) use engine::stream_reply::{write_entry, write_fields_of, write_id};

/// Writes the entries with ids in a range, at most `count`: at once if they are few or there is no
/// `deferred_reply`, otherwise as a deferred reply.
pub(super) fn write_range(
    reply: &mut ReplyWriter<'_>,
    deferred_reply: Option<&mut DeferredReply>,
    stream: StreamView<'_>,
    ids: RangeInclusive<StreamId>,
    order: StreamOrder,
    count: usize,
) {
    if let Some(deferred_reply) = deferred_reply
        && let Some(entries) = stream.share(ids.clone(), order, count)
    {
        reply.array(entries.len());
        return deferred_reply.add(reply, entries);
    }
    match order {
        StreamOrder::Ascending => write_entries(reply, stream.range(ids).take(count)),
        StreamOrder::Descending => write_entries(reply, stream.range_back(ids).take(count)),
    };
}

/// Writes entries of unknown number; returns their number.
pub(super) fn write_entries<'a>(
    reply: &mut ReplyWriter<'_>,
    entries: impl Iterator<Item = StreamEntry<'a>>,
) -> usize {
    let deferred = reply.begin_deferred();
    let mut count = 0;
    for entry in entries {
        write_entry(reply, &entry);
        count += 1;
    }
    reply.end_deferred(deferred, wire::Aggregate::Array, count);
    count
}
