//! Walking a sorted set in small steps: ZSCAN.

use engine::{CommandError, Context};
use wire::{Args, ReplyWriter};

use super::zset;
use crate::scan::{ScanOptions, ScanTarget, parse_cursor};

/// `ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]`
pub(super) fn zscan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = parse_cursor(args.at(2))?;
    let (db, elements_max) = (cx.db(), cx.elements_max());
    let zset = zset(cx.unit.read(db, args.at(1)))?;
    // The reply begins with the new cursor, so members are buffered until the cursor is known.
    let (mut members, mut found, mut next) = (Vec::new(), 0, 0);
    // Redis does not look at the options if there is nothing to walk over.
    if let Some(zset) = zset {
        let options = ScanOptions::parse(args.skip(3), ScanTarget::ScoredMembers)?;
        elements_max.require(options.count.min(zset.len()))?;
        let mut writer = ReplyWriter::new(&mut members, cx.reply.protocol());
        next = zset.scan(cursor, options.count, |member, score| {
            if options.accepts(&member) {
                writer.bulk(&member);
                found += 1;
                if !options.no_scores {
                    writer.bulk_double(score);
                    found += 1;
                }
            }
        });
    }
    cx.reply.array(2);
    cx.reply.bulk_display(next);
    cx.reply.array(found);
    cx.reply.raw(&members);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::Value;

    use crate::testing::{TestServer, WRONG_TYPE, check};

    #[test]
    fn a_small_sorted_set_is_seen_at_once() {
        check(&[
            ("ZADD z 1.5 a 2 b 3 ab", ":3"),
            ("ZSCAN z 0", r#"["0", ["a", "1.5", "b", "2", "ab", "3"]]"#),
            ("ZSCAN z 0 COUNT 1 MATCH a*", r#"["0", ["a", "1.5", "ab", "3"]]"#),
            ("ZSCAN z 0 MATCH x", r#"["0", []]"#),
            ("ZSCAN z 0 noscores MATCH a*", r#"["0", ["a", "ab"]]"#),
            ("ZSCAN z 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
            ("SADD s a", ":1"),
            ("SSCAN s 0 NOSCORES", "-ERR NOSCORES option can only be used in ZSCAN"),
            ("ZSCAN none 0", r#"["0", []]"#),
            ("ZSCAN none 0 FOO", r#"["0", []]"#),
            ("ZSCAN none x", "-ERR invalid cursor"),
            ("ZSCAN z 0 FOO", "-ERR syntax error"),
            ("ZSCAN z 0 TYPE zset", "-ERR syntax error"),
            ("ZSCAN z 0 COUNT 0", "-ERR syntax error"),
            ("ZSCAN z 0 COUNT x", "-ERR value is not an integer or out of range"),
            ("SET s 1", "+OK"),
            ("ZSCAN s 0", WRONG_TYPE),
        ]);
    }

    #[test]
    fn zscan_returns_lasting_members_once_while_others_change() {
        let mut server = TestServer::new();
        for number in 0..1000 {
            server.run(&format!("ZADD z {number} stays{number} {number} goes{number}"));
        }
        let (mut seen, mut cursor, mut calls) = (BTreeMap::<Vec<u8>, usize>::new(), "0".to_string(), 0);
        loop {
            let Value::Array(parts) = server.value(&format!("ZSCAN z {cursor} MATCH stays* COUNT 20")) else {
                panic!("no array");
            };
            let [Value::Bulk(next), Value::Array(members)] = &parts[..] else { panic!("not two parts") };
            for pair in members.chunks(2) {
                let Value::Bulk(member) = &pair[0] else { panic!("no member") };
                *seen.entry(member.clone()).or_default() += 1;
            }
            cursor = String::from_utf8(next.clone()).expect("a number");
            if cursor == "0" {
                break;
            }
            for number in calls * 10..calls * 10 + 10 {
                server.run(&format!("ZREM z goes{number}"));
                server.run(&format!("ZADD z 0 new{number}"));
            }
            calls += 1;
        }
        assert!(calls >= 20 && seen.len() == 1000 && seen.values().all(|times| *times == 1), "{calls}");
    }
}
