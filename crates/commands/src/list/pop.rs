//! Removing from the ends: LPOP, RPOP, LMPOP.

use engine::{CommandError, Context, row::counted_keys};
use keyspace::{KeyOp, ListEnd, ListView};
use wire::{Args, ReplyWriter, number::parse_i64};

use super::{list, notify_shrunk, parse_end, pop_event};

/// `LPOP key [count]`
pub(super) fn lpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop(cx, args, ListEnd::Head, "lpop")
}

/// `RPOP key [count]`
pub(super) fn rpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop(cx, args, ListEnd::Tail, "rpop")
}

fn pop(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    end: ListEnd,
    name: &'static str,
) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let count = match args.len() {
        2 => None,
        3 => Some(parse_count(args.at(2)).ok_or(CommandError::NotPositive)?),
        _ => return Err(CommandError::WrongArity(name)),
    };
    cx.elements_max().require(usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX))?;
    match list(cx.unit.peek(db, key))? {
        Some(list) => {
            write_popped(&mut cx.reply, list, end, count);
            remove(cx, key, end, count.unwrap_or(1));
        }
        None if count.is_some() => cx.reply.null_array(),
        None => cx.reply.null(),
    }
    Ok(())
}

/// Parses a count of elements, which must not be negative.
fn parse_count(text: &[u8]) -> Option<u64> {
    u64::try_from(parse_i64(text)?).ok()
}

/// Writes the elements that popping `count` removes, in that order; without a count one element, not as an
/// array.
fn write_popped(reply: &mut ReplyWriter<'_>, list: ListView<'_>, end: ListEnd, count: Option<u64>) {
    let len = list.len();
    let Some(count) = count else {
        let index = match end {
            ListEnd::Head => 0,
            ListEnd::Tail => len.saturating_sub(1),
        };
        return reply.bulk_or_null(list.get(index).as_deref());
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(len);
    reply.array(count);
    match end {
        ListEnd::Head => list.range(0..count).for_each(|element| reply.bulk(&element)),
        ListEnd::Tail => list.range(len - count..len).rev().for_each(|element| reply.bulk(&element)),
    }
}

/// Removes elements from an end of a list.
fn remove(cx: &mut Context<'_, '_>, key: &[u8], end: ListEnd, count: u64) {
    if count > 0 {
        let applied = cx.apply(key, KeyOp::ListPop { end, count });
        notify_shrunk(cx, pop_event(end), key, applied);
    }
}

/// The arguments of LMPOP and BLMPOP.
pub(crate) struct MultiPop<'a> {
    /// The keys to try, in order.
    pub(crate) keys: Args<'a>,
    /// The end at which elements are removed.
    pub(crate) end: ListEnd,
    /// The maximum number of elements.
    pub(crate) count: u64,
}

impl<'a> MultiPop<'a> {
    /// Parses `numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`, from the argument at `at` to the end.
    pub(crate) fn parse(args: Args<'a>, at: usize) -> Result<MultiPop<'a>, CommandError> {
        let numkeys = args.get(at).and_then(parse_i64).filter(|numkeys| *numkeys > 0);
        numkeys.ok_or(CommandError::Text("ERR numkeys should be greater than 0"))?;
        let keys = counted_keys(args, at).ok_or(CommandError::Syntax)?;
        let end = parse_end(args.get(keys.end).ok_or(CommandError::Syntax)?)?;
        let mut count = None;
        let mut words = args.skip(keys.end + 1).iter();
        while let Some(word) = words.next() {
            let value = words.next().filter(|_| count.is_none() && word.eq_ignore_ascii_case(b"count"));
            let wanted = parse_count(value.ok_or(CommandError::Syntax)?).filter(|count| *count > 0);
            count = Some(wanted.ok_or(CommandError::Text("ERR count should be greater than 0"))?);
        }
        Ok(MultiPop { keys: args.skip(keys.start).take(keys.len()), end, count: count.unwrap_or(1) })
    }
}

/// Pops from the first existing list among the keys, and replies with its key and the popped elements: an
/// array of up to `count` elements, or one element without a count. Returns whether there was a list; if not,
/// nothing is written.
///
/// # Errors
/// The first key that exists holds another type.
pub(crate) fn pop_first<'a>(
    cx: &mut Context<'_, '_>,
    keys: impl IntoIterator<Item = &'a [u8]>,
    end: ListEnd,
    count: Option<u64>,
) -> Result<bool, CommandError> {
    let db = cx.db();
    for key in keys {
        if let Some(list) = list(cx.unit.peek(db, key))? {
            cx.reply.array(2);
            cx.reply.bulk(key);
            write_popped(&mut cx.reply, list, end, count);
            remove(cx, key, end, count.unwrap_or(1));
            return Ok(true);
        }
    }
    Ok(false)
}

