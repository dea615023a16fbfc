//! Creating and removing groups and consumers: XGROUP.

use engine::{CommandError, Context, EventClass};
use keyspace::{ConsumerTimes, Delivery, GroupPosition, KeyOp, Listed, StreamId, StreamView};
use wire::{Args, number::parse_i64};

use super::{id, named_group, see_consumer, stream};
use crate::effect_bytes_max;

const NO_KEY: CommandError = CommandError::Text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
     create an empty stream automatically.",
);

/// The options after the id.
#[derive(Default)]
struct Options {
    creates_key: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, may_create: bool) -> Result<Options, CommandError> {
        let (mut options, mut words) = (Options::default(), args.skip(5));
        while let Some(word) = words.get(0) {
            if may_create && word.eq_ignore_ascii_case(b"mkstream") {
                options.creates_key = true;
                words = words.skip(1);
            } else if word.eq_ignore_ascii_case(b"entriesread") && words.len() > 1 {
                let number = parse_i64(words.at(1)).ok_or(CommandError::NotAnInteger)?;
                if number < -1 {
                    return Err(CommandError::Text("ERR value for ENTRIESREAD must be positive or -1"));
                }
                options.entries_read = u64::try_from(number).ok();
                words = words.skip(2);
            } else {
                return Err(wrong_number(args));
            }
        }
        Ok(options)
    }
}

fn wrong_number(args: Args<'_>) -> CommandError {
    let subcommand = String::from_utf8_lossy(args.at(1)).into_owned();
    CommandError::Composed(format!(
        "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try XGROUP HELP."
    ))
}

/// The position of a group whose last delivered id is `text`; `$` stands for the last id of the stream.
fn position_at(
    stream: Option<StreamView<'_>>,
    text: &[u8],
    parse: fn(&[u8], u64) -> Result<StreamId, CommandError>,
    entries_read: Option<u64>,
) -> Result<GroupPosition, CommandError> {
    let last_id = match text {
        b"$" => stream.map_or(StreamId::ZERO, |stream| stream.head().last_id),
        text => parse(text, 0)?,
    };
    // A group has read no more entries than were ever added.
    let added = stream.map_or(0, |stream| stream.head().entries_added);
    Ok(GroupPosition { last_id, entries_read: entries_read.map(|read| read.min(added)) })
}

/// `XGROUP CREATE key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]`
pub(super) fn create(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group) = (cx.db(), args.at(2), args.at(3));
    let Options { creates_key, entries_read } = Options::parse(args, true)?;
    let stream = stream(cx.unit.get(db, key))?;
    if stream.is_none() && !creates_key {
        return Err(NO_KEY);
    }
    // All options together have three words, so a longer call repeats an option.
    if args.len() > 8 {
        return Err(wrong_number(args));
    }
    let position = position_at(stream, args.at(4), id::parse_id, entries_read)?;
    if stream.is_some_and(|stream| stream.group(group).is_some()) {
        return Err(CommandError::Text("BUSYGROUP Consumer Group name already exists"));
    }
    cx.apply(key, KeyOp::StreamPutGroup { group, position });
    cx.notify(EventClass::STREAM, "xgroup-create", key);
    cx.reply.ok();
    Ok(())
}

/// `XGROUP SETID key group <id | $> [ENTRIESREAD entries-read]`
pub(super) fn setid(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group) = (cx.db(), args.at(2), args.at(3));
    let Options { entries_read, .. } = Options::parse(args, false)?;
    let stream = stream(cx.unit.get(db, key))?.ok_or(NO_KEY)?;
    named_group(stream, key, group)?;
    // The only option has two words, so a longer call repeats the option.
    if args.len() > 7 {
        return Err(wrong_number(args));
    }
    let position = position_at(Some(stream), args.at(4), id::parse_bound, entries_read)?;
    cx.apply(key, KeyOp::StreamPutGroup { group, position });
    cx.notify(EventClass::STREAM, "xgroup-setid", key);
    cx.reply.ok();
    Ok(())
}

