//! Operations on streams as commands.

use keyspace::{DbId, Delivery, Effect, KeyOp, Listed, StreamBlock, StreamHead, StreamId};

use super::commands::Commands;
use super::{ITEMS_MAX, scripts, signed};

pub(super) fn render(out: &mut Commands, key: &[u8], op: &KeyOp<'_>) {
    match *op {
        KeyOp::StreamAdd { id, pairs } => {
            out.begin(3 + pairs.len());
            [b"XADD", key, shown(id).as_bytes()].into_iter().for_each(|word| out.word(word));
            pairs.iter().for_each(|word| out.word(word));
        }
        KeyOp::StreamAddBlock { block } => add_block(out, key, &block),
        KeyOp::StreamTrim { through } => match through.next() {
            Some(next) => out.command(&[b"XTRIM", key, b"MINID", shown(next).as_bytes()]),
            None => out.command(&[b"XTRIM", key, b"MAXLEN", b"0"]),
        },
        KeyOp::StreamSetHead { head } => set_head(out, key, &head),
        KeyOp::StreamPutGroup { group, position } => {
            let read = position.entries_read.map_or("-1".into(), signed);
            let words = [group, shown(position.last_id).as_bytes(), read.as_bytes()].map(<[u8]>::to_vec);
            out.script(scripts::PUT_GROUP, key, &[&words[0], &words[1], &words[2]]);
        }
        KeyOp::StreamDropGroup { group } => out.command(&[b"XGROUP", b"DESTROY", key, group]),
        KeyOp::StreamPutConsumer { group, consumer, .. } => {
            out.command(&[b"XGROUP", b"CREATECONSUMER", key, group, consumer]);
        }
        KeyOp::StreamDropConsumer { group, consumer } => {
            out.command(&[b"XGROUP", b"DELCONSUMER", key, group, consumer]);
        }
        KeyOp::StreamPend { group, consumer, deliveries } => {
            claim(out, &[key, group, consumer], &deliveries.iter().collect::<Vec<_>>());
        }
        KeyOp::StreamUnpend { group, ids } => {
            out.ids(&[b"XACK", key, group], &ids.iter().collect::<Vec<_>>())
        }
        _ => unreachable!("the operations on other types have been rendered"),
    }
}

fn add_block(out: &mut Commands, key: &[u8], block: &StreamBlock<'_>) {
    for entry in block.entries() {
        let fields = entry.fields();
        out.begin(3 + 2 * fields.len());
        [b"XADD", key, shown(entry.id).as_bytes()].into_iter().for_each(|word| out.word(word));
        for (name, value) in fields {
            out.word(name);
            out.word(&value);
        }
    }
}

/// Makes existing entries of the stream pending.
fn claim(out: &mut Commands, names: &[&[u8]; 3], deliveries: &[Delivery]) {
    // Usually one chunk: entries are delivered together.
    let alike = deliveries.chunk_by(|a, b| (a.time_ms, a.count) == (b.time_ms, b.count));
    alike.for_each(|alike| claim_alike(out, names, alike));
}

/// Makes entries pending that were delivered at the same time, and equally often.
fn claim_alike(out: &mut Commands, names: &[&[u8]; 3], deliveries: &[Delivery]) {
    for deliveries in deliveries.chunks(ITEMS_MAX) {
        let (time, count) = (signed(deliveries[0].time_ms), deliveries[0].count.to_string());
        let options: [&[u8]; 6] =
            [b"TIME", time.as_bytes(), b"RETRYCOUNT", count.as_bytes(), b"FORCE", b"JUSTID"];
        out.begin(2 + names.len() + deliveries.len() + options.len());
        out.word(b"XCLAIM");
        names.iter().for_each(|name| out.word(name));
        out.word(b"0");
        deliveries.iter().for_each(|delivery| out.word(shown(delivery.id).as_bytes()));
        options.iter().for_each(|word| out.word(word));
    }
}

fn set_head(out: &mut Commands, key: &[u8], head: &StreamHead) {
    let (last, added) = (shown(head.last_id), signed(head.entries_added));
    let deleted = shown(head.max_deleted_id);
    let counters: &[&[u8]] = &[b"ENTRIESADDED", added.as_bytes(), b"MAXDELETEDID", deleted.as_bytes()];
    out.command(&[&[b"XSETID", key, last.as_bytes()], counters].concat());
}

/// Entries that are removed from a stream. The removal may leave no trace in the head of the stream: trimming
/// with ACKED removes entries between others, and is no deletion.
#[derive(Debug)]
pub(super) struct Deleting {
    pub(super) db: DbId,
    key: Vec<u8>,
    ids: Vec<StreamId>,
}

impl Deleting {
    pub(super) fn new(db: DbId, key: &[u8], ids: Listed<'_, StreamId>) -> Deleting {
        Deleting { db, key: key.to_vec(), ids: ids.iter().collect() }
    }

    /// Whether the next effect says that no entry was ever deleted. If the next effect sets a head with
    /// another highest deleted id, XSETID sets that id.
    pub(super) fn leaves_no_trace(&self, effect: &Effect<'_>) -> bool {
        let Effect::Key { db, key, op: KeyOp::StreamSetHead { head } } = *effect else { return false };
        (db, key) == (self.db, self.key.as_slice()) && head.max_deleted_id == StreamId::ZERO
    }

    pub(super) fn render(self, out: &mut Commands) {
        out.ids(&[b"XDEL", &self.key], &self.ids);
    }

    /// Adds the script that removes the entries; `effect` sets the head of the stream.
    pub(super) fn render_without_trace(self, effect: &Effect<'_>, out: &mut Commands) {
        let Effect::Key { op: KeyOp::StreamSetHead { head }, .. } = *effect else { return };
        let (last, added) = (shown(head.last_id), signed(head.entries_added));
        let script = scripts::DELETE_WITHOUT_TRACE.as_bytes();
        out.ids(&[b"EVAL", script, b"1", &self.key, last.as_bytes(), added.as_bytes()], &self.ids);
    }
}

fn shown(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

impl Commands {
    fn ids(&mut self, words: &[&[u8]], ids: &[StreamId]) {
        for ids in ids.chunks(ITEMS_MAX) {
            self.begin(words.len() + ids.len());
            words.iter().for_each(|word| self.word(word));
            ids.iter().for_each(|id| self.word(shown(*id).as_bytes()));
        }
    }
}
