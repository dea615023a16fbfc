//! Commands on several sets: intersections, unions and differences, with a reply or a destination.

use engine::{CommandError, Context, EventClass, Unit, counted_keys};
use keyspace::{DbId, ItemsBuf, KeyOp, Value};
use wire::{Aggregate, Args, number::parse_i64};

use super::{
    algebra::{Operation, Sets, intersection, members},
    set,
};

/// `SINTER key [key ...]`
pub(super) fn sinter(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, Operation::Intersection, args.skip(1))
}

/// `SUNION key [key ...]`
pub(super) fn sunion(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, Operation::Union, args.skip(1))
}

/// `SDIFF key [key ...]`
pub(super) fn sdiff(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    show(cx, Operation::Difference, args.skip(1))
}

/// `SINTERSTORE destination key [key ...]`
pub(super) fn sinterstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store(cx, Operation::Intersection, args, "sinterstore")
}

/// `SUNIONSTORE destination key [key ...]`
pub(super) fn sunionstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store(cx, Operation::Union, args, "sunionstore")
}

/// `SDIFFSTORE destination key [key ...]`
pub(super) fn sdiffstore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    store(cx, Operation::Difference, args, "sdiffstore")
}

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`
pub(super) fn sintercard(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = parse_i64(args.at(1)).filter(|count| *count > 0);
    count.ok_or(CommandError::Text("ERR numkeys should be greater than 0"))?;
    let keys = counted_keys(args, 1)
        .ok_or(CommandError::Text("ERR Number of keys can't be greater than number of args"))?;
    let mut limit = usize::MAX;
    let mut words = args.skip(keys.end).iter();
    while let Some(word) = words.next() {
        match words.next() {
            Some(number) if word.eq_ignore_ascii_case(b"limit") => {
                let number = parse_i64(number).and_then(|number| usize::try_from(number).ok());
                let number = number.ok_or(CommandError::Text("ERR LIMIT can't be negative"))?;
                limit = if number == 0 { usize::MAX } else { number };
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    let sets = sets(&mut cx.unit, cx.session.db, args.take(keys.end).skip(keys.start))?;
    cx.reply.count(intersection(sets).take(limit).count());
    Ok(())
}

fn sets<'u>(unit: &'u mut Unit<'_>, db: DbId, keys: Args<'_>) -> Result<Sets<'u>, CommandError> {
    // `read`, which counts the access, borrows the unit mutably; so the accesses to all keys are counted
    // first.
    for key in keys.iter() {
        set(unit.read(db, key))?;
    }
    let unit: &'u Unit<'_> = unit;
    keys.iter().map(|key| Ok(set(unit.peek(db, key))?.unwrap_or_default())).collect()
}

/// Replies with the members of a combination.
fn show(cx: &mut Context<'_, '_>, operation: Operation, keys: Args<'_>) -> Result<(), CommandError> {
    let sets = sets(&mut cx.unit, cx.session.db, keys)?;
    let shown = cx.reply.begin_deferred();
    let count = members(operation, sets).map(|member| cx.reply.bulk(&member)).count();
    cx.reply.end_deferred(shown, Aggregate::Set, count);
    Ok(())
}

/// Stores a combination at the first key, and replaces a value of any type. An empty combination deletes the
/// key.
fn store(
    cx: &mut Context<'_, '_>,
    operation: Operation,
    args: Args<'_>,
    event: &'static str,
) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let mut stored = ItemsBuf::new();
    let sets = sets(&mut cx.unit, db, args.skip(2))?;
    members(operation, sets).for_each(|member| stored.push(&member));
    if stored.is_empty() {
        if cx.unit.exists(db, key) {
            cx.apply(key, KeyOp::Delete);
            cx.notify(EventClass::GENERIC, "del", key);
        }
    } else {
        cx.require_room(stored.size_bytes() as u64)?;
        let value = Value::Set(stored.as_items());
        cx.apply(key, KeyOp::Put { value, expire_at_ms: None });
        cx.notify(EventClass::SET, event, key);
    }
    cx.reply.count(stored.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::{Protocol, Value};

    use crate::testing::{TestServer, check};

    /// The members in a reply, sorted.
    fn sorted(server: &mut TestServer, line: &str) -> String {
        let value = server.value(line);
        let members = match (&value, server.session.protocol) {
            (Value::Array(members), Protocol::Resp2) | (Value::Set(members), Protocol::Resp3) => members,
            other => panic!("{other:?} is no set"),
        };
        let texts: Vec<String> = members.iter().map(crate::testing::notation).collect();
        let sorted: BTreeSet<&str> = texts.iter().map(|text| text.trim_matches('"')).collect();
        assert_eq!(sorted.len(), members.len(), "none twice");
        sorted.into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sets_are_combined() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut server = TestServer::new();
            server.session.protocol = protocol;
            server.run("SADD a 1 2 3 4");
            server.run("SADD b 3 4 five six");
            server.run("SADD c 4 six seven");
            server.run("SADD n 4 5");
            for (line, expected) in [
                ("SINTER a", "1 2 3 4"),
                ("SINTER a b", "3 4"),
                ("SINTER b a c n", "4"),
                ("SINTER a a a", "1 2 3 4"),
                ("SINTER a nokey b", ""),
                ("SUNION a", "1 2 3 4"),
                ("SUNION a n", "1 2 3 4 5"),
                ("SUNION a b c nokey n", "1 2 3 4 5 five seven six"),
                ("SUNION nokey", ""),
                ("SUNION c c", "4 seven six"),
                ("SDIFF a", "1 2 3 4"),
                ("SDIFF a b", "1 2"),
                ("SDIFF b a c", "five"),
                ("SDIFF c nokey b", "seven"),
                ("SDIFF a a", ""),
                ("SDIFF nokey a", ""),
                // With more sets than members, the other algorithm is cheaper.
                ("SDIFF a n n n n n n n n n n", "1 2 3"),
                ("SDIFF a n n n n n a n n n n", ""),
            ] {
                assert_eq!(sorted(&mut server, line), expected, "{line}");
            }
            server.assert_replays();
        }
    }

    #[test]
    fn large_sets_are_combined() {
        let mut server = TestServer::new();
        for number in 0..600 {
            server.run(&format!("SADD even m{}", 2 * number));
            server.run(&format!("SADD threes m{}", 3 * number));
        }
        server.check(&[
            ("SINTERSTORE d even threes", ":200"),
            ("SUNIONSTORE d even threes even", ":1000"),
            ("SDIFFSTORE d even threes", ":400"),
            ("SINTERCARD 2 even threes", ":200"),
            ("SINTERCARD 2 even d", ":400"),
        ]);
        server.assert_replays();
    }

    #[test]
    fn a_stored_set_replaces_a_value_of_any_type() {
        check(&[
            ("SADD a 1 2 3", ":3"),
            ("SADD b 2 3 4", ":3"),
            ("SET d text EX 10", "+OK"),
            ("SINTERSTORE d a b", ":2"),
            ("TYPE d", "+set"),
            ("PTTL d", ":-1"),
            ("SMISMEMBER d 1 2 3", "[:0, :1, :1]"),
            ("SDIFFSTORE d a nokey", ":3"),
            ("SUNIONSTORE a a b", ":4"),
            ("SCARD a", ":4"),
            ("SDIFFSTORE d d a", ":0"),
            ("EXISTS d", ":0"),
            ("SINTERSTORE d a nokey", ":0"),
            ("SET d text", "+OK"),
            ("SUNIONSTORE d nokey", ":0"),
            ("EXISTS d", ":0"),
            ("SUNIONSTORE d", "-ERR wrong number of arguments for 'sunionstore' command"),
        ]);
    }

    #[test]
    fn results_beyond_the_admitted_bytes_are_stored() {
        let mut server = TestServer::new();
        for number in 0..20 {
            let member = vec![b'a' + number; 30_000];
            server.run_args(&[b"SADD", b"s", &member]);
        }
        server.check(&[("SUNIONSTORE d s", ":20"), ("SCARD d", ":20")]);
        server.assert_replays();
    }

    #[test]
    fn an_intersection_is_counted_up_to_a_limit() {
        check(&[
            ("SADD a 1 2 3 4", ":4"),
            ("SADD b 2 3 4 5", ":4"),
            ("SINTERCARD 2 a b", ":3"),
            ("SINTERCARD 2 a b LIMIT 0", ":3"),
            ("SINTERCARD 2 a b limit 2", ":2"),
            ("SINTERCARD 2 a b LIMIT 2 LIMIT 9", ":3"),
            ("SINTERCARD 1 a LIMIT 9", ":4"),
            ("SINTERCARD 2 a nokey", ":0"),
            ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
            ("SINTERCARD -1 a", "-ERR numkeys should be greater than 0"),
            ("SINTERCARD x a", "-ERR numkeys should be greater than 0"),
            ("SINTERCARD 3 a b", "-ERR Number of keys can't be greater than number of args"),
            (
                "SINTERCARD 9223372036854775807 a b",
                "-ERR Number of keys can't be greater than number of args",
            ),
            ("SINTERCARD 1 a b", "-ERR syntax error"),
            ("SINTERCARD 1 a LIMIT", "-ERR syntax error"),
            ("SINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative"),
            ("SINTERCARD 1 a LIMIT x", "-ERR LIMIT can't be negative"),
            ("SINTERCARD 1", "-ERR wrong number of arguments for 'sintercard' command"),
        ]);
    }
}
