//! Adding entries: XADD.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, StreamId};
use wire::Args;

use super::{id::NewId, reply::write_id, stream, trim::TrimWords};
use crate::{Slices, effect_bytes_max, gather};

/// `XADD key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* |
/// id> field value ...`
pub(super) fn xadd(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let (mut words, mut rest, mut creates) = (TrimWords::default(), args.skip(2), true);
    let new_id = loop {
        let Some(word) = rest.get(0) else { return Err(CommandError::WrongArity("xadd")) };
        if word == b"*" {
            break NewId::Next;
        } else if word.eq_ignore_ascii_case(b"nomkstream") {
            creates = false;
            rest = rest.skip(1);
        } else if let Some(taken) = words.take(rest)? {
            rest = rest.skip(taken);
        } else {
            break NewId::parse(word)?;
        }
    };
    let trim = words.finish_optional()?;
    let fields = rest.skip(1);
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("xadd"));
    }
    if new_id == NewId::Given(StreamId::ZERO) {
        return Err(CommandError::Text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let last_id = match stream(cx.unit.get(db, key))? {
        Some(stream) => stream.head().last_id,
        None if creates => StreamId::ZERO,
        None => {
            cx.reply.null();
            return Ok(());
        }
    };
    if last_id == StreamId::MAX {
        return Err(CommandError::Text(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = new_id.after(last_id, cx.now_ms())?;
    if let Some(trim) = &trim {
        trim.require_room(cx, key, effect_bytes_max(args))?;
    }
    let mut slices = Slices::new();
    let pairs = gather(fields, &mut slices);
    cx.apply(key, KeyOp::StreamAdd { id, pairs });
    cx.notify(EventClass::STREAM, "xadd", key);
    if let Some(trim) = trim {
        trim.make(cx, key)?;
    }
    write_id(&mut cx.reply, id);
    Ok(())
}
