//! Reading as a consumer of a group: XREADGROUP.

use engine::{CommandError, Context, clients::Nothing};
use keyspace::{
    ConsumerTimes, Delivery, GroupPosition, GroupView, KeyOp, Listed, PendingView, StreamEntry, StreamId,
    StreamOrder, StreamView,
};
use wire::{Args, ReplyWriter};

use super::{
    id, lag,
    read::{Call, Streams, behind},
    reply::{write_entry, write_fields_of, write_id},
    see_consumer, shown, stream,
};

/// The maximum size of a delivery in a record, in bytes.
const DELIVERY_BYTES: u64 = 40;
/// The maximum size of the effects on one key besides their names and deliveries, in bytes.
const EFFECTS_BYTES: u64 = 256;
/// Up to this many deliveries need no check of their own for room in the log: together they are shorter than
/// [`engine::context::EFFECT_BYTES_BESIDE_ARGS`], which every command may log.
const DELIVERIES_ADMITTED: usize = 1000;
/// Up to this many bytes of [`Reader::names_bytes_max`] need no such check, either.
const NAMES_BYTES_ADMITTED: u64 = 16 << 10;

/// Where a consumer begins to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// `>`: entries that the group has not delivered yet.
    New,
    /// Entries that are pending for the consumer, after this id.
    Pending(StreamId),
}

impl From {
    fn parse(word: &[u8]) -> Result<From, CommandError> {
        match word {
            b">" => Ok(From::New),
            b"$" => Err(CommandError::Text(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                 an empty result set.",
            )),
            b"+" => Err(CommandError::Text(
                "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would just return \
                 an empty result set.",
            )),
            word => id::parse_id(word, 0).map(From::Pending),
        }
    }
}

/// The consumer that reads, and its options.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) group: &'a [u8],
    pub(super) consumer: &'a [u8],
    pub(super) count: usize,
    pub(super) acknowledges: bool,
    pub(super) claims_idle_ms: Option<u64>,
}

impl<'a> Reader<'a> {
    pub(super) fn of(call: &Call<'a>) -> Option<Reader<'a>> {
        let (group, consumer) = call.group?;
        let Call { count, acknowledges, claims_idle_ms, .. } = *call;
        Some(Reader { group, consumer, count, acknowledges, claims_idle_ms })
    }

    /// The stream at `key` and the group that reads it.
    pub(super) fn find<'u>(
        &self,
        cx: &'u Context<'_, '_>,
        key: &[u8],
    ) -> Result<(StreamView<'u>, GroupView<'u>), CommandError> {
        let stream = stream(cx.unit.peek(cx.session.db, key))?;
        let group = stream.and_then(|stream| Some((stream, stream.group(self.group)?)));
        group.ok_or_else(|| {
            let (key, group) = (shown(key), shown(self.group));
            CommandError::Composed(format!(
                "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
            ))
        })
    }

    /// An upper bound of the bytes of the effects on a key besides the deliveries. There are four at most: to
    /// remove the expired key, to see the consumer, to move the group and to add the deliveries.
    pub(super) fn names_bytes_max(&self, key: &[u8]) -> u64 {
        let (key, group, consumer) = (key.len(), self.group.len(), self.consumer.len());
        EFFECTS_BYTES + (4 * key + 3 * group + 2 * consumer) as u64
    }

