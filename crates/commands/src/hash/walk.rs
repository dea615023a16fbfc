//! HSCAN and HRANDFIELD.

use engine::{CommandError, Context};
use keyspace::{HashField, HashView};
use prng::Prng;
use wire::{Aggregate, Args, Protocol, ReplyWriter};

use super::hash;
use crate::{
    sample::{Drawn, parse_count, verify_drawn_bytes},
    scan::{ScanOptions, ScanTarget, parse_cursor},
};

/// Hashes of up to this length are listed once before several fields are drawn with repetition.
const LISTED_LEN_MAX: usize = 1024;
/// The maximum number of random draws in search of a field that has not expired.
const DRAWS_MAX: usize = 16;

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
pub(super) fn hscan(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, as_of_ms, elements_max) = (cx.db(), cx.as_of_ms(), cx.elements_max());
    let cursor = parse_cursor(args.at(2))?;
    // The reply begins with the new cursor, so fields are buffered until the cursor is known.
    let (mut fields, mut found) = (Vec::new(), 0);
    let mut writer = ReplyWriter::new(&mut fields, cx.reply.protocol());
    let cursor = match hash(cx.unit.read(db, args.at(1)))? {
        // Options are not parsed for an absent key.
        None => 0,
        Some(hash) => {
            let options = ScanOptions::parse(args.skip(3), ScanTarget::Fields)?;
            elements_max.require(options.count.min(hash.len()))?;
            hash.scan(cursor, options.count, |field| {
                if field.is_expired(as_of_ms) || !options.accepts(&field.name) {
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
    let (db, as_of_ms, seed) = (cx.db(), cx.as_of_ms(), cx.unit.seed());
    let Some(count) = args.get(2) else {
        let hash = hash(cx.unit.read(db, args.at(1)))?;
        let shown = hash.and_then(|hash| random_field(hash, &mut Prng::new(seed), as_of_ms));
        cx.reply.bulk_or_null(shown.as_ref().map(|field| &*field.name));
        return Ok(());
    };
    let count = parse_count(count)?;
    let with_values = match args.get(3) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"withvalues") && args.len() == 4 => true,
        Some(_) => return Err(CommandError::Syntax),
    };
    if with_values && !(-(i64::MAX / 2)..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OutOfRange);
    }
    let (drawn, elements_max) = (Drawn::of(count)?, cx.elements_max());
    let hash = hash(cx.unit.read(db, args.at(1)))?;
    elements_max.require(drawn.work(hash.map_or(0, |hash| hash.len())))?;
    // With RESP3, pairs are arrays of their own.
    let nests = with_values && cx.reply.protocol() == Protocol::Resp3;
    let array = cx.reply.begin_deferred();
    let (start, mut found) = (cx.reply.position(), 0);
    let mut show = |field: &HashField<'_>| {
        if nests {
            cx.reply.array(2);
        }
        cx.reply.bulk(&field.name);
        if with_values {
            cx.reply.bulk(&field.value);
        }
        found += if with_values && !nests { 2 } else { 1 };
        cx.reply.position() - start
    };
    match (hash, drawn) {
        (None, _) => {}
        // Expired fields are drawn too, and left out of the reply.
        (Some(hash), Drawn::Distinct(count)) => hash.sample(count, seed, |field| {
            if !field.is_expired(as_of_ms) {
                show(&field);
            }
        }),
        (Some(hash), Drawn::Repeated(count)) => {
            let mut sequence = Prng::new(seed);
            let fields = Fields::of(hash, as_of_ms);
            for _ in 0..count {
                let Some(field) = fields.draw(&mut sequence) else { break };
                verify_drawn_bytes(show(&field))?;
            }
        }
    }
    cx.reply.end_deferred(array, Aggregate::Array, found);
    Ok(())
}

/// The fields to draw from with repetition.
enum Fields<'a> {
    /// All live fields, for short hashes: in the packed form, one draw takes as long as listing.
    Listed(Vec<HashField<'a>>),
    Drawn(HashView<'a>, u64),
}

impl<'a> Fields<'a> {
    fn of(hash: HashView<'a>, as_of_ms: u64) -> Fields<'a> {
        if hash.len() <= LISTED_LEN_MAX {
            Fields::Listed(hash.iter().filter(|field| !field.is_expired(as_of_ms)).collect())
        } else {
            Fields::Drawn(hash, as_of_ms)
        }
    }

    /// Draws a field that has not expired; `None` if there is none.
    fn draw(&self, sequence: &mut Prng) -> Option<HashField<'a>> {
        match self {
            Fields::Listed(fields) => fields.get(sequence.index(fields.len())).copied(),
            Fields::Drawn(hash, as_of_ms) => random_field(*hash, sequence, *as_of_ms),
        }
    }
}

/// A random field that has not expired. If [`DRAWS_MAX`] draws find none, because most fields have expired,
/// the first field that has not.
fn random_field<'a>(hash: HashView<'a>, sequence: &mut Prng, as_of_ms: u64) -> Option<HashField<'a>> {
    let live = |field: &HashField<'a>| !field.is_expired(as_of_ms);
    let drawn = (0..DRAWS_MAX).find_map(|_| hash.random(sequence.next_u64()).filter(live));
    drawn.or_else(|| hash.iter().find(live))
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
