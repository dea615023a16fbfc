//! Expiry of keys: EXPIRE and TTL in all their forms, PERSIST.

use engine::{CommandError, Context, EventClass};
use keyspace::KeyOp;
use wire::{Args, number::parse_i64};

use crate::{deadline::Form, expiry_condition::Conditions};

/// The reply for a key without a deadline.
const NEVER: i64 = -1;
/// The reply for an absent key.
const NO_KEY: i64 = -2;

/// `TTL key`
pub(super) fn ttl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadline(cx, args, |deadline_ms| rounded_seconds(deadline_ms.saturating_sub(now_ms)))
}

/// `PTTL key`
pub(super) fn pttl(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let now_ms = cx.now_ms();
    reply_deadline(cx, args, |deadline_ms| deadline_ms.saturating_sub(now_ms))
}

/// `EXPIRETIME key`
pub(super) fn expiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadline(cx, args, rounded_seconds)
}

/// `PEXPIRETIME key`
pub(super) fn pexpiretime(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_deadline(cx, args, |deadline_ms| deadline_ms)
}

fn rounded_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

fn reply_deadline(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    show: impl FnOnce(u64) -> u64,
) -> Result<(), CommandError> {
    let reply = match cx.unit.inspect(cx.session.db, args.at(1)) {
        None => NO_KEY,
        // The cast keeps every deadline that a command can have set: it is at most i64::MAX.
        Some(entry) => entry.expire_at_ms().map_or(NEVER, |ms| show(ms) as i64),
    };
    cx.reply.integer(reply);
    Ok(())
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(super) fn expire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::Ex, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(super) fn pexpire(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::Px, "pexpire")
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`
pub(super) fn expireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::ExAt, "expireat")
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`
pub(super) fn pexpireat(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    set_deadline(cx, args, Form::PxAt, "pexpireat")
}

fn set_deadline(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    form: Form,
    command: &'static str,
) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let conditions = Conditions::parse(args.skip(3))?;
    let number = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let deadline_ms = form.deadline_ms(number, cx.now_ms()).ok_or(CommandError::InvalidExpire(command))?;
    // Deadlines before 1970 have passed like any other in the past.
    let deadline_ms = u64::try_from(deadline_ms).unwrap_or(0);
    let sets = cx.unit.get(db, key).is_some_and(|entry| conditions.allow(entry.expire_at_ms(), deadline_ms));
    if sets && deadline_ms <= cx.as_of_ms() {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::GENERIC, "del", key);
    } else if sets {
        cx.apply(key, KeyOp::SetExpiry { expire_at_ms: Some(deadline_ms) });
        cx.notify(EventClass::GENERIC, "expire", key);
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// `PERSIST key`
pub(super) fn persist(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let expires = cx.unit.get(db, key).is_some_and(|entry| entry.expire_at_ms().is_some());
    if expires {
        cx.apply(key, KeyOp::SetExpiry { expire_at_ms: None });
        cx.notify(EventClass::GENERIC, "persist", key);
    }
    cx.reply.integer(expires.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn the_time_left_is_shown_in_all_units() {
        check(&[
            ("TTL a", ":-2"),
            ("PTTL a", ":-2"),
            ("EXPIRETIME a", ":-2"),
            ("PEXPIRETIME a", ":-2"),
            ("SET a 1", "+OK"),
            ("TTL a", ":-1"),
            ("PTTL a", ":-1"),
            ("EXPIRETIME a", ":-1"),
            ("PEXPIRETIME a", ":-1"),
            ("PEXPIRE a 1499", ":1"),
            ("TTL a", ":1"),
            ("PTTL a", ":1499"),
            ("EXPIRETIME a", ":1700000001"),
            ("PEXPIRETIME a", ":1700000001499"),
            ("PEXPIRE a 1500", ":1"),
            ("TTL a", ":2"),
            ("EXPIRETIME a", ":1700000002"),
            ("after 1001", ""),
            ("TTL a", ":0"),
            ("PTTL a", ":499"),
            ("after 499", ""),
            ("TTL a", ":-2"),
            ("TTL", "-ERR wrong number of arguments for 'ttl' command"),
        ]);
    }

    #[test]
    fn deadlines_are_set_in_all_units() {
        check(&[
            ("EXPIRE a 10", ":0"),
            ("SET a 1", "+OK"),
            ("EXPIRE a 10", ":1"),
            ("PTTL a", ":10000"),
            ("PEXPIRE a 10", ":1"),
            ("PTTL a", ":10"),
            ("EXPIREAT a 1700000020", ":1"),
            ("PTTL a", ":20000"),
            ("PEXPIREAT a 1700000000020", ":1"),
            ("PTTL a", ":20"),
            ("PEXPIREAT a 9223372036854775807", ":1"),
            ("PEXPIRETIME a", ":9223372036854775807"),
            ("GET a", r#""1""#),
        ]);
    }

    #[test]
    fn a_deadline_that_has_passed_removes_the_key() {
        for command in [
            "EXPIRE a 0",
            "EXPIRE a -1",
            "PEXPIRE a 0",
            "EXPIREAT a 1700000000",
            "PEXPIREAT a -5",
            "PEXPIRE a -9223372036854775808",
            "PEXPIREAT a 1700000000000",
        ] {
            check(&[("SET a 1", "+OK"), (command, ":1"), ("EXISTS a", ":0"), (command, ":0")]);
        }
    }

    #[test]
    fn a_passed_deadline_is_logged_as_a_removal() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.run("EXPIRE a -1");
        assert!(server.content().is_empty());
        server.assert_replays();
    }

    #[test]
    fn conditions_decide_whether_the_deadline_changes() {
        check(&[
            ("SET a 1", "+OK"),
            ("EXPIRE a 10 XX", ":0"),
            ("EXPIRE a 10 GT", ":0"),
            ("PTTL a", ":-1"),
            ("EXPIRE a 10 LT", ":1"),
            ("EXPIRE a 20 LT", ":0"),
            ("EXPIRE a 10 LT", ":0"),
            ("EXPIRE a 20 NX", ":0"),
            ("EXPIRE a 10 gt", ":0"),
            ("PTTL a", ":10000"),
            ("EXPIRE a 20 GT", ":1"),
            ("PTTL a", ":20000"),
            ("EXPIRE a 5 XX LT", ":1"),
            ("EXPIRE a 30 XX GT", ":1"),
            ("EXPIRE a 40 xx xx", ":1"),
            ("PERSIST a", ":1"),
            ("EXPIRE a 10 XX LT", ":0"),
            ("EXPIRE a 10 NX", ":1"),
            ("EXPIRE a -1 GT", ":0"),
            ("PTTL a", ":10000"),
            ("EXPIRE a -1 LT", ":1"),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn expire_refuses_the_arguments_that_redis_refuses() {
        const APART: &str = "-ERR NX and XX, GT or LT options at the same time are not compatible";
        check(&[
            ("SET a 1", "+OK"),
            ("EXPIRE a", "-ERR wrong number of arguments for 'expire' command"),
            ("EXPIRE a 10 FOO", "-ERR Unsupported option FOO"),
            ("EXPIRE a x FOO", "-ERR Unsupported option FOO"),
            ("EXPIRE a 10 NX XX", APART),
            ("EXPIRE a 10 NX GT", APART),
            ("EXPIRE a 10 LT NX", APART),
            ("EXPIRE a 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("EXPIRE a x", "-ERR value is not an integer or out of range"),
            ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("EXPIRE a -9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("EXPIRE a 9223371000000000", "-ERR invalid expire time in 'expire' command"),
            ("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
            ("EXPIREAT a 9223372036854776", "-ERR invalid expire time in 'expireat' command"),
            ("EXPIREAT none 9223372036854776", "-ERR invalid expire time in 'expireat' command"),
            ("PEXPIREAT a 9223372036854775808", "-ERR value is not an integer or out of range"),
            ("PTTL a", ":-1"),
        ]);
    }

    #[test]
    fn persist_removes_a_deadline_and_nothing_else() {
        check(&[
            ("PERSIST a", ":0"),
            ("SET a 1", "+OK"),
            ("PERSIST a", ":0"),
            ("EXPIRE a 10", ":1"),
            ("PERSIST a", ":1"),
            ("PTTL a", ":-1"),
            ("GET a", r#""1""#),
            ("PEXPIRE a 10", ":1"),
            ("after 10", ""),
            ("PERSIST a", ":0"),
            ("EXPIRE a 10", ":0"),
        ]);
    }
}
