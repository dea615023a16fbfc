//! Moving elements from one list to another: LMOVE, RPOPLPUSH.
//!
//! The record has the element itself: effects on two slots are replayed separately, so neither can refer to
//! the other list.

use engine::{CommandError, Context, EventClass};
use keyspace::{Items, KeyOp, ListEnd};
use smallvec::SmallVec;
use wire::Args;

use super::{list, notify_shrunk, parse_end, pop_event, push_event};

/// `LMOVE source destination <LEFT | RIGHT> <LEFT | RIGHT>`
pub(super) fn lmove(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (parse_end(args.at(3))?, parse_end(args.at(4))?);
    move_or_null(cx, args, from, to)
}

/// `RPOPLPUSH source destination`
pub(super) fn rpoplpush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    move_or_null(cx, args, ListEnd::Tail, ListEnd::Head)
}

fn move_or_null(
    cx: &mut Context<'_, '_>,
    args: Args<'_>,
    from: ListEnd,
    to: ListEnd,
) -> Result<(), CommandError> {
    if !move_element(cx, args.at(1), args.at(2), from, to)? {
        cx.reply.null();
    }
    Ok(())
}

/// Moves an element from an end of the list at `source` to an end of the list at `destination`, and replies
/// with it. Returns whether there was an element; if not, nothing is written.
///
/// # Errors
/// If either key holds another type; the type of `destination` matters only if there is an element to move.
/// Also the errors of [`Context::require_room`].
pub(crate) fn move_element(
    cx: &mut Context<'_, '_>,
    source: &[u8],
    destination: &[u8],
    from: ListEnd,
    to: ListEnd,
) -> Result<bool, CommandError> {
    let db = cx.db();
    let Some(from_list) = list(cx.unit.peek(db, source))? else { return Ok(false) };
    let len = from_list.len();
    let index = match from {
        ListEnd::Head => 0,
        ListEnd::Tail => len.saturating_sub(1),
    };
    let Some(element) = from_list.get(index) else { return Ok(false) };
    list(cx.unit.peek(db, destination))?;
    cx.require_room(element.len() as u64)?;
    cx.reply.bulk(&element);
    let item: SmallVec<[u8; 64]> = SmallVec::from_slice(&element);
    let applied = if source == destination && len == 1 {
        // The only element is set in place: removing it would remove the list with its deadline.
        cx.apply(source, KeyOp::ListSet { index: 0, item: &item })
    } else {
        let applied = cx.apply(source, KeyOp::ListPop { end: from, count: 1 });
        let items = Items::Slices(&[&item]);
        cx.apply(destination, KeyOp::ListPush { end: to, items });
        applied
    };
    cx.notify(EventClass::LIST, push_event(to), destination);
    notify_shrunk(cx, pop_event(from), source, applied);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn elements_move_between_lists() {
        check(&[
            ("RPUSH a 1 2 3 4", ":4"),
            ("LMOVE a b LEFT LEFT", r#""1""#),
            ("LMOVE a b left right", r#""2""#),
            ("LMOVE a b RIGHT LEFT", r#""4""#),
            ("RPOPLPUSH a b", r#""3""#),
            ("LRANGE b 0 -1", r#"["3", "4", "1", "2"]"#),
            ("EXISTS a", ":0"),
            ("RPOPLPUSH a b", "nil"),
            ("LMOVE a b LEFT RIGHT", "nil"),
            ("LMOVE a b LEFT UP", "-ERR syntax error"),
            ("LMOVE a b UP LEFT", "-ERR syntax error"),
            // Nothing moves, so the type of the destination does not matter.
            ("SET s v", "+OK"),
            ("RPOPLPUSH a s", "nil"),
        ]);
    }

    #[test]
    fn a_list_may_be_rotated() {
        check(&[
            ("RPUSH l 1 2 3", ":3"),
            ("RPOPLPUSH l l", r#""3""#),
            ("LRANGE l 0 -1", r#"["3", "1", "2"]"#),
            ("LMOVE l l LEFT RIGHT", r#""3""#),
            ("LMOVE l l LEFT LEFT", r#""1""#),
            ("LMOVE l l RIGHT RIGHT", r#""3""#),
            ("LRANGE l 0 -1", r#"["1", "2", "3"]"#),
        ]);
    }

    #[test]
    fn a_list_keeps_its_expiry_while_its_only_element_moves_around() {
        check(&[
            ("RPUSH l 1", ":1"),
            ("PEXPIRE l 100", ":1"),
            ("LMOVE l l LEFT RIGHT", r#""1""#),
            ("PTTL l", ":100"),
            ("LRANGE l 0 -1", r#"["1"]"#),
        ]);
    }

    #[test]
    fn elements_beyond_the_admitted_bytes_are_moved() {
        let mut server = TestServer::new();
        let element = vec![b'e'; 300_000];
        server.run_args(&[b"RPUSH", b"a", &element, b"2"]);
        let reply = server.raw("LMOVE a b LEFT LEFT");
        assert_eq!(reply, [b"$300000\r\n", &element[..], b"\r\n"].concat());
        server.check(&[("LRANGE a 0 -1", r#"["2"]"#), ("LLEN b", ":1")]);
        server.assert_replays();
    }
}
