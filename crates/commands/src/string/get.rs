//! Reading a string: GET, and the commands that change its key at the same time.

use engine::{
    CommandError, Context, EventClass,
    long_units::{BYTES_PER_ELEMENT, LONG_ELEMENTS},
};
use keyspace::KeyOp;
use wire::Args;

use super::string;
use crate::expiry_option::ExpiryOption;

/// `GET key`
#[inline]
pub(super) fn get(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    reply_string(cx, args.at(1)).map(drop)
}

/// Replies with the string at a key, or null. Returns whether the key exists.
#[inline]
pub(super) fn reply_string(cx: &mut Context<'_, '_>, key: &[u8]) -> Result<bool, CommandError> {
    match cx.unit.read(cx.session.db, key) {
        Some(entry) => {
            let value = string(entry)?;
            let is_long = value.len() > LONG_ELEMENTS * BYTES_PER_ELEMENT;
            if is_long && !cx.in_transaction && cx.scripting.as_deref().is_some_and(|it| it.offloads()) {
                return Err(CommandError::NeedsOwnThread);
            }
            cx.reply.bulk(value);
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
    let key = args.at(1);
    if reply_string(cx, key)? {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::GENERIC, "del", key);
    }
    Ok(())
}

/// `GETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds |
/// PERSIST]`
pub(super) fn getex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, now_ms, as_of_ms) = (cx.db(), args.at(1), cx.now_ms(), cx.as_of_ms());
    let mut expiry = ExpiryOption::Unsaid;
    let mut words = args.skip(2).iter();
    while let Some(word) = words.next() {
        expiry.read(word, &mut words)?;
    }
    if matches!(expiry, ExpiryOption::Keep) {
        return Err(CommandError::Syntax);
    }
    let Some(entry) = cx.unit.read(db, key) else {
        // As in Redis, an invalid deadline is not noticed for an absent key.
        cx.reply.null();
        return Ok(());
    };
    let value = string(entry)?;
    let deadline_ms = expiry.deadline_ms(now_ms, "getex")?;
    cx.reply.bulk(value);
    let had_deadline = entry.expire_at_ms().is_some();
    let event = match (expiry, deadline_ms) {
        (_, Some(deadline_ms)) if deadline_ms <= as_of_ms => {
            cx.apply(key, KeyOp::Delete);
            "del"
        }
        (_, Some(_)) => {
            cx.apply(key, KeyOp::SetExpiry { expire_at_ms: deadline_ms });
            "expire"
        }
        (ExpiryOption::Persist, None) if had_deadline => {
            cx.apply(key, KeyOp::SetExpiry { expire_at_ms: None });
            "persist"
        }
        _ => return Ok(()),
    };
    cx.notify(EventClass::GENERIC, event, key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::Protocol;

    use crate::testing::{TestServer, check};

    #[test]
    fn get_replies_with_any_bytes_or_no_value() {
        check(&[
            ("GET a", "nil"),
            (r#"SET a "\x00\xff\r\n""#, "+OK"),
            ("GET a", r#""\x00\xff\r\n""#),
            (r#"SET "" """#, "+OK"),
            (r#"GET """#, r#""""#),
            ("GET", "-ERR wrong number of arguments for 'get' command"),
            ("GET a b", "-ERR wrong number of arguments for 'get' command"),
            ("SET a 1 PX 100", "+OK"),
            ("after 99", ""),
            ("GET a", r#""1""#),
            ("after 1", ""),
            ("GET a", "nil"),
        ]);
    }

    #[test]
    fn a_missing_value_has_the_null_of_the_protocol() {
        let mut server = TestServer::new();
        assert_eq!(server.raw("GET a"), b"$-1\r\n");
        assert_eq!(server.raw("MGET a"), b"*1\r\n$-1\r\n");
        server.session.protocol = Protocol::Resp3;
        assert_eq!(server.raw("GET a"), b"_\r\n");
        assert_eq!(server.raw("MGET a"), b"*1\r\n_\r\n");
    }

    #[test]
    fn databases_keep_their_keys_apart() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        server.session.db = keyspace::DbId::new(3).unwrap();
        assert_eq!(server.run("GET a"), "nil");
        server.run("SET a 2");
        assert_eq!(server.run("GET a"), "\"2\"");
        server.session.db = keyspace::DbId::ZERO;
        assert_eq!(server.run("GET a"), "\"1\"");
        server.assert_replays();
    }

    #[test]
    fn getdel_takes_the_key_away() {
        check(&[
            ("GETDEL a", "nil"),
            ("SET a 1 EX 10", "+OK"),
            ("GETDEL a", r#""1""#),
            ("GETDEL a", "nil"),
            ("EXISTS a", ":0"),
            ("SET a 1 PX 5", "+OK"),
            ("after 5", ""),
            ("GETDEL a", "nil"),
            ("GETDEL", "-ERR wrong number of arguments for 'getdel' command"),
        ]);
    }

    #[test]
    fn getex_sets_keeps_and_removes_the_expiry() {
        check(&[
            ("GETEX a EX 10", "nil"),
            ("SET a 1", "+OK"),
            ("GETEX a", r#""1""#),
            ("PTTL a", ":-1"),
            ("GETEX a eX 10", r#""1""#),
            ("PTTL a", ":10000"),
            ("GETEX a", r#""1""#),
            ("PTTL a", ":10000"),
            ("GETEX a PX 20 PX 30", r#""1""#),
            ("PTTL a", ":30"),
            ("GETEX a EXAT 1700000020", r#""1""#),
            ("PEXPIRETIME a", ":1700000020000"),
            ("GETEX a PXAT 1700000020001", r#""1""#),
            ("PEXPIRETIME a", ":1700000020001"),
            ("GETEX a PERSIST PERSIST", r#""1""#),
            ("PTTL a", ":-1"),
            ("GETEX a PERSIST", r#""1""#),
            ("GETEX a PXAT 1700000000000", r#""1""#),
            ("EXISTS a", ":0"),
            ("SET a 1", "+OK"),
            ("GETEX a EXAT 1", r#""1""#),
            ("EXISTS a", ":0"),
        ]);
    }

    #[test]
    fn getex_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("SET a 1 PX 77", "+OK"),
            ("GETEX a FOO", "-ERR syntax error"),
            ("GETEX a EX", "-ERR syntax error"),
            ("GETEX a KEEPTTL", "-ERR syntax error"),
            ("GETEX a NX", "-ERR syntax error"),
            ("GETEX a EX 10 PX 10", "-ERR syntax error"),
            ("GETEX a EX 10 PERSIST", "-ERR syntax error"),
            ("GETEX a PERSIST EX 10", "-ERR syntax error"),
            ("GETEX a EX x", "-ERR value is not an integer or out of range"),
            ("GETEX a EX 0", "-ERR invalid expire time in 'getex' command"),
            ("GETEX a PXAT -1", "-ERR invalid expire time in 'getex' command"),
            ("GETEX a EX 9223372036854775807", "-ERR invalid expire time in 'getex' command"),
            ("GETEX a PX 9223372036854775807", "-ERR invalid expire time in 'getex' command"),
            ("GETEX none EX x", "nil"),
            ("GETEX none EX 0", "nil"),
            ("GETEX none FOO", "-ERR syntax error"),
            ("PTTL a", ":77"),
        ]);
    }

    #[test]
    fn reads_count_as_hits_and_misses() {
        let mut server = TestServer::new();
        let reads = [
            "GET",
            "GETDEL",
            "GETEX",
            "STRLEN",
            "TTL",
            "PTTL",
            "EXPIRETIME",
            "PEXPIRETIME",
            "TYPE",
            "EXISTS",
            "TOUCH",
            "MGET",
            "OBJECT ENCODING",
            "OBJECT IDLETIME",
            "OBJECT REFCOUNT",
        ];
        let mut expected = (0, 0);
        for read in reads {
            server.run("SET a 1");
            server.run(&format!("{read} a"));
            server.run(&format!("{read} none"));
            expected = (expected.0 + 1, expected.1 + 1);
            let totals = server.host.stats.keyspace_totals();
            assert_eq!((totals.keyspace_hits, totals.keyspace_misses), expected, "{read}");
        }
        for write in
            ["SET a 1 XX", "INCR a", "APPEND a 1", "EXPIRE a 10", "RENAME a b", "MSET a 1 b 2", "DEL a b"]
        {
            server.run(write);
        }
        let totals = server.host.stats.keyspace_totals();
        assert_eq!((totals.keyspace_hits, totals.keyspace_misses), expected, "writes count as neither");
        server.run("SET a 1 GET");
        server.run("GETSET a 2");
        server.run("COPY a b");
        server.run("GETRANGE none 0 1");
        let totals = server.host.stats.keyspace_totals();
        assert_eq!((totals.keyspace_hits, totals.keyspace_misses), (expected.0 + 2, expected.1 + 2));
    }

    #[test]
    fn replies_wait_for_the_newest_write_of_their_slot() {
        let mut server = TestServer::new();
        assert_eq!(server.gate("GET a"), lsn::Lsn::ZERO);
        let written = server.gate("SET a 1");
        assert_eq!(written, server.appended_lsn());
        assert_eq!(server.gate("GET a"), written);
        assert_eq!(server.gate("GETEX a"), written, "a GETEX that changes nothing logs nothing");
        assert!(server.gate("SET b 1") > written);
        assert_eq!(server.gate("GET a"), written, "another slot is no reason to wait");
        assert_eq!(server.gate("MGET a b"), server.appended_lsn());
    }
}
