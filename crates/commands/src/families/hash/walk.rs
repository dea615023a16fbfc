//! Walking hashes bit by bit, and fields at random.

use keyspace::HashField;
use wire::{Args, Protocol, ReplyWriter, number::parse_i64};

use super::hash;
use crate::{
    CommandError, Context,
    families::scan::{ScanOptions, ScanTarget, parse_cursor},
};

/// Most fields that one HRANDFIELD may repeat: the reply is built in memory.
const REPEATED_FIELDS_MAX: u64 = 1 << 24;

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
pub(super) fn hscan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, now_ms) = (cx.db(), cx.now_ms());
    let cursor = parse_cursor(args.at(2))?;
    // The new cursor comes first in the reply, so the fields are kept until it is known.
    let (mut fields, mut found) = (Vec::new(), 0);
    let mut writer = ReplyWriter::new(&mut fields, cx.reply.protocol());
    let cursor = match hash(cx.unit.read(db, args.at(1)))? {
        // Nobody looks at the options then.
        None => 0,
        Some(hash) => {
            let options = ScanOptions::parse(args.skip(3), ScanTarget::Fields)?;
            hash.scan(cursor, options.count, |field| {
                if field.is_expired(now_ms) || !options.accepts(&field.name) {
                    return;
                }
                writer.bulk(&field.name);
                found += 1;
                if !options.no_values {
                    writer.bulk(&field.value);
                    found += 1;
                }
            })
        }
    };
    cx.reply.array(2);
    cx.reply.bulk_display(cursor);
    cx.reply.array(found);
    cx.reply.raw(&fields);
    Ok(())
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(super) fn hrandfield(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, now_ms, seed) = (cx.db(), cx.now_ms(), cx.unit.seed());
    let Some(count) = args.get(2) else {
        let hash = hash(cx.unit.read(db, args.at(1)))?;
        let mut shown = None;
        if let Some(hash) = hash {
            let live = |field: &HashField<'_>| !field.is_expired(now_ms);
            shown = hash.random(seed).filter(live).or_else(|| hash.iter().find(live));
        }
        cx.reply.bulk_or_null(shown.as_ref().map(|field| &*field.name));
        return Ok(());
    };
    let count = parse_i64(count).ok_or(CommandError::NotAnInteger)?;
    if count == i64::MIN {
        return Err(CommandError::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let with_values = match args.get(3) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"withvalues") && args.len() == 4 => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    if with_values && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OutOfRange);
    }
    if count < 0 && count.unsigned_abs() > REPEATED_FIELDS_MAX {
        return Err(CommandError::Text("ERR value is out of range, at most 16777216 repeated fields"));
    }
    let hash = hash(cx.unit.read(db, args.at(1)))?;
    let mut fields: Vec<HashField<'_>> = Vec::new();
    if let Some(hash) = hash {
        if hash.has_deadlines() || count < 0 {
            fields.extend(hash.iter().filter(|field| !field.is_expired(now_ms)));
            if count < 0 && !fields.is_empty() {
                let repeats = (0..count.unsigned_abs()).map(|turn| fields[pick(seed, turn, fields.len())]);
                fields = repeats.collect();
            } else {
                let excess = fields.len().saturating_sub(count as usize);
                for turn in 0..excess as u64 {
                    fields.swap_remove(pick(seed, turn, fields.len()));
                }
            }
        } else {
            hash.sample(count as usize, seed, |field| fields.push(field));
        }
    }
    // Pairs are arrays of their own where there are maps.
    let nests = with_values && cx.reply.protocol() == Protocol::Resp3;
    cx.reply.array(if with_values && !nests { 2 * fields.len() } else { fields.len() });
    for field in &fields {
        if nests {
            cx.reply.array(2);
        }
        cx.reply.bulk(&field.name);
        if with_values {
            cx.reply.bulk(&field.value);
        }
    }
    Ok(())
}

/// A number below `end` that depends on the seed and the turn.
fn pick(seed: u64, turn: u64, end: usize) -> usize {
    let mut bits = (seed ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (u128::from(bits ^ bits >> 31) * end as u128 >> 64) as usize
}

#[cfg(test)]
mod tests {
    use wire::Protocol;

    use crate::testing::{TestServer, check};

    #[test]
    fn a_small_hash_is_scanned_at_once() {
        check(&[
            ("HSET h a 1 b 2 ab 3", ":3"),
            ("HSCAN h 0", r#"["0", ["a", "1", "b", "2", "ab", "3"]]"#),
            ("HSCAN h 0 MATCH a*", r#"["0", ["a", "1", "ab", "3"]]"#),
            ("HSCAN h 0 NOVALUES COUNT 1", r#"["0", ["a", "b", "ab"]]"#),
            ("HSCAN nokey 0", r#"["0", []]"#),
            ("HSCAN nokey 0 COUNT 0", r#"["0", []]"#),
            ("HSCAN nokey x COUNT 0", "-ERR invalid cursor"),
            ("HSCAN h x", "-ERR invalid cursor"),
            ("HSCAN h 0 TYPE string", "-ERR syntax error"),
            ("HSCAN h 0 COUNT 0", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn random_fields_are_fields() {
        check(&[
            ("HSET h a 1", ":1"),
            ("HRANDFIELD h", r#""a""#),
            ("HRANDFIELD h 5", r#"["a"]"#),
            ("HRANDFIELD h -3", r#"["a", "a", "a"]"#),
            ("HRANDFIELD h 0", "[]"),
            ("HRANDFIELD nokey", "nil"),
            ("HRANDFIELD nokey 3", "[]"),
            ("HRANDFIELD h x", "-ERR value is not an integer or out of range"),
            ("HRANDFIELD h 1 VALUES", "-ERR syntax error"),
            (
                "HRANDFIELD h -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            ("HRANDFIELD h 9223372036854775807", r#"["a"]"#),
            ("HRANDFIELD h 9223372036854775807 WITHVALUES", "-ERR value is out of range"),
            ("HRANDFIELD h -4611686018427387904 WITHVALUES", "-ERR value is out of range"),
        ]);
        for (protocol, expected) in [(Protocol::Resp2, r#"["a", "1"]"#), (Protocol::Resp3, r#"[["a", "1"]]"#)]
        {
            let mut server = TestServer::new();
            server.session.protocol = protocol;
            server.check(&[("HSET h a 1", ":1"), ("HRANDFIELD h 1 WITHVALUES", expected)]);
        }
    }

    #[test]
    fn a_sample_has_different_fields() {
        let mut server = TestServer::new();
        (0..2000).for_each(|n| assert_eq!(server.run(&format!("HSET h f{n} {n}")), ":1"));
        for count in [1, 10, 400, 1500, 3000] {
            let wire::Value::Array(fields) = server.value(&format!("HRANDFIELD h {count}")) else {
                panic!("an array")
            };
            let fields: std::collections::BTreeSet<_> =
                fields.iter().map(|field| format!("{field:?}")).collect();
            assert_eq!(fields.len(), count.min(2000));
        }
    }
}
