//! Arbitrary bytes as a block of a stream, as in a snapshot or a record: no panic, ascending ids, and a
//! stream made of it can be read in both directions, edited and trimmed.
#![no_main]

use keyspace::{
    AccessClock, DbId, Effect, Freed, Items, Keyspace, Listed, Options, StreamBlock, StreamHead, StreamId,
    StreamView, Value, View, slot_of,
};
use libfuzzer_sys::fuzz_target;

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

fuzz_target!(|bytes: &[u8]| {
    let Some(block) = StreamBlock::verify(bytes) else { return };
    let ids: Vec<StreamId> = block.entries().map(|entry| entry.id).collect();
    assert!(!ids.is_empty() && ids.is_sorted_by(|one, other| one < other));
    block.entries().for_each(|entry| entry.fields().for_each(|(name, value)| _ = (name.len(), value.len())));
    let keyspace = Keyspace::new(Options { hash_seed: 1 });
    let apply = |effect: &Effect<'_>| {
        keyspace.lock(slot_of(KEY)).apply(effect, AccessClock::default(), &mut Freed::new())
    };
    let head = StreamHead { last_id: ids[ids.len() - 1], ..StreamHead::default() };
    apply(&Effect::Put { db: DB, key: KEY, value: Value::Stream(head), expire_at_ms: None });
    assert_eq!(apply(&Effect::StreamAddBlock { db: DB, key: KEY, block }).added, ids.len() as u64);
    assert!(!apply(&Effect::StreamAddBlock { db: DB, key: KEY, block }).changed, "it is there");
    let all = StreamId::ZERO..=StreamId::MAX;
    with_stream(&keyspace, |stream| {
        assert!(stream.range_back(all.clone()).map(|entry| entry.id).eq(ids.iter().rev().copied()));
        assert!(ids.iter().all(|&id| stream.get(id).is_some()));
    });
    let next = head.last_id.next().into_iter();
    let pairs = Items::Slices(&[b"field", b"value"]);
    let added: Vec<StreamId> =
        next.filter(|&id| apply(&Effect::StreamAdd { db: DB, key: KEY, id, pairs }).changed).collect();
    let middle = ids[ids.len() / 2];
    assert_eq!(apply(&Effect::StreamDelete { db: DB, key: KEY, ids: Listed::Slices(&[middle]) }).removed, 1);
    let trimmed = apply(&Effect::StreamTrim { db: DB, key: KEY, through: middle }).removed as usize;
    assert_eq!(trimmed, ids.len() / 2);
    let rest: Vec<StreamId> = ids[trimmed + 1..].iter().chain(&added).copied().collect();
    with_stream(&keyspace, |stream| {
        assert!(stream.range(all).map(|entry| entry.id).eq(rest.iter().copied()));
        assert_eq!(stream.len(), rest.len());
    });
    keyspace.lock(slot_of(KEY)).check();
});
