//! Waiting for entries: XREAD BLOCK, XREADGROUP BLOCK.
//!
//! A client that reads as a consumer also stops waiting when its group ends: when the key is removed or
//! changes its type, or the group is destroyed. The client then gets the same error as from a new call.

use std::ops::Range;

use engine::{
    CommandError, Context, Unit,
    clients::{Awaited, Nothing, Wants},
};
use keyspace::{DbId, StreamId, slot_of};
use wire::{Args, OwnedArgs};

use super::{
    deliver::{Reader, deliver_new},
    id,
    read::{Call, Streams, behind, read_one},
    stream,
};

/// Waits until one of the keys has an entry after its id in `afters`.
pub(super) fn wait_to_read(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    keys: Range<usize>,
    afters: &[StreamId],
    timeout_ms: Option<u64>,
) {
    // `$` is resolved when the wait begins.
    let mut resolved: OwnedArgs = args.take(keys.end).into();
    afters.iter().for_each(|after| resolved.push(after.to_string().as_bytes()));
    let wants = Wants::Condition(has_entries);
    let awaited =
        Awaited { keys, wants, needs: None, timeout_ms, nothing: Nothing::Array, serve: serve_read };
    cx.block(resolved.as_args(), awaited);
}

/// The ids after which a waiting call reads at a key, each with the count; the call may name the key several
/// times.
fn afters<'a>(args: Args<'a>, key: &'a [u8]) -> impl Iterator<Item = (StreamId, usize)> + use<'a> {
    let call = Call::parse(args, false).ok();
    let found = call.into_iter().flat_map(move |call| {
        let count = call.count;
        call.streams(args).map(move |(own, word)| (own, word, count))
    });
    found
        .filter(move |(own, ..)| *own == key)
        .filter_map(|(_, word, count)| Some((id::parse_id(word, 0).ok()?, count)))
}

fn has_entries(unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool {
    let Ok(Some(stream)) = stream(unit.peek(db, key)) else { return false };
    afters(args, key).any(|(after, _)| stream.range(behind(after)).next().is_some())
}

/// Serves a waiting call from `key` and from its other keys whose slots are locked, in the order of the call:
/// a transaction may have filled several streams.
fn serve_read(cx: &mut Context<'_, '_>, key: &[u8], args: Args<'_>) -> Result<(), CommandError> {
    let mut streams = Streams::begin(&cx.reply);
    let call = Call::parse(args, false)?;
    for (own, word) in call.streams(args) {
        let may_read = |cx: &Context<'_, '_>| {
            cx.unit.has_locked(slot_of(own)) && stream(cx.unit.peek(cx.db(), own)).is_ok()
        };
        if own == key || may_read(cx) {
            read_one(cx, own, id::parse_id(word, 0)?, call.count, &mut streams)?;
        }
    }
    let served = streams.end(cx);
    debug_assert!(served, "only a key with entries is served from");
    Ok(())
}

/// Waits for entries that a group has not delivered yet.
pub(super) fn wait_to_deliver(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    keys: Range<usize>,
    timeout_ms: Option<u64>,
) {
    let wants = Wants::Condition(has_news);
    let awaited =
        Awaited { keys, wants, needs: None, timeout_ms, nothing: Nothing::Array, serve: serve_delivery };
    cx.block(args, awaited);
}

/// Whether the key has entries to deliver, or the waiting call would fail now.
fn has_news(unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool {
    let Some((group, _)) = Call::parse(args, true).ok().and_then(|call| call.group) else { return true };
    let Ok(Some(stream)) = stream(unit.peek(db, key)) else { return true };
    let Some(group) = stream.group(group) else { return true };
    stream.range(behind(group.position().last_id)).next().is_some()
}

fn serve_delivery(cx: &mut Context<'_, '_>, key: &[u8], args: Args<'_>) -> Result<(), CommandError> {
    let call = Call::parse(args, true)?;
    let reader = Reader::of(&call).ok_or(CommandError::Syntax)?;
    cx.require_room(reader.names_bytes_max(key))?;
    let mut streams = Streams::begin(&cx.reply);
    deliver_new(cx, key, &reader, &mut streams)?;
    let served = streams.end(cx);
    debug_assert!(served, "only a key with entries is served from");
    Ok(())
}
