//! Messages on their way to one worker: adjacent frames in one buffer, encoded for RESP2.
//!
//! ```text
//! *3 $7 message        $2 ch $5 hello     to subscribers of the channel
//! >3 ...                                  the same for RESP3: only the first byte differs
//! *4 $8 pmessage $1 p* $2 ch $5 hello     to subscribers of a pattern: only the head differs
//! ```
//!
//! Invariants
//! - Frames of consecutive messages are adjacent, so that a run of messages is one piece of memory.

use std::ops::Range;

use wire::{Protocol, ReplyWriter};

use crate::{kind::Kind, topic::Topic};

/// The maximum bytes of a buffer that is kept when the batch is cleared.
const BYTES_KEPT_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// The channel, if it has subscribers by name.
    pub(crate) topic: Option<Topic>,
    /// The range of the matching patterns in [`Batch::patterns`].
    pub(crate) patterns: Range<usize>,
    /// The range of the frame in [`Batch::bytes`].
    pub(crate) frame: Range<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// The patterns that matched, for all messages.
    pub(crate) patterns: Vec<Topic>,
}

impl Batch {
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
        // Channel and payload are encoded alike in both protocols.
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

    /// Removes all messages; frees the memory if the buffer exceeds [`BYTES_KEPT_MAX`].
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

    /// Appends the `pmessage` frame for subscribers of a pattern.
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

    /// Copies the frames of messages for a protocol; adjacent frames are copied together.
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

/// The beginning of a frame in RESP2.
fn head(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Shard => b"*3\r\n$8\r\nsmessage\r\n",
        Kind::Channel | Kind::Pattern | Kind::Log => b"*3\r\n$7\r\nmessage\r\n",
    }
}
