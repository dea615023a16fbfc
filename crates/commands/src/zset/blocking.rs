//! Waiting for members: BZPOPMIN, BZPOPMAX, BZMPOP.
//!
//! Each command tries its non-blocking form at once. If there is no sorted set, the client waits until one of
//! its keys holds one (see `engine::blocking`).

use engine::{
    CommandError, Context, Flags, KeyUsage, Keys, Needs, Row,
    callbacks::Serve,
    clients::{Awaited, Nothing, Wants},
};
use keyspace::ValueType;
use wire::Args;

use super::{
    pop::{ScoreEnd, Several, pop_one, pop_several},
    rows::ROW,
};
use crate::timeout::parse_timeout_ms;

const POP: Row = Row {
    arity: -3,
    flags: Flags::WRITE.or(Flags::FAST).or(Flags::BLOCKING),
    keys: Keys::Range { first: 1, last: -2, step: 1 },
    since: "5.0.0",
    complexity: "O(log(N)) where N is the number of members.",
    syntax: "key [key ...] timeout",
    ..ROW
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "bzpopmin",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes the member with the lowest score of the first sorted set that exists, and waits for one if \
                  there is none.",
        handler: bzpopmin,
        ..POP
    },
    Row {
        name: "bzpopmax",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes the member with the highest score of the first sorted set that exists, and waits for one if \
                  there is none.",
        handler: bzpopmax,
        ..POP
    },
    Row {
        name: "bzmpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -5,
        flags: Flags::WRITE.or(Flags::BLOCKING),
        keys: Keys::Counted { at: 2, before: None },
        since: "7.0.0",
        complexity: "O(K)+O(M*log(N)) where K is the number of keys, N the number of members and M of those popped.",
        summary: "Removes the first or last members of the first sorted set that exists, and waits for one if there is \
                  none.",
        syntax: "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
        handler: bzmpop,
        ..ROW
    },
];

/// `BZPOPMIN key [key ...] timeout`
fn bzpopmin(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(cx, args, ScoreEnd::Min, |cx, key, _| served(pop_one(cx, [key], ScoreEnd::Min)))
}

/// `BZPOPMAX key [key ...] timeout`
fn bzpopmax(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(cx, args, ScoreEnd::Max, |cx, key, _| served(pop_one(cx, [key], ScoreEnd::Max)))
}

fn pop_or_wait(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    end: ScoreEnd,
    serve: Serve,
) -> Result<(), CommandError> {
    let keys = 1..args.len() - 1;
    let timeout_ms = parse_timeout_ms(args.at(keys.end))?;
    if !pop_one(cx, args.skip(keys.start).take(keys.len()), end)? {
        let (wants, nothing) = (Wants::Type(ValueType::Zset), Nothing::Array);
        cx.block(args, Awaited { keys, wants, needs: None, timeout_ms, nothing, serve });
    }
    Ok(())
}

/// `BZMPOP timeout numkeys key [key ...] <MIN | MAX> [COUNT count]`
fn bzmpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Several { keys, end, count } = Several::parse(args, 2)?;
    let timeout_ms = parse_timeout_ms(args.at(1))?;
    if !pop_several(cx, keys, end, count)? {
        let serve: Serve = |cx, key, args| {
            let Several { end, count, .. } = Several::parse(args, 2)?;
            served(pop_several(cx, [key], end, count))
        };
        let (wants, nothing) = (Wants::Type(ValueType::Zset), Nothing::Array);
        let keys = 3..3 + keys.len();
        cx.block(args, Awaited { keys, wants, needs: None, timeout_ms, nothing, serve });
    }
    Ok(())
}

/// The outcome of a pop for a client that has waited.
fn served(popped: Result<bool, CommandError>) -> Result<(), CommandError> {
    let popped = popped?;
    debug_assert!(popped, "only a key that holds a sorted set is served from");
    Ok(())
}
