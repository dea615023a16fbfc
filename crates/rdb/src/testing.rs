//! Random values and their encoding, for the tests of several modules.

use proptest::prelude::*;

use crate::stream::{Stream, StreamConsumer, StreamGroup, StreamHead, StreamNode};
use crate::value::{HashField, Value};
use crate::writer::{Output, Writer};

/// Writes a value, with its type number.
pub(crate) fn write_value(value: &Value, writer: &mut Writer<impl Output>) {
    match value {
        Value::String(bytes) => writer.string_value(bytes),
        Value::List(elements) => {
            writer.begin_list(elements.len());
            elements.iter().for_each(|element| writer.string(element));
        }
        Value::Set(members) => {
            writer.begin_set(members.len());
            members.iter().for_each(|member| writer.string(member));
        }
        Value::Zset(members) => {
            writer.begin_zset(members.len());
            members.iter().for_each(|(score, member)| writer.scored(member, *score));
        }
        Value::Stream(stream) => write_stream(stream, writer),
        Value::Hash(fields) => match fields.iter().filter_map(|field| field.expire_at_ms).min() {
            None => {
                writer.begin_hash(fields.len());
                for field in fields {
                    writer.string(&field.name);
                    writer.string(&field.value);
                }
            }
            Some(first_ms) => {
                writer.begin_expiring_hash(fields.len(), first_ms);
                for HashField { name, value, expire_at_ms } in fields {
                    writer.expiring_field(name, value, *expire_at_ms, first_ms);
                }
            }
        },
    }
}

fn write_stream(stream: &Stream, writer: &mut Writer<impl Output>) {
    let nodes = stream.entries.chunks(3);
    writer.begin_stream(nodes.len());
    for entries in nodes {
        let (base, first) = &entries[0];
        let mut node = StreamNode::new(*base, first.iter().step_by(2).map(Vec::as_slice));
        for (id, pairs) in entries {
            node.add(*id, pairs.chunks_exact(2).map(|pair| (&pair[0], &pair[1])));
        }
        writer.stream_node(&node);
    }
    let first = stream.entries.first().map_or((0, 0), |(id, _)| *id);
    writer.stream_head(stream.head, stream.entries.len(), first, stream.groups.len());
    for group in &stream.groups {
        let pending = || group.consumers.iter().flat_map(|consumer| &consumer.pending);
        writer.stream_group(&group.name, group.last_id, group.entries_read, pending().count());
        pending().for_each(|(id, time_ms, count)| writer.stream_pending(*id, *time_ms, *count));
        writer.number(group.consumers.len() as u64);
        for consumer in &group.consumers {
            let StreamConsumer { name, seen_ms, active_ms, pending } = consumer;
            writer.stream_consumer(name, *seen_ms, *active_ms, pending.len());
            pending.iter().for_each(|(id, ..)| writer.stream_id(*id));
        }
    }
}

/// A stream in which the last delivery to each consumer was at the consumer's last request: all versions can
/// represent this.
fn stream() -> impl Strategy<Value = Stream> {
    let number = || prop_oneof![0..4u64, any::<u64>()];
    let text = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..5),
            any::<i32>().prop_map(|n| n.to_string().into_bytes())
        ]
    };
    let pairs = prop::collection::vec((prop_oneof![Just(b"f".to_vec()), text()], text()), 1..4);
    let entries = prop::collection::btree_map((number(), 1..u64::MAX), pairs, 0..12);
    let consumer = (text(), 0..u64::MAX / 2, prop::collection::vec((0..u64::MAX / 2, number()), 0..4));
    let group = (text(), number(), prop::option::of(0..u64::MAX), prop::collection::vec(consumer, 0..3));
    (entries, prop::collection::vec(group, 0..3)).prop_map(|(entries, groups)| {
        let last_id = entries.keys().next_back().copied().unwrap_or_default();
        let flat = |pairs: Vec<(Vec<u8>, Vec<u8>)>| {
            pairs.into_iter().flat_map(|(name, value)| [name, value]).collect()
        };
        let entries_added = entries.len() as u64 + 7;
        let entries = entries.into_iter().map(|(id, pairs)| (id, flat(pairs))).collect();
        let mut id = 0;
        let mut pending = |(time_ms, count)| {
            id += 1;
            ((id, id), time_ms, count)
        };
        let mut consumer = |(name, seen_ms, times): (Vec<u8>, u64, Vec<(u64, u64)>)| StreamConsumer {
            name,
            seen_ms,
            active_ms: Some(seen_ms),
            pending: times.into_iter().map(&mut pending).collect(),
        };
        let mut group =
            |(name, ms, entries_read, consumers): (Vec<u8>, u64, Option<u64>, Vec<_>)| StreamGroup {
                name,
                last_id: (ms, 1),
                entries_read,
                consumers: consumers.into_iter().map(&mut consumer).collect(),
            };
        let groups = groups.into_iter().map(&mut group).collect();
        Stream { entries, head: StreamHead { last_id, max_deleted_id: (0, 3), entries_added }, groups }
    })
}

fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..80), 1..20)
        .prop_map(|names| names.into_iter().collect())
}

/// A value of any type.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let score = any::<f64>().prop_filter("a number", |score| !score.is_nan());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20_000).prop_map(Value::String),
        names().prop_map(Value::List),
        names().prop_map(Value::Set),
        (names(), score)
            .prop_map(|(names, score)| Value::Zset(names.into_iter().map(|name| (score, name)).collect())),
        (names(), prop::option::of(any::<u32>())).prop_map(|(names, deadline)| {
            let field = |(index, name): (usize, Vec<u8>)| HashField {
                value: name.clone(),
                name,
                expire_at_ms: deadline.filter(|_| index % 2 == 0).map(|ms| u64::from(ms) + 1),
            };
            Value::Hash(names.into_iter().enumerate().map(field).collect())
        }),
        stream().prop_map(Value::Stream),
    ]
}
