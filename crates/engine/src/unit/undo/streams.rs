//! Undoing an effect on a large stream.
//!
//! The notes contain the blocks that lose entries, the groups and consumers that are removed, and the pending
//! entries that change. Parts that the effect does not touch are not copied. This module is not for streams
//! that are replaced or removed: these are copied as a whole, like values of other types.

use keyspace::{ConsumerView, DbId, GroupView, KeyOp, Listed, StreamBlock, StreamHead, StreamId, StreamView};

use super::Undo;

/// Notes how to undo the operation. Returns `false` if nothing was noted, so that the whole stream must be
/// copied.
pub(super) fn note(undo: &mut Undo, op: &KeyOp<'_>, db: DbId, key: &[u8], stream: StreamView<'_>) -> bool {
    let head: StreamHead = stream.head();
    let set_head = KeyOp::StreamSetHead { head }.on(db, key);
    match *op {
        KeyOp::StreamAdd { id, .. } if id > head.last_id => {
            undo.add(&KeyOp::StreamDelete { ids: Listed::Slices(&[id]) }.on(db, key));
            undo.add(&set_head);
        }
        KeyOp::StreamAdd { .. } | KeyOp::StreamSetHead { .. } => undo.add(&set_head),
        KeyOp::StreamTrim { through } => note_trim(undo, db, key, stream, through),
        KeyOp::StreamDelete { ids } => note_delete(undo, db, key, stream, ids),
        KeyOp::StreamDropGroup { group } => {
            let Some(found) = stream.group(group) else { return true };
            undo.add(&KeyOp::StreamPutGroup { group, position: found.position() }.on(db, key));
            found.consumers().for_each(|consumer| put_consumer(undo, db, key, (group, found), consumer));
        }
        KeyOp::StreamDropConsumer { group, consumer } => {
            let found = stream.group(group).and_then(|found| Some((found, found.consumer(consumer)?)));
            if let Some((found, consumer)) = found {
                put_consumer(undo, db, key, (group, found), consumer);
            }
        }
        KeyOp::StreamPutGroup { group, .. } => match stream.group(group) {
            Some(found) => {
                undo.add(&KeyOp::StreamPutGroup { group, position: found.position() }.on(db, key));
            }
            None => undo.add(&KeyOp::StreamDropGroup { group }.on(db, key)),
        },
        KeyOp::StreamPutConsumer { group, consumer, .. } => {
            let Some(found) = stream.group(group) else { return true };
            undo.add(&match found.consumer(consumer).map(|consumer| consumer.times()) {
                Some(times) => KeyOp::StreamPutConsumer { group, consumer, times }.on(db, key),
                None => KeyOp::StreamDropConsumer { group, consumer }.on(db, key),
            });
        }
        KeyOp::StreamPend { group, deliveries, .. } => {
            note_pending(undo, db, key, (stream, group), deliveries.iter().map(|delivery| delivery.id));
        }
        KeyOp::StreamUnpend { group, ids } => note_pending(undo, db, key, (stream, group), ids.iter()),
        _ => return false,
    }
    true
}

/// Notes the blocks that lose entries. The remaining entries of the last block are removed before the block
/// is restored as a whole.
fn note_trim(undo: &mut Undo, db: DbId, key: &[u8], stream: StreamView<'_>, through: StreamId) {
    let mut last = None;
    let mut blocks = Vec::new();
    for block in stream.blocks() {
        if block.entries().next().is_none_or(|first| first.id > through) {
            break;
        }
        last = block.entries().last().map(|entry| entry.id).or(last);
        blocks.push(block);
    }
    if let Some(through) = last {
        undo.add(&KeyOp::StreamTrim { through }.on(db, key));
    }
    blocks.into_iter().for_each(|block| undo.add(&KeyOp::StreamAddBlock { block }.on(db, key)));
}

/// Notes the blocks that lose entries. The remaining entries of a block are removed before it is restored as
/// a whole.
fn note_delete(undo: &mut Undo, db: DbId, key: &[u8], stream: StreamView<'_>, ids: Listed<'_, StreamId>) {
    let mut ids: Vec<StreamId> = ids.iter().collect();
    ids.sort_unstable();
    let mut blocks: Vec<StreamBlock<'_>> = Vec::new();
    for block in ids.iter().filter_map(|&id| stream.block_with(id)) {
        if blocks.last() != Some(&block) {
            blocks.push(block);
        }
    }
    for &block in &blocks {
        let stays = block.entries().map(|entry| entry.id).filter(|id| ids.binary_search(id).is_err());
        let stays: Vec<StreamId> = stays.collect();
        if !stays.is_empty() {
            undo.add(&KeyOp::StreamDelete { ids: Listed::Slices(&stays) }.on(db, key));
        }
        undo.add(&KeyOp::StreamAddBlock { block }.on(db, key));
    }
    if !blocks.is_empty() {
        undo.add(&KeyOp::StreamSetHead { head: stream.head() }.on(db, key));
    }
}

