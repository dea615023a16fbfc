//! Random members: SPOP, SRANDMEMBER.
//!
//! SPOP logs the members that it has chosen. With a count that takes all members, it logs the removal of the
//! key instead. So a replay removes the same members.

use engine::{CommandError, Context, EventClass};
use keyspace::{Items, ItemsBuf, KeyOp};
use smallvec::SmallVec;
use wire::{Args, number::parse_i64};

use super::set;
use crate::sample::{Drawn, parse_count, verify_drawn_bytes};

/// `SPOP key [count]`
pub(super) fn spop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        2 => pop_one(cx, args.at(1)),
        3 => {
            let count = parse_i64(args.at(2)).and_then(|count| usize::try_from(count).ok());
            pop_many(cx, args.at(1), count.ok_or(CommandError::NotPositive)?)
        }
        _ => Err(CommandError::Syntax),
    }
}

fn pop_one(cx: &mut Context<'_, '_>, key: &[u8]) -> Result<(), CommandError> {
    let (db, seed) = (cx.db(), cx.unit.seed());
    let Some(member) = set(cx.unit.peek(db, key))?.and_then(|set| set.random(seed)) else {
        cx.reply.null();
        return Ok(());
    };
    let member: SmallVec<[u8; 64]> = SmallVec::from_slice(&member);
    let applied = cx.apply(key, KeyOp::SetRemove { members: Items::Slices(&[&member]) });
    cx.notify(EventClass::SET, "spop", key);
    if applied.key_removed {
        cx.notify(EventClass::GENERIC, "del", key);
    }
    cx.reply.bulk(&member);
    Ok(())
}

fn pop_many(cx: &mut Context<'_, '_>, key: &[u8], count: usize) -> Result<(), CommandError> {
    let (db, seed, elements_max) = (cx.db(), cx.unit.seed(), cx.elements_max());
    let set = set(cx.unit.peek(db, key))?.unwrap_or_default();
    elements_max.require(Drawn::Distinct(count).work(set.len()))?;
    cx.reply.set(count.min(set.len()));
    if count == 0 || set.is_empty() {
        return Ok(());
    }
    if count >= set.len() {
        set.iter().for_each(|member| cx.reply.bulk(&member));
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::SET, "spop", key);
        cx.notify(EventClass::GENERIC, "del", key);
        return Ok(());
    }
    let mut members = ItemsBuf::new();
    set.sample(count, seed, |member| {
        cx.reply.bulk(&member);
        members.push(&member);
    });
    cx.require_room(members.size_bytes() as u64)?;
    cx.apply(key, KeyOp::SetRemove { members: members.as_items() });
    cx.notify(EventClass::SET, "spop", key);
    Ok(())
}

