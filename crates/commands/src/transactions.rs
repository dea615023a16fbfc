//! Transactions: several commands as one unit, on the condition that no watched key has changed.
//!
//! What it is: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//! What it is not: queueing, which happens before a command gets to its family (see `engine::queueing`), nor
//! the detection of changes to watched keys (see `engine::interest`).
//!
//! Invariants
//! - EXEC locks the slots of all keys of all its commands and of all watched keys at once, and all its
//!   effects are one record: a reader, also after a crash, sees all of them or none.
//! - A command that fails does not undo the others, as in Redis. The exception is a command on documents: if
//!   it fails, the whole EXEC is undone, and its reply is one error. A command that cannot be undone is not
//!   queued together with commands on documents.

mod exec;
mod watch;

use engine::{CommandError, Context, Transaction};
pub(crate) use rows::ROWS;
use wire::Args;

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

mod rows;
#[cfg(test)]
mod tests;