/// `XGROUP DESTROY key group`
pub(super) fn destroy(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group) = (cx.db(), args.at(2), args.at(3));
    stream(cx.unit.get(db, key))?.ok_or(NO_KEY)?;
    let removed = cx.apply(key, KeyOp::StreamDropGroup { group }).changed;
    if removed {
        cx.notify(EventClass::STREAM, "xgroup-destroy", key);
    }
    cx.reply.count(removed.into());
    Ok(())
}

/// `XGROUP CREATECONSUMER key group consumer`
pub(super) fn createconsumer(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group, consumer) = (cx.db(), args.at(2), args.at(3), args.at(4));
    let stream = stream(cx.unit.get(db, key))?.ok_or(NO_KEY)?;
    let before: Option<ConsumerTimes> =
        named_group(stream, key, group)?.consumer(consumer).map(|consumer| consumer.times());
    if before.is_none() {
        see_consumer(cx, key, group, consumer, before, false);
    }
    cx.reply.count(before.is_none().into());
    Ok(())
}

/// Words of a pending entry of XGROUP RESTORECONSUMER: id, time, count.
const PENDING_WORDS: usize = 3;
/// The maximum size of a delivery in a record, in bytes.
const DELIVERY_BYTES: u64 = 40;

/// `XGROUP RESTORECONSUMER key group consumer seen-ms active-ms [id time-ms count ...]`: for a consumer that
/// is copied from another server. Makes the consumer or sets its times (a negative active time stands for
/// none), and makes these ids pending, also those whose entries were deleted from the stream. Replies with
/// the number of ids.
pub(super) fn restoreconsumer(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group, consumer) = (cx.db(), args.at(2), args.at(3), args.at(4));
    let pending = args.skip(7);
    if !pending.len().is_multiple_of(PENDING_WORDS) {
        return Err(wrong_number(args));
    }
    let number = |word: &[u8]| parse_i64(word).ok_or(CommandError::NotAnInteger);
    let time = |word: &[u8]| number(word).map(|ms| u64::try_from(ms).unwrap_or(0));
    let times = ConsumerTimes { seen_ms: time(args.at(5))?, active_ms: number(args.at(6))?.try_into().ok() };
    let mut deliveries = Vec::with_capacity(pending.len() / PENDING_WORDS);
    for first in (0..pending.len()).step_by(PENDING_WORDS) {
        let (id, time_ms) = (id::parse_id(pending.at(first), 0)?, time(pending.at(first + 1))?);
        let count = number(pending.at(first + 2))?.clamp(0, u32::MAX.into());
        deliveries.push(Delivery { id, time_ms, count: count as u32 });
    }
    let stream = stream(cx.unit.get(db, key))?.ok_or(NO_KEY)?;
    let is_new = named_group(stream, key, group)?.consumer(consumer).is_none();
    // Two effects, which both have all names.
    let names_bytes = 2 * effect_bytes_max(args.take(5));
    cx.require_room(names_bytes + deliveries.len() as u64 * DELIVERY_BYTES)?;
    cx.apply(key, KeyOp::StreamPutConsumer { group, consumer, times });
    if !deliveries.is_empty() {
        let deliveries = Listed::Slices(&deliveries);
        cx.apply(key, KeyOp::StreamPend { group, consumer, deliveries });
    }
    if is_new {
        cx.notify(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    cx.reply.count(deliveries.len());
    Ok(())
}

/// `XGROUP DELCONSUMER key group consumer`
pub(super) fn delconsumer(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, group, consumer) = (cx.db(), args.at(2), args.at(3), args.at(4));
    let stream = stream(cx.unit.get(db, key))?.ok_or(NO_KEY)?;
    named_group(stream, key, group)?;
    let applied = cx.apply(key, KeyOp::StreamDropConsumer { group, consumer });
    if applied.changed {
        cx.notify(EventClass::STREAM, "xgroup-delconsumer", key);
    }
    cx.reply.count(applied.removed as usize);
    Ok(())
}
