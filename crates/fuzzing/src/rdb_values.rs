//! Values in Redis' encoding, for the seeds of files and of DUMP payloads.

use rdb::{Output, StreamHead, StreamNode, Writer};

pub(crate) const NAMES: [&str; 8] =
    ["string", "long-string", "list", "set", "sorted-set", "hash", "expiring-hash", "stream"];

/// Writes the value of this name.
pub(crate) fn write(name: &str, writer: &mut Writer<impl Output>) {
    match name {
        "string" => writer.string_value(b"value"),
        "long-string" => writer.string_value(&b"0123456789".repeat(40)),
        "list" => {
            writer.begin_list(3);
            [&b"a"[..], b"-17", b"a longer element"].into_iter().for_each(|item| writer.string(item));
        }
        "set" => {
            writer.begin_set(3);
            [&b"a"[..], b"b", b""].into_iter().for_each(|member| writer.string(member));
        }
        "sorted-set" => {
            writer.begin_zset(3);
            let members = [(-1.5, &b"a"[..]), (0.0, b"b"), (f64::INFINITY, b"c")];
            members.into_iter().for_each(|(score, member)| writer.scored(member, score));
        }
        "hash" => {
            writer.begin_hash(2);
            [&b"field"[..], b"value", b"other", b"1"].into_iter().for_each(|part| writer.string(part));
        }
        "expiring-hash" => {
            let first_ms = 1_700_000_000_000;
            writer.begin_expiring_hash(3, first_ms);
            writer.expiring_field(b"a", b"1", Some(first_ms), first_ms);
            writer.expiring_field(b"b", b"2", None, first_ms);
            writer.expiring_field(b"c", b"3", Some(first_ms + 5000), first_ms);
        }
        "stream" => {
            let mut node = StreamNode::new((1, 1), [&b"f"[..]].into_iter());
            node.add((1, 1), [("f", "v")].into_iter());
            node.add((1, 2), [("g", "-12"), ("h", "")].into_iter());
            node.add((300, 0), [("f", "9223372036854775807")].into_iter());
            writer.begin_stream(1);
            writer.stream_node(&node);
            let head = StreamHead { last_id: (300, 0), max_deleted_id: (1, 3), entries_added: 4 };
            writer.stream_head(head, 3, (1, 1), 1);
            writer.stream_group(b"group", (1, 2), Some(2), 1);
            writer.stream_pending((1, 2), 1_700_000_000_000, 3);
            writer.number(1);
            writer.stream_consumer(b"consumer", 1_700_000_000_000, None, 1);
            writer.stream_id((1, 2));
        }
        _ => unreachable!("{name} is in the list"),
    }
}
