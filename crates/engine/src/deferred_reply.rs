//! Parts of a reply that are written after the slots of its command are unlocked.
//!
//! This module keeps the places of the parts in the reply, and their values. The values are shared with the
//! keyspace, so writing a reply of many megabytes does not hold the lock of the slot. In a transaction, in a
//! script, under IDEMP and for a client that was waiting, everything is written at once
//! ([`Context::in_transaction`](crate::Context::in_transaction)).
//!
//! Invariants
//! - A deferred part was read under the locks of its command, and does not change any more.
//! - The parts belong to one command, the last one of its unit, and stand in the order of their places.

use keyspace::SharedEntries;
use wire::ReplyWriter;

use crate::stream_reply::write_entry;

/// The deferred parts of one reply, in the order of their places.
#[derive(Default)]
pub struct DeferredReply {
    parts: Vec<(usize, SharedEntries)>,
}

impl DeferredReply {
    /// Whether nothing was deferred, so that the reply is complete.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Postpones these entries; their place is the present end of the reply.
    pub fn add(&mut self, reply: &ReplyWriter<'_>, entries: SharedEntries) {
        self.parts.push((reply.position(), entries));
    }

    /// Moves the places of all parts behind a header of this many bytes, which was put before the parts.
    pub fn move_behind(&mut self, header_bytes: usize) {
        self.parts.iter_mut().for_each(|(place, _)| *place += header_bytes);
    }

    /// Drops all parts: the command has failed.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Writes all parts in their places.
    #[cold]
    pub fn write(self, reply: &mut ReplyWriter<'_>) {
        let Some(&(first, _)) = self.parts.first() else { return };
        // The bytes after the first place are keys, headers and short ranges, so this copies little.
        let behind = reply.since(first).to_vec();
        reply.truncate(first);
        let mut done = 0;
        for (place, entries) in self.parts {
            let next = place - first;
            reply.raw(&behind[done..next]);
            entries.for_each(|entry| write_entry(reply, &entry));
            done = next;
        }
        reply.raw(&behind[done..]);
    }
}
