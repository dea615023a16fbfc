//! Replies with IDs and entries of streams.

use keyspace::{StreamEntry, StreamId};
use wire::ReplyWriter;

/// Writes an id as the bulk string `MS-SEQ`.
#[inline]
pub fn write_id(reply: &mut ReplyWriter<'_>, id: StreamId) {
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms), seq.format(id.seq));
    reply.bulk_header(ms.len() + 1 + seq.len());
    reply.raw(ms.as_bytes());
    reply.raw(b"-");
    reply.raw(seq.as_bytes());
    reply.bulk_end();
}

/// Writes an entry: its id, then fields and values alternately.
pub fn write_entry(reply: &mut ReplyWriter<'_>, entry: &StreamEntry<'_>) {
    reply.array(2);
    write_fields_of(reply, entry);
}

/// Writes the parts of an entry without the array header of [`write_entry`].
pub fn write_fields_of(reply: &mut ReplyWriter<'_>, entry: &StreamEntry<'_>) {
    write_id(reply, entry.id);
    let fields = entry.fields();
    reply.array(2 * fields.len());
    for (name, value) in fields {
        reply.bulk(name);
        reply.bulk(&value);
    }
}
