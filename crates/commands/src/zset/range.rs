//! Members in order: ZRANGE and the older commands that are special cases of it, ZRANGESTORE, ZCOUNT and
//! ZLEXCOUNT.

use std::ops::Range;

use engine::{CommandError, Context};
use keyspace::ZsetView;
use wire::{Args, number::parse_i64};

use super::{
    reply::{Directed, write_members, write_scored},
    span::{By, Span},
    store, zset,
};

/// The requested members of a sorted set, and their direction.
#[derive(Debug, Clone, Copy)]
struct Query<'a> {
    span: Span<'a>,
    is_reverse: bool,
    /// The number of members to leave out at the start, and the maximum number of members to show; a negative
    /// maximum shows all.
    limit: (i64, i64),
    with_scores: bool,
}

/// The options that the name of a command fixes.
#[derive(Debug, Clone, Copy)]
struct Fixed {
    by: Option<By>,
    is_reverse: Option<bool>,
    stores: bool,
}

impl<'a> Query<'a> {
    /// Reads the two ends and the options after them. The checks are made in the order in which Redis makes
    /// them.
    fn parse(args: Args<'a>, fixed: Fixed) -> Result<Query<'a>, CommandError> {
        let Fixed { mut by, mut is_reverse, stores } = fixed;
        let mut limit = (0, -1);
        let mut with_scores = false;
        let mut words = args.skip(2);
        while let Some(word) = words.get(0) {
            if !stores && word.eq_ignore_ascii_case(b"withscores") {
                with_scores = true;
            } else if words.len() > 2 && word.eq_ignore_ascii_case(b"limit") {
                let number = |index| parse_i64(words.at(index)).ok_or(CommandError::NotAnInteger);
                limit = (number(1)?, number(2)?);
                words = words.skip(2);
            } else if is_reverse.is_none() && word.eq_ignore_ascii_case(b"rev") {
                is_reverse = Some(true);
            } else if by.is_none() && word.eq_ignore_ascii_case(b"bylex") {
                by = Some(By::Lex);
            } else if by.is_none() && word.eq_ignore_ascii_case(b"byscore") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            words = words.skip(1);
        }
        let (by, is_reverse) = (by.unwrap_or(By::Rank), is_reverse.unwrap_or(false));
        let (_, count) = limit;
        if count != -1 && by == By::Rank {
            return Err(CommandError::Text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(CommandError::Text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = (args.at(0), args.at(1));
        let (min, max) = if is_reverse && by != By::Rank { (max, min) } else { (min, max) };
        // The only LIMIT allowed with ranks has the count -1; its offset is ignored.
        let limit = if by == By::Rank { (0, -1) } else { limit };
        Ok(Query { span: Span::parse(by, min, max)?, is_reverse, limit, with_scores })
    }

    /// The ranks of the members in the range, after the LIMIT.
    fn ranks(&self, zset: ZsetView<'_>) -> Range<usize> {
        let Range { start, end } = self.span.ranks(zset, self.is_reverse);
        let (offset, count) = self.limit;
        let len = end - start;
        // A negative offset leaves nothing, as in Redis.
        let skipped = usize::try_from(offset).map_or(len, |offset| offset.min(len));
        let wanted = usize::try_from(count).map_or(len, |count| count.min(len)).min(len - skipped);
        if self.is_reverse {
            end - skipped - wanted..end - skipped
        } else {
            start + skipped..start + skipped + wanted
        }
    }
}

/// `ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`
pub(super) fn zrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, None, None)
}

/// `ZREVRANGE key start stop [WITHSCORES]`
pub(super) fn zrevrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, Some(By::Rank), Some(true))
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`
pub(super) fn zrangebyscore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, Some(By::Score), Some(false))
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`
pub(super) fn zrevrangebyscore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, Some(By::Score), Some(true))
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`
pub(super) fn zrangebylex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, Some(By::Lex), Some(false))
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`
pub(super) fn zrevrangebylex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    range(cx, args, Some(By::Lex), Some(true))
}

fn range(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    by: Option<By>,
    is_reverse: Option<bool>,
) -> Result<(), CommandError> {
    let query = Query::parse(args.skip(2), Fixed { by, is_reverse, stores: false })?;
    let (db, elements_max) = (cx.db(), cx.elements_max());
    let Some(zset) = zset(cx.unit.read(db, args.at(1)))? else {
        cx.reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(zset);
    elements_max.require(ranks.len())?;
    let members = Directed { range: zset.range(ranks), is_reverse: query.is_reverse };
    if query.with_scores {
        write_scored(&mut cx.reply, members);
    } else {
        write_members(&mut cx.reply, members);
    }
    Ok(())
}

/// `ZRANGESTORE dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]`
pub(super) fn zrangestore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let query = Query::parse(args.skip(3), Fixed { by: None, is_reverse: None, stores: true })?;
    let db = cx.db();
    let mut members = keyspace::ScoredItemsBuf::new();
    let elements_max = cx.elements_max();
    if let Some(zset) = zset(cx.unit.read(db, args.at(2)))? {
        let ranks = query.ranks(zset);
        elements_max.require(ranks.len())?;
        zset.range(ranks).for_each(|(member, score)| members.push(score, &member));
    }
    store(cx, args.at(1), &members, "zrangestore")
}

