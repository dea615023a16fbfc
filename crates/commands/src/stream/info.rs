//! XINFO: information about streams, groups and consumers.

use engine::{CommandError, Context};
use keyspace::{
    ConsumerTimes, ConsumerView, Delivery, GroupPosition, GroupView, StreamEntry, StreamId, StreamView,
};
use wire::{Args, ReplyWriter, number::parse_i64};

use super::{
    lag, named_group,
    reply::{write_entries, write_entry, write_id},
    shown, stream,
};

/// The default count of entries and pending entries in XINFO STREAM FULL.
const FULL_COUNT: usize = 10;

const ALL: std::ops::RangeInclusive<StreamId> = StreamId::ZERO..=StreamId::MAX;

/// `XINFO STREAM key [FULL [COUNT count]]`
pub(super) fn describe(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let stream = stream(cx.unit.read(cx.session.db, args.at(2)))?.ok_or(CommandError::NoSuchKey)?;
    let full = match args.len() {
        3 => None,
        4 | 6 if args.at(3).eq_ignore_ascii_case(b"full") => Some(match args.get(4) {
            None => FULL_COUNT,
            Some(word) if word.eq_ignore_ascii_case(b"count") => {
                let count = parse_i64(args.at(5)).ok_or(CommandError::NotAnInteger)?;
                match usize::try_from(count) {
                    Ok(0) => usize::MAX,
                    Ok(count) => count,
                    Err(_) => FULL_COUNT,
                }
            }
            Some(_) => return Err(CommandError::Syntax),
        }),
        _ => {
            let subcommand = shown(args.at(1));
            return Err(CommandError::Composed(format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try XINFO HELP."
            )));
        }
    };
    let reply = &mut cx.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    write_head(reply, stream);
    match full {
        None => {
            number(reply, "groups", stream.groups_len() as u64);
            reply.bulk(b"first-entry");
            write_entry_or_null(reply, stream.first());
            reply.bulk(b"last-entry");
            write_entry_or_null(reply, stream.last());
        }
        Some(count) => {
            reply.bulk(b"entries");
            write_entries(reply, stream.range(ALL).take(count));
            reply.bulk(b"groups");
            reply.array(stream.groups_len());
            stream.groups().for_each(|(name, group)| write_full_group(reply, stream, name, group, count));
        }
    }
    Ok(())
}

/// Writes the seven fields that XINFO STREAM shows both with and without FULL.
fn write_head(reply: &mut ReplyWriter<'_>, stream: StreamView<'_>) {
    let head = stream.head();
    number(reply, "length", stream.len() as u64);
    number(reply, "radix-tree-keys", stream.blocks_len() as u64);
    // The approximate number of nodes of a radix tree with these keys.
    number(reply, "radix-tree-nodes", stream.blocks_len() as u64 + 1);
    reply.bulk(b"last-generated-id");
    write_id(reply, head.last_id);
    reply.bulk(b"max-deleted-entry-id");
    write_id(reply, head.max_deleted_id);
    number(reply, "entries-added", head.entries_added);
    reply.bulk(b"recorded-first-entry-id");
    write_id(reply, stream.first().map_or(StreamId::ZERO, |first| first.id));
}

fn number(reply: &mut ReplyWriter<'_>, name: &str, number: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

fn number_or_null(reply: &mut ReplyWriter<'_>, name: &str, number: Option<i64>) {
    reply.bulk(name.as_bytes());
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

fn write_entry_or_null(reply: &mut ReplyWriter<'_>, entry: Option<StreamEntry<'_>>) {
    match entry {
        Some(entry) => write_entry(reply, &entry),
        None => reply.null(),
    }
}

/// Writes the fields of a group that XINFO GROUPS and XINFO STREAM FULL have in common, except for its name.
fn write_position(reply: &mut ReplyWriter<'_>, stream: StreamView<'_>, position: GroupPosition) {
    reply.bulk(b"last-delivered-id");
    write_id(reply, position.last_id);
    number_or_null(reply, "entries-read", position.entries_read.map(|read| read as i64));
    number_or_null(reply, "lag", lag::lag(stream, position));
}

fn write_full_group(
    reply: &mut ReplyWriter<'_>,
    stream: StreamView<'_>,
    name: &[u8],
    group: GroupView<'_>,
    count: usize,
) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    write_position(reply, stream, group.position());
    number(reply, "pel-count", group.pending_len() as u64);
    reply.bulk(b"pending");
    reply.array(group.pending_len().min(count));
    for pending in group.pending_in(ALL).take(count) {
        let Delivery { id, time_ms, count } = pending.delivery;
        reply.array(4);
        write_id(reply, id);
        reply.bulk(pending.consumer);
        reply.integer(time_ms as i64);
        reply.integer(count.into());
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers_len());
    group.consumers().for_each(|consumer| write_full_consumer(reply, group, consumer, count));
}

fn write_full_consumer(
    reply: &mut ReplyWriter<'_>,
    group: GroupView<'_>,
    consumer: ConsumerView<'_>,
    count: usize,
) {
    let ConsumerTimes { seen_ms, active_ms } = consumer.times();
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    number(reply, "seen-time", seen_ms);
    reply.bulk(b"active-time");
    reply.integer(active_ms.map_or(-1, |ms| ms as i64));
    number(reply, "pel-count", consumer.pending_len() as u64);
    reply.bulk(b"pending");
    reply.array(consumer.pending_len().min(count));
    let pending = consumer.pending_ids(ALL).filter_map(|id| group.pending(id));
    for Delivery { id, time_ms, count } in pending.map(|pending| pending.delivery).take(count) {
        reply.array(3);
        write_id(reply, id);
        reply.integer(time_ms as i64);
        reply.integer(count.into());
    }
}

/// `XINFO GROUPS key`
pub(super) fn groups(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let stream = stream(cx.unit.read(cx.session.db, args.at(2)))?.ok_or(CommandError::NoSuchKey)?;
    let reply = &mut cx.reply;
    reply.array(stream.groups_len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        number(reply, "consumers", group.consumers_len() as u64);
        number(reply, "pending", group.pending_len() as u64);
        write_position(reply, stream, group.position());
    }
    Ok(())
}

/// `XINFO CONSUMERS key group`
pub(super) fn consumers(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (key, now_ms) = (args.at(2), cx.now_ms());
    let stream = stream(cx.unit.read(cx.session.db, key))?.ok_or(CommandError::NoSuchKey)?;
    let group = named_group(stream, key, args.at(3))?;
    let reply = &mut cx.reply;
    reply.array(group.consumers_len());
    for consumer in group.consumers() {
        let ConsumerTimes { seen_ms, active_ms } = consumer.times();
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        number(reply, "pending", consumer.pending_len() as u64);
        number(reply, "idle", now_ms.saturating_sub(seen_ms));
        reply.bulk(b"inactive");
        reply.integer(active_ms.map_or(-1, |ms| now_ms.saturating_sub(ms) as i64));
    }
    Ok(())
}
