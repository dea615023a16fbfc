//! Removing members: by name, by rank, by score, by the bytes of their names.

use std::ops::Range;

use engine::{CommandError, Context, EventClass};
use keyspace::KeyOp;
use wire::Args;

use super::{
    span::{By, Span},
    zset,
};
use crate::{Slices, gather};

/// `ZREM key member [member ...]`
pub(super) fn zrem(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let key = args.at(1);
    let mut slices = Slices::new();
    let members = gather(args.skip(2), &mut slices);
    let applied = cx.try_apply(key, KeyOp::ZsetRemove { members })?;
    if applied.changed {
        cx.notify(EventClass::ZSET, "zrem", key);
    }
    if applied.key_removed {
        cx.notify(EventClass::GENERIC, "del", key);
    }
    cx.reply.count(applied.removed as usize);
    Ok(())
}

/// `ZREMRANGEBYRANK key start stop`
pub(super) fn zremrangebyrank(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    remove_span(cx, args, By::Rank, "zremrangebyrank")
}

/// `ZREMRANGEBYSCORE key min max`
pub(super) fn zremrangebyscore(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    remove_span(cx, args, By::Score, "zremrangebyscore")
}

/// `ZREMRANGEBYLEX key min max`
pub(super) fn zremrangebylex(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    remove_span(cx, args, By::Lex, "zremrangebylex")
}

fn remove_span(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    by: By,
    event: &'static str,
) -> Result<(), CommandError> {
    let span = Span::parse(by, args.at(2), args.at(3))?;
    let (db, key, elements_max) = (cx.db(), args.at(1), cx.elements_max());
    let mut removed = 0;
    if let Some(zset) = zset(cx.unit.get(db, key))? {
        let (ranks, len) = (span.ranks(zset, false), zset.len());
        removed = ranks.len();
        elements_max.require(removed)?;
        remove_ranks(cx, key, ranks, len, event);
    }
    cx.reply.count(removed);
    Ok(())
}

/// Removes the members with these ranks, of `len` in all, and notifies the removal. If no member is left, the
/// key is deleted as a whole.
pub(super) fn remove_ranks(
    cx: &mut Context<'_, '_>,
    key: &[u8],
    ranks: Range<usize>,
    len: usize,
    event: &'static str,
) {
    if ranks.is_empty() {
        return;
    }
    if ranks.len() == len {
        cx.apply(key, KeyOp::Delete);
        cx.notify(EventClass::ZSET, event, key);
        cx.notify(EventClass::GENERIC, "del", key);
    } else {
        let (first, count) = (ranks.start as u64, ranks.len() as u64);
        cx.apply(key, KeyOp::ZsetRemoveRanks { first, count });
        cx.notify(EventClass::ZSET, event, key);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, WRONG_TYPE, check};

    const FIVE: (&str, &str) = ("ZADD z 1 a 2 b 3 c 4 d 5 e", ":5");

    #[test]
    fn members_are_removed_by_name() {
        check(&[
            FIVE,
            ("ZREM z a nobody c a", ":2"),
            ("ZRANGE z 0 -1", r#"["b", "d", "e"]"#),
            ("ZREM z nobody", ":0"),
            ("ZREM none a", ":0"),
            ("ZREM z b d e", ":3"),
            ("EXISTS z", ":0"),
            ("ZREM z", "-ERR wrong number of arguments for 'zrem' command"),
            ("SET s 1", "+OK"),
            ("ZREM s a", WRONG_TYPE),
        ]);
    }

    #[test]
    fn members_are_removed_by_rank_score_and_name() {
        check(&[
            FIVE,
            ("ZREMRANGEBYRANK z 1 1", ":1"),
            ("ZREMRANGEBYRANK z 4 9", ":0"),
            ("ZREMRANGEBYRANK z -1 -1", ":1"),
            ("ZRANGE z 0 -1", r#"["a", "c", "d"]"#),
            ("ZREMRANGEBYSCORE z (1 3", ":1"),
            ("ZREMRANGEBYSCORE z 5 1", ":0"),
            ("ZREMRANGEBYLEX z [d +", ":1"),
            ("ZREMRANGEBYLEX z [x +", ":0"),
            ("ZRANGE z 0 -1", r#"["a"]"#),
            ("ZREMRANGEBYRANK z 0 -1", ":1"),
            ("EXISTS z", ":0"),
            ("ZREMRANGEBYSCORE z 1 2", ":0"),
            ("ZREMRANGEBYRANK z x 1", "-ERR value is not an integer or out of range"),
            ("ZREMRANGEBYSCORE z x 1", "-ERR min or max is not a float"),
            ("ZREMRANGEBYLEX z x +", "-ERR min or max not valid string range item"),
            ("SET s 1", "+OK"),
            ("ZREMRANGEBYRANK s 0 1", WRONG_TYPE),
            ("ZREMRANGEBYSCORE s 0 1", WRONG_TYPE),
            ("ZREMRANGEBYLEX s - +", WRONG_TYPE),
        ]);
    }

    #[test]
    fn ranges_are_removed_from_a_large_sorted_set() {
        let mut server = TestServer::new();
        for number in 0..1000 {
            server.run(&format!("ZADD z {number} m{number}"));
        }
        server.check(&[
            ("ZREMRANGEBYRANK z 100 199", ":100"),
            ("ZREMRANGEBYSCORE z (300 400", ":100"),
            ("ZRANK z m200", ":100"),
            ("ZRANK z m401", ":201"),
            ("ZCARD z", ":800"),
            ("ZCOUNT z -inf 450", ":251"),
            ("ZREMRANGEBYSCORE z -inf +inf", ":800"),
            ("EXISTS z", ":0"),
        ]);
        server.assert_replays();
    }
}
