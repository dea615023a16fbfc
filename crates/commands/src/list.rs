//! Lists: elements in an order that clients decide, at one key.
//!
//! What it is: the commands on values of type list.
//! What it is not: how lists lie in memory (see `keyspace`); how clients wait for elements (see
//! `engine::blocking`).

mod blocking;
mod edit;
mod get;
mod pop;
mod push;
mod rows;
mod transfer;

use std::ops::Range;

use engine::{CommandError, Context, EventClass};
use keyspace::{Applied, EntryRef, ListEnd, ListView, View};

pub(crate) use blocking::ROWS as BLOCKING_ROWS;
use rows::ROW;
pub(crate) use rows::ROWS;

/// The list at a key; `None` if the key is absent.
///
/// # Errors
/// The key holds another type.
#[inline]
fn list(entry: Option<EntryRef<'_>>) -> Result<Option<ListView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::List(list)) => Ok(Some(list)),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// Parses `LEFT` or `RIGHT`.
fn parse_end(word: &[u8]) -> Result<ListEnd, CommandError> {
    if word.eq_ignore_ascii_case(b"left") {
        Ok(ListEnd::Head)
    } else if word.eq_ignore_ascii_case(b"right") {
        Ok(ListEnd::Tail)
    } else {
        Err(CommandError::Syntax)
    }
}

/// The position of an index in a list of `len` elements; `None` if out of range. Negative indices count from
/// the tail.
fn resolve_index(index: i64, len: usize) -> Option<usize> {
    let position = match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    (position < len).then_some(position)
}

/// The range from `start` to `end` in a list of `len` elements; inclusive, negative indices count from the
/// tail.
fn resolve_range(start: i64, end: i64, len: usize) -> Range<usize> {
    let len_signed = i64::try_from(len).unwrap_or(i64::MAX);
    let position = |index: i64| if index < 0 { index.saturating_add(len_signed) } else { index };
    let (start, end) = (position(start).max(0), position(end).min(len_signed - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// The event of a push at an end.
fn push_event(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Head => "lpush",
        ListEnd::Tail => "rpush",
    }
}

/// The event of a pop at an end.
fn pop_event(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Head => "lpop",
        ListEnd::Tail => "rpop",
    }
}

/// Notifies a removal of elements, and the removal of the key if the list became empty.
fn notify_shrunk(cx: &Context<'_, '_>, event: &'static str, key: &[u8], applied: Applied) {
    cx.notify(EventClass::LIST, event, key);
    if applied.key_removed {
        cx.notify(EventClass::GENERIC, "del", key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, check};

    #[test]
    fn indices_count_from_either_end() {
        for (index, expected) in
            [(0, Some(0)), (4, Some(4)), (5, None), (-1, Some(4)), (-5, Some(0)), (-6, None)]
        {
            assert_eq!(resolve_index(index, 5), expected, "{index}");
        }
        for index in [i64::MIN, i64::MAX] {
            assert_eq!(resolve_index(index, 5), None, "{index}");
        }
        assert_eq!(resolve_index(0, 0), None);
        assert_eq!(resolve_index(-1, 0), None);
    }

    #[test]
    fn ranges_end_where_the_list_does() {
        for (start, end, expected) in [
            (0, -1, 0..5),
            (1, 3, 1..4),
            (-2, -1, 3..5),
            (-100, 100, 0..5),
            (3, 1, 0..0),
            (5, 9, 0..0),
            (0, -6, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(resolve_range(start, end, 5), expected, "{start} {end}");
        }
        assert_eq!(resolve_range(0, -1, 0), 0..0);
    }

    #[test]
    fn other_types_are_refused() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("SET s v", "+OK"),
            ("LPUSH s a", wrong),
            ("RPUSHX s a", wrong),
            ("LPOP s", wrong),
            ("RPOP s 0", wrong),
            ("LMPOP 2 nokey s LEFT", wrong),
            ("LMOVE s nokey LEFT LEFT", wrong),
            ("LLEN s", wrong),
            ("LRANGE s 0 1", wrong),
            ("LINDEX s x", wrong),
            ("LPOS s a", wrong),
            ("LSET s x v", wrong),
            ("LINSERT s BEFORE a b", wrong),
            ("LREM s 0 a", wrong),
            ("LTRIM s 0 1", wrong),
            ("RPUSH l a", ":1"),
            ("GET l", wrong),
            ("RPOPLPUSH l s", wrong),
            ("LRANGE l 0 -1", r#"["a"]"#),
            ("TYPE l", "+list"),
        ]);
    }

    #[test]
    fn a_list_may_grow_large_and_shrink() {
        let mut server = TestServer::new();
        for number in 0..3000 {
            assert_eq!(server.run(&format!("RPUSH l element:{number}")), format!(":{}", number + 1));
        }
        server.check(&[
            ("LLEN l", ":3000"),
            ("LINDEX l 1500", r#""element:1500""#),
            ("LINDEX l -1", r#""element:2999""#),
            ("LRANGE l 1499 1501", r#"["element:1499", "element:1500", "element:1501"]"#),
            ("LPOS l element:2000", ":2000"),
            ("LPOS l element:2000 RANK -1", ":2000"),
            ("LSET l 1000 middle", "+OK"),
            ("LINSERT l AFTER middle next", ":3001"),
            ("LRANGE l 1000 1001", r#"["middle", "next"]"#),
            ("LREM l -1 next", ":1"),
            ("LMOVE l l LEFT RIGHT", r#""element:0""#),
            ("RPOP l", r#""element:0""#),
        ]);
        server.assert_replays();
        server.check(&[
            ("LTRIM l 10 -11", "+OK"),
            ("LLEN l", ":2979"),
            ("LINDEX l 0", r#""element:11""#),
            ("LINDEX l -1", r#""element:2989""#),
        ]);
        for number in 11..1000 {
            assert_eq!(server.run("LPOP l"), format!("\"element:{number}\""));
        }
        server.check(&[("LTRIM l 1 0", "+OK"), ("EXISTS l", ":0"), ("DBSIZE", ":0")]);
        server.assert_replays();
    }
}
