//! Walks over the keys of a database: SCAN, KEYS, RANDOMKEY.
//!
//! These commands lock one slot at a time, except in a transaction or a script, which holds the locks of all
//! slots. Keys that are added or removed during a whole walk may or may not be seen. A key that stays is seen
//! once, unless databases are swapped meanwhile.

use engine::{CommandError, Context, unit::LockPolicy};
use keyspace::{ScanCursor, SlotId};
use wire::{Aggregate, Args, ReplyWriter, glob};

use crate::scan::{ScanOptions, ScanTarget, parse_cursor};

/// The approximate number of keys that KEYS visits with one call of `scan`.
const COUNT_OF_KEYS: usize = 1 << 20;

/// `RANDOMKEY`
pub(super) fn randomkey(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let mut key = Vec::new();
    let found = cx.unit.random_key(LockPolicy(cx.host), cx.session.db, &mut key)?;
    cx.reply.bulk_or_null(found.then_some(key.as_slice()));
    Ok(())
}

/// `KEYS pattern`
pub(super) fn keys(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, as_of_ms, pattern) = (cx.db(), cx.as_of_ms(), args.at(1));
    let patience = LockPolicy(cx.host);
    if only_slot(pattern).is_none() {
        cx.elements_max().require(usize::try_from(cx.keyspace.len(db)).unwrap_or(usize::MAX))?;
    }
    let array = cx.reply.begin_deferred();
    let mut found = 0;
    let mut show = |key: &[u8]| {
        if glob::matches(pattern, key) {
            cx.reply.bulk(key);
            found += 1;
        }
    };
    if let Some(slot) = only_slot(pattern) {
        cx.unit.with_slot(patience, slot, |slot| {
            let alive = slot.entries(db).filter(|entry| !entry.is_expired(as_of_ms));
            alive.for_each(|entry| show(entry.key()));
        })?;
    } else {
        let mut cursor = ScanCursor::START;
        loop {
            cursor = cx.unit.scan(patience, db, cursor, COUNT_OF_KEYS, &mut |key, _| show(key))?;
            if cursor == ScanCursor::START {
                break;
            }
        }
    }
    cx.reply.end_deferred(array, Aggregate::Array, found);
    Ok(())
}

