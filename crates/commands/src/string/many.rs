//! Several strings at once: MGET, MSET, MSETNX, MSETEX.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, Value};
use wire::{Args, number::parse_i64};

use super::set::{put, put_until};
use crate::expiry_option::ExpiryOption;

/// `MGET key [key ...]`
pub(super) fn mget(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let keys = args.skip(1);
    cx.reply.array(keys.len());
    for key in keys {
        // A value of another type reads as null.
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

#[derive(Debug, Default)]
struct MsetexOptions<'a> {
    /// `Some(false)`: the keys must all be absent (NX); `Some(true)`: they must all exist (XX).
    wants_present: Option<bool>,
    expiry: ExpiryOption<'a>,
}

impl<'a> MsetexOptions<'a> {
    fn parse(words: Args<'a>) -> Result<MsetexOptions<'a>, CommandError> {
        let mut options = MsetexOptions::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let wants_present = match word {
                nx if nx.eq_ignore_ascii_case(b"nx") => false,
                xx if xx.eq_ignore_ascii_case(b"xx") => true,
                _ => {
                    options.expiry.read(word, &mut words)?;
                    continue;
                }
            };
            if options.wants_present.is_some_and(|old| old != wants_present) {
                return Err(CommandError::Syntax);
            }
            options.wants_present = Some(wants_present);
        }
        if matches!(options.expiry, ExpiryOption::Persist) { Err(CommandError::Syntax) } else { Ok(options) }
    }
}

/// The number of keys that a MSETEX announces; `None` if the argument is not a positive number, or if fewer
/// keys with values follow.
fn count_of_msetex(args: Args<'_>) -> Option<usize> {
    let count = usize::try_from(parse_i64(args.get(1)?)?).ok().filter(|count| *count > 0)?;
    let pairs = count.checked_mul(2)?.checked_add(2)?;
    (pairs <= args.len()).then_some(count)
}

/// Visits the indices of the keys of a MSETEX.
pub(super) fn keys_of_msetex(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    let count = count_of_msetex(args).unwrap_or(0);
    (0..count).for_each(|index| visit(2 + 2 * index));
}

/// `MSETEX numkeys key value [key value ...] [NX | XX] [EX seconds | ... | KEEPTTL]`
pub(super) fn msetex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    const BAD_COUNT: CommandError = CommandError::Text("ERR invalid numkeys value or out of range");
    let is_count = |count: &i64| (1..=i64::from(i32::MAX)).contains(count);
    parse_i64(args.at(1)).filter(is_count).ok_or(BAD_COUNT)?;
    let count = count_of_msetex(args).ok_or(CommandError::Syntax)?;
    let options = MsetexOptions::parse(args.skip(2 + 2 * count))?;
    let deadline_ms = options.expiry.deadline_ms(cx.now_ms(), "msetex")?;
    let (db, pairs) = (cx.db(), args.skip(2).take(2 * count));
    let sets = options
        .wants_present
        .is_none_or(|wanted| pairs.iter().step_by(2).all(|key| cx.unit.exists(db, key) == wanted));
    if sets {
        for index in (0..pairs.len()).step_by(2) {
            let (key, value) = (pairs.at(index), pairs.at(index + 1));
            match (options.expiry, deadline_ms) {
                (_, Some(deadline_ms)) => put_until(cx, key, value, deadline_ms),
                (ExpiryOption::Keep, None) => {
                    let kept = cx.unit.peek(db, key).and_then(|entry| entry.expire_at_ms());
                    put(cx, key, value, kept);
                }
                _ => put(cx, key, value, None),
            }
        }
    }
    cx.reply.integer(sets.into());
    Ok(())
}

/// Refuses a call in which a key has no value, which the arity of the row cannot express.
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
    fn msetex_sets_all_or_nothing_with_one_deadline() {
        check(&[
            ("MSETEX 2 a 1 b 2", ":1"),
            ("MSETEX 2 a 3 c 4 NX", ":0"),
            ("MSETEX 2 a 3 c 4 XX", ":0"),
            ("MGET a b c", r#"["1", "2", nil]"#),
            ("MSETEX 2 a 3 b 4 XX EX 10", ":1"),
            ("MSETEX 1 a 5 KEEPTTL", ":1"),
            ("PTTL a", ":10000"),
            ("PTTL b", ":10000"),
            ("MSETEX 1 a 6", ":1"),
            ("PTTL a", ":-1"),
            ("MSETEX 2 a 7 d 8 PXAT 1", ":1"),
            ("EXISTS a d", ":0"),
            ("MSETEX 2 d 1 d 2 NX", ":1"),
            ("GET d", r#""2""#),
            ("MSETEX 1 a", "-ERR wrong number of arguments for 'msetex' command"),
            ("MSETEX x a b", "-ERR invalid numkeys value or out of range"),
            ("MSETEX 0 a b", "-ERR invalid numkeys value or out of range"),
            ("MSETEX -1 a b", "-ERR invalid numkeys value or out of range"),
            ("MSETEX 2147483648 a b", "-ERR invalid numkeys value or out of range"),
            ("MSETEX 3 a b", "-ERR syntax error"),
            ("MSETEX 1 a b FOO", "-ERR syntax error"),
            ("MSETEX 1 a b PERSIST", "-ERR syntax error"),
            ("MSETEX 1 a b NX XX", "-ERR syntax error"),
            ("MSETEX 1 a b EX 10 PX 10", "-ERR syntax error"),
            ("MSETEX 1 a b EX 0", "-ERR invalid expire time in 'msetex' command"),
            ("COMMAND GETKEYS MSETEX 2 a 1 b 2 NX", r#"["a", "b"]"#),
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
