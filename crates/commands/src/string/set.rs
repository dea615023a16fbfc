//! Replacing one string: SET and the older commands that are special cases of it.

use engine::{CommandError, Context, EventClass, KeyUsage};
use keyspace::{KeyOp, Value};
use wire::Args;

use super::{
    compare::{Comparison, is_comparison},
    get::reply_string,
};
use crate::{
    deadline::Form,
    expiry_option::{ExpiryOption, positive_deadline_ms},
};

/// `SET key value [NX | XX | IFEQ value | ...] [GET] [EX seconds | ... | KEEPTTL]`
#[inline]
pub(super) fn set(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return set_with_options(cx, args);
    }
    put(cx, args.at(1), args.at(2), None);
    cx.reply.ok();
    Ok(())
}

/// How a SET uses its key: with GET or a comparison, the command also reads the key.
pub(super) fn usage(args: Args<'_>) -> KeyUsage {
    let mut options = args.skip(3).iter();
    let reads = options.any(|option| option.eq_ignore_ascii_case(b"get") || is_comparison(option));
    if reads { KeyUsage::READ_UPDATE } else { KeyUsage::OVERWRITE }
}

/// Stores a string with this deadline, and notifies `set`.
#[inline]
pub(super) fn put(cx: &mut Context<'_, '_>, key: &[u8], value: &[u8], expire_at_ms: Option<u64>) {
    cx.apply(key, KeyOp::Put { value: Value::String(value), expire_at_ms });
    cx.notify(EventClass::STRING, "set", key);
}

/// As [`put`], for a deadline given by a client: if it has passed, the key is deleted instead.
pub(super) fn put_until(cx: &mut Context<'_, '_>, key: &[u8], value: &[u8], deadline_ms: u64) {
    if deadline_ms > cx.as_of_ms() {
        put(cx, key, value, Some(deadline_ms));
        cx.notify(EventClass::GENERIC, "expire", key);
        return;
    }
    let db = cx.db();
    if cx.unit.exists(db, key) {
        cx.apply(key, KeyOp::Delete);
    }
    cx.notify(EventClass::STRING, "set", key);
    cx.notify(EventClass::GENERIC, "expire", key);
    cx.notify(EventClass::EXPIRED, "expired", key);
}

/// The condition of SET.
#[derive(Debug, Clone, Copy)]
enum Condition<'a> {
    /// NX.
    Absent,
    /// XX.
    Present,
    /// IFEQ, IFNE, IFDEQ or IFDNE.
    Compared(Comparison<'a>),
}