/// The one slot of all matching keys, if the pattern has no special bytes, or a hash tag that is not empty
/// before the first of them. `None` for other patterns: the keys that they match may be in several slots.
fn only_slot(pattern: &[u8]) -> Option<SlotId> {
    let prefix = glob::literal_prefix(pattern);
    let open = prefix.iter().position(|byte| *byte == b'{');
    let has_tag = open.is_some_and(|open| {
        let close = prefix[open..].iter().position(|byte| *byte == b'}');
        // An empty tag does not count: the slot then depends on the whole key.
        close.is_some_and(|close| close > 1)
    });
    (has_tag || glob::is_literal(pattern)).then(|| keyspace::slot_of(prefix))
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub(super) fn scan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = ScanCursor::from_u64(parse_cursor(args.at(1))?);
    let options = ScanOptions::parse(args.skip(2), ScanTarget::Keys)?;
    cx.elements_max().require(options.count)?;
    // The reply begins with the new cursor, so keys are buffered until the cursor is known.
    let (mut keys, mut found) = (Vec::new(), 0);
    let mut writer = ReplyWriter::new(&mut keys, cx.reply.protocol());
    let patience = LockPolicy(cx.host);
    let cursor = cx.unit.scan(patience, cx.db(), cursor, options.count, &mut |key, value_type| {
        if options.accepts_type(value_type) && options.accepts(key) {
            writer.bulk(key);
            found += 1;
        }
    })?;
    cx.reply.array(2);
    cx.reply.bulk_display(cursor.to_u64());
    cx.reply.array(found);
    cx.reply.raw(&keys);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::Value;

    use super::only_slot;
    use crate::testing::{TestServer, check};

    fn bulk(value: &Value) -> String {
        match value {
            Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?} is no bulk string"),
        }
    }

    fn bulks(value: &Value) -> Vec<String> {
        match value {
            Value::Array(values) => values.iter().map(bulk).collect(),
            other => panic!("{other:?} is no array"),
        }
    }

    /// One call of SCAN: returns the next cursor and the keys.
    fn scan(server: &mut TestServer, cursor: &str, options: &str) -> (String, Vec<String>) {
        match server.value(&format!("SCAN {cursor} {options}")) {
            Value::Array(parts) if parts.len() == 2 => (bulk(&parts[0]), bulks(&parts[1])),
            other => panic!("{other:?} is no reply of SCAN"),
        }
    }

    /// Runs a whole walk: returns the number of times that each key is shown, and the number of calls.
    fn walk(
        server: &mut TestServer,
        options: &str,
        mut between: impl FnMut(&mut TestServer, usize),
    ) -> (BTreeMap<String, usize>, usize) {
        let (mut seen, mut calls, mut cursor) = (BTreeMap::new(), 0, "0".to_string());
        loop {
            let (next, keys) = scan(server, &cursor, options);
            keys.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
            calls += 1;
            if next == "0" {
                return (seen, calls);
            }
            cursor = next;
            between(server, calls);
        }
    }

    fn sorted(mut keys: Vec<String>) -> Vec<String> {
        keys.sort();
        keys
    }

    #[test]
    fn a_walk_shows_every_lasting_key_once() {
        let mut server = TestServer::new();
        for number in 0..500 {
            server.run(&format!("SET stays:{number} 1"));
            server.run(&format!("SET {{one}}:{number} 1"));
            server.run(&format!("SET goes:{number} 1"));
        }
        let (seen, calls) = walk(&mut server, "COUNT 20", |server, call| {
            for number in call * 10..call * 10 + 10 {
                server.run(&format!("DEL goes:{number}"));
                server.run(&format!("SET {{one}}new:{number} 1"));
            }
        });
        assert!(calls >= 20, "{calls} calls for 1500 keys at 20 a call");
        for number in 0..500 {
            assert_eq!(seen.get(&format!("stays:{number}")), Some(&1));
            assert_eq!(seen.get(&format!("{{one}}:{number}")), Some(&1));
        }
        assert!(seen.values().all(|times| *times == 1));
    }

    #[test]
    fn options_of_scan_choose_keys() {
        let mut server = TestServer::new();
        for number in 0..30 {
            server.run(&format!("SET user:{number} 1"));
        }
        server.run("SET other 1 PX 10");
        let keys = |server: &mut TestServer, options: &str| walk(server, options, |_, _| {}).0.len();
        assert_eq!(keys(&mut server, ""), 31);
        assert_eq!(keys(&mut server, "MATCH user:*"), 30);
        assert_eq!(keys(&mut server, "match user:?"), 10);
        assert_eq!(keys(&mut server, "MATCH user:* MATCH *"), 31);
        assert_eq!(keys(&mut server, "TYPE STRING COUNT 3"), 31);
        assert_eq!(keys(&mut server, "TYPE list"), 0);
        assert_eq!(keys(&mut server, "TYPE nonsense"), 0);
        assert_eq!(scan(&mut server, "0", "COUNT 1000").1.len(), 31);
        server.clock.advance_ms(10);
        assert_eq!(keys(&mut server, ""), 30, "an expired key is not shown");
        server.session.db = keyspace::DbId::new(1).unwrap();
        assert_eq!(keys(&mut server, ""), 0, "each database is walked alone");
    }

    #[test]
    fn scan_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("SCAN", "-ERR wrong number of arguments for 'scan' command"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 18446744073709551616", "-ERR invalid cursor"),
            (r#"SCAN " 0""#, r#"["0", []]"#),
            ("SCAN -1", "-ERR invalid cursor"),
            ("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
            ("SCAN x FOO", "-ERR invalid cursor"),
            ("SCAN 0 FOO", "-ERR syntax error"),
            ("SCAN 0 FOO x", "-ERR syntax error"),
            ("SCAN 0 MATCH", "-ERR syntax error"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("SCAN 0 COUNT -1", "-ERR syntax error"),
            ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SCAN 0", r#"["0", []]"#),
            (r#"SCAN """#, "-ERR invalid cursor"),
            ("SCAN 18446744073709551615", r#"["0", []]"#),
            ("SCAN 0 COUNT 9223372036854775807", r#"["0", []]"#),
        ]);
    }

    #[test]
    fn keys_lists_matching_unexpired_keys() {
        let mut server = TestServer::new();
        assert_eq!(server.run("KEYS *"), "[]");
        server.run("MSET one 1 two 2 three 3 {tag}a 4 {tag}b 5 {}c 6");
        server.run("SET gone 1 PX 10");
        server.run("SET {tag}gone 1 PX 10");
        server.clock.advance_ms(10);
        let mut keys = |pattern: &str| sorted(bulks(&server.value(&format!("KEYS {pattern}"))));
        assert_eq!(keys("*"), ["one", "three", "two", "{tag}a", "{tag}b", "{}c"]);
        assert_eq!(keys("t*"), ["three", "two"]);
        assert_eq!(keys("[ot]?[eo]"), ["one", "two"]);
        assert_eq!(keys("one"), ["one"]);
        assert_eq!(keys("ONE"), [""; 0]);
        assert_eq!(keys("{tag}*"), ["{tag}a", "{tag}b"]);
        assert_eq!(keys("{tag}?one"), [""; 0]);
        assert_eq!(keys("{*"), ["{tag}a", "{tag}b", "{}c"]);
        assert_eq!(keys("{}*"), ["{}c"]);
        assert_eq!(keys("gone"), [""; 0]);
        assert_eq!(server.run("KEYS"), "-ERR wrong number of arguments for 'keys' command");
    }

    #[test]
    fn a_pattern_with_a_whole_hash_tag_fixes_the_slot() {
        for (pattern, key) in [("{tag}*", Some("tag")), ("a{tag}[x]", Some("tag")), ("exact", Some("exact"))]
        {
            assert_eq!(only_slot(pattern.as_bytes()), key.map(|key| keyspace::slot_of(key.as_bytes())));
        }
        for pattern in ["*", "{tag*}", "{}*", "*{tag}", "\\{tag}", "{}{tag}*"] {
            assert_eq!(only_slot(pattern.as_bytes()), None, "{pattern}");
        }
    }

    #[test]
    fn random_keys_are_keys_of_the_database() {
        let mut server = TestServer::new();
        assert_eq!(server.run("RANDOMKEY"), "nil");
        server.run("MSET a 1 b 2 c 3 d 4");
        server.run("SET gone 1 PX 10");
        server.clock.advance_ms(10);
        let mut seen = BTreeMap::<String, usize>::new();
        for _ in 0..400 {
            *seen.entry(server.run("RANDOMKEY")).or_default() += 1;
        }
        assert_eq!(seen.keys().collect::<Vec<_>>(), [r#""a""#, r#""b""#, r#""c""#, r#""d""#]);
        assert!(seen.values().all(|times| *times > 40), "{seen:?}");
        server.run("DEL a b c d");
        assert_eq!(server.run("RANDOMKEY"), "nil", "only an expired key is left");
        assert_eq!(server.run("RANDOMKEY a"), "-ERR wrong number of arguments for 'randomkey' command");
    }

    #[test]
    fn a_random_key_may_be_one_of_the_same_transaction() {
        let mut server = TestServer::new();
        for command in ["MULTI", "RANDOMKEY", "SET a 1", "RANDOMKEY", "DEL a", "RANDOMKEY"] {
            server.run(command);
        }
        assert_eq!(server.run("EXEC"), r#"[nil, +OK, "a", :1, nil]"#);
    }

    #[test]
    fn commands_over_all_keys_wait_for_all_writes() {
        let mut server = TestServer::new();
        server.run("SET a 1");
        for command in ["KEYS nothing", "KEYS *", "SCAN 0", "RANDOMKEY"] {
            assert_eq!(server.gate(command), server.appended_lsn(), "{command}");
        }
    }
}
