//! XREAD, and the parts that it shares with XREADGROUP.
//!
//! XREAD and XREADGROUP read one key after the other ([`read_one`], `deliver::deliver_new`), and reply with
//! the entries of all keys that have some. If no key has an entry and BLOCK is given, the client waits, and
//! is served after a change that fills one of the keys (see `blocking`).

use std::ops::Range;

use engine::{CommandError, Context, clients::Nothing};
use keyspace::{StreamId, StreamOrder, StreamView};
use wire::{Args, Protocol, ReplyWriter, number::parse_i64};

use super::{
    id,
    range::{parse_size, require_few_entries},
    reply::write_range,
    stream,
};

/// The arguments of XREAD or XREADGROUP.
pub(super) struct Call<'a> {
    /// The maximum number of entries per key.
    pub(super) count: usize,
    /// Whether to wait if there are no entries, and the timeout in milliseconds; the inner `None` waits for
    /// ever.
    pub(super) waits: Option<Option<u64>>,
    /// The group and the consumer of XREADGROUP.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    /// NOACK: deliveries count as acknowledged at once.
    pub(super) acknowledges: bool,
    /// CLAIM: entries that have been pending for at least this time are delivered again.
    pub(super) claims_idle_ms: Option<u64>,
    /// The indices of the keys; their ids follow them.
    pub(super) keys: Range<usize>,
}

