//! HOTKEYS: the most used keys.

use std::collections::HashMap;

use engine::{
    CommandError, Context,
    observe::{HOT_KEYS_MAX, HotKey},
    stats::KEYS_SAMPLED_EVERY,
    unit::LockPolicy,
};
use keyspace::DbId;
use wire::{Args, number::parse_i64};

/// The default of COUNT.
const SHOWN_BY_DEFAULT: usize = 10;

/// `HOTKEYS [COUNT count]`. On average, a key of one in [`KEYS_SAMPLED_EVERY`] commands is counted; the
/// counts decay over time.
pub(super) fn hotkeys(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let count = parse_count(args)?;
    let (keys, accesses_per_s) = gather(cx);
    cx.reply.array(keys.len().min(count));
    for HotKey { db, key, per_s } in keys.into_iter().take(count) {
        let value_type = type_name(cx, db, &key)?;
        cx.reply.map(5);
        cx.reply.bulk(b"key");
        cx.reply.bulk(&key);
        cx.reply.bulk(b"db");
        cx.reply.integer(db.get().into());
        cx.reply.bulk(b"accesses-per-second");
        cx.reply.integer(per_s.round() as i64);
        cx.reply.bulk(b"share");
        cx.reply.double((per_s / accesses_per_s * 10_000.0).round() / 10_000.0);
        cx.reply.bulk(b"type");
        cx.reply.bulk(value_type.as_bytes());
    }
    Ok(())
}

fn parse_count(args: Args<'_>) -> Result<usize, CommandError> {
    match (args.get(1), args.get(2), args.len()) {
        (None, ..) => Ok(SHOWN_BY_DEFAULT),
        (Some(option), Some(count), 3) if option.eq_ignore_ascii_case(b"count") => {
            let count = parse_i64(count).ok_or(CommandError::NotAnInteger)?;
            usize::try_from(count).ok().filter(|count| *count > 0).ok_or(CommandError::NotPositive)
        }
        _ => Err(CommandError::Syntax),
    }
}

/// The current type of a key, named as in TYPE.
fn type_name(cx: &Context<'_, '_>, db: DbId, key: &[u8]) -> Result<&'static str, CommandError> {
    let hash = cx.keyspace.hash(key);
    let name = cx.unit.with_slot(LockPolicy(cx.host), hash.slot(), |slot| {
        slot.get(db, &hash, key, cx.now_ms()).map_or("none", |entry| entry.value_type().name())
    })?;
    Ok(name)
}

/// Merges the hot keys of all workers. Returns the most used ones, at most [`HOT_KEYS_MAX`], in descending
/// order of use, and the accesses to all keys per second.
fn gather(cx: &Context<'_, '_>) -> (Vec<HotKey>, f64) {
    let (mut rates, mut total) = (HashMap::new(), 0.0);
    for (keys, per_s) in cx.host.stats.hot_keys(cx.now_ms()) {
        total += per_s * KEYS_SAMPLED_EVERY as f64;
        for HotKey { db, key, per_s } in keys {
            *rates.entry((db, key)).or_insert(0.0) += per_s * KEYS_SAMPLED_EVERY as f64;
        }
    }
    let keys = rates.into_iter().map(|((db, key), per_s)| HotKey { db, key, per_s });
    let mut sorted: Vec<HotKey> = keys.collect();
    sorted.sort_by(|left, right| {
        right.per_s.total_cmp(&left.per_s).then_with(|| (left.db, &left.key).cmp(&(right.db, &right.key)))
    });
    sorted.truncate(HOT_KEYS_MAX);
    (sorted, total)
}

#[cfg(test)]
mod tests {
    use wire::Value;

    use crate::testing::{TestServer, check};

    fn hot(server: &mut TestServer, line: &str) -> Vec<String> {
        let Value::Array(keys) = server.value(line) else { panic!("an array") };
        keys.iter()
            .map(|key| {
                let Value::Map(fields) = key else { panic!("a map") };
                let values = fields.iter().map(|(_, value)| crate::testing::notation(value));
                values.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    #[test]
    fn keys_are_named_by_use() {
        let mut server = TestServer::new();
        server.check(&[("hotkeys", "[]")]);
        server.run("hello 3");
        server.run("set busy 1");
        server.run("select 2");
        for step in 0..40_000 {
            match step % 4 {
                0 => server.run("mget quiet other"),
                1 => server.run("ping"),
                _ => server.run("get busy"),
            };
            if step % 40 == 39 {
                server.clock.advance_ms(1);
            }
        }
        let keys = hot(&mut server, "hotkeys count 2");
        assert_eq!(keys.len(), 2);
        assert!(keys[0].starts_with("\"busy\" :2 :") && keys[0].ends_with(" \"none\""), "{keys:?}");
        // Half of the commands use one key, a quarter each the two others, within about a second.
        let numbers: Vec<f64> =
            keys[0].split(' ').skip(2).take(2).map(|text| text[1..].parse().expect("a number")).collect();
        assert!((15_000.0..25_000.0).contains(&numbers[0]), "{keys:?}");
        assert!((0.42..0.58).contains(&numbers[1]), "{keys:?}");
        server.run("config resetstat");
        server.check(&[("hotkeys", "[]")]);
    }

    #[test]
    fn the_type_is_that_of_now() {
        let mut server = TestServer::new();
        server.check(&[("set a 1", "+OK")]);
        (0..500).for_each(|_| _ = server.run("get a"));
        let reply = server.run("HOTKEYS");
        assert!(reply.starts_with("[[\"key\", \"a\", \"db\", :0, \"accesses-per-second\", :"), "{reply}");
        assert!(reply.ends_with("\"share\", \"1\", \"type\", \"string\"]]"), "{reply}");
    }

    #[test]
    fn keys_of_transactions_count() {
        let mut server = TestServer::new();
        for _ in 0..500 {
            server.check(&[("multi", "+OK"), ("incr a", "+QUEUED"), ("get a", "+QUEUED")]);
            server.run("exec");
        }
        server.check(&[("multi", "+OK"), ("hotkeys", "+QUEUED")]);
        let reply = server.run("exec");
        assert!(reply.starts_with("[[[\"key\", \"a\", \"db\", :0,"), "{reply}");
        assert!(reply.ends_with("\"type\", \"string\"]]]"), "{reply}");
    }

    #[test]
    fn invalid_calls_are_refused() {
        check(&[
            ("hotkeys 5", "-ERR syntax error"),
            ("hotkeys count", "-ERR syntax error"),
            ("hotkeys count 1 x", "-ERR syntax error"),
            ("hotkeys count x", "-ERR value is not an integer or out of range"),
            ("hotkeys count 0", "-ERR value is out of range, must be positive"),
        ]);
    }
}
