//! Members at random: ZRANDMEMBER.

use engine::{CommandError, Context};
use keyspace::{Element, ZsetView};
use prng::Prng;
use wire::{Args, Protocol};

use super::zset;
use crate::sample::{Drawn, distinct, parse_count, verify_drawn_bytes};

/// If several members are drawn from at most this many, all are looked up at once.
const LISTED_LEN_MAX: usize = 1024;

/// `ZRANDMEMBER key [count [WITHSCORES]]`
pub(super) fn zrandmember(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, mut sequence) = (cx.db(), Prng::new(cx.unit.seed()));
    let Some(count) = args.get(2) else {
        let zset = zset(cx.unit.read(db, args.at(1)))?;
        let drawn = zset.and_then(|zset| zset.get(sequence.index(zset.len())));
        cx.reply.bulk_or_null(drawn.as_ref().map(|(member, _)| &**member));
        return Ok(());
    };
    let count = parse_count(count)?;
    let with_scores = match args.get(3) {
        Some(word) if args.len() > 4 || !word.eq_ignore_ascii_case(b"withscores") => {
            return Err(CommandError::Syntax);
        }
        option => option.is_some(),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::OutOfRange);
    }
    let (drawn, elements_max) = (Drawn::of(count)?, cx.elements_max());
    let Some(zset) = zset(cx.unit.read(db, args.at(1)))? else {
        cx.reply.array(0);
        return Ok(());
    };
    elements_max.require(drawn.work(zset.len()))?;
    let ranks = match drawn {
        Drawn::Distinct(count) => distinct(&mut sequence, count, zset.len()),
        Drawn::Repeated(count) => (0..count).map(|_| sequence.index(zset.len())).collect(),
    };
    let is_paired = with_scores && cx.reply.protocol() == Protocol::Resp3;
    let start = cx.reply.position();
    cx.reply.array(if with_scores && !is_paired { ranks.len() * 2 } else { ranks.len() });
    let members = Members::of(zset, ranks.len());
    for rank in ranks {
        let (member, score) = members.get(rank);
        if is_paired {
            cx.reply.array(2);
        }
        cx.reply.bulk(&member);
        if with_scores {
            cx.reply.double(score);
        }
        if let Drawn::Repeated(_) = drawn {
            verify_drawn_bytes(cx.reply.position() - start)?;
        }
    }
    Ok(())
}

/// The members by rank.
enum Members<'a> {
    /// All members, for short sorted sets: in the packed form, one draw takes as long as listing.
    Listed(Vec<(Element<'a>, f64)>),
    ByRank(ZsetView<'a>),
}

impl<'a> Members<'a> {
    /// The members, prepared for `gets` calls of [`Members::get`].
    fn of(zset: ZsetView<'a>, gets: usize) -> Members<'a> {
        if gets > 1 && zset.len() <= LISTED_LEN_MAX {
            Members::Listed(zset.iter().collect())
        } else {
            Members::ByRank(zset)
        }
    }

    fn get(&self, rank: usize) -> (Element<'a>, f64) {
        match self {
            Members::Listed(members) => members[rank],
            Members::ByRank(zset) => zset.get(rank).expect("ranks are drawn below the length"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::testing::{TestServer, WRONG_TYPE, check, check_protocols};

    #[test]
    fn every_member_is_drawn_about_as_often() {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2 b 3 c 4 d");
        let mut seen = BTreeMap::<String, usize>::new();
        for _ in 0..400 {
            *seen.entry(server.run("ZRANDMEMBER z")).or_default() += 1;
            *seen.entry(server.run("ZRANDMEMBER z 1").replace(['[', ']'], "")).or_default() += 1;
        }
        assert_eq!(seen.len(), 4);
        assert!(seen.values().all(|times| (130..270).contains(times)), "{seen:?}");
    }

    #[test]
    fn counts_draw_different_members_and_negative_ones_any() {
        let mut server = TestServer::new();
        for number in 0..2000 {
            server.run(&format!("ZADD big {number} m{number}"));
        }
        server.run("ZADD small 1 a 2 b 3 c");
        let mut drawn = |command: &str| match server.value(command) {
            wire::Value::Array(values) => values.iter().map(crate::testing::notation).collect::<Vec<_>>(),
            other => panic!("{other:?} is no array"),
        };
        for (command, len, different) in [
            ("ZRANDMEMBER small 2", 2, 2..3),
            ("ZRANDMEMBER small 9", 3, 3..4),
            ("ZRANDMEMBER small -90", 90, 3..4),
            ("ZRANDMEMBER big 10", 10, 10..11),
            ("ZRANDMEMBER big 1500", 1500, 1500..1501),
            ("ZRANDMEMBER big 5000", 2000, 2000..2001),
            ("ZRANDMEMBER big -3000", 3000, 1400..1700),
        ] {
            let mut members = drawn(command);
            assert_eq!(members.len(), len, "{command}");
            members.sort();
            members.dedup();
            assert!(different.contains(&members.len()), "{command}: {}", members.len());
        }
    }

    #[test]
    fn scores_come_with_members() {
        check_protocols(&[
            ("ZADD z 1.5 a", ":1", ":1"),
            ("ZRANDMEMBER z", r#""a""#, r#""a""#),
            ("ZRANDMEMBER z 3", r#"["a"]"#, r#"["a"]"#),
            ("ZRANDMEMBER z 3 WITHSCORES", r#"["a", "1.5"]"#, r#"[["a", ,1.5]]"#),
            ("ZRANDMEMBER z -2 withscores", r#"["a", "1.5", "a", "1.5"]"#, r#"[["a", ,1.5], ["a", ,1.5]]"#),
            ("ZRANDMEMBER z 0", "[]", "[]"),
            ("ZRANDMEMBER none", "nil", "nil"),
            ("ZRANDMEMBER none 5", "[]", "[]"),
            ("ZRANDMEMBER none -5 WITHSCORES", "[]", "[]"),
        ]);
    }

    #[test]
    fn zrandmember_refuses_counts_out_of_range() {
        check(&[
            ("ZADD z 1 a", ":1"),
            ("ZRANDMEMBER z x", "-ERR value is not an integer or out of range"),
            (
                "ZRANDMEMBER z -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            ("ZRANDMEMBER z -9223372036854775807 WITHSCORES", "-ERR value is out of range"),
            ("ZRANDMEMBER z 4611686018427387904 WITHSCORES", "-ERR value is out of range"),
            ("ZRANDMEMBER z -1048577", "-ERR value is out of range, at most 1048576 elements may repeat"),
            ("ZRANDMEMBER z 9223372036854775807", r#"["a"]"#),
            ("ZRANDMEMBER z 1 FOO", "-ERR syntax error"),
            ("ZRANDMEMBER z 1 WITHSCORES x", "-ERR syntax error"),
            ("ZRANDMEMBER z x FOO", "-ERR value is not an integer or out of range"),
            ("SET s 1", "+OK"),
            ("ZRANDMEMBER s", WRONG_TYPE),
            ("ZRANDMEMBER s 1", WRONG_TYPE),
        ]);
    }

    #[test]
    fn repeated_members_are_bounded_by_their_bytes() {
        let mut server = TestServer::new();
        let member = vec![b'x'; 4 << 10];
        server.run_args(&[b"ZADD", b"z", b"1", &member]);
        assert_eq!(
            server.run("ZRANDMEMBER z -1000"),
            "-ERR the elements drawn are too many bytes for one reply"
        );
        assert_eq!(server.run("ZCARD z"), ":1");
    }
}
