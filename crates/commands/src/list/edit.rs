//! Changing lists in the middle: LSET, LINSERT, LREM, LTRIM.
//!
//! LSET and LINSERT resolve positions here and log indices from the head. LTRIM logs how many elements leave
//! each end. LREM logs the element to match, because the positions of all matches could take more space.

use engine::{CommandError, Context, EventClass};
use keyspace::{Applied, KeyOp, ListEnd};
use wire::{Args, number::parse_i64};

use super::{list, notify_shrunk, resolve_index, resolve_range};

/// `LSET key index element`
pub(super) fn lset(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, item) = (cx.db(), args.at(1), args.at(3));
    let list = list(cx.unit.peek(db, key))?.ok_or(CommandError::NoSuchKey)?;
    let index = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let index = resolve_index(index, list.len()).ok_or(CommandError::Text("ERR index out of range"))?;
    cx.apply(key, KeyOp::ListSet { index: index as u64, item });
    cx.notify(EventClass::LIST, "lset", key);
    cx.reply.ok();
    Ok(())
}

/// `LINSERT key <BEFORE | AFTER> pivot element`
pub(super) fn linsert(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, item) = (cx.db(), args.at(1), args.at(4));
    let offset = match args.at(2) {
        word if word.eq_ignore_ascii_case(b"before") => 0,
        word if word.eq_ignore_ascii_case(b"after") => 1,
        _ => return Err(CommandError::Syntax),
    };
    let Some(list) = list(cx.unit.peek(db, key))? else {
        cx.reply.count(0);
        return Ok(());
    };
    let len = list.len();
    let Some(pivot) = list.matches(args.at(3)).position(|matches| matches) else {
        cx.reply.integer(-1);
        return Ok(());
    };
    let applied = cx.apply(key, KeyOp::ListInsert { index: (pivot + offset) as u64, item });
    cx.notify(EventClass::LIST, "linsert", key);
    cx.reply.count(len + applied.added as usize);
    Ok(())
}

/// `LREM key count element`
pub(super) fn lrem(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, item) = (cx.db(), args.at(1), args.at(3));
    let count = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    if count == i64::MIN {
        return Err(CommandError::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    let end = if count < 0 { ListEnd::Tail } else { ListEnd::Head };
    list(cx.unit.peek(db, key))?;
    let applied = cx.apply(key, KeyOp::ListRemove { end, count: count.unsigned_abs(), item });
    if applied.removed > 0 {
        notify_shrunk(cx, "lrem", key, applied);
    }
    cx.reply.count(applied.removed as usize);
    Ok(())
}

/// `LTRIM key start stop`
pub(super) fn ltrim(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    let start = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let end = parse_i64(args.at(3)).ok_or(CommandError::NotAnInteger)?;
    let elements_max = cx.elements_max();
    if let Some(list) = list(cx.unit.peek(db, key))? {
        let len = list.len();
        let kept = resolve_range(start, end, len);
        elements_max.require(len - kept.len())?;
        let mut applied = Applied::default();
        // If nothing is kept, the first pop removes the whole list.
        for (end, count) in [(ListEnd::Tail, len - kept.end), (ListEnd::Head, kept.start)] {
            if count > 0 {
                applied = cx.apply(key, KeyOp::ListPop { end, count: count as u64 });
            }
        }
        notify_shrunk(cx, "ltrim", key, applied);
    }
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn elements_are_replaced() {
        check(&[
            ("RPUSH l a b c", ":3"),
            ("LSET l 0 A", "+OK"),
            ("LSET l -1 300", "+OK"),
            ("LRANGE l 0 -1", r#"["A", "b", "300"]"#),
            ("LSET l 3 v", "-ERR index out of range"),
            ("LSET l -4 v", "-ERR index out of range"),
            ("LSET l x v", "-ERR value is not an integer or out of range"),
            ("LSET nokey x v", "-ERR no such key"),
        ]);
    }

    #[test]
    fn elements_are_inserted_beside_others() {
        check(&[
            ("RPUSH l a b b", ":3"),
            ("LINSERT l BEFORE b x", ":4"),
            ("linsert l after b y", ":5"),
            ("LINSERT l BEFORE a 1", ":6"),
            ("LRANGE l 0 -1", r#"["1", "a", "x", "b", "y", "b"]"#),
            ("LINSERT l AFTER 1 2", ":7"),
            ("LINDEX l 1", r#""2""#),
            ("LINSERT l AFTER nothing y", ":-1"),
            ("LINSERT nokey AFTER a b", ":0"),
            ("LINSERT nokey BESIDE a b", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn elements_that_match_are_removed() {
        check(&[
            ("RPUSH l x a x b x c x", ":7"),
            ("LREM l 1 x", ":1"),
            ("LREM l -1 x", ":1"),
            ("LRANGE l 0 -1", r#"["a", "x", "b", "x", "c"]"#),
            ("LREM l 5 nothing", ":0"),
            ("LREM l 0 x", ":2"),
            ("RPUSH l 7 7 7", ":6"),
            ("LREM l -9223372036854775807 7", ":3"),
            ("LREM l 9223372036854775807 a", ":1"),
            (
                "LREM l -9223372036854775808 a",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
            ("LREM l 0 b", ":1"),
            ("LREM l 0 c", ":1"),
            ("EXISTS l", ":0"),
            ("LREM l 0 c", ":0"),
            ("LREM nokey x c", "-ERR value is not an integer or out of range"),
        ]);
    }

    #[test]
    fn a_range_is_kept() {
        check(&[
            ("RPUSH l a b c d e f", ":6"),
            ("LTRIM l 0 -1", "+OK"),
            ("LTRIM l 1 -1", "+OK"),
            ("LTRIM l 0 -2", "+OK"),
            ("LRANGE l 0 -1", r#"["b", "c", "d", "e"]"#),
            ("LTRIM l 1 2", "+OK"),
            ("LRANGE l 0 -1", r#"["c", "d"]"#),
            ("LTRIM l 2 1", "+OK"),
            ("EXISTS l", ":0"),
            ("LTRIM l 0 1", "+OK"),
            ("RPUSH l a", ":1"),
            ("LTRIM l 5 10", "+OK"),
            ("EXISTS l", ":0"),
            ("LTRIM nokey x 1", "-ERR value is not an integer or out of range"),
            ("LTRIM nokey 0 x", "-ERR value is not an integer or out of range"),
        ]);
    }
}
