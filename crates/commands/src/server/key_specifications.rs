//! The key positions of COMMAND INFO: the three legacy positions, and the key specifications. Only the
//! specifications can express that keys follow a keyword, as in XREAD and XREADGROUP.

use engine::{Keys, Row};
use wire::ReplyWriter;

use super::command::write_set;

/// (first, last, step) of the keys at fixed positions; zeros if there are none.
pub(super) fn positions(keys: Keys) -> [i64; 3] {
    let one = |index: u8| [index.into(), index.into(), 1];
    match keys {
        Keys::First => one(1),
        Keys::Range { first, last, step } => [first.into(), last.into(), step.into()],
        Keys::ShardChannels { last } => [1, last.into(), 1],
        Keys::Counted { before: Some(before), .. } => one(before),
        Keys::Computed { first: Some(first), .. } => one(first),
        Keys::None
        | Keys::AllSlots
        | Keys::Libraries
        | Keys::Settings
        | Keys::Queued
        | Keys::Counted { .. }
        | Keys::Computed { .. } => [0; 3],
    }
}

/// Whether the first key of a range is used in another way than the other keys, and so has a specification of
/// its own.
fn is_split(row: &Row) -> bool {
    let is_range = matches!(row.keys, Keys::Range { first, last, .. } if i64::from(first) != i64::from(last));
    is_range && row.usage_in_general(0) != row.usage_in_general(1)
}

/// The number of key specifications that `write` writes for a row.
pub(super) fn count(row: &Row) -> usize {
    match row.keys {
        Keys::Range { .. } => 1 + usize::from(is_split(row)),
        Keys::None | Keys::AllSlots | Keys::Libraries | Keys::Settings | Keys::Queued => 0,
        Keys::First | Keys::ShardChannels { .. } => 1,
        Keys::Counted { before, .. } => 1 + usize::from(before.is_some()),
        Keys::Computed { first, .. } => 1 + usize::from(first.is_some()),
    }
}

/// The index of the first argument that may be the keyword STREAMS, which precedes the keys.
fn streams_from(name: &str) -> Option<i64> {
    match name {
        "xread" => Some(1),
        "xreadgroup" => Some(4),
        _ => None,
    }
}

/// Writes the key specifications of a command.
pub(super) fn write(reply: &mut ReplyWriter<'_>, row: &Row) {
    const NO_KEY: &[&str] = &["not_key"];
    let usage = |nth| row.usage_in_general(nth).names().collect::<Vec<_>>();
    reply.set(count(row));
    let [first, last, step] = positions(row.keys);
    if first > 0 {
        let flags = match row.keys {
            Keys::ShardChannels { .. } => NO_KEY.to_vec(),
            _ => usage(0),
        };
        let from = |first| if last < 0 { last } else { last - first };
        if is_split(row) {
            write_range(reply, &flags, first, (0, step));
            write_range(reply, &usage(1), first + step, (from(first + step), step));
        } else {
            write_range(reply, &flags, first, (from(first), step));
        }
    }
    match row.keys {
        Keys::Counted { at, before } => write_specification(
            reply,
            &usage(usize::from(before.is_some())),
            ("index", &[("index", i64::from(at).into())]),
            ("keynum", &[("keynumidx", 0.into()), ("firstkey", 1.into()), ("keystep", 1.into())]),
        ),
        Keys::Computed { .. } => match streams_from(row.name) {
            Some(start) => write_specification(
                reply,
                &usage(0),
                ("keyword", &[("keyword", Field::Word("STREAMS")), ("startfrom", Field::Number(start))]),
                ("range", &[("lastkey", (-1).into()), ("keystep", 1.into()), ("limit", 2.into())]),
            ),
            None => write_specification(reply, &usage(1), ("unknown", &[]), ("unknown", &[])),
        },
        _ => {}
    }
}

/// Writes the specification of keys from the argument `first` on. The last key is `last` arguments after
/// `first`; a negative `last` counts from the last argument, which is -1.
fn write_range(reply: &mut ReplyWriter<'_>, flags: &[&'static str], first: i64, (last, step): (i64, i64)) {
    write_specification(
        reply,
        flags,
        ("index", &[("index", first.into())]),
        ("range", &[("lastkey", last.into()), ("keystep", step.into()), ("limit", 0.into())]),
    );
}

/// A search of a key specification: its kind and its fields.
type Search<'a> = (&'a str, &'a [(&'a str, Field)]);

