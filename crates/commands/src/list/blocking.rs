//! Waiting for elements: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH.
//!
//! Each command tries its non-blocking form at once. If there is no list, the client waits until one of its
//! keys holds one, by a push, a RENAME or otherwise, or until its timeout (see `engine::blocking`).

use engine::{
    CommandError, Context, Flags, KeyUsage, Keys, Needs, Row,
    callbacks::Serve,
    clients::{Awaited, Nothing, Wants},
};
use keyspace::{ListEnd, ValueType, slot_of};
use wire::Args;

use super::{
    ROW, parse_end,
    pop::{MultiPop, pop_first},
    transfer::move_element,
};
use crate::timeout::parse_timeout_ms;

const WAIT: Flags = Flags::WRITE.or(Flags::BLOCKING);

const POP: Row = Row {
    arity: -3,
    flags: WAIT,
    keys: Keys::Range { first: 1, last: -2, step: 1 },
    since: "2.0.0",
    complexity: "O(N) where N is the number of keys.",
    syntax: "key [key ...] timeout",
    ..ROW
};

const MOVE: Row =
    Row { flags: WAIT.or(Flags::DENYOOM), keys: Keys::Range { first: 1, last: 2, step: 1 }, ..ROW };

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "blpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes the head of the first list that exists, and waits for one if there is none.",
        handler: blpop,
        ..POP
    },
    Row {
        name: "brpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes the tail of the first list that exists, and waits for one if there is none.",
        handler: brpop,
        ..POP
    },
    Row {
        name: "blmpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -5,
        flags: WAIT,
        keys: Keys::Counted { at: 2, before: None },
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        summary: "Removes elements from an end of the first list that exists, and waits for one if there is none.",
        syntax: "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        handler: blmpop,
        ..ROW
    },
    Row {
        name: "blmove",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::INSERT),
        arity: 6,
        since: "6.2.0",
        summary: "Moves an element from an end of a list to an end of another one, and waits for it if there is none.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
        handler: blmove,
        ..MOVE
    },
    Row {
        name: "brpoplpush",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::INSERT),
        since: "2.2.0",
        summary: "Moves the last element of a list to the head of another one, and waits for it if there is none.",
        syntax: "source destination timeout",
        handler: brpoplpush,
        ..MOVE
    },
];

/// `BLPOP key [key ...] timeout`
fn blpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(cx, args, ListEnd::Head, |cx, key, _| pop_one(cx, key, ListEnd::Head, None))
}

/// `BRPOP key [key ...] timeout`
fn brpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(cx, args, ListEnd::Tail, |cx, key, _| pop_one(cx, key, ListEnd::Tail, None))
}

fn pop_or_wait(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    end: ListEnd,
    serve: Serve,
) -> Result<(), CommandError> {
    let keys = 1..args.len() - 1;
    let timeout_ms = parse_timeout_ms(args.at(keys.end))?;
    if !pop_first(cx, args.skip(keys.start).take(keys.len()), end, None)? {
        let (wants, nothing) = (Wants::Type(ValueType::List), Nothing::Array);
        cx.block(args, Awaited { keys, wants, needs: None, timeout_ms, nothing, serve });
    }
    Ok(())
}

/// Serves a client that was blocked on this key.
fn pop_one(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    end: ListEnd,
    count: Option<u64>,
) -> Result<(), CommandError> {
    let popped = pop_first(cx, [key], end, count)?;
    debug_assert!(popped, "only a key that holds a list is served from");
    Ok(())
}

/// `BLMPOP timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`
fn blmpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let MultiPop { keys, end, count } = MultiPop::parse(args, 2)?;
    let timeout_ms = parse_timeout_ms(args.at(1))?;
    if !pop_first(cx, keys, end, Some(count))? {
        let serve: Serve = |cx, key, args| {
            let MultiPop { end, count, .. } = MultiPop::parse(args, 2)?;
            pop_one(cx, key, end, Some(count))
        };
        let (wants, nothing) = (Wants::Type(ValueType::List), Nothing::Array);
        let keys = 3..3 + keys.len();
        cx.block(args, Awaited { keys, wants, needs: None, timeout_ms, nothing, serve });
    }
    Ok(())
}

/// `BLMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout`
fn blmove(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (parse_end(args.at(3))?, parse_end(args.at(4))?);
    move_or_wait(cx, args, from, to, |cx, _, args| {
        move_one(cx, args, parse_end(args.at(3))?, parse_end(args.at(4))?)
    })
}

/// `BRPOPLPUSH source destination timeout`
fn brpoplpush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (ListEnd::Tail, ListEnd::Head);
    move_or_wait(cx, args, from, to, |cx, _, args| move_one(cx, args, ListEnd::Tail, ListEnd::Head))
}

fn move_or_wait(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    from: ListEnd,
    to: ListEnd,
    serve: Serve,
) -> Result<(), CommandError> {
    let timeout_ms = parse_timeout_ms(args.at(args.len() - 1))?;
    if !move_element(cx, args.at(1), args.at(2), from, to)? {
        let (keys, wants, nothing) = (1..2, Wants::Type(ValueType::List), Nothing::Value);
        let needs = Some(slot_of(args.at(2)));
        cx.block(args, Awaited { keys, wants, needs, timeout_ms, nothing, serve });
    }
    Ok(())
}

/// Serves a client that was blocked on the source.
fn move_one(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    from: ListEnd,
    to: ListEnd,
) -> Result<(), CommandError> {
    let moved = move_element(cx, args.at(1), args.at(2), from, to)?;
    debug_assert!(moved, "only a key that holds a list is served from");
    Ok(())
}
