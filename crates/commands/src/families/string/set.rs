//! Replacing one string: SET and the older commands that are special cases of it.

use keyspace::{Effect, Value};
use wire::Args;

use super::{
    expiry_option::{ExpiryOption, positive_deadline_ms},
    get::reply_string,
};
use crate::{CommandError, Context, families::deadline::Form};

/// `SET key value [NX | XX] [GET] [EX seconds | ... | KEEPTTL]`
#[inline]
pub(super) fn set(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return set_with_options(cx, args);
    }
    put(cx, args.at(1), args.at(2), None);
    cx.reply.ok();
    Ok(())
}

/// Makes the value of a key a string with this expiry.
#[inline]
fn put(cx: &mut Context<'_, '_>, key: &[u8], value: &[u8], expire_at_ms: Option<u64>) {
    let db = cx.db();
    cx.apply(&Effect::Put { db, key, value: Value::String(value), expire_at_ms });
}

/// As [`put`], for a deadline that a client gave: one that has passed leaves no key at all.
fn put_until(cx: &mut Context<'_, '_>, key: &[u8], value: &[u8], deadline_ms: u64) {
    if deadline_ms > cx.now_ms() {
        return put(cx, key, value, Some(deadline_ms));
    }
    let db = cx.db();
    if cx.unit.exists(db, key) {
        cx.apply(&Effect::Delete { db, key });
    }
}

/// Whether a key must be there for SET to set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// NX.
    Absent,
    /// XX.
    Present,
}

/// The options of SET.
#[derive(Debug, Default)]
struct Options<'a> {
    condition: Option<Condition>,
    replies_old: bool,
    expiry: ExpiryOption<'a>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, CommandError> {
        let mut options = Options::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"nx") {
                options.require(Condition::Absent)?;
            } else if word.eq_ignore_ascii_case(b"xx") {
                options.require(Condition::Present)?;
            } else if word.eq_ignore_ascii_case(b"get") {
                options.replies_old = true;
            } else {
                options.expiry.read(word, &mut words)?;
            }
        }
        if matches!(options.expiry, ExpiryOption::Persist) {
            return Err(CommandError::Syntax);
        }
        Ok(options)
    }

    fn require(&mut self, condition: Condition) -> Result<(), CommandError> {
        if self.condition.is_some_and(|old| old != condition) {
            return Err(CommandError::Syntax);
        }
        self.condition = Some(condition);
        Ok(())
    }
}

fn set_with_options(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, value) = (cx.db(), args.at(1), args.at(2));
    let options = Options::parse(args.skip(3))?;
    let deadline_ms = options.expiry.deadline_ms(cx.now_ms(), "set")?;
    let exists = if options.replies_old { reply_string(cx, key)? } else { cx.unit.exists(db, key) };
    if options.condition.is_some_and(|condition| exists != (condition == Condition::Present)) {
        if !options.replies_old {
            cx.reply.null();
        }
        return Ok(());
    }
    match (options.expiry, deadline_ms) {
        (_, Some(deadline_ms)) => put_until(cx, key, value, deadline_ms),
        (ExpiryOption::Keep, None) => {
            let kept = cx.unit.peek(db, key).and_then(|entry| entry.expire_at_ms());
            put(cx, key, value, kept);
        }
        _ => put(cx, key, value, None),
    }
    if !options.replies_old {
        cx.reply.ok();
    }
    Ok(())
}

/// `SETNX key value`
pub(super) fn setnx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let sets = cx.unit.get(db, key).is_none();
    if sets {
        put(cx, key, args.at(2), None);
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// `SETEX key seconds value`
pub(super) fn setex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_expiring(cx, args, Form::Ex, "setex")
}

/// `PSETEX key milliseconds value`
pub(super) fn psetex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_expiring(cx, args, Form::Px, "psetex")
}

fn set_expiring(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    form: Form,
    command: &'static str,
) -> Result<(), CommandError> {
    let deadline_ms = positive_deadline_ms(form, args.at(2), cx.now_ms(), command)?;
    put(cx, args.at(1), args.at(3), Some(deadline_ms));
    cx.reply.ok();
    Ok(())
}

/// `GETSET key value`
pub(super) fn getset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_string(cx, args.at(1))?;
    put(cx, args.at(1), args.at(2), None);
    Ok(())
}
