//! Messages on their way to one worker: frames one after the other in one buffer, as subscribers of the older protocol get
//! them.
//!
//! ```text
//! *3 $7 message        $2 ch $5 hello     to those who have subscribed to the channel
//! >3 ...                                  the same for RESP3: only the first byte differs
//! *4 $8 pmessage $1 p* $2 ch $5 hello     what follows the head is the same
//! ```
//!
//! Invariants
//! - Frames of messages that follow each other are adjacent: a run of them is one piece of memory.

use std::ops::Range;

use wire::{Protocol, ReplyWriter};

use crate::{hub::Kind, topic::Topic};

/// A buffer above this is given back when the batch is empty.
const BYTES_KEPT_MAX: usize = 64 << 10;

/// One message.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// The channel, if somebody has subscribed to it by name.
    pub(crate) topic: Option<Topic>,
    /// In [`Batch::patterns`].
    pub(crate) patterns: Range<usize>,
    /// In [`Batch::bytes`].
    pub(crate) frame: Range<usize>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// Those that matched, of all messages.
    pub(crate) patterns: Vec<Topic>,
}

impl Batch {
    /// Adds a message.
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        topic: Option<&Topic>,
        patterns: &[Topic],
        channel: &[u8],
        payload: &[u8],
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(head(kind));
        // What both protocols have is written alike.
        let mut writer = ReplyWriter::new(&mut self.bytes, Protocol::Resp2);
        writer.bulk(channel);
        writer.bulk(payload);
        let first = self.patterns.len();
        self.patterns.extend_from_slice(patterns);
        self.entries.push(Entry {
            kind,
            topic: topic.cloned(),
            patterns: first..self.patterns.len(),
            frame: start..self.bytes.len(),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all messages; keeps the memory, unless it is a lot.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.patterns.clear();
        self.bytes.clear();
        if self.bytes.capacity() > BYTES_KEPT_MAX {
            *self = Batch::default();
        }
    }

    /// The patterns that a message matched.
    pub(crate) fn patterns_of(&self, entry: &Entry) -> &[Topic] {
        &self.patterns[entry.patterns.clone()]
    }

    /// Appends the frame that subscribers of a pattern get.
    pub(crate) fn write_matched(
        &self,
        entry: &Entry,
        pattern: &Topic,
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(match protocol {
            Protocol::Resp2 => b"*4\r\n$8\r\npmessage\r\n",
            Protocol::Resp3 => b">4\r\n$8\r\npmessage\r\n",
        });
        ReplyWriter::new(out, protocol).bulk(pattern.name());
        out.extend_from_slice(&self.bytes[entry.frame.start + head(entry.kind).len()..entry.frame.end]);
    }

    /// Copies the frames of messages for a protocol; adjacent ones at once.
    pub(crate) fn copy_frames<'e>(
        &self,
        entries: impl Iterator<Item = &'e Entry> + Clone,
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        let mut at = out.len();
        let mut adjacent = 0..0;
        for entry in entries.clone() {
            if entry.frame.start != adjacent.end {
                out.extend_from_slice(&self.bytes[adjacent]);
                adjacent = entry.frame.start..entry.frame.start;
            }
            adjacent.end = entry.frame.end;
        }
        out.extend_from_slice(&self.bytes[adjacent]);
        if protocol == Protocol::Resp3 {
            for entry in entries {
                out[at] = b'>';
                at += entry.frame.len();
            }
        }
    }
}

/// What a frame begins with in the older protocol.
fn head(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Shard => b"*3\r\n$8\r\nsmessage\r\n",
        Kind::Channel | Kind::Pattern | Kind::Log => b"*3\r\n$7\r\nmessage\r\n",
    }
}