/// `SRANDMEMBER key [count]`
pub(super) fn srandmember(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let drawn = args.get(2).map(|count| parse_count(count).and_then(Drawn::of)).transpose()?;
    let (db, seed, elements_max) = (cx.db(), cx.unit.seed(), cx.elements_max());
    let set = set(cx.unit.read(db, args.at(1)))?.unwrap_or_default();
    elements_max.require(drawn.map_or(1, |drawn| drawn.work(set.len())))?;
    match drawn {
        None => cx.reply.bulk_or_null(set.random(seed).as_deref()),
        Some(Drawn::Distinct(count)) => {
            cx.reply.array(count.min(set.len()));
            set.sample(count, seed, |member| cx.reply.bulk(&member));
        }
        Some(Drawn::Repeated(_)) if set.is_empty() => cx.reply.array(0),
        Some(Drawn::Repeated(count)) => {
            let start = cx.reply.position();
            cx.reply.array(count);
            for member in set.draws(seed).take(count) {
                cx.reply.bulk(&member);
                verify_drawn_bytes(cx.reply.position() - start)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::{Protocol, Value};

    use crate::testing::{TestServer, check, notation};

    fn members(value: &Value) -> Vec<String> {
        match value {
            Value::Array(members) | Value::Set(members) => members.iter().map(notation).collect(),
            other => panic!("{other:?} has no members"),
        }
    }

    #[test]
    fn popped_members_are_gone() {
        for start in [0, 1_000_000] {
            let mut server = TestServer::new();
            // Encodings: integers, a few strings, many strings.
            for number in start..start + 10 {
                server.run(&format!("SADD a {number}"));
                server.run(&format!("SADD b x{number}"));
            }
            for number in 0..700 {
                server.run(&format!("SADD c x{number}"));
            }
            for (key, len) in [("a", 10), ("b", 10), ("c", 700)] {
                let mut left: usize = len;
                while left > len / 2 {
                    let member = server.run(&format!("SPOP {key}"));
                    assert_eq!(server.run(&format!("SISMEMBER {key} {member}")), ":0");
                    left -= 1;
                }
                for count in [1, left / 2] {
                    let popped = members(&server.value(&format!("SPOP {key} {count}")));
                    assert_eq!(popped.len(), count);
                    for member in popped {
                        assert_eq!(server.run(&format!("SISMEMBER {key} {member}")), ":0");
                    }
                    left -= count;
                }
                assert_eq!(server.run(&format!("SCARD {key}")), format!(":{left}"));
                server.assert_replays();
                assert_eq!(members(&server.value(&format!("SPOP {key} {}", left + 1))).len(), left);
            }
            assert_eq!(server.run("DBSIZE"), ":0");
            server.assert_replays();
        }
    }

    #[test]
    fn the_last_member_takes_the_key_along() {
        check(&[
            ("SADD s a", ":1"),
            ("SRANDMEMBER s", r#""a""#),
            ("SRANDMEMBER s 5", r#"["a"]"#),
            ("SRANDMEMBER s -3", r#"["a", "a", "a"]"#),
            ("SRANDMEMBER s 0", "[]"),
            ("SPOP s", r#""a""#),
            ("EXISTS s", ":0"),
            ("SPOP s", "nil"),
            ("SRANDMEMBER s", "nil"),
            ("SRANDMEMBER s 3", "[]"),
            ("SRANDMEMBER s -3", "[]"),
        ]);
    }

    #[test]
    fn popped_members_are_a_set_where_there_are_sets() {
        for (protocol, one, none) in
            [(Protocol::Resp2, r#"["a"]"#, "[]"), (Protocol::Resp3, r#"~["a"]"#, "~[]")]
        {
            let mut server = TestServer::new();
            server.session.protocol = protocol;
            server.check(&[
                ("SADD s a", ":1"),
                ("SPOP s 0", none),
                ("SPOP s 9223372036854775807", one),
                ("SPOP s 1", none),
            ]);
        }
    }

    #[test]
    fn counts_are_checked_first() {
        let range =
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        check(&[
            ("SPOP nokey -1", "-ERR value is out of range, must be positive"),
            ("SPOP nokey x", "-ERR value is out of range, must be positive"),
            ("SPOP nokey 1 2", "-ERR syntax error"),
            ("SRANDMEMBER nokey x", "-ERR value is not an integer or out of range"),
            ("SRANDMEMBER nokey 1 2", "-ERR syntax error"),
            ("SRANDMEMBER nokey -9223372036854775808", range),
            ("SRANDMEMBER nokey -1048576", "[]"),
            ("SADD s a", ":1"),
            ("SRANDMEMBER s 9223372036854775807", r#"["a"]"#),
            ("SRANDMEMBER s -1048577", "-ERR value is out of range, at most 1048576 elements may repeat"),
        ]);
    }

    #[test]
    fn repeated_members_are_bounded_by_the_bytes_of_the_reply() {
        let mut server = TestServer::new();
        server.run_args(&[b"SADD", b"s", &[b'x'; 1 << 16]]);
        assert!(server.run("SRANDMEMBER s -15").len() > 15 << 16);
        server.check(&[("SRANDMEMBER s -17", "-ERR the elements drawn are too many bytes for one reply")]);
    }

    #[test]
    fn random_members_differ_from_call_to_call() {
        let mut server = TestServer::new();
        server.run("SADD s a b c d e");
        let mut seen = BTreeMap::<String, usize>::new();
        for _ in 0..500 {
            *seen.entry(server.run("SRANDMEMBER s")).or_default() += 1;
        }
        assert_eq!(seen.len(), 5);
        assert!(seen.values().all(|times| *times > 50), "{seen:?}");
        let drawn = members(&server.value("SRANDMEMBER s -100"));
        assert_eq!((drawn.len(), server.run("SCARD s")), (100, ":5".to_string()));
        assert_eq!(members(&server.value("SRANDMEMBER s 3")).len(), 3);
    }
}