/// `LMPOP numkeys key [key ...] <LEFT | RIGHT> [COUNT count]`
pub(super) fn lmpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let MultiPop { keys, end, count } = MultiPop::parse(args, 1)?;
    cx.elements_max().require(usize::try_from(count).unwrap_or(usize::MAX))?;
    if !pop_first(cx, keys.iter(), end, Some(count))? {
        cx.reply.null_array();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn elements_are_popped_from_either_end() {
        check(&[
            ("RPUSH l a b c d e f", ":6"),
            ("LPOP l", r#""a""#),
            ("RPOP l", r#""f""#),
            ("LPOP l 0", "[]"),
            ("LPOP l 1", r#"["b"]"#),
            ("RPOP l 2", r#"["e", "d"]"#),
            ("LPOP l 9223372036854775807", r#"["c"]"#),
            ("EXISTS l", ":0"),
            ("LPOP l", "nil"),
        ]);
    }

    #[test]
    fn pops_with_a_count_reply_null_arrays_for_absent_keys() {
        let mut server = TestServer::new();
        for (line, expected) in [
            ("LPOP l", "$-1\r\n"),
            ("RPOP l 0", "*-1\r\n"),
            ("LPOP l 2", "*-1\r\n"),
            ("LMPOP 1 l LEFT", "*-1\r\n"),
        ] {
            assert_eq!(server.raw(line), expected.as_bytes(), "{line}");
        }
    }

    #[test]
    fn counts_to_pop_are_positive() {
        let refused = "-ERR value is out of range, must be positive";
        check(&[
            ("RPUSH l a", ":1"),
            ("LPOP l -1", refused),
            ("LPOP l x", refused),
            ("RPOP nokey 9223372036854775808", refused),
            ("LPOP l 1 2", "-ERR wrong number of arguments for 'lpop' command"),
            ("RPOP l 1 2", "-ERR wrong number of arguments for 'rpop' command"),
            ("LLEN l", ":1"),
        ]);
    }

    #[test]
    fn the_first_list_that_exists_is_popped_from() {
        check(&[
            ("RPUSH b 1 2 3", ":3"),
            ("RPUSH c 4", ":1"),
            ("LMPOP 3 a b c LEFT", r#"["b", ["1"]]"#),
            ("lmpop 3 a b c right count 10", r#"["b", ["3", "2"]]"#),
            ("LMPOP 3 a b c LEFT COUNT 1", r#"["c", ["4"]]"#),
            ("LMPOP 3 a b c LEFT", "nil"),
            ("DBSIZE", ":0"),
            // A key of another type after the first list does not matter.
            ("SET s v", "+OK"),
            ("RPUSH l x", ":1"),
            ("LMPOP 2 l s RIGHT", r#"["l", ["x"]]"#),
        ]);
    }

    #[test]
    fn lmpop_refuses_invalid_arguments() {
        let numkeys = "-ERR numkeys should be greater than 0";
        let count = "-ERR count should be greater than 0";
        let syntax = "-ERR syntax error";
        check(&[
            ("RPUSH l a", ":1"),
            ("LMPOP x l LEFT", numkeys),
            ("LMPOP 0 l LEFT", numkeys),
            ("LMPOP -1 l LEFT", numkeys),
            ("LMPOP 2 l LEFT", syntax),
            ("LMPOP 9223372036854775807 l LEFT", syntax),
            ("LMPOP 1 l UP", syntax),
            ("LMPOP 1 l l LEFT", syntax),
            ("LMPOP 1 l LEFT COUNT", syntax),
            ("LMPOP 1 l LEFT FOO 1", syntax),
            ("LMPOP 1 l LEFT COUNT 1 COUNT 1", syntax),
            ("LMPOP 1 l LEFT COUNT 0", count),
            ("LMPOP 1 l LEFT COUNT COUNT 1", count),
            ("LMPOP 1 l LEFT COUNT -1", count),
            ("LMPOP 1 l LEFT COUNT x", count),
            ("LMPOP 1 l", "-ERR wrong number of arguments for 'lmpop' command"),
            ("LLEN l", ":1"),
        ]);
    }
}