/// `ZCOUNT key min max`
pub(super) fn zcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    count(cx, args, By::Score)
}

/// `ZLEXCOUNT key min max`
pub(super) fn zlexcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    count(cx, args, By::Lex)
}

fn count(cx: &mut Context<'_, '_>, args: Args<'_>, by: By) -> Result<(), CommandError> {
    let span = Span::parse(by, args.at(2), args.at(3))?;
    let db = cx.db();
    let count = zset(cx.unit.read(db, args.at(1)))?.map_or(0, |zset| span.ranks(zset, false).len());
    cx.reply.count(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{WRONG_TYPE, check, check_protocols};

    const FIVE: (&str, &str) = ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5");
    const SYNTAX: &str = "-ERR syntax error";
    const NOT_A_FLOAT: &str = "-ERR min or max is not a float";
    const NOT_A_RANGE: &str = "-ERR min or max not valid string range item";

    #[test]
    fn ranges_of_ranks() {
        check(&[
            FIVE,
            ("ZRANGE z 0 -1", r#"["a", "b", "c", "d", "e"]"#),
            ("ZRANGE z 1 2", r#"["b", "c"]"#),
            ("ZRANGE z -2 10", r#"["d", "e"]"#),
            ("ZRANGE z 3 1", "[]"),
            ("ZRANGE z 5 9", "[]"),
            ("ZRANGE z 0 1 REV", r#"["e", "d"]"#),
            ("ZREVRANGE z 0 -4", r#"["e", "d"]"#),
            ("ZREVRANGE z -1 -1", r#"["a"]"#),
            ("ZRANGE none 0 -1", "[]"),
            ("ZRANGE z 0 -1 LIMIT 2 -1", r#"["a", "b", "c", "d", "e"]"#),
            ("ZRANGE z x 1", "-ERR value is not an integer or out of range"),
            ("ZRANGE z 0 1.5", "-ERR value is not an integer or out of range"),
            ("SET s 1", "+OK"),
            ("ZRANGE s 0 1", WRONG_TYPE),
            ("ZREVRANGE s 0 1", WRONG_TYPE),
        ]);
    }

    #[test]
    fn ranges_of_scores() {
        check(&[
            FIVE,
            ("ZRANGEBYSCORE z 2 4", r#"["b", "c", "d"]"#),
            ("ZRANGEBYSCORE z (2 (4", r#"["c"]"#),
            ("ZRANGEBYSCORE z -inf +inf", r#"["a", "b", "c", "d", "e"]"#),
            ("ZRANGEBYSCORE z 4 2", "[]"),
            ("ZRANGEBYSCORE z (3 (3", "[]"),
            ("ZRANGEBYSCORE z 6 7", "[]"),
            ("ZRANGEBYSCORE z 1 5 LIMIT 1 2", r#"["b", "c"]"#),
            ("ZRANGEBYSCORE z 1 5 LIMIT 3 -1", r#"["d", "e"]"#),
            ("ZRANGEBYSCORE z 1 5 LIMIT 9 1", "[]"),
            ("ZRANGEBYSCORE z 1 5 LIMIT 0 0", "[]"),
            ("ZRANGEBYSCORE z 1 5 LIMIT -1 2", "[]"),
            ("ZREVRANGEBYSCORE z 4 2", r#"["d", "c", "b"]"#),
            ("ZREVRANGEBYSCORE z 5 1 LIMIT 1 2", r#"["d", "c"]"#),
            ("ZREVRANGEBYSCORE z 5 1 LIMIT 4 100", r#"["a"]"#),
            ("ZREVRANGEBYSCORE z 1 5", "[]"),
            ("ZRANGE z 2 4 BYSCORE", r#"["b", "c", "d"]"#),
            ("ZRANGE z 4 2 BYSCORE REV LIMIT 0 2", r#"["d", "c"]"#),
            ("ZCOUNT z 2 (4", ":2"),
            ("ZCOUNT z 4 2", ":0"),
            ("ZCOUNT none 0 1", ":0"),
            ("ZRANGEBYSCORE none x 1", NOT_A_FLOAT),
            ("ZRANGEBYSCORE z 1 nan", NOT_A_FLOAT),
            ("ZREVRANGEBYSCORE z 1 x", NOT_A_FLOAT),
            ("ZCOUNT none 1 x", NOT_A_FLOAT),
            ("SET s 1", "+OK"),
            ("ZRANGEBYSCORE s 0 1", WRONG_TYPE),
            ("ZCOUNT s 0 1", WRONG_TYPE),
        ]);
    }

    #[test]
    fn ranges_of_members() {
        check(&[
            ("ZADD z 0 a 0 b 0 ba 0 c 0 10", ":5"),
            ("ZRANGEBYLEX z - +", r#"["10", "a", "b", "ba", "c"]"#),
            ("ZRANGEBYLEX z [b (c", r#"["b", "ba"]"#),
            ("ZRANGEBYLEX z (b [c", r#"["ba", "c"]"#),
            ("ZRANGEBYLEX z + -", "[]"),
            ("ZRANGEBYLEX z [c [b", "[]"),
            ("ZRANGEBYLEX z - + LIMIT 1 2", r#"["a", "b"]"#),
            ("ZREVRANGEBYLEX z + [b", r#"["c", "ba", "b"]"#),
            ("ZREVRANGEBYLEX z (c - LIMIT 1 1", r#"["b"]"#),
            ("ZRANGE z [a [b BYLEX", r#"["a", "b"]"#),
            ("ZRANGE z [b [a BYLEX REV", r#"["b", "a"]"#),
            ("ZLEXCOUNT z - +", ":5"),
            ("ZLEXCOUNT z [b [ba", ":2"),
            ("ZLEXCOUNT none - +", ":0"),
            ("ZLEXCOUNT none a b", NOT_A_RANGE),
            ("ZRANGEBYLEX z 1 2", NOT_A_RANGE),
            ("ZREVRANGEBYLEX z - a", NOT_A_RANGE),
            ("SET s 1", "+OK"),
            ("ZRANGEBYLEX s - +", WRONG_TYPE),
            ("ZLEXCOUNT s - +", WRONG_TYPE),
        ]);
    }

    #[test]
    fn scores_are_shown_in_pairs_in_the_new_protocol() {
        check_protocols(&[
            ("ZADD z 1 a 2.5 b", ":2", ":2"),
            ("ZRANGE z 0 -1 WITHSCORES", r#"["a", "1", "b", "2.5"]"#, r#"[["a", ,1], ["b", ,2.5]]"#),
            ("ZREVRANGE z 0 0 withscores", r#"["b", "2.5"]"#, r#"[["b", ,2.5]]"#),
            ("ZRANGEBYSCORE z 2 3 WITHSCORES LIMIT 0 1", r#"["b", "2.5"]"#, r#"[["b", ,2.5]]"#),
            ("ZRANGE z 3 2 BYSCORE REV WITHSCORES", r#"["b", "2.5"]"#, r#"[["b", ,2.5]]"#),
            ("ZRANGE none 0 -1 WITHSCORES", "[]", "[]"),
        ]);
    }

    #[test]
    fn conflicting_options_are_refused() {
        const LIMIT: &str =
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        const WITH_SCORES: &str = "-ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        check(&[
            ("ZRANGE z 0", "-ERR wrong number of arguments for 'zrange' command"),
            ("ZRANGE z 0 1 LIMIT 0 1", LIMIT),
            ("ZREVRANGE z 0 1 LIMIT 0 1", LIMIT),
            ("ZRANGE z x 1 LIMIT 0 1", LIMIT),
            ("ZRANGE z - + BYLEX WITHSCORES", WITH_SCORES),
            ("ZRANGEBYLEX z - + WITHSCORES", WITH_SCORES),
            ("ZRANGE z - + BYLEX BYSCORE", SYNTAX),
            ("ZRANGE z 0 1 REV REV", SYNTAX),
            ("ZREVRANGE z 0 1 REV", SYNTAX),
            ("ZREVRANGE z 0 1 BYSCORE", SYNTAX),
            ("ZRANGEBYSCORE z 0 1 REV", SYNTAX),
            ("ZRANGEBYSCORE z 0 1 LIMIT 0", SYNTAX),
            ("ZRANGEBYSCORE z 0 1 LIMIT x 1", "-ERR value is not an integer or out of range"),
            ("ZRANGEBYSCORE z x 1 LIMIT 0 x", "-ERR value is not an integer or out of range"),
            ("ZRANGE z 0 1 FOO", SYNTAX),
            ("ZRANGESTORE d z 0 1 WITHSCORES", SYNTAX),
            ("ZRANGESTORE d z 0", "-ERR wrong number of arguments for 'zrangestore' command"),
        ]);
    }

    #[test]
    fn a_range_can_be_stored() {
        check_protocols(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5", ":5"),
            ("ZRANGESTORE d z 1 3", ":3", ":3"),
            ("ZRANGE d 0 -1", r#"["b", "c", "d"]"#, r#"["b", "c", "d"]"#),
            ("ZSCORE d c", r#""3""#, ",3"),
        ]);
        check(&[
            FIVE,
            ("SET d x EX 100", "+OK"),
            ("ZRANGESTORE d z (2 +inf BYSCORE LIMIT 1 1", ":1"),
            ("ZRANGE d 0 -1", r#"["d"]"#),
            ("TTL d", ":-1"),
            ("ZRANGESTORE z z 4 2 BYSCORE REV LIMIT 0 2", ":2"),
            ("ZRANGE z 0 -1", r#"["c", "d"]"#),
            ("ZRANGESTORE d z 5 9", ":0"),
            ("EXISTS d", ":0"),
            ("SET d x", "+OK"),
            ("ZRANGESTORE d none 0 -1", ":0"),
            ("EXISTS d", ":0"),
            ("SET s 1", "+OK"),
            ("ZRANGESTORE z s 0 -1", WRONG_TYPE),
            ("ZCARD z", ":2"),
        ]);
    }
}
