//! Parts of a reply that are written when the slots of its command are free again.
//!
//! What it is: where in the reply they belong, and the values that they are made of, shared with the keyspace, so that a reply of
//! many megabytes holds up nobody who wants the slot.
//! What it is not: for replies that are a part of something else. In a transaction, in a script, under IDEMP and for a client that
//! was waiting, everything is written at once ([`Context::in_transaction`](crate::Context::in_transaction)).
//!
//! Invariants
//! - What is postponed was read under the locks of its command, and does not change any more.
//! - The parts belong to one command, the last one of its unit, and stand in the order of their places.

use keyspace::SharedEntries;
use wire::ReplyWriter;

use crate::stream_reply::write_entry;

/// See the module documentation.
#[derive(Default)]
pub struct Postponed {
    parts: Vec<(usize, SharedEntries)>,
}

impl Postponed {
    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// These entries belong where the reply ends now.
    pub fn add(&mut self, reply: &ReplyWriter<'_>, entries: SharedEntries) {
        self.parts.push((reply.position(), entries));
    }

    /// A header of so many bytes was put before all parts.
    pub fn move_behind(&mut self, header_bytes: usize) {
        self.parts.iter_mut().for_each(|(place, _)| *place += header_bytes);
    }

    /// The command has failed.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Writes all parts in their places.
    #[cold]
    pub fn write(self, reply: &mut ReplyWriter<'_>) {
        let Some(&(first, _)) = self.parts.first() else { return };
        // What follows the first part are keys and headers.
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