#[derive(Debug, Default)]
struct Options<'a> {
    condition: Option<Condition<'a>>,
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
            } else if let Some(comparison) = Comparison::read(word, &mut words)? {
                options.require(Condition::Compared(comparison))?;
            } else {
                options.expiry.read(word, &mut words)?;
            }
        }
        if matches!(options.expiry, ExpiryOption::Persist) {
            return Err(CommandError::Syntax);
        }
        Ok(options)
    }

    fn require(&mut self, condition: Condition<'a>) -> Result<(), CommandError> {
        match (self.condition, condition) {
            (None, _)
            | (Some(Condition::Absent), Condition::Absent)
            | (Some(Condition::Present), Condition::Present) => {}
            _ => return Err(CommandError::Syntax),
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
    let holds = match options.condition {
        None => true,
        Some(Condition::Absent) => !exists,
        Some(Condition::Present) => exists,
        Some(Condition::Compared(comparison)) => comparison.holds(cx.unit.get(db, key))?,
    };
    if !holds {
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
    cx.notify(EventClass::GENERIC, "expire", args.at(1));
    cx.reply.ok();
    Ok(())
}

/// `GETSET key value`
pub(super) fn getset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_string(cx, args.at(1))?;
    put(cx, args.at(1), args.at(2), None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn set_replaces_value_and_expiry() {
        check(&[
            ("SET a 1", "+OK"),
            ("SET a 2 EX 10", "+OK"),
            ("GET a", r#""2""#),
            ("PTTL a", ":10000"),
            ("SET a 3", "+OK"),
            ("PTTL a", ":-1"),
            ("SET", "-ERR wrong number of arguments for 'set' command"),
            ("SET a", "-ERR wrong number of arguments for 'set' command"),
        ]);
    }

    #[test]
    fn set_takes_every_form_of_expiry() {
        check(&[
            ("SET a 1 ex 10", "+OK"),
            ("PTTL a", ":10000"),
            ("SET a 1 Px 10", "+OK"),
            ("PTTL a", ":10"),
            ("SET a 1 EXAT 1700000010", "+OK"),
            ("PTTL a", ":10000"),
            ("SET a 1 PXAT 1700000000010", "+OK"),
            ("PTTL a", ":10"),
            ("SET a 2 KEEPTTL KEEPTTL", "+OK"),
            ("PTTL a", ":10"),
            ("GET a", r#""2""#),
            ("SET b 1 KEEPTTL", "+OK"),
            ("PTTL b", ":-1"),
            ("SET a 1 EX 10 EX 20", "+OK"),
            ("PTTL a", ":20000"),
            ("SET a 1 PXAT 9223372036854775807", "+OK"),
            ("PEXPIRETIME a", ":9223372036854775807"),
            ("EXPIRETIME a", ":9223372036854776"),
            ("SET a 1 EXAT 9223372036854775", "+OK"),
            ("PEXPIRETIME a", ":9223372036854775000"),
        ]);
    }

    #[test]
    fn a_kept_deadline_is_not_that_of_an_expired_key() {
        check(&[
            ("SET a 1 PX 10", "+OK"),
            ("after 10", ""),
            ("SET a 2 KEEPTTL", "+OK"),
            ("PTTL a", ":-1"),
            ("SET a 1 PX 10", "+OK"),
            ("after 10", ""),
            ("SET a 2 XX", "nil"),
            ("SET a 2 NX", "+OK"),
            ("GET a", r#""2""#),
        ]);
    }

    #[test]
    fn a_deadline_in_the_past_leaves_no_key() {
        check(&[
            ("SET a 1 PXAT 1", "+OK"),
            ("EXISTS a", ":0"),
            ("SET a 1", "+OK"),
            ("SET a 2 EXAT 1700000000", "+OK"),
            ("EXISTS a", ":0"),
            ("SET a 1", "+OK"),
            ("SET a 2 GET PXAT 1700000000000", r#""1""#),
            ("GET a", "nil"),
        ]);
    }

    #[test]
    fn conditions_decide_whether_anything_is_set() {
        check(&[
            ("SET a 1 XX", "nil"),
            ("EXISTS a", ":0"),
            ("SET a 1 nx", "+OK"),
            ("SET a 2 NX", "nil"),
            ("GET a", r#""1""#),
            ("SET a 3 xx EX 5", "+OK"),
            ("GET a", r#""3""#),
            ("SET a 4 NX NX", "nil"),
            ("SET a 4 XX XX", "+OK"),
            ("SET a 5 NX XX", "-ERR syntax error"),
            ("SET a 5 XX NX", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn set_with_get_replies_with_the_old_value() {
        check(&[
            ("SET a 1 GET", "nil"),
            ("SET a 2 GET", r#""1""#),
            ("SET a 3 NX GET", r#""2""#),
            ("GET a", r#""2""#),
            ("SET b 3 NX GET", "nil"),
            ("GET b", r#""3""#),
            ("SET c 3 XX GET", "nil"),
            ("EXISTS c", ":0"),
            ("SET b 4 GET KEEPTTL XX GET", r#""3""#),
            ("GET b", r#""4""#),
        ]);
    }

    #[test]
    fn set_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("SET a 1 FOO", "-ERR syntax error"),
            ("SET a 1 EX", "-ERR syntax error"),
            ("SET a 1 PERSIST", "-ERR syntax error"),
            ("SET a 1 EX 10 PX 10", "-ERR syntax error"),
            ("SET a 1 EX 10 KEEPTTL", "-ERR syntax error"),
            ("SET a 1 KEEPTTL EX 10", "-ERR syntax error"),
            ("SET a 1 EX x FOO", "-ERR syntax error"),
            ("SET a 1 EX x", "-ERR value is not an integer or out of range"),
            ("SET a 1 EX 1.5", "-ERR value is not an integer or out of range"),
            ("SET a 1 EX 9223372036854775808", "-ERR value is not an integer or out of range"),
            ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET a 1 PX -1", "-ERR invalid expire time in 'set' command"),
            ("SET a 1 EXAT 0", "-ERR invalid expire time in 'set' command"),
            ("SET a 1 EX 9223372036854775", "-ERR invalid expire time in 'set' command"),
            ("SET a 1 EXAT 9223372036854776", "-ERR invalid expire time in 'set' command"),
            ("SET a 1 PX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn the_older_commands_are_special_cases() {
        check(&[
            ("SETNX a 1", ":1"),
            ("SETNX a 2", ":0"),
            ("GET a", r#""1""#),
            ("SETEX a 10 2", "+OK"),
            ("PTTL a", ":10000"),
            ("SETNX a 2", ":0"),
            ("PTTL a", ":10000"),
            ("PSETEX a 10 3", "+OK"),
            ("PTTL a", ":10"),
            ("GETSET a 4", r#""3""#),
            ("PTTL a", ":-1"),
            ("GETSET b 1", "nil"),
            ("GET b", r#""1""#),
            ("SETEX a 0 1", "-ERR invalid expire time in 'setex' command"),
            ("SETEX a x 1", "-ERR value is not an integer or out of range"),
            ("SETEX a 9223372036854775807 1", "-ERR invalid expire time in 'setex' command"),
            ("PSETEX a -1 1", "-ERR invalid expire time in 'psetex' command"),
            ("PSETEX a 9223372036854775807 1", "-ERR invalid expire time in 'psetex' command"),
            ("GET a", r#""4""#),
            ("SETNX a", "-ERR wrong number of arguments for 'setnx' command"),
            ("SETEX a 1", "-ERR wrong number of arguments for 'setex' command"),
            ("PSETEX a 1", "-ERR wrong number of arguments for 'psetex' command"),
            ("GETSET a", "-ERR wrong number of arguments for 'getset' command"),
            ("SETEX c 1 v", "+OK"),
            ("after 1000", ""),
            ("SETNX c w", ":1"),
            ("GETSET c x", r#""w""#),
        ]);
    }

    #[test]
    fn values_of_any_size_replace_each_other() {
        let mut server = TestServer::new();
        for len in [0, 1, 44, 1 << 10, 70 << 10, 3 << 20, 100, 0] {
            let value = vec![b'v'; len];
            assert_eq!(server.run_args(&[b"SET", b"k", &value]), "+OK");
            let (content, expire_at_ms) = &server.content()[&(0, b"k".to_vec())];
            assert_eq!((content.as_value(), *expire_at_ms), (keyspace::Value::String(&value), None));
        }
        server.assert_replays();
    }
}