    /// An upper bound of the entries that the reader gets. For a short stream, its length is close enough. In
    /// a longer stream, the new entries are counted, which costs little beside delivering them.
    fn entries_max(&self, (stream, group): (StreamView<'_>, GroupView<'_>), from: From) -> usize {
        let claimed = if self.claims_idle_ms.is_some() { group.pending_len() } else { 0 };
        let left = match from {
            From::New if stream.len() <= DELIVERIES_ADMITTED => stream.len() + claimed,
            From::New => stream.range(behind(group.position().last_id)).take(self.count).count() + claimed,
            From::Pending(_) => group.consumer(self.consumer).map_or(0, |consumer| consumer.pending_len()),
        };
        left.min(self.count)
    }
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] [CLAIM min-idle-time] STREAMS
/// key ... id ...`
pub(super) fn xreadgroup(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let call = Call::parse(args, true)?;
    let reader = Reader::of(&call).ok_or(CommandError::Syntax)?;
    let (mut froms, mut entries_max) = (Vec::with_capacity(call.keys.len()), 0);
    let may_be_many = call.keys.len().saturating_mul(reader.count) > DELIVERIES_ADMITTED;
    for (key, word) in call.streams(args) {
        let found = reader.find(cx, key)?;
        let from = From::parse(word)?;
        if may_be_many {
            entries_max += reader.entries_max(found, from);
        }
        froms.push(from);
    }
    // A call that may block is not offloaded: entries present now could be gone when the call runs on the
    // other thread, and there the call could not wait for new entries.
    if call.waits.is_none() {
        cx.elements_max().require(entries_max)?;
    }
    let names_bytes: u64 = call.streams(args).map(|(key, _)| reader.names_bytes_max(key)).sum();
    if entries_max > DELIVERIES_ADMITTED || names_bytes > NAMES_BYTES_ADMITTED {
        cx.require_room(names_bytes + entries_max.max(DELIVERIES_ADMITTED) as u64 * DELIVERY_BYTES)?;
    }
    let mut streams = Streams::begin(&cx.reply);
    for ((key, _), from) in call.streams(args).zip(&froms) {
        match from {
            From::New => deliver_new(cx, key, &reader, &mut streams)?,
            From::Pending(after) => deliver_again(cx, key, &reader, *after, &mut streams)?,
        }
    }
    if streams.end(cx) {
        return Ok(());
    }
    match call.waits {
        None => Nothing::Array.write(&mut cx.reply),
        Some(timeout_ms) => super::blocking::wait_to_deliver(cx, args, call.keys, timeout_ms),
    }
    Ok(())
}

/// The deliveries of one call at a key, before they become effects.
struct Delivered {
    deliveries: Vec<Delivery>,
    position: GroupPosition,
    consumer: Option<ConsumerTimes>,
}

impl Delivered {
    /// Adds an entry that the group has not delivered before.
    fn add(&mut self, stream: StreamView<'_>, reader: &Reader<'_>, id: StreamId, now_ms: u64) {
        lag::read_one(stream, &mut self.position, id);
        if !reader.acknowledges {
            self.deliveries.push(Delivery { id, time_ms: now_ms, count: 1 });
        }
    }
}

/// Delivers new entries to the consumer. With CLAIM, entries that have been pending for at least the given
/// time come first.
pub(super) fn deliver_new(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    reader: &Reader<'_>,
    streams: &mut Streams,
) -> Result<(), CommandError> {
    let (db, now_ms, group) = (cx.db(), cx.now_ms(), reader.group);
    let (stream, found) = {
        let entry = cx.unit.get(db, key);
        let stream = self::stream(entry)?;
        match stream.and_then(|stream| Some((stream, stream.group(group)?))) {
            Some(found) => found,
            None => return reader.find(cx, key).map(drop),
        }
    };
    let mut delivered = Delivered {
        deliveries: Vec::new(),
        position: found.position(),
        consumer: found.consumer(reader.consumer).map(|consumer| consumer.times()),
    };
    let claimed = claimable(stream, found, reader, now_ms);
    let (ids, left) = (behind(delivered.position.last_id), reader.count - claimed.len());
    let new = stream.range(ids.clone()).take(left);
    // With CLAIM, entries are written at once, because they carry their idle times.
    let may_postpone = !cx.in_transaction && reader.claims_idle_ms.is_none();
    if let Some(entries) = may_postpone.then(|| stream.share(ids, StreamOrder::Ascending, left)).flatten() {
        streams.add(&mut cx.reply, key);
        cx.reply.array(entries.len());
        cx.deferred_reply.add(&cx.reply, entries);
        new.for_each(|entry| delivered.add(stream, reader, entry.id, now_ms));
    } else {
        let mut new = new.peekable();
        if !claimed.is_empty() || new.peek().is_some() {
            streams.add(&mut cx.reply, key);
            let entries = cx.reply.begin_deferred();
            for (entry, before) in &claimed {
                let Delivery { id, time_ms, count } = *before;
                write_claimed(&mut cx.reply, entry, now_ms.saturating_sub(time_ms), count);
                delivered.deliveries.push(Delivery { id, time_ms: now_ms, count: count.saturating_add(1) });
            }
            let mut count = claimed.len();
            for entry in new {
                match reader.claims_idle_ms {
                    Some(_) => write_claimed(&mut cx.reply, &entry, 0, 0),
                    None => write_entry(&mut cx.reply, &entry),
                }
                delivered.add(stream, reader, entry.id, now_ms);
                count += 1;
            }
            cx.reply.end_deferred(entries, wire::Aggregate::Array, count);
        }
    }
    let moved = delivered.position != found.position();
    see_consumer(cx, key, group, reader.consumer, delivered.consumer, !delivered.deliveries.is_empty());
    if moved {
        cx.apply(key, KeyOp::StreamPutGroup { group, position: delivered.position });
    }
    pend(cx, key, reader, &delivered.deliveries);
    Ok(())
}

