//! Adding to the ends: LPUSH, RPUSH, LPUSHX, RPUSHX.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, ListEnd};
use wire::Args;

use super::{list, push_event};
use crate::{Slices, gather};

/// `LPUSH key element [element ...]`
pub(super) fn lpush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    push(cx, args, ListEnd::Head, true)
}

/// `RPUSH key element [element ...]`
pub(super) fn rpush(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    push(cx, args, ListEnd::Tail, true)
}

/// `LPUSHX key element [element ...]`
pub(super) fn lpushx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    push(cx, args, ListEnd::Head, false)
}

/// `RPUSHX key element [element ...]`
pub(super) fn rpushx(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    push(cx, args, ListEnd::Tail, false)
}

fn push(cx: &mut Context<'_, '_>, args: Args<'_>, end: ListEnd, creates: bool) -> Result<(), CommandError> {
    let (db, key) = (cx.db(), args.at(1));
    if !creates && list(cx.unit.peek(db, key))?.is_none() {
        cx.reply.count(0);
        return Ok(());
    }
    let mut slices = Slices::new();
    let items = gather(args.skip(2), &mut slices);
    let applied = cx.try_apply(key, KeyOp::ListPush { end, items })?;
    cx.notify(EventClass::LIST, push_event(end), key);
    cx.reply.count(applied.len as usize);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn elements_are_added_to_either_end() {
        check(&[
            ("LPUSH l a b c", ":3"),
            ("RPUSH l d e", ":5"),
            ("LPUSH l 12", ":6"),
            ("LRANGE l 0 -1", r#"["12", "c", "b", "a", "d", "e"]"#),
            (r#"RPUSH l "" "\x00\xff""#, ":8"),
            ("LRANGE l -2 -1", r#"["", "\x00\xff"]"#),
            ("LPUSH l", "-ERR wrong number of arguments for 'lpush' command"),
        ]);
    }

    #[test]
    fn a_list_may_have_to_exist() {
        check(&[
            ("LPUSHX l a", ":0"),
            ("RPUSHX l a", ":0"),
            ("EXISTS l", ":0"),
            ("RPUSH l a", ":1"),
            ("LPUSHX l b c", ":3"),
            ("RPUSHX l d", ":4"),
            ("LRANGE l 0 -1", r#"["c", "b", "a", "d"]"#),
        ]);
    }

    #[test]
    fn lists_keep_their_expiry_and_start_anew_after_it() {
        check(&[
            ("RPUSH l a", ":1"),
            ("PEXPIRE l 100", ":1"),
            ("RPUSH l b", ":2"),
            ("PTTL l", ":100"),
            ("after 100", ""),
            ("RPUSHX l c", ":0"),
            ("RPUSH l c", ":1"),
            ("LRANGE l 0 -1", r#"["c"]"#),
            ("PTTL l", ":-1"),
        ]);
    }
}
