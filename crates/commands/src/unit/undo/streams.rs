//! What takes back an effect on a large stream: the entries and pending entries that it names.
//!
//! What it is: undoing what queues do to streams again and again: adding, trimming, delivering, acknowledging.
//! What it is not: for entries that are deleted in the middle, or for groups and consumers that go: then all is copied.

use keyspace::{DbId, Effect, Listed, StreamHead, StreamId, StreamView};

use super::Undo;

/// Notes it; `false`: nothing was noted, all of it must be copied.
pub(super) fn note(
    undo: &mut Undo,
    effect: &Effect<'_>,
    db: DbId,
    key: &[u8],
    stream: StreamView<'_>,
) -> bool {
    let head: StreamHead = stream.head();
    let set_head = Effect::StreamSetHead { db, key, head };
    match *effect {
        Effect::StreamAdd { id, .. } if id > head.last_id => {
            undo.add(&Effect::StreamDelete { db, key, ids: Listed::Slices(&[id]) });
            undo.add(&set_head);
        }
        Effect::StreamAdd { .. } | Effect::StreamSetHead { .. } => undo.add(&set_head),
        Effect::StreamTrim { through, .. } => note_trim(undo, db, key, stream, through),
        Effect::StreamPutGroup { group, .. } => match stream.group(group) {
            Some(found) => {
                undo.add(&Effect::StreamPutGroup { db, key, group, position: found.position() });
            }
            None => undo.add(&Effect::StreamDropGroup { db, key, group }),
        },
        Effect::StreamPutConsumer { group, consumer, .. } => {
            let Some(found) = stream.group(group) else { return true };
            undo.add(&match found.consumer(consumer).map(|consumer| consumer.times()) {
                Some(times) => Effect::StreamPutConsumer { db, key, group, consumer, times },
                None => Effect::StreamDropConsumer { db, key, group, consumer },
            });
        }
        Effect::StreamPend { group, deliveries, .. } => {
            note_pending(undo, db, key, (stream, group), deliveries.iter().map(|delivery| delivery.id));
        }
        Effect::StreamUnpend { group, ids, .. } => note_pending(undo, db, key, (stream, group), ids.iter()),
        _ => return false,
    }
    true
}

/// The blocks of which entries go. What stays of the last one is removed before it comes back as a whole.
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
        undo.add(&Effect::StreamTrim { db, key, through });
    }
    blocks.into_iter().for_each(|block| undo.add(&Effect::StreamAddBlock { db, key, block }));
}

/// For whom each of the entries was pending, if for anybody.
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
                undo.add(&Effect::StreamPend { db, key, group, consumer, deliveries });
            }
            None => undo.add(&Effect::StreamUnpend { db, key, group, ids: Listed::Slices(&[id]) }),
        }
    }
}
