//! A stream that a record makes as a whole: one that was copied, or restored.
//!
//! The commands of Redis make it in another order than the record. XADD adds no entry at or below the last id
//! of a stream, so that comes last. And XCLAIM makes no entry pending that the stream does not have, while an
//! entry may have been deleted and be pending still. Such entries are added first, claimed, and trimmed; then
//! the stream begins anew with the others, and its groups keep what is pending.
//!
//! Invariants
//! - What is collected is a part of one record, so it is bounded as records are.

use std::collections::BTreeSet;

use keyspace::{DbId, Delivery, Effect, KeyOp, StreamHead, StreamId};

use super::commands::Commands;
use super::stream;

/// The stream, as far as the record has told it. The commands that make it, empty, are rendered already.
#[derive(Debug, Clone)]
pub(super) struct Building {
    pub(super) db: DbId,
    key: Vec<u8>,
    /// The newest head that the record has told.
    head: StreamHead,
    /// The entries that it has, and their commands.
    ids: Vec<StreamId>,
    entries: Commands,
    /// The commands of groups and consumers.
    groups: Commands,
    pending: Vec<Pending>,
}

/// Entries that are pending for a consumer.
#[derive(Debug, Clone)]
struct Pending {
    group: Vec<u8>,
    consumer: Vec<u8>,
    deliveries: Vec<Delivery>,
}

impl Building {
    pub(super) fn new(db: DbId, key: &[u8], head: StreamHead) -> Building {
        Building {
            db,
            key: key.to_vec(),
            head,
            ids: Vec::new(),
            entries: Commands::default(),
            groups: Commands::default(),
            pending: Vec::new(),
        }
    }

    /// Takes an effect that is part of making the stream. Returns `false` for any other.
    pub(super) fn takes(&mut self, effect: &Effect<'_>) -> bool {
        let Effect::Key { db, key, op } = *effect else { return false };
        if (db, key) != (self.db, self.key.as_slice()) {
            return false;
        }
        match op {
            // An entry above the last id of the head was added after the stream was made.
            KeyOp::StreamAdd { id, .. } if self.head != StreamHead::default() && id > self.head.last_id => {
                return false;
            }
            KeyOp::StreamAdd { id, .. } => {
                self.ids.push(id);
                stream::render(&mut self.entries, key, &op);
            }
            KeyOp::StreamAddBlock { block } => {
                self.ids.extend(block.entries().map(|entry| entry.id));
                stream::render(&mut self.entries, key, &op);
            }
            KeyOp::StreamSetHead { head } => self.head = head,
            KeyOp::StreamPutGroup { .. } | KeyOp::StreamPutConsumer { .. } => {
                stream::render(&mut self.groups, key, &op);
            }
            KeyOp::StreamPend { group, consumer, deliveries } => {
                let is_last = |last: &&mut Pending| last.group == group && last.consumer == consumer;
                match self.pending.last_mut().filter(is_last) {
                    Some(last) => last.deliveries.extend(deliveries.iter()),
                    None => self.pending.push(Pending {
                        group: group.to_vec(),
                        consumer: consumer.to_vec(),
                        deliveries: deliveries.iter().collect(),
                    }),
                }
            }
            _ => return false,
        }
        true
    }

    /// Adds the commands that make the stream of the empty one.
    pub(super) fn finish(mut self, out: &mut Commands) {
        let is_gone = |delivery: &Delivery| self.ids.binary_search(&delivery.id).is_err();
        let deliveries = self.pending.iter().flat_map(|pending| &pending.deliveries);
        let gone: BTreeSet<StreamId> =
            deliveries.filter(|it| is_gone(it) && it.id != StreamId::ZERO).map(|it| it.id).collect();
        // Before the groups: a group may not have read more entries than were added.
        self.begin_anew(out);
        out.append(&mut self.groups);
        if !gone.is_empty() {
            gone.iter().for_each(|id| stream::add_trifle(out, &self.key, *id));
            self.claim(out, is_gone);
            stream::trim_all(out, &self.key);
            self.begin_anew(out);
        }
        out.append(&mut self.entries);
        self.claim(out, |delivery| !is_gone(delivery));
        if self.ids.last().is_none_or(|last| *last <= self.head.last_id) {
            stream::set_head(out, &self.key, &self.head);
        }
    }

    fn begin_anew(&self, out: &mut Commands) {
        stream::begin_anew(out, &self.key, self.head.entries_added);
    }

    /// Makes those entries pending that `which` selects.
    fn claim(&self, out: &mut Commands, which: impl Fn(&Delivery) -> bool) {
        for Pending { group, consumer, deliveries } in &self.pending {
            let deliveries: Vec<Delivery> = deliveries.iter().filter(|it| which(it)).copied().collect();
            stream::claim(out, &[&self.key, group, consumer], &deliveries);
        }
    }
}
