//! Lists: elements in an order that clients decide, at one key.
//!
//! What it is: the commands on values of type list. What it is not: how lists lie in memory (see `keyspace`); how clients wait
//! for elements (see `engine::blocking`).

mod blocking;
mod edit;
mod get;
mod pop;
mod push;
mod transfer;

use std::ops::Range;

use engine::{CommandError, Context, EventClass, Family, Flags, Keys, Row};
use keyspace::{Applied, EntryRef, ListEnd, ListView, View};

pub(crate) use blocking::ROWS as BLOCKING_ROWS;

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

/// Flags of commands that change a list without making it larger.
const SHRINK: Flags = Flags::WRITE;
const SHRINK_FAST: Flags = SHRINK.or(Flags::FAST);
const GROW: Flags = Flags::WRITE.or(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.or(Flags::FAST);
const READ: Flags = Flags::READONLY;

/// Shared fields of most rows.
const ROW: Row = Row {
    name: "",
    arity: 4,
    flags: READ,
    keys: Keys::First,
    family: Family::List,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: get::llen,
    subcommands: &[],
};

/// Shared fields of the rows that push.
const PUSH: Row = Row {
    arity: -3,
    flags: GROW_FAST,
    complexity: "O(N) where N is the number of elements given.",
    syntax: "key element [element ...]",
    ..ROW
};

/// Shared fields of the rows that pop.
const POP: Row = Row {
    arity: -2,
    flags: SHRINK_FAST,
    complexity: "O(N) where N is the number of elements returned.",
    syntax: "key [count]",
    ..ROW
};

/// Shared fields of the rows that move an element. Not COPIES: one element is usually a small part of its
/// list.
const MOVE: Row =
    Row { flags: GROW.or(Flags::BRIEF), keys: Keys::Range { first: 1, last: 2, step: 1 }, ..ROW };

pub(crate) const ROWS: &[Row] = &[
    Row { name: "lpush", summary: "Adds elements to the head of a list.", handler: push::lpush, ..PUSH },
    Row { name: "rpush", summary: "Adds elements to the tail of a list.", handler: push::rpush, ..PUSH },
    Row {
        name: "lpushx",
        since: "2.2.0",
        summary: "Adds elements to the head of a list that exists.",
        handler: push::lpushx,
        ..PUSH
    },
    Row {
        name: "rpushx",
        since: "2.2.0",
        summary: "Adds elements to the tail of a list that exists.",
        handler: push::rpushx,
        ..PUSH
    },
    Row { name: "lpop", summary: "Removes elements from the head of a list.", handler: pop::lpop, ..POP },
    Row { name: "rpop", summary: "Removes elements from the tail of a list.", handler: pop::rpop, ..POP },
    Row {
        name: "lmpop",
        arity: -4,
        flags: SHRINK,
        keys: Keys::Counted { at: 1, before: None },
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        summary: "Removes elements from an end of the first list that exists.",
        syntax: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        handler: pop::lmpop,
        ..ROW
    },
    Row {
        name: "lmove",
        arity: 5,
        since: "6.2.0",
        summary: "Moves an element from an end of a list to an end of another one.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        handler: transfer::lmove,
        ..MOVE
    },
    Row {
        name: "rpoplpush",
        arity: 3,
        since: "1.2.0",
        summary: "Moves the last element of a list to the head of another one.",
        syntax: "source destination",
        handler: transfer::rpoplpush,
        ..MOVE
    },
    Row {
        name: "llen",
        arity: 2,
        flags: READ.or(Flags::FAST),
        summary: "Replies with the number of elements.",
        syntax: "key",
        handler: get::llen,
        ..ROW
    },
    Row {
        name: "lrange",
        complexity: "O(N+M) where N is the distance of the range from the nearer end and M the length of the range.",
        summary: "Replies with a range of elements.",
        syntax: "key start stop",
        handler: get::lrange,
        ..ROW
    },
    Row {
        name: "lindex",
        arity: 3,
        complexity: "O(N) where N is the distance of the element from the nearer end.",
        summary: "Replies with the element at an index.",
        syntax: "key index",
        handler: get::lindex,
        ..ROW
    },
    Row {
        name: "lpos",
        flags: ROW.flags.or(Flags::WALKS),
        arity: -3,
        since: "6.0.6",
        complexity: "O(N) where N is the number of elements.",
        summary: "Replies with the indices of elements that match.",
        syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        handler: get::lpos,
        ..ROW
    },
    Row {
        name: "lset",
        flags: GROW,
        complexity: "O(N) where N is the distance of the element from the nearer end.",
        summary: "Replaces the element at an index.",
        syntax: "key index element",
        handler: edit::lset,
        ..ROW
    },
    Row {
        name: "linsert",
        arity: 5,
        flags: GROW.or(Flags::WALKS),
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements up to the pivot.",
        summary: "Adds an element before or after another one.",
        syntax: "key <BEFORE | AFTER> pivot element",
        handler: edit::linsert,
        ..ROW
    },
    Row {
        name: "lrem",
        flags: SHRINK.or(Flags::WALKS),
        complexity: "O(N) where N is the number of elements.",
        summary: "Removes elements that match.",
        syntax: "key count element",
        handler: edit::lrem,
        ..ROW
    },
    Row {
        name: "ltrim",
        flags: SHRINK,
        complexity: "O(N) where N is the number of elements removed.",
        summary: "Removes elements from both ends and keeps a range.",
        syntax: "key start stop",
        handler: edit::ltrim,
        ..ROW
    },
];

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
