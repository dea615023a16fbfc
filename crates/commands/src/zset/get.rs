//! Reading single members: scores, ranks, and the number of members.

use engine::{CommandError, Context};
use wire::Args;

use super::zset;

/// `ZCARD key`
pub(super) fn zcard(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let len = zset(cx.unit.read(db, args.at(1)))?.map_or(0, |zset| zset.len());
    cx.reply.count(len);
    Ok(())
}

/// `ZSCORE key member`
pub(super) fn zscore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    match zset(cx.unit.read(db, args.at(1)))?.and_then(|zset| zset.score(args.at(2))) {
        Some(score) => cx.reply.double(score),
        None => cx.reply.null(),
    }
    Ok(())
}

/// `ZMSCORE key member [member ...]`
pub(super) fn zmscore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let db = cx.db();
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    let members = args.skip(2);
    cx.reply.array(members.len());
    for member in members {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => cx.reply.double(score),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// `ZRANK key member [WITHSCORE]`
pub(super) fn zrank(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    rank(cx, args, "zrank", false)
}

/// `ZREVRANK key member [WITHSCORE]`
pub(super) fn zrevrank(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    rank(cx, args, "zrevrank", true)
}

fn rank(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    name: &'static str,
    is_reverse: bool,
) -> Result<(), CommandError> {
    let with_score = match args.get(3) {
        _ if args.len() > 4 => return Err(CommandError::WrongArity(name)),
        Some(word) if !word.eq_ignore_ascii_case(b"withscore") => return Err(CommandError::Syntax),
        option => option.is_some(),
    };
    let db = cx.db();
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    let found = zset.and_then(|zset| {
        let (rank, score) = zset.rank(args.at(2))?;
        Some((if is_reverse { zset.len() - 1 - rank } else { rank }, score))
    });
    match found {
        Some((rank, score)) if with_score => {
            cx.reply.array(2);
            cx.reply.count(rank);
            cx.reply.double(score);
        }
        Some((rank, _)) => cx.reply.count(rank),
        None if with_score => cx.reply.null_array(),
        None => cx.reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{WRONG_TYPE, check, check_protocols};

    #[test]
    fn scores_and_ranks() {
        check(&[
            ("ZADD z 10 a 20 b 20 c 30 d", ":4"),
            ("ZCARD z", ":4"),
            ("ZRANK z a", ":0"),
            ("ZRANK z c", ":2"),
            ("ZREVRANK z c", ":1"),
            ("ZRANK z nobody", "nil"),
            ("ZREVRANK none a", "nil"),
            ("ZRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command"),
            ("ZREVRANK z a WITHSCORE x", "-ERR wrong number of arguments for 'zrevrank' command"),
            ("ZRANK z a WITHSCORES", "-ERR syntax error"),
            ("ZRANK none a x", "-ERR syntax error"),
            ("ZRANK z nobody WITHSCORE", "nil"),
            ("ZCARD none", ":0"),
            ("ZSCORE z nobody", "nil"),
            ("ZSCORE none a", "nil"),
            ("ZMSCORE none a b", "[nil, nil]"),
            ("SET s 1", "+OK"),
            ("ZCARD s", WRONG_TYPE),
            ("ZSCORE s a", WRONG_TYPE),
            ("ZMSCORE s a", WRONG_TYPE),
            ("ZRANK s a", WRONG_TYPE),
            ("ZREVRANK s a", WRONG_TYPE),
        ]);
    }

    #[test]
    fn scores_are_doubles_in_the_new_protocol() {
        check_protocols(&[
            ("ZADD z 0.1 a 3 b -0 c", ":3", ":3"),
            ("ZSCORE z a", r#""0.1""#, ",0.1"),
            ("ZSCORE z c", r#""-0""#, ",-0"),
            ("ZMSCORE z b x a", r#"["3", nil, "0.1"]"#, "[,3, nil, ,0.1]"),
            ("ZRANK z a WITHSCORE", r#"[:1, "0.1"]"#, "[:1, ,0.1]"),
            ("ZREVRANK z a withscore", r#"[:1, "0.1"]"#, "[:1, ,0.1]"),
            ("ZADD z inf a", ":0", ":0"),
            ("ZSCORE z a", r#""inf""#, ",inf"),
        ]);
    }
}
