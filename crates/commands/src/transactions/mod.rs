//! Transactions: several commands as one, on the condition that what they are based on is still so.
//!
//! What it is: MULTI, EXEC, DISCARD, WATCH, UNWATCH. What it is not: queueing, which happens before a command gets to its
//! family (see `queueing`), nor who notices that a watched key changes (see `interest`).
//!
//! Invariants
//! - EXEC locks the slots of all keys of all its commands and of all watched keys at once, and all its effects are one
//!   record: whoever looks, also after a crash, sees all of it or nothing.
//! - A command that fails does not undo the others, as in Redis, unless it is one on documents: that undoes the whole EXEC, which
//!   then is one error. What cannot be undone is not queued together with commands on documents.

mod exec;
mod watch;

use engine::{CommandError, Context, Family, Flags, Keys, Row, Transaction};
use wire::Args;

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 1,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
    keys: Keys::None,
    family: Family::Transactions,
    since: "1.2.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: multi,
    subcommands: &[],
};

const IMMEDIATE: Flags = ROW.flags.or(Flags::IMMEDIATE);

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "discard",
        flags: IMMEDIATE,
        since: "2.0.0",
        complexity: "O(N) where N is the number of queued commands and watched keys.",
        summary: "Forgets what was queued since MULTI, and watches nothing any more.",
        handler: discard,
        ..ROW
    },
    Row {
        name: "exec",
        flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE).or(Flags::IMMEDIATE),
        keys: Keys::Queued,
        complexity: "That of the queued commands.",
        summary: "Runs what was queued since MULTI as one, unless a watched key has changed.",
        handler: exec::exec,
        ..ROW
    },
    Row {
        name: "multi",
        flags: IMMEDIATE,
        summary: "Begins a transaction: the commands that follow are queued until EXEC.",
        handler: multi,
        ..ROW
    },
    Row {
        name: "unwatch",
        since: "2.2.0",
        complexity: "O(N) where N is the number of watched keys.",
        summary: "Watches nothing any more.",
        handler: watch::unwatch,
        ..ROW
    },
    Row {
        name: "watch",
        arity: -2,
        flags: IMMEDIATE,
        keys: Keys::Range { first: 1, last: -1, step: 1 },
        since: "2.2.0",
        complexity: "O(N log N) where N is the number of watched keys.",
        summary: "Makes the next EXEC depend on keys: it does nothing if one of them has changed by then.",
        syntax: "key [key ...]",
        handler: watch::watch,
        ..ROW
    },
];

/// `MULTI`
fn multi(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    if cx.session.transaction.is_some() {
        return Err(CommandError::Text("ERR MULTI calls can not be nested"));
    }
    cx.session.transaction = Some(Box::<Transaction>::default());
    cx.session.client.set_queued(Some(0));
    cx.reply.ok();
    Ok(())
}

/// `DISCARD`
fn discard(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    if cx.session.transaction.is_none() {
        return Err(CommandError::Text("ERR DISCARD without MULTI"));
    }
    cx.session.end_transaction();
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
