//! Members of one set: adding, removing, moving, testing, listing.

use engine::{CommandError, Context, EventClass};
use keyspace::{Applied, Items, KeyOp};
use wire::Args;

use super::set;
use crate::{
    Slices, gather,
    scan::{ScanOptions, ScanTarget, parse_cursor},
};

/// `SADD key member [member ...]`
pub(super) fn sadd(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let key = args.at(1);
    let mut slices = Slices::new();
    let members = gather(args.skip(2), &mut slices);
    let applied = cx.try_apply(key, KeyOp::SetAdd { members })?;
    if applied.added > 0 {
        cx.notify(EventClass::SET, "sadd", key);
    }
    cx.reply.count(applied.added as usize);
    Ok(())
}

/// `SREM key member [member ...]`
pub(super) fn srem(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let mut slices = Slices::new();
    let applied = remove(cx, args.at(1), gather(args.skip(2), &mut slices))?;
    cx.reply.count(applied.removed as usize);
    Ok(())
}

/// Removes members, and notifies the removal.
fn remove(cx: &mut Context<'_, '_>, key: &[u8], members: Items<'_>) -> Result<Applied, CommandError> {
    let applied = cx.try_apply(key, KeyOp::SetRemove { members })?;
    if applied.removed > 0 {
        cx.notify(EventClass::SET, "srem", key);
    }
    if applied.key_removed {
        cx.notify(EventClass::GENERIC, "del", key);
    }
    Ok(applied)
}

/// `SMOVE source destination member`
pub(super) fn smove(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, source, destination, member) = (cx.db(), args.at(1), args.at(2), args.at(3));
    let Some(from) = set(cx.unit.peek(db, source))? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let is_member = from.contains(member);
    set(cx.unit.peek(db, destination))?;
    if is_member && source != destination {
        let members = Items::Slices(&[member]);
        remove(cx, source, members)?;
        if cx.apply(destination, KeyOp::SetAdd { members }).added > 0 {
            cx.notify(EventClass::SET, "sadd", destination);
        }
    }
    cx.reply.integer(is_member.into());
    Ok(())
}

/// `SISMEMBER key member`
pub(super) fn sismember(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let set = set(cx.unit.read(db, args.at(1)))?;
    let is_member = set.is_some_and(|set| set.contains(args.at(2)));
    cx.reply.integer(is_member.into());
    Ok(())
}

/// `SMISMEMBER key member [member ...]`
pub(super) fn smismember(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, members) = (cx.db(), args.skip(2));
    let set = set(cx.unit.read(db, args.at(1)))?;
    cx.reply.array(members.len());
    for member in members.iter() {
        let is_member = set.is_some_and(|set| set.contains(member));
        cx.reply.integer(is_member.into());
    }
    Ok(())
}

/// `SCARD key`
pub(super) fn scard(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let len = set(cx.unit.read(db, args.at(1)))?.map_or(0, |set| set.len());
    cx.reply.count(len);
    Ok(())
}

