//! Replies with entries and ids.

use std::ops::RangeInclusive;

use keyspace::{StreamEntry, StreamId, StreamOrder, StreamView};
use wire::ReplyWriter;

use crate::postponed::Postponed;

#[inline]
pub(super) fn write_id(reply: &mut ReplyWriter<'_>, id: StreamId) {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms), seq.format(id.seq));
    reply.bulk_header(ms.len() + 1 + seq.len());
    reply.raw(ms.as_bytes());
    reply.raw(b"-");
    reply.raw(seq.as_bytes());
    reply.bulk_end();
}

/// Writes an entry: its id, then fields and values alternately.
pub(crate) fn write_entry(reply: &mut ReplyWriter<'_>, entry: &StreamEntry<'_>) {
    reply.array(2);
    write_fields_of(reply, entry);
}

/// Writes the parts of an entry without the array header of [`write_entry`].
pub(super) fn write_fields_of(reply: &mut ReplyWriter<'_>, entry: &StreamEntry<'_>) {
    write_id(reply, entry.id);
    let fields = entry.fields();
    reply.array(2 * fields.len());
    for (name, value) in fields {
        reply.bulk(name);
        reply.bulk(&value);
    }
}

/// Writes at most `count` entries in a range of ids: later if they are many and `postponed` is given,
/// otherwise at once.
pub(super) fn write_range(
    reply: &mut ReplyWriter<'_>,
    postponed: Option<&mut Postponed>,
    stream: StreamView<'_>,
    ids: RangeInclusive<StreamId>,
    order: StreamOrder,
    count: usize,
) {
    if let Some(postponed) = postponed
        && let Some(entries) = stream.share(ids.clone(), order, count)
    {
        reply.array(entries.len());
        return postponed.add(reply, entries);
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
