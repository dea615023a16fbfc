//! Several strings at once: MGET, MSET, MSETNX.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, Value};
use wire::Args;

/// `MGET key [key ...]`
pub(super) fn mget(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let keys = args.skip(1);
    cx.reply.array(keys.len());
    for key in keys {
        // A value of another type reads as null: MGET never fails.
        cx.reply.bulk_or_null(cx.unit.read(db, key).and_then(|entry| entry.string()));
    }
    Ok(())
}

/// `MSET key value [key value ...]`
pub(super) fn mset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_pairs(args, "mset")?;
    put_all(cx, args);
    cx.reply.ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub(super) fn msetnx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    require_pairs(args, "msetnx")?;
    let db = cx.db();
    let sets = args.skip(1).iter().step_by(2).all(|key| cx.unit.get(db, key).is_none());
    if sets {
        put_all(cx, args);
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// The arity of the row cannot express that every key needs a value.
fn require_pairs(args: Args<'_>, command: &'static str) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) { Err(CommandError::WrongArity(command)) } else { Ok(()) }
}

fn put_all(cx: &mut Context<'_, '_>, args: Args<'_>) {
    for index in (1..args.len()).step_by(2) {
        let (key, value) = (args.at(index), Value::String(args.at(index + 1)));
        cx.apply(key, KeyOp::Put { value, expire_at_ms: None });
        cx.notify(EventClass::STRING, "set", key);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn many_keys_are_read_and_set_in_order() {
        check(&[
            ("MSET a 1 b 2 c 3", "+OK"),
            ("MGET c x a", r#"["3", nil, "1"]"#),
            ("MGET a a", r#"["1", "1"]"#),
            ("MSET a 1 a 2", "+OK"),
            ("GET a", r#""2""#),
            ("SET a 1 EX 10", "+OK"),
            ("MSET a 5", "+OK"),
            ("TTL a", ":-1"),
            ("MGET", "-ERR wrong number of arguments for 'mget' command"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
            ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command"),
        ]);
    }

    #[test]
    fn msetnx_sets_all_or_nothing() {
        check(&[
            ("MSETNX a 1 b 2", ":1"),
            ("MSETNX c 3 b 4", ":0"),
            ("MGET a b c", r#"["1", "2", nil]"#),
            ("MSETNX d 1 d 2", ":1"),
            ("GET d", r#""2""#),
            ("SET e 1 PX 10", "+OK"),
            ("after 10", ""),
            ("MSETNX e 2 f 3", ":1"),
            ("MGET e f", r#"["2", "3"]"#),
        ]);
    }

    #[test]
    fn keys_of_one_slot_and_of_many_slots_are_one_record() {
        let mut server = TestServer::new();
        let before = server.appended_lsn();
        let pairs: Vec<String> =
            (0..50).map(|number| format!("{{t{}}}k{number} v{number}", number % 7)).collect();
        assert_eq!(server.run(&format!("MSET {}", pairs.join(" "))), "+OK");
        let record = server.appended_lsn().get() - before.get();
        assert!(record < 50 * 40, "{record} bytes for one record of 50 pairs");
        assert_eq!(server.run("MGET {t0}k0 {t6}k48 {t1}k49"), r#"["v0", "v48", nil]"#);
        assert_eq!(server.run("MGET {t6}k48 {t0}k49"), r#"["v48", "v49"]"#);
        assert_eq!(server.content().len(), 50);
        server.assert_replays();
    }
}