/// Notes a consumer that is removed, with its pending entries.
fn put_consumer(
    undo: &mut Undo,
    db: DbId,
    key: &[u8],
    (group, found): (&[u8], GroupView<'_>),
    consumer: ConsumerView<'_>,
) {
    let (name, times) = (consumer.name(), consumer.times());
    undo.add(&KeyOp::StreamPutConsumer { group, consumer: name, times }.on(db, key));
    let pending = consumer.pending_ids(StreamId::ZERO..=StreamId::MAX).filter_map(|id| found.pending(id));
    let deliveries: Vec<_> = pending.map(|pending| pending.delivery).collect();
    if !deliveries.is_empty() {
        let deliveries = Listed::Slices(&deliveries);
        undo.add(&KeyOp::StreamPend { group, consumer: name, deliveries }.on(db, key));
    }
}

/// Notes for which consumer, if any, each of the entries is pending.
fn note_pending(
    undo: &mut Undo,
    db: DbId,
    key: &[u8],
    (stream, group): (StreamView<'_>, &[u8]),
    ids: impl Iterator<Item = StreamId>,
) {
    let Some(found) = stream.group(group) else { return };
    for id in ids {
        match found.pending(id) {
            Some(pending) => {
                let (consumer, deliveries) = (pending.consumer, Listed::Slices(&[pending.delivery]));
                undo.add(&KeyOp::StreamPend { group, consumer, deliveries }.on(db, key));
            }
            None => undo.add(&KeyOp::StreamUnpend { group, ids: Listed::Slices(&[id]) }.on(db, key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use keyspace::{
        AccessClock, ConsumerTimes, Delivery, Freed, GroupPosition, Items, Keyspace, Options, View, slot_of,
    };

    use super::*;

    const DB: DbId = DbId::ZERO;
    const KEY: &[u8] = b"s";
    const ENTRIES: u64 = 5000;

    fn id(seq: u64) -> StreamId {
        StreamId { ms: 1, seq }
    }

    /// A stream with two groups: in one, the last ten entries are pending, in the other, all entries are.
    fn keyspace() -> Keyspace {
        let keyspace = Keyspace::new(Options { hash_seed: 1 });
        let mut slot = keyspace.lock(slot_of(KEY));
        let mut freed = Freed::default();
        let mut apply = |op: KeyOp<'_>| {
            slot.apply(&op.on(DB, KEY), AccessClock::default(), &mut freed);
        };
        for seq in 1..=ENTRIES {
            let value = format!("value-{seq}");
            let pairs: [&[u8]; 2] = [b"field", value.as_bytes()];
            apply(KeyOp::StreamAdd { id: id(seq), pairs: Items::Slices(&pairs) });
        }
        for (group, first) in [(&b"small"[..], ENTRIES - 9), (&b"large"[..], 1)] {
            let position = GroupPosition { last_id: id(ENTRIES), ..GroupPosition::default() };
            let times = ConsumerTimes::default();
            apply(KeyOp::StreamPutGroup { group, position });
            apply(KeyOp::StreamPutConsumer { group, consumer: b"a", times });
            let deliveries: Vec<Delivery> =
                (first..=ENTRIES).map(|seq| Delivery { id: id(seq), time_ms: 1, count: 1 }).collect();
            let deliveries = Listed::Slices(&deliveries);
            apply(KeyOp::StreamPend { group, consumer: b"a", deliveries });
        }
        drop(slot);
        keyspace
    }

    #[test]
    fn untouched_entries_are_not_copied() {
        let keyspace = keyspace();
        let (db, key) = (DB, KEY);
        let slot = keyspace.lock(slot_of(key));
        let entry = slot.get(db, &keyspace.hash(key), key, 0).expect("it is there");
        let View::Stream(stream) = entry.view() else { panic!("a stream") };
        let undo_bytes = |op: KeyOp<'_>| {
            let mut undo = Undo::default();
            assert!(note(&mut undo, &op, db, key, stream), "all would be copied for {op:?}");
            undo.effects.len()
        };
        let ids = [id(2500), id(2501)];
        let deleted = undo_bytes(KeyOp::StreamDelete { ids: Listed::Slices(&ids) });
        let dropped = undo_bytes(KeyOp::StreamDropGroup { group: b"small" });
        let removed = undo_bytes(KeyOp::StreamDropConsumer { group: b"small", consumer: b"a" });
        let all = undo_bytes(KeyOp::StreamDropGroup { group: b"large" });
        assert!(deleted < 8192, "{deleted} bytes for two neighbours");
        assert!(
            removed < dropped && dropped < 300 && all > 20_000,
            "{removed}, {dropped}, {all} bytes for groups"
        );
    }
}