/// `SMEMBERS key`
pub(super) fn smembers(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let set = set(cx.unit.read(db, args.at(1)))?.unwrap_or_default();
    cx.reply.set(set.len());
    set.iter().for_each(|member| cx.reply.bulk(&member));
    Ok(())
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
pub(super) fn sscan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, elements_max) = (cx.db(), cx.elements_max());
    let cursor = parse_cursor(args.at(2))?;
    let (mut next, mut shown) = (0, Vec::new());
    // As in Redis, options are not parsed for an absent key.
    if let Some(set) = set(cx.unit.read(db, args.at(1)))? {
        let options = ScanOptions::parse(args.skip(3), ScanTarget::Members)?;
        elements_max.require(options.count.min(set.len()))?;
        next = set.scan(cursor, options.count, |member| {
            if options.accepts(&member) {
                shown.push(member);
            }
        });
    }
    cx.reply.array(2);
    cx.reply.bulk_display(next);
    cx.reply.array(shown.len());
    shown.iter().for_each(|member| cx.reply.bulk(member));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::{Protocol, Value};

    use crate::testing::{TestServer, check};

    #[test]
    fn members_are_added_and_removed() {
        check(&[
            ("SADD s a", ":1"),
            ("SADD s a b c b", ":2"),
            ("SCARD s", ":3"),
            ("SISMEMBER s b", ":1"),
            ("SISMEMBER s d", ":0"),
            ("SMISMEMBER s c d a", "[:1, :0, :1]"),
            ("SREM s b d b", ":1"),
            ("SREM s a c", ":2"),
            ("EXISTS s", ":0"),
            ("SREM s a", ":0"),
            ("SCARD s", ":0"),
            ("SISMEMBER s a", ":0"),
            ("SMISMEMBER s a b", "[:0, :0]"),
            ("SADD s a PX", ":2"),
            ("TYPE s", "+set"),
            ("SADD s", "-ERR wrong number of arguments for 'sadd' command"),
        ]);
    }

    #[test]
    fn integers_are_members_like_others() {
        check(&[
            ("SADD s 10 -1 9223372036854775807 10", ":3"),
            ("SISMEMBER s 10", ":1"),
            ("SISMEMBER s 010", ":0"),
            ("SADD s 010 text", ":2"),
            ("SMISMEMBER s 10 010 -1 9223372036854775807 1", "[:1, :1, :1, :1, :0]"),
            ("SREM s 010", ":1"),
            ("SISMEMBER s 10", ":1"),
        ]);
    }

    #[test]
    fn all_members_are_a_set_where_there_are_sets() {
        for (protocol, expected, none) in [
            (Protocol::Resp2, r#"["-5", "2", "10"]"#, "[]"),
            (Protocol::Resp3, r#"~["-5", "2", "10"]"#, "~[]"),
        ] {
            let mut server = TestServer::new();
            server.session.protocol = protocol;
            server.check(&[("SADD s 10 2 -5", ":3"), ("SMEMBERS s", expected), ("SMEMBERS nokey", none)]);
        }
    }

    #[test]
    fn other_types_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        let commands = [
            "SADD k a",
            "SREM k a",
            "SMOVE k s a",
            "SMOVE s k a",
            "SMOVE s k nomember",
            "SISMEMBER k a",
            "SMISMEMBER k a",
            "SCARD k",
            "SMEMBERS k",
            "SPOP k",
            "SPOP k 1",
            "SRANDMEMBER k",
            "SRANDMEMBER k 0",
            "SSCAN k 0 FOO",
            "SINTER nokey k",
            "SUNION s k",
            "SDIFF nokey k",
            "SINTERSTORE d nokey k",
            "SUNIONSTORE d k",
            "SDIFFSTORE d s k",
            "SINTERCARD 2 nokey k",
        ];
        let mut table = vec![("SET k v", "+OK"), ("SADD s a", ":1"), ("GET s", wrong)];
        table.extend(commands.map(|command| (command, wrong)));
        table.extend([("SMOVE nokey k a", ":0"), ("GET k", r#""v""#), ("SCARD s", ":1"), ("DBSIZE", ":2")]);
        check(&table);
    }

    #[test]
    fn a_member_moves_as_a_whole() {
        check(&[
            ("SADD a x y", ":2"),
            ("SADD b x", ":1"),
            ("SMOVE a b z", ":0"),
            ("SMOVE a b x", ":1"),
            ("SMISMEMBER a x y", "[:0, :1]"),
            ("SMOVE a c y", ":1"),
            ("EXISTS a c", ":1"),
            ("SMOVE c c y", ":1"),
            ("SMOVE c c z", ":0"),
            ("SCARD c", ":1"),
            ("SMOVE a b x", ":0"),
            ("PEXPIRE b 5", ":1"),
            ("after 5", ""),
            ("SMOVE c b y", ":1"),
            ("SMEMBERS nokey x", "-ERR wrong number of arguments for 'smembers' command"),
            ("SCARD b", ":1"),
            ("PTTL b", ":-1"),
        ]);
    }

    #[test]
    fn a_set_may_grow_large_and_shrink() {
        let mut server = TestServer::new();
        for number in 0..2000 {
            assert_eq!(server.run(&format!("SADD s {number}")), ":1");
        }
        server.check(&[("SCARD s", ":2000"), ("SISMEMBER s 1999", ":1"), ("SISMEMBER s 2000", ":0")]);
        server.assert_replays();
        for number in 0..2000 {
            assert_eq!(server.run(&format!("SREM s {number}")), ":1");
        }
        server.check(&[("EXISTS s", ":0"), ("DBSIZE", ":0")]);
        server.assert_replays();
    }

    fn bulks(value: &Value) -> Vec<String> {
        match value {
            Value::Array(values) => values.iter().flat_map(bulks).collect(),
            Value::Bulk(bytes) => vec![String::from_utf8(bytes.clone()).expect("text")],
            other => panic!("{other:?} is no bulk string"),
        }
    }

    #[test]
    fn a_walk_shows_every_lasting_member_once() {
        let mut server = TestServer::new();
        for number in 0..1000 {
            server.run(&format!("SADD s stays:{number} goes:{number}"));
        }
        let (mut seen, mut calls, mut cursor) = (BTreeMap::<_, usize>::new(), 0, "0".to_string());
        loop {
            let shown = bulks(&server.value(&format!("SSCAN s {cursor} COUNT 20 MATCH *:*")));
            shown[1..].iter().for_each(|member| *seen.entry(member.clone()).or_default() += 1);
            cursor.clone_from(&shown[0]);
            if cursor == "0" {
                break;
            }
            calls += 1;
            server.run(&format!("SREM s goes:{calls}"));
            server.run(&format!("SADD s new:{calls}"));
        }
        assert!(calls >= 20, "{calls} calls for 2000 members at 20 a call");
        assert!(seen.values().all(|times| *times == 1));
        assert!((0..1000).all(|number| seen.contains_key(&format!("stays:{number}"))));
    }

    #[test]
    fn a_small_set_is_walked_in_one_call() {
        check(&[
            ("SADD n 1 2 30", ":3"),
            ("SSCAN n 0", r#"["0", ["1", "2", "30"]]"#),
            ("SSCAN n 7 COUNT 1", r#"["0", ["1", "2", "30"]]"#),
            ("SSCAN n 0 match ?", r#"["0", ["1", "2"]]"#),
            ("SADD s b a", ":2"),
            ("SSCAN s 0 MATCH *", r#"["0", ["b", "a"]]"#),
            ("SSCAN s x", "-ERR invalid cursor"),
            ("SSCAN nokey x", "-ERR invalid cursor"),
            ("SSCAN s 0 COUNT 0", "-ERR syntax error"),
            ("SSCAN s 0 TYPE set", "-ERR syntax error"),
            ("SSCAN nokey 0 FOO", r#"["0", []]"#),
        ]);
    }
}
