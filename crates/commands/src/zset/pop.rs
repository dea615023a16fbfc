//! Removing the first or last members and replying with them: ZPOPMIN, ZPOPMAX, ZMPOP, and the pops of
//! BZPOPMIN, BZPOPMAX and BZMPOP.

use engine::{CommandError, Context};
use wire::{Args, Protocol, ReplyWriter, number::parse_i64};

use super::{
    counted,
    remove::remove_ranks,
    reply::{Directed, write_flat, write_pairs},
    zset,
};

/// The end of a sorted set that members are popped from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScoreEnd {
    /// The lowest scores.
    Min,
    /// The highest scores.
    Max,
}

/// Takes up to `count` members from one end of the sorted set at a key. `show` writes these members before
/// they are removed, the members nearest to the end first. Returns whether the key exists.
fn pop(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    end: ScoreEnd,
    count: usize,
    show: impl FnOnce(&mut ReplyWriter<'_>, Directed<'_>),
) -> Result<bool, CommandError> {
    let db = cx.db();
    let Some(zset) = zset(cx.unit.get(db, key))? else { return Ok(false) };
    let len = zset.len();
    let count = count.min(len);
    let (ranks, is_reverse, event) = match end {
        ScoreEnd::Min => (0..count, false, "zpopmin"),
        ScoreEnd::Max => (len - count..len, true, "zpopmax"),
    };
    show(&mut cx.reply, Directed { range: zset.range(ranks.clone()), is_reverse });
    remove_ranks(cx, key, ranks, len, event);
    Ok(true)
}

/// `ZPOPMIN key [count]`
pub(super) fn zpopmin(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_some(cx, args, ScoreEnd::Min)
}

/// `ZPOPMAX key [count]`
pub(super) fn zpopmax(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    pop_some(cx, args, ScoreEnd::Max)
}

fn pop_some(cx: &mut Context<'_, '_>, args: Args<'_>, end: ScoreEnd) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let count = match args.get(2) {
        Some(text) => {
            let count = parse_i64(text).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(CommandError::NotPositive)?)
        }
        None => None,
    };
    cx.elements_max().require(count.unwrap_or(1))?;
    let is_paired = count.is_some() && cx.reply.protocol() == Protocol::Resp3;
    let show = |reply: &mut ReplyWriter<'_>, members: Directed<'_>| {
        if is_paired { write_pairs(reply, members) } else { write_flat(reply, members) }
    };
    if !pop(cx, args.at(1), end, count.unwrap_or(1), show)? {
        cx.reply.array(0);
    }
    Ok(())
}

/// `ZMPOP numkeys key [key ...] <MIN | MAX> [COUNT count]`
pub(super) fn zmpop(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let Several { keys, end, count } = Several::parse(args, 1)?;
    cx.elements_max().require(count)?;
    if !pop_several(cx, keys, end, count)? {
        cx.reply.null_array();
    }
    Ok(())
}

/// The arguments of ZMPOP and BZMPOP.
pub(super) struct Several<'a> {
    pub(super) keys: Args<'a>,
    pub(super) end: ScoreEnd,
    pub(super) count: usize,
}