/// The entries pending for at least the CLAIM time, the longest pending first.
fn claimable<'a>(
    stream: StreamView<'a>,
    group: GroupView<'a>,
    reader: &Reader<'_>,
    now_ms: u64,
) -> Vec<(StreamEntry<'a>, Delivery)> {
    let Some(idle_ms_min) = reader.claims_idle_ms else { return Vec::new() };
    let is_idle = |pending: &PendingView<'_>| now_ms.saturating_sub(pending.delivery.time_ms) >= idle_ms_min;
    let pending = group.pending_in(StreamId::ZERO..=StreamId::MAX).filter(is_idle);
    let mut idle: Vec<Delivery> = pending.map(|pending| pending.delivery).collect();
    idle.sort_unstable_by_key(|delivery| (delivery.time_ms, delivery.id));
    let entries = idle.into_iter().filter_map(|delivery| Some((stream.get(delivery.id)?, delivery)));
    entries.take(reader.count).collect()
}

/// Writes an entry with its idle time and its number of earlier deliveries.
fn write_claimed(reply: &mut ReplyWriter<'_>, entry: &StreamEntry<'_>, idle_ms: u64, count: u32) {
    reply.array(4);
    write_fields_of(reply, entry);
    reply.integer(idle_ms as i64);
    reply.integer(count.into());
}

/// Delivers the pending entries of the consumer again. Entries that no longer exist have no fields.
fn deliver_again(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    reader: &Reader<'_>,
    after: StreamId,
    streams: &mut Streams,
) -> Result<(), CommandError> {
    let (db, now_ms) = (cx.db(), cx.now_ms());
    let Some(stream) = stream(cx.unit.get(db, key))? else { return reader.find(cx, key).map(drop) };
    let Some(group) = stream.group(reader.group) else { return reader.find(cx, key).map(drop) };
    let consumer = group.consumer(reader.consumer);
    streams.add(&mut cx.reply, key);
    let deferred = cx.reply.begin_deferred();
    let (mut deliveries, mut shown) = (Vec::new(), 0);
    let ids = consumer.into_iter().flat_map(|consumer| consumer.pending_ids(behind(after)));
    for pending in ids.take(reader.count).filter_map(|id| group.pending(id)) {
        let Delivery { id, count, .. } = pending.delivery;
        match stream.get(id) {
            Some(entry) => {
                write_entry(&mut cx.reply, &entry);
                deliveries.push(Delivery { id, time_ms: now_ms, count: count.saturating_add(1) });
            }
            None => {
                cx.reply.array(2);
                write_id(&mut cx.reply, id);
                cx.reply.null_array();
            }
        }
        shown += 1;
    }
    cx.reply.end_deferred(deferred, wire::Aggregate::Array, shown);
    let before = consumer.map(|consumer| consumer.times());
    see_consumer(cx, key, reader.group, reader.consumer, before, false);
    pend(cx, key, reader, &deliveries);
    Ok(())
}

fn pend(cx: &mut Context<'_, '_>, key: &[u8], reader: &Reader<'_>, deliveries: &[Delivery]) {
    if !deliveries.is_empty() {
        let (group, consumer) = (reader.group, reader.consumer);
        let deliveries = Listed::Slices(deliveries);
        cx.apply(key, KeyOp::StreamPend { group, consumer, deliveries });
    }
}
