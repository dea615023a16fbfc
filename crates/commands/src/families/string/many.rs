//! Several strings at once: MGET, MSET, MSETNX.

use keyspace::{Effect, Value};
use wire::Args;

use crate::{CommandError, Context};

/// `MGET key [key ...]`
pub(super) fn mget(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let keys = args.skip(1);
    cx.reply.array(keys.len());
    for key in keys {
        // A value of another type reads as none: MGET never fails.
        cx.reply.bulk_or_null(cx.unit.read(db, key).and_then(|entry| entry.string()));
    }
    Ok(())
}

/// `MSET key value [key value ...]`
pub(super) fn mset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_pairs(args, "mset")?;
    put_all(cx, args);
    cx.reply.ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub(super) fn msetnx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_pairs(args, "msetnx")?;
    let db = cx.db();
    let sets = args.skip(1).iter().step_by(2).all(|key| cx.unit.get(db, key).is_none());
    if sets {
        put_all(cx, args);
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// Every key needs a value, which the arity of the row cannot say.
fn require_pairs(args: Args<'_>, command: &'static str) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) { Err(CommandError::WrongArity(command)) } else { Ok(()) }
}

fn put_all(cx: &mut Context<'_, '_>, args: Args<'_>) {
    let db = cx.db();
    for index in (1..args.len()).step_by(2) {
        let (key, value) = (args.at(index), Value::String(args.at(index + 1)));
        cx.apply(&Effect::Put { db, key, value, expire_at_ms: None });
    }
}
