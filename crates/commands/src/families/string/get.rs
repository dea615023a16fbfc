//! Reading one string: GET, and the commands that change its key on the way.

use keyspace::Effect;
use wire::Args;

use super::{expiry_option::ExpiryOption, string};
use crate::{CommandError, Context};

/// `GET key`
#[inline]
pub(super) fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_string(cx, args.at(1)).map(drop)
}

/// Replies with the string at a key, or with no value. Returns whether the key exists.
#[inline]
pub(super) fn reply_string(cx: &mut Context<'_, '_>, key: &[u8]) -> Result<bool, CommandError> {
    match cx.unit.read(cx.session.db, key) {
        Some(entry) => {
            cx.reply.bulk(string(entry)?);
            Ok(true)
        }
        None => {
            cx.reply.null();
            Ok(false)
        }
    }
}

/// `GETDEL key`
pub(super) fn getdel(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    if reply_string(cx, key)? {
        cx.apply(&Effect::Delete { db, key });
    }
    Ok(())
}

/// `GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]`
pub(super) fn getex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, now_ms) = (cx.db(), args.at(1), cx.now_ms());
    let mut expiry = ExpiryOption::Unsaid;
    let mut words = args.skip(2).iter();
    while let Some(word) = words.next() {
        expiry.read(word, &mut words)?;
    }
    if matches!(expiry, ExpiryOption::Keep) {
        return Err(CommandError::Syntax);
    }
    let Some(entry) = cx.unit.read(db, key) else {
        // As in Redis, a deadline that is none is not noticed here.
        cx.reply.null();
        return Ok(());
    };
    let value = string(entry)?;
    let deadline_ms = expiry.deadline_ms(now_ms, "getex")?;
    cx.reply.bulk(value);
    let had_deadline = entry.expire_at_ms().is_some();
    match (expiry, deadline_ms) {
        (_, Some(deadline_ms)) if deadline_ms <= now_ms => cx.apply(&Effect::Delete { db, key }),
        (_, Some(_)) => cx.apply(&Effect::SetExpiry { db, key, expire_at_ms: deadline_ms }),
        (ExpiryOption::Persist, None) if had_deadline => {
            cx.apply(&Effect::SetExpiry { db, key, expire_at_ms: None });
        }
        _ => {}
    }
    Ok(())
}