#[derive(Clone, Copy)]
enum Field {
    Number(i64),
    Word(&'static str),
}

impl From<i64> for Field {
    fn from(number: i64) -> Field {
        Field::Number(number)
    }
}

fn write_specification(
    reply: &mut ReplyWriter<'_>,
    flags: &[&'static str],
    begin_search: Search<'_>,
    find_keys: Search<'_>,
) {
    reply.map(3);
    reply.bulk(b"flags");
    write_set(reply, flags.iter());
    for (name, (kind, spec)) in [("begin_search", begin_search), ("find_keys", find_keys)] {
        reply.bulk(name.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        reply.map(spec.len());
        for (name, field) in spec {
            reply.bulk(name.as_bytes());
            match field {
                Field::Number(number) => reply.integer(*number),
                Field::Word(word) => reply.bulk(word.as_bytes()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::{Flags, KeyUsage, Needs};
    use wire::{DecodeLimits, Protocol, decode};

    use super::*;
    use crate::testing::notation;

    /// The specifications of a command whose row is that of GET, except for these three fields.
    fn written(keys: Keys, flags: Flags, needs: Needs) -> String {
        let get = crate::resolve(b"get").expect("a row");
        let row = Row { keys, flags, needs, ..*get };
        let mut out = Vec::new();
        write(&mut ReplyWriter::new(&mut out, Protocol::Resp3), &row);
        let (value, _) = decode(&out, &DecodeLimits::DEFAULT).expect("well formed").expect("whole");
        notation(&value)
    }

    const KEY_1: &str = "\"begin_search\": {\"type\": \"index\", \"spec\": {\"index\": :1}}, \"find_keys\": {\"type\": \
                         \"range\", \"spec\": {\"lastkey\": :0, \"keystep\": :1, \"limit\": :0}}";

    fn counted(index: usize) -> String {
        format!(
            "\"begin_search\": {{\"type\": \"index\", \"spec\": {{\"index\": :{index}}}}}, \"find_keys\": {{\"type\": \
             \"keynum\", \"spec\": {{\"keynumidx\": :0, \"firstkey\": :1, \"keystep\": :1}}}}"
        )
    }

    #[test]
    fn counted_keys_have_a_number_and_perhaps_a_destination() {
        let lmpop = Keys::Counted { at: 1, before: None };
        assert_eq!(
            written(lmpop, Flags::WRITE, Needs::BY_FLAGS),
            format!("~[{{\"flags\": ~[+RW, +access, +update], {}}}]", counted(1))
        );
        assert_eq!(positions(lmpop), [0, 0, 0]);
        let store = Keys::Counted { at: 2, before: Some(1) };
        assert_eq!(
            written(store, Flags::WRITE, Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ)),
            format!(
                "~[{{\"flags\": ~[+OW, +update], {KEY_1}}}, {{\"flags\": ~[+RO, +access], {}}}]",
                counted(2)
            )
        );
        assert_eq!(positions(store), [1, 1, 1]);
    }

    #[test]
    fn access_is_that_of_redis() {
        for (name, access) in [
            ("hexpire", "[+RW, +update]"),
            ("pexpireat", "[+RW, +update]"),
            ("getdel", "[+RW, +access, +delete]"),
            ("incr", "[+RW, +access, +update]"),
            ("strlen", "[+RO]"),
            ("get", "[+RO, +access]"),
        ] {
            let mut out = Vec::new();
            let row = crate::resolve(name.as_bytes()).expect("a row");
            write(&mut ReplyWriter::new(&mut out, Protocol::Resp3), row);
            let (value, _) = decode(&out, &DecodeLimits::DEFAULT).expect("well formed").expect("whole");
            assert_eq!(notation(&value), format!("~[{{\"flags\": ~{access}, {KEY_1}}}]"), "{name}");
        }
    }

    #[test]
    fn keys_of_streams_stand_behind_a_word() {
        let mut out = Vec::new();
        let row = crate::resolve(b"xreadgroup").expect("a row");
        write(&mut ReplyWriter::new(&mut out, Protocol::Resp3), row);
        let (value, _) = decode(&out, &DecodeLimits::DEFAULT).expect("well formed").expect("whole");
        assert_eq!(
            notation(&value),
            "~[{\"flags\": ~[+RO, +access], \"begin_search\": {\"type\": \"keyword\", \"spec\": {\"keyword\": \
             \"STREAMS\", \"startfrom\": :4}}, \"find_keys\": {\"type\": \"range\", \"spec\": {\"lastkey\": :-1, \
             \"keystep\": :1, \"limit\": :2}}}]"
        );
    }

    #[test]
    fn a_destination_has_a_specification_of_its_own() {
        let needs = Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ);
        let bitop = written(Keys::Range { first: 2, last: -1, step: 1 }, Flags::WRITE, needs);
        assert_eq!(bitop.matches("begin_search").count(), 2, "{bitop}");
        assert!(bitop.contains("+OW, +update") && bitop.contains("{\"index\": :3}"), "{bitop}");
        assert!(bitop.contains("{\"lastkey\": :0, ") && bitop.contains("{\"lastkey\": :-1, "), "{bitop}");
        let mget = written(Keys::Range { first: 1, last: -1, step: 1 }, Flags::READONLY, Needs::BY_FLAGS);
        assert_eq!(mget.matches("begin_search").count(), 1, "{mget}");
    }

    #[test]
    fn computed_keys_are_unknown_but_for_the_first() {
        let sort = Keys::Computed { first: Some(1), find: |_, _| {}, reads_others: |_| false };
        let unknown = "\"begin_search\": {\"type\": \"unknown\", \"spec\": {}}, \"find_keys\": {\"type\": \
                       \"unknown\", \"spec\": {}}";
        assert_eq!(
            written(sort, Flags::READONLY, Needs::BY_FLAGS),
            format!("~[{{\"flags\": ~[+RO, +access], {KEY_1}}}, {{\"flags\": ~[+RO, +access], {unknown}}}]")
        );
        assert_eq!(positions(sort), [1, 1, 1]);
    }
}