impl<'a> Several<'a> {
    /// Reads the arguments from the number of keys, which is at `at`, on.
    pub(super) fn parse(args: Args<'a>, at: usize) -> Result<Several<'a>, CommandError> {
        let positive =
            |text: &[u8]| parse_i64(text).and_then(|it| usize::try_from(it).ok()).filter(|it| *it > 0);
        if positive(args.at(at)).is_none() {
            return Err(CommandError::Text("ERR numkeys should be greater than 0"));
        }
        let (keys, options) = counted(args, at).ok_or(CommandError::Syntax)?;
        let end = match options.get(0) {
            Some(word) if word.eq_ignore_ascii_case(b"min") => ScoreEnd::Min,
            Some(word) if word.eq_ignore_ascii_case(b"max") => ScoreEnd::Max,
            _ => return Err(CommandError::Syntax),
        };
        let mut count = None;
        let mut words = options.skip(1).iter();
        while let Some(word) = words.next() {
            let value = words.next().filter(|_| count.is_none() && word.eq_ignore_ascii_case(b"count"));
            let wanted = positive(value.ok_or(CommandError::Syntax)?);
            count = Some(wanted.ok_or(CommandError::Text("ERR count should be greater than 0"))?);
        }
        Ok(Several { keys, end, count: count.unwrap_or(1) })
    }
}

/// Pops up to `count` members from the first of these keys that exists and replies as ZMPOP does, with the
/// key and pairs. Returns whether one of the keys exists; if none does, writes no reply.
///
/// # Errors
/// If the first existing key holds another type.
pub(super) fn pop_several<'a>(
    cx: &mut Context<'_, '_>,
    keys: impl IntoIterator<Item = &'a [u8]>,
    end: ScoreEnd,
    count: usize,
) -> Result<bool, CommandError> {
    for key in keys {
        let show = |reply: &mut ReplyWriter<'_>, members: Directed<'_>| {
            reply.array(2);
            reply.bulk(key);
            write_pairs(reply, members);
        };
        if pop(cx, key, end, count, show)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pops one member from the first of these keys that exists and replies as BZPOPMIN does, with the key, the
/// member and its score. Returns whether one of the keys exists; if none does, writes no reply.
///
/// # Errors
/// If the first existing key holds another type.
pub(super) fn pop_one<'a>(
    cx: &mut Context<'_, '_>,
    keys: impl IntoIterator<Item = &'a [u8]>,
    end: ScoreEnd,
) -> Result<bool, CommandError> {
    for key in keys {
        let show = |reply: &mut ReplyWriter<'_>, members: Directed<'_>| {
            reply.array(3);
            reply.bulk(key);
            for (member, score) in members {
                reply.bulk(&member);
                reply.double(score);
            }
        };
        if pop(cx, key, end, 1, show)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use crate::testing::{WRONG_TYPE, check, check_protocols};

    #[test]
    fn members_are_popped_from_either_end() {
        check_protocols(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g", ":7", ":7"),
            ("ZPOPMIN z", r#"["a", "1"]"#, r#"["a", ,1]"#),
            ("ZPOPMAX z", r#"["g", "7"]"#, r#"["g", ,7]"#),
            ("ZPOPMIN z 2", r#"["b", "2", "c", "3"]"#, r#"[["b", ,2], ["c", ,3]]"#),
            ("ZPOPMAX z 2", r#"["f", "6", "e", "5"]"#, r#"[["f", ,6], ["e", ,5]]"#),
            ("ZPOPMIN z 0", "[]", "[]"),
            ("ZCARD z", ":1", ":1"),
            ("ZPOPMAX z 100", r#"["d", "4"]"#, r#"[["d", ,4]]"#),
            ("EXISTS z", ":0", ":0"),
            ("ZPOPMIN z", "[]", "[]"),
            ("ZPOPMIN z 1", "[]", "[]"),
        ]);
    }

    #[test]
    fn pops_from_the_first_key_that_there_is() {
        check_protocols(&[
            ("ZADD b 1 x 2 y 3 z", ":3", ":3"),
            ("ZADD c 9 w", ":1", ":1"),
            ("ZMPOP 3 a b c MIN", r#"["b", [["x", "1"]]]"#, r#"["b", [["x", ,1]]]"#),
            (
                "ZMPOP 3 a b c MAX COUNT 9",
                r#"["b", [["z", "3"], ["y", "2"]]]"#,
                r#"["b", [["z", ,3], ["y", ,2]]]"#,
            ),
            ("ZMPOP 3 a b c max count 1", r#"["c", [["w", "9"]]]"#, r#"["c", [["w", ,9]]]"#),
            ("ZMPOP 3 a b c MAX", "nil", "nil"),
        ]);
    }

    #[test]
    fn pops_refuse_the_arguments_that_redis_refuses() {
        const NUMKEYS: &str = "-ERR numkeys should be greater than 0";
        const COUNT: &str = "-ERR count should be greater than 0";
        const SYNTAX: &str = "-ERR syntax error";
        check(&[
            ("ZPOPMIN", "-ERR wrong number of arguments for 'zpopmin' command"),
            ("ZPOPMIN z 1 2", SYNTAX),
            ("ZPOPMIN z x", "-ERR value is out of range, must be positive"),
            ("ZPOPMAX z -1", "-ERR value is out of range, must be positive"),
            ("ZMPOP 1 a", "-ERR wrong number of arguments for 'zmpop' command"),
            ("ZMPOP 0 a MIN", NUMKEYS),
            ("ZMPOP x a MIN", NUMKEYS),
            ("ZMPOP -1 a MIN", NUMKEYS),
            ("ZMPOP 9223372036854775807 a MIN", SYNTAX),
            ("ZMPOP 2 a MIN", SYNTAX),
            ("ZMPOP 3 a MIN", SYNTAX),
            ("ZMPOP 1 a FOO", SYNTAX),
            ("ZMPOP 1 a MIN COUNT", SYNTAX),
            ("ZMPOP 1 a MIN COUNT 0", COUNT),
            ("ZMPOP 1 a MIN COUNT x", COUNT),
            ("ZMPOP 1 a MIN COUNT 1 COUNT 1", SYNTAX),
            ("ZMPOP 1 a MIN FOO 1", SYNTAX),
            ("SET s 1", "+OK"),
            ("ZADD z 1 a", ":1"),
            ("ZPOPMIN s", WRONG_TYPE),
            ("ZPOPMAX s 0", WRONG_TYPE),
            ("ZMPOP 2 s z MIN", WRONG_TYPE),
        ]);
    }
}
