//! Arbitrary bytes as a block of a stream, as in a snapshot or a record: no panic, ascending ids, and a
//! stream made of it can be read in both directions, edited and trimmed.

use keyspace::{
    AccessClock, DbId, Effect, Freed, Items, KeyOp, Keyspace, Listed, Options, StreamBlock, StreamHead,
    StreamId, StreamView, Value, View, slot_of,
};

use crate::{Outcome, Seed};

const DB: DbId = DbId::ZERO;
const KEY: &[u8] = b"stream";

fn with_stream<R>(keyspace: &Keyspace, look: impl FnOnce(StreamView<'_>) -> R) -> R {
    let slot = keyspace.lock(slot_of(KEY));
    let entry = slot.get_raw(DB, &keyspace.hash(KEY), KEY).expect("a stream without entries stays");
    match entry.view() {
        View::Stream(stream) => look(stream),
        _ => unreachable!("it was made a stream"),
    }
}

/// Decodes a block and makes a stream of it. Accepts a block.
///
/// # Panics
/// If the stream has other entries than the block.
pub fn stream_block(bytes: &[u8]) -> Outcome {
    let Some(block) = StreamBlock::verify(bytes) else { return Outcome::Refused };
    let ids: Vec<StreamId> = block.entries().map(|entry| entry.id).collect();
    assert!(!ids.is_empty() && ids.is_sorted_by(|one, other| one < other));
    block.entries().for_each(|entry| entry.fields().for_each(|(name, value)| _ = (name.len(), value.len())));
    let keyspace = Keyspace::new(Options { hash_seed: 1 });
    let apply = |effect: &Effect<'_>| {
        keyspace.lock(slot_of(KEY)).apply(effect, AccessClock::default(), &mut Freed::new())
    };
    let head = StreamHead { last_id: ids[ids.len() - 1], ..StreamHead::default() };
    apply(&KeyOp::Put { value: Value::Stream(head), expire_at_ms: None }.on(DB, KEY));
    assert_eq!(apply(&KeyOp::StreamAddBlock { block }.on(DB, KEY)).added, ids.len() as u64);
    assert!(!apply(&KeyOp::StreamAddBlock { block }.on(DB, KEY)).changed, "it is there");
    let all = StreamId::ZERO..=StreamId::MAX;
    with_stream(&keyspace, |stream| {
        assert!(stream.range_back(all.clone()).map(|entry| entry.id).eq(ids.iter().rev().copied()));
        assert!(ids.iter().all(|&id| stream.get(id).is_some()));
    });
    let next = head.last_id.next().into_iter();
    let pairs = Items::Slices(&[b"field", b"value"]);
    let added: Vec<StreamId> =
        next.filter(|&id| apply(&KeyOp::StreamAdd { id, pairs }.on(DB, KEY)).changed).collect();
    let middle = ids[ids.len() / 2];
    assert_eq!(apply(&KeyOp::StreamDelete { ids: Listed::Slices(&[middle]) }.on(DB, KEY)).removed, 1);
    let trimmed = apply(&KeyOp::StreamTrim { through: middle }.on(DB, KEY)).removed as usize;
    assert_eq!(trimmed, ids.len() / 2);
    let rest: Vec<StreamId> = ids[trimmed + 1..].iter().chain(&added).copied().collect();
    with_stream(&keyspace, |stream| {
        assert!(stream.range(all).map(|entry| entry.id).eq(rest.iter().copied()));
        assert_eq!(stream.len(), rest.len());
    });
    keyspace.lock(slot_of(KEY)).check();
    Outcome::Accepted
}

/// The first block of a stream of these entries.
fn block(entries: &[(StreamId, &[&[u8]])]) -> Vec<u8> {
    let keyspace = Keyspace::new(Options { hash_seed: 1 });
    for &(id, pairs) in entries {
        let effect = KeyOp::StreamAdd { id, pairs: Items::Slices(pairs) }.on(DB, KEY);
        keyspace.lock(slot_of(KEY)).apply(&effect, AccessClock::default(), &mut Freed::new());
    }
    with_stream(&keyspace, |stream| stream.blocks().next().expect("there are entries").bytes().to_vec())
}

pub(crate) fn seeds() -> Vec<Seed> {
    let id = StreamId::new;
    let pairs: &[&[u8]] = &[b"name", b"value", b"number", b"-12"];
    let others: &[&[u8]] = &[b"another", b"9223372036854775807"];
    let many: Vec<_> = (1..=100).map(|number| (id(1_700_000_000_000 + number, number % 3), pairs)).collect();
    vec![
        ("one-entry", block(&[(id(1, 0), pairs)])),
        ("other-fields", block(&[(id(1, 5), pairs), (id(1, 6), others), (id(9, 0), pairs)])),
        ("full", block(&many)),
        ("long-values", block(&[(id(5, 5), &[b"f", &[b'x'; 300], b"g", b""])])),
        ("highest-id", block(&[(id(u64::MAX, u64::MAX - 1), pairs), (StreamId::MAX, pairs)])),
        ("refused-no-entry", b"\x05\x01\x01\x01f".to_vec()),
        ("refused-order", b"\x05\x01\x01\x01f\x06\x00\x00\x0c\x06\x00\x00\x0c".to_vec()),
    ]
}
