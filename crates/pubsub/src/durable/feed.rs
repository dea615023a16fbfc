//! The output of the durable channel thread for one worker, until it is taken: frames and events, in order.
//!
//! ```text
//! *4 $8 xmessage $2 ch $8 3:123456 $5 hello      a frame; for RESP3 only the first byte differs
//! ```
//!
//! Consecutive frames for the same readers form a run, which is one piece of memory. A run for readers at the
//! tail has messages of one channel, and goes to all that read it on this worker; a run for a single reader
//! that has not reached the tail may have messages of several.

use std::{ops::Range, rc::Rc, sync::Arc};

use wire::{Protocol, ReplyWriter};

use super::{DurableMessage, Position, ReaderId};
use crate::delivery::{Block, Delivery, SHARED_BYTES_MIN};

/// The maximum bytes of frames in one run, unless a single frame is larger.
const RUN_BYTES_MAX: usize = 256 << 10;

/// The result of a request, or the end of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReaderEvent {
    /// The client is subscribed; all messages after the position follow.
    Subscribed {
        /// The client that is subscribed.
        reader: ReaderId,
        /// The name of the channel.
        channel: Box<[u8]>,
        /// The position at which the subscription begins.
        position: Position,
    },
    /// The subscription was refused, and has not begun.
    Refused {
        /// The client whose subscription was refused.
        reader: ReaderId,
        /// The complete error text, including the prefix.
        error: String,
    },
    /// Subscriptions have ended by XUNSUBSCRIBE.
    Unsubscribed {
        /// The client whose subscriptions have ended.
        reader: ReaderId,
        /// The channels, in the order of the request.
        channels: Vec<Box<[u8]>>,
    },
    /// The log no longer has the reader's next messages of a channel, so the subscription has ended.
    Lost {
        /// The client whose subscription has ended.
        reader: ReaderId,
        /// The channel whose subscription has ended.
        channel: Box<[u8]>,
        /// The oldest position that the log still holds.
        oldest: Position,
    },
}

impl ReaderEvent {
    /// The reader to which the event goes.
    pub fn reader(&self) -> ReaderId {
        match self {
            ReaderEvent::Subscribed { reader, .. }
            | ReaderEvent::Refused { reader, .. }
            | ReaderEvent::Unsubscribed { reader, .. }
            | ReaderEvent::Lost { reader, .. } => *reader,
        }
    }
}

#[derive(Debug)]
enum Entry {
    /// Frames for the readers `to`. `numbers` is the range of the frames in [`Feed::starts`], and `bytes`
    /// their range in [`Feed::bytes`].
    Frames {
        to: Arc<[ReaderId]>,
        numbers: Range<usize>,
        bytes: Range<usize>,
    },
    ReaderEvent(ReaderEvent),
}

/// Frames and events for one worker, in order.
#[derive(Debug, Default)]
pub struct Feed {
    /// Frames, encoded for RESP2, one after the other.
    bytes: Vec<u8>,
    /// The start of each frame in `bytes`.
    starts: Vec<usize>,
    entries: Vec<Entry>,
}

/// A part of a feed: messages or an event.
#[derive(Debug)]
pub enum Part<'f> {
    /// A run of messages for the same readers.
    Frames(Run<'f>),
    /// An event for one reader, such as a confirmation.
    ReaderEvent(&'f ReaderEvent),
}

/// Frames for the same readers.
#[derive(Debug)]
pub struct Run<'f> {
    /// The readers that receive all frames of the run.
    pub to: &'f [ReaderId],
    bytes: &'f [u8],
    starts: &'f [usize],
    base: usize,
}

/// The frames of a run in one protocol.
#[derive(Debug)]
pub enum Encoded {
    /// Bytes to be copied to each reader.
    Bytes(Vec<u8>),
    /// A block to be shared by the readers.
    Block(Block),
}

impl Feed {
    /// Whether the feed has no parts.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The parts, in the order in which readers must get them.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.entries.iter().map(|entry| match entry {
            Entry::ReaderEvent(told) => Part::ReaderEvent(told),
            Entry::Frames { to, numbers, bytes } => Part::Frames(Run {
                to,
                bytes: &self.bytes[bytes.clone()],
                starts: &self.starts[numbers.clone()],
                base: bytes.start,
            }),
        })
    }

    pub(super) fn tell(&mut self, told: ReaderEvent) {
        self.entries.push(Entry::ReaderEvent(told));
    }

    /// Adds a message; returns the length of its frame in bytes.
    pub(super) fn push(&mut self, to: &Arc<[ReaderId]>, message: &DurableMessage<'_>) -> u64 {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.extend_from_slice(b"*4\r\n$8\r\nxmessage\r\n");
        // The fields are encoded alike in both protocols.
        let mut writer = ReplyWriter::new(&mut self.bytes, Protocol::Resp2);
        writer.bulk(message.channel);
        writer.bulk(message.position.to_string().as_bytes());
        writer.bulk(message.payload);
        let (frame, number) = (start..self.bytes.len(), self.starts.len());
        let frame_bytes = frame.len() as u64;
        match self.entries.last_mut() {
            Some(Entry::Frames { to: last, numbers, bytes })
                if Arc::ptr_eq(last, to) && frame.end - bytes.start <= RUN_BYTES_MAX =>
            {
                (numbers.end, bytes.end) = (number, frame.end);
            }
            _ => {
                self.entries.push(Entry::Frames { to: to.clone(), numbers: number - 1..number, bytes: frame })
            }
        }
        frame_bytes
    }
}

impl Run<'_> {
    /// The length of the frames in bytes, equal in both protocols.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the run has no frames.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Encodes the frames for a protocol.
    pub fn encode(&self, protocol: Protocol) -> Encoded {
        let mut bytes = self.bytes.to_vec();
        if protocol == Protocol::Resp3 {
            self.starts.iter().for_each(|start| bytes[start - self.base] = b'>');
        }
        // A block saves copies only if several readers share it.
        if bytes.len() >= SHARED_BYTES_MIN && self.to.len() > 1 {
            // The block is not counted in the block bytes of the worker, because the window bounds it.
            Encoded::Block(Block::new(bytes, &Rc::default()))
        } else {
            Encoded::Bytes(bytes)
        }
    }
}

impl Encoded {
    /// Appends the frames to a client's output.
    pub fn deliver_to(&self, delivery: &mut Delivery) {
        match self {
            Encoded::Bytes(bytes) => delivery.copy(bytes),
            Encoded::Block(block) => delivery.share(block),
        }
    }
}

#[cfg(test)]
impl Run<'_> {
    pub(super) fn starts_len(&self) -> usize {
        self.starts.len()
    }
}