impl<'a> Call<'a> {
    /// Parses the arguments of XREAD, or of XREADGROUP if `has_group`.
    pub(super) fn parse(args: Args<'a>, has_group: bool) -> Result<Call<'a>, CommandError> {
        let mut call = Call {
            count: usize::MAX,
            waits: None,
            group: None,
            acknowledges: false,
            claims_idle_ms: None,
            keys: 0..0,
        };
        let mut at = 1;
        while let Some(word) = args.get(at) {
            let more = args.len() - 1 - at;
            match word.to_ascii_lowercase().as_slice() {
                b"block" if more >= 1 => {
                    call.waits = Some(timeout_ms(args.at(at + 1))?);
                    at += 2;
                }
                b"count" if more >= 1 => {
                    call.count = match parse_size(args.at(at + 1))? {
                        0 => usize::MAX,
                        count => count,
                    };
                    at += 2;
                }
                b"streams" if more >= 1 => {
                    if !more.is_multiple_of(2) {
                        return Err(unbalanced(has_group));
                    }
                    call.keys = at + 1..at + 1 + more / 2;
                    break;
                }
                b"group" if more >= 2 => {
                    if !has_group {
                        return Err(CommandError::Text(
                            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                        ));
                    }
                    call.group = Some((args.at(at + 1), args.at(at + 2)));
                    at += 3;
                }
                b"noack" => {
                    if !has_group {
                        return Err(CommandError::Text(
                            "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                        ));
                    }
                    call.acknowledges = true;
                    at += 1;
                }
                b"claim" if has_group && more >= 1 => {
                    let idle_ms = parse_i64(args.at(at + 1))
                        .ok_or(CommandError::Text("ERR min-idle-time is not an integer"))?;
                    let idle_ms = u64::try_from(idle_ms)
                        .map_err(|_| CommandError::Text("ERR min-idle-time must be a positive integer"))?;
                    call.claims_idle_ms = Some(idle_ms);
                    at += 2;
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        if call.keys.is_empty() {
            return Err(CommandError::Syntax);
        }
        if has_group && call.group.is_none() {
            return Err(CommandError::Text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(call)
    }

    /// The keys, each with its id argument.
    pub(super) fn streams(&self, args: Args<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let len = self.keys.len();
        self.keys.clone().map(move |at| (args.at(at), args.at(at + len)))
    }
}

/// Whether a call of XREAD, or of XREADGROUP if `has_group`, waits if there are no entries.
pub(super) fn waits(args: Args<'_>, has_group: bool) -> bool {
    Call::parse(args, has_group).is_ok_and(|call| call.waits.is_some())
}

fn unbalanced(has_group: bool) -> CommandError {
    CommandError::Text(match has_group {
        true => {
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
        }
        false => {
            "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified."
        }
    })
}

fn timeout_ms(word: &[u8]) -> Result<Option<u64>, CommandError> {
    /// The largest timeout: with the current unix milliseconds added, it still fits in 63 bits.
    const MS_MAX: i64 = i64::MAX / 2;
    let ms = parse_i64(word).ok_or(CommandError::Text("ERR timeout is not an integer or out of range"))?;
    match u64::try_from(ms) {
        Err(_) => Err(CommandError::Text("ERR timeout is negative")),
        Ok(_) if ms > MS_MAX => Err(CommandError::Text("ERR timeout is out of range")),
        Ok(ms) => Ok((ms > 0).then_some(ms)),
    }
}

/// The reply with several streams and their keys: an array of pairs in RESP2, a map in RESP3.
pub(super) struct Streams {
    deferred: wire::Deferred,
    len: usize,
}

impl Streams {
    pub(super) fn begin(reply: &ReplyWriter<'_>) -> Streams {
        Streams { deferred: reply.begin_deferred(), len: 0 }
    }

    /// Begins the element of this key; the caller writes the value.
    pub(super) fn add(&mut self, reply: &mut ReplyWriter<'_>, key: &[u8]) {
        self.len += 1;
        if reply.protocol() == Protocol::Resp2 {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Ends the reply. Returns whether it has a stream; if not, nothing is written.
    pub(super) fn end(self, cx: &mut Context<'_, '_>) -> bool {
        let (before, reply) = (cx.reply.position(), &mut cx.reply);
        let aggregate = match reply.protocol() {
            Protocol::Resp2 => wire::Aggregate::Array,
            Protocol::Resp3 => wire::Aggregate::Map,
        };
        if self.len > 0 {
            reply.end_deferred(self.deferred, aggregate, self.len);
            cx.deferred_reply.move_behind(reply.position() - before);
        }
        self.len > 0
    }
}

/// Parses the id after which XREAD reads. With `$`, XREAD reads only entries that are added later. With `+`,
/// it also reads the entry that is the last one now.
fn parse_after(stream: Option<StreamView<'_>>, word: &[u8]) -> Result<StreamId, CommandError> {
    let last_id = || stream.map_or(StreamId::ZERO, |stream| stream.head().last_id);
    match word {
        b"$" => Ok(last_id()),
        b"+" => {
            let last = stream.and_then(|stream| stream.last()).and_then(|last| last.id.previous());
            Ok(last.unwrap_or_else(last_id))
        }
        b">" => Err(CommandError::Text(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
        )),
        word => id::parse_id(word, 0),
    }
}

/// The range of ids after this one; empty for the highest id.
pub(super) fn behind(id: StreamId) -> std::ops::RangeInclusive<StreamId> {
    match id.next() {
        Some(next) => next..=StreamId::MAX,
        // An inverted range is empty.
        None => StreamId::MAX..=StreamId::ZERO,
    }
}

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]`
pub(super) fn xread(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let call = Call::parse(args, false)?;
    let mut afters = Vec::with_capacity(call.keys.len());
    for (key, word) in call.streams(args) {
        afters.push(parse_after(stream(cx.unit.read(cx.session.db, key))?, word)?);
    }
    // A call that may block is not offloaded: entries present now could be gone when the call runs on the
    // other thread, and there the call could not wait for new entries.
    if call.waits.is_none() {
        let elements_max = cx.elements_max();
        for ((key, _), after) in call.streams(args).zip(&afters) {
            if let Some(stream) = stream(cx.unit.get(cx.session.db, key))? {
                require_few_entries(
                    elements_max,
                    stream,
                    &behind(*after),
                    StreamOrder::Ascending,
                    call.count,
                )?;
            }
        }
    }
    let mut streams = Streams::begin(&cx.reply);
    for ((key, _), after) in call.streams(args).zip(&afters) {
        read_one(cx, key, *after, call.count, &mut streams)?;
    }
    if streams.end(cx) {
        return Ok(());
    }
    match call.waits {
        None => Nothing::Array.write(&mut cx.reply),
        Some(timeout_ms) => super::blocking::wait_to_read(cx, args, call.keys, &afters, timeout_ms),
    }
    Ok(())
}

/// Adds the entries of a key after an id.
pub(super) fn read_one(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    after: StreamId,
    count: usize,
    streams: &mut Streams,
) -> Result<(), CommandError> {
    if let Some(stream) = stream(cx.unit.get(cx.session.db, key))? {
        let ids = behind(after);
        if stream.range(ids.clone()).next().is_some() {
            streams.add(&mut cx.reply, key);
            let deferred_reply = (!cx.in_transaction).then_some(&mut cx.deferred_reply);
            write_range(&mut cx.reply, deferred_reply, stream, ids, StreamOrder::Ascending, count);
        }
    }
    Ok(())
}

/// Visits the keys of XREAD and XREADGROUP.
pub(super) fn find_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    let mut at = 1;
    while let Some(word) = args.get(at) {
        at += match word.to_ascii_lowercase().as_slice() {
            b"block" | b"count" | b"claim" => 2,
            b"group" => 3,
            b"noack" => 1,
            b"streams" => {
                let more = args.len() - 1 - at;
                if more.is_multiple_of(2) {
                    (at + 1..at + 1 + more / 2).for_each(visit);
                }
                return;
            }
            _ => return,
        };
    }
}
