//! The stream of commands for one replica: records, pings, and their offsets.
//!
//! Invariants
//! - An offset counts the bytes of the stream from its beginning. A replica that returns has the bytes up to
//!   its offset, and gets the bytes after it. For this, the stream is rendered again from the last checkpoint
//!   before the offset, with the same pings at the same places. The bytes that the replica has are left out.

use std::collections::VecDeque;

use keyspace::{DbId, Item};
use lsn::Lsn;

use crate::Renderer;

/// A PING, as it stands in the stream.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// A place between two records, or after a ping, from which the stream can be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Bytes of the stream before it.
    pub offset: u64,
    /// The last record before it.
    pub lsn: Lsn,
    /// The database that the replica has selected at this place; `None` at the beginning of the stream.
    pub db: Option<DbId>,
    /// Whether the bytes before it are a PING.
    pub is_after_ping: bool,
}

/// Renders a stream from a checkpoint on.
#[derive(Debug)]
pub struct Feed {
    renderer: Renderer,
    /// Bytes of the stream that are rendered, and the last record among them.
    offset: u64,
    lsn: Lsn,
    /// The bytes up to here are left out.
    skipped_to: u64,
    /// The offsets of the PINGs that the resumed stream had, and that are not yet rendered again.
    pings: VecDeque<u64>,
    scratch: Vec<u8>,
}

impl Feed {
    /// A new stream, whose records are those after `lsn`.
    pub fn new(lsn: Lsn) -> Feed {
        Feed::resumed(&[Checkpoint { offset: 0, lsn, db: None, is_after_ping: false }], 0)
    }

    /// A stream whose replica has the bytes up to `has`. `checkpoints` has the last checkpoint at or before
    /// `has`, and then all later ones in order.
    ///
    /// # Panics
    /// If there is no checkpoint.
    pub fn resumed(checkpoints: &[Checkpoint], has: u64) -> Feed {
        let (first, later) = checkpoints.split_first().expect("a checkpoint to begin at");
        let pings = later.iter().filter(|checkpoint| checkpoint.is_after_ping);
        Feed {
            renderer: Renderer::resumed(first.db),
            offset: first.offset,
            lsn: first.lsn,
            skipped_to: has,
            pings: pings.map(|checkpoint| checkpoint.offset - PING.len() as u64).collect(),
            scratch: Vec::new(),
        }
    }

    /// Bytes of the stream so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The last record that was rendered or passed over. The caller leaves out all records up to it.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// A checkpoint at this place.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { offset: self.offset, lsn: self.lsn, db: self.renderer.db(), is_after_ping: false }
    }

    /// Appends the commands for a record, which has these items in this order.
    pub fn record<'i>(&mut self, lsn: Lsn, items: impl IntoIterator<Item = Item<'i>>, out: &mut Vec<u8>) {
        self.repeat_pings(out);
        items.into_iter().for_each(|item| self.renderer.item(&item));
        self.renderer.end_record(&mut self.scratch);
        self.lsn = lsn;
        self.take_scratch(out);
        self.repeat_pings(out);
    }

    /// Appends the deadline of a field of a hash that the replica has loaded.
    pub fn field_deadline(
        &mut self,
        (db, key): (DbId, &[u8]),
        (field, expire_at_ms): (&[u8], u64),
        out: &mut Vec<u8>,
    ) {
        self.renderer.field_deadline(db, key, field, expire_at_ms);
        self.renderer.end_record(&mut self.scratch);
        self.take_scratch(out);
    }

    /// Appends a new PING. Returns the checkpoint after it.
    pub fn ping(&mut self, out: &mut Vec<u8>) -> Checkpoint {
        self.scratch.extend_from_slice(PING);
        self.take_scratch(out);
        Checkpoint { is_after_ping: true, ..self.checkpoint() }
    }

    /// Notes that the records up to `lsn` add nothing more.
    pub fn pass(&mut self, lsn: Lsn) {
        self.lsn = self.lsn.max(lsn);
    }

    /// Appends the pings that come before the next record: a resumed stream repeats the pings that it had.
    pub fn repeat_pings(&mut self, out: &mut Vec<u8>) {
        while self.pings.pop_front_if(|offset| *offset <= self.offset).is_some() {
            self.scratch.extend_from_slice(PING);
            self.take_scratch(out);
        }
    }

    fn take_scratch(&mut self, out: &mut Vec<u8>) {
        let known = self.skipped_to.saturating_sub(self.offset).min(self.scratch.len() as u64);
        out.extend_from_slice(&self.scratch[known as usize..]);
        self.offset += self.scratch.len() as u64;
        self.scratch.clear();
    }
}

#[cfg(test)]
mod tests {
    use keyspace::KeyOp;

    use super::*;

    fn append(feed: &mut Feed, lsn: u64, out: &mut Vec<u8>) {
        let (key, suffix) = (lsn.to_string(), b"x");
        let db = DbId::new((lsn % 3) as u8).unwrap_or(DbId::ZERO);
        let effect = KeyOp::Append { suffix }.on(db, key.as_bytes());
        feed.record(Lsn::new(lsn), [Item::Effect(effect)], out);
    }

    #[test]
    fn a_stream_goes_on_with_the_next_byte_from_any_checkpoint_before_it() {
        let (mut feed, mut stream) = (Feed::new(Lsn::ZERO), Vec::new());
        let mut checkpoints = vec![feed.checkpoint()];
        for lsn in 1..20 {
            append(&mut feed, lsn, &mut stream);
            match lsn % 4 {
                0 => checkpoints.push(feed.ping(&mut stream)),
                2 => checkpoints.push(feed.checkpoint()),
                _ => {}
            }
        }
        assert_eq!(feed.offset(), stream.len() as u64);
        for has in 0..=stream.len() {
            for first in 0..checkpoints.iter().filter(|at| at.offset <= has as u64).count() {
                let mut resumed = Feed::resumed(&checkpoints[first..], has as u64);
                let (from, mut rest) = (resumed.lsn().get(), Vec::new());
                (from + 1..20).for_each(|lsn| append(&mut resumed, lsn, &mut rest));
                assert_eq!(rest, stream[has..], "from {first} on, with {has} bytes");
                assert_eq!(resumed.offset(), feed.offset());
            }
        }
    }
}
