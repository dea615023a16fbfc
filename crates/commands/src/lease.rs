//! LEASE and UNLEASE: a leased key names its owner.
//!
//! A lease ends when the owner gives it back, its deadline passes, the connection that leased the key last
//! closes, another command changes the key, or the key is evicted.
//!
//! What it is: the commands. The leases of a connection, and their end when it closes, are in
//! `engine::leases`.
//! What it is not: a queue for clients that wait for a lease. Such clients try again, or listen to the events
//! of the key.
//!
//! LEASE and UNLEASE do not work in scripts: after a script is undone, its connection would still count a
//! lease that the connection does not have.

use engine::{CommandError, Context, EventClass, leases::NO_TOKEN};
use keyspace::{KeyOp, Value, View};
use wire::Args;

use crate::{deadline::Form, expiry_option::positive_deadline_ms};
pub(crate) use rows::ROWS;

/// The holder of the key, as seen by the asking owner.
enum Holder {
    Nobody,
    Asker,
    Another,
}

fn holder(cx: &mut Context<'_, '_>, key: &[u8], asker: &[u8]) -> Result<Holder, CommandError> {
    let db = cx.db();
    match cx.unit.get(db, key).map(|entry| entry.view()) {
        None => Ok(Holder::Nobody),
        Some(View::String(owner)) if *owner == *asker => Ok(Holder::Asker),
        Some(View::String(_)) => Ok(Holder::Another),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// `LEASE key milliseconds owner`
fn lease(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, owner) = (cx.db(), args.at(1), args.at(3));
    let deadline_ms = positive_deadline_ms(Form::Px, args.at(2), cx.now_ms(), "lease")?;
    if let Holder::Another = holder(cx, key, owner)? {
        cx.reply.null();
        return Ok(());
    }
    cx.session.leases.require_room(db, key)?;
    cx.apply(key, KeyOp::Put { value: Value::String(owner), expire_at_ms: Some(deadline_ms) });
    cx.notify(EventClass::GENERIC, "lease", key);
    cx.session.leases.hold(&cx.unit, db, key);
    cx.session.granted.push(cx.reply.position());
    cx.reply.raw(NO_TOKEN);
    Ok(())
}

/// `UNLEASE key owner`
fn unlease(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let gives_back = matches!(holder(cx, key, args.at(2))?, Holder::Asker);
    if gives_back {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::GENERIC, "unlease", key);
        cx.session.leases.forget(db, key);
    }
    cx.reply.integer(gives_back.into());
    Ok(())
}

mod rows;
#[cfg(test)]
mod tests;
