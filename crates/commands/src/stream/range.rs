//! Reading ranges: XLEN, XRANGE, XREVRANGE.

use std::ops::RangeInclusive;

use engine::{CommandError, Context, long_units::ElementsMax};
use keyspace::{StreamId, StreamOrder, StreamView};
use wire::{Args, number::parse_i64};

use super::{id, reply::write_range, stream};

/// `XLEN key`
pub(super) fn xlen(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let len = stream(cx.unit.read(cx.session.db, args.at(1)))?.map_or(0, |stream| stream.len());
    cx.reply.count(len);
    Ok(())
}

/// `XRANGE key start end [COUNT count]`
pub(super) fn xrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_range(cx, args, args.at(2), args.at(3), StreamOrder::Ascending)
}

/// `XREVRANGE key end start [COUNT count]`
pub(super) fn xrevrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_range(cx, args, args.at(3), args.at(2), StreamOrder::Descending)
}

fn reply_range(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    start: &[u8],
    end: &[u8],
    order: StreamOrder,
) -> Result<(), CommandError> {
    let ids = id::parse_range(start, end)?;
    let count = parse_count(args.skip(4))?;
    let elements_max = cx.elements_max();
    let Some(stream) = stream(cx.unit.read(cx.session.db, args.at(1)))? else {
        cx.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        cx.reply.null_array();
        return Ok(());
    }
    let count = count.unwrap_or(usize::MAX);
    require_few_entries(elements_max, stream, &ids, order, count)?;
    let deferred_reply = (!cx.in_transaction).then_some(&mut cx.deferred_reply);
    write_range(&mut cx.reply, deferred_reply, stream, ids, order, count);
    Ok(())
}

/// Checks that the reply has few enough entries for this thread.
///
/// # Errors
/// [`CommandError::NeedsOwnThread`], which the caller must pass on.
pub(super) fn require_few_entries(
    elements_max: ElementsMax,
    stream: StreamView<'_>,
    ids: &RangeInclusive<StreamId>,
    order: StreamOrder,
    count: usize,
) -> Result<(), CommandError> {
    let Err(needs) = elements_max.require(count.min(stream.len())) else { return Ok(()) };
    let entries = stream.share(ids.clone(), order, count);
    elements_max.require(entries.map_or(0, |entries| entries.len())).map_err(|_| needs)
}

/// Parses `[COUNT count]`, possibly repeated; a negative count is 0.
fn parse_count(mut words: Args<'_>) -> Result<Option<usize>, CommandError> {
    let mut count = None;
    while !words.is_empty() {
        if words.len() < 2 || !words.at(0).eq_ignore_ascii_case(b"count") {
            return Err(CommandError::Syntax);
        }
        count = Some(parse_size(words.at(1))?);
        words = words.skip(2);
    }
    Ok(count)
}

/// Parses a count; a negative count is 0.
pub(super) fn parse_size(word: &[u8]) -> Result<usize, CommandError> {
    let number = parse_i64(word).ok_or(CommandError::NotAnInteger)?;
    Ok(usize::try_from(number).unwrap_or(0))
}
