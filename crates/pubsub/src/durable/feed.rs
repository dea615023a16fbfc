//! What the thread of durable channels hands to one worker in one round: frames and what becomes of requests, in order.
//!
//! ```text
//! *4 $8 xmessage $2 ch $8 3:123456 $5 hello      a frame; for RESP3 only the first byte differs
//! ```
//!
//! Frames of one channel that follow each other are a run: one piece of memory for all of its followers.

use std::{ops::Range, rc::Rc, sync::Arc};

use wire::{Protocol, ReplyWriter};

use super::{FollowerId, Message, Position};
use crate::delivery::{Block, Delivery, SHARED_BYTES_MIN};

/// Frames of one run at most, but for one that is larger by itself.
const RUN_BYTES_MAX: usize = 256 << 10;

/// What has become of a request, or of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowerEvent {
    /// It has subscribed: all messages behind the position follow.
    Subscribed {
        /// Who.
        follower: FollowerId,
        /// To what.
        channel: Box<[u8]>,
        /// From where on.
        position: Position,
    },
    /// It has not subscribed.
    Refused {
        /// Who.
        follower: FollowerId,
        /// Why: the whole error text, prefix included.
        error: String,
    },
    /// It follows these no more.
    Unsubscribed {
        /// Who.
        follower: FollowerId,
        /// What, in the order asked for.
        channels: Vec<Box<[u8]>>,
    },
    /// What comes next for it is not kept any more: its subscription has ended.
    Lost {
        /// Who.
        follower: FollowerId,
        /// Its subscription.
        channel: Box<[u8]>,
        /// The oldest position that is kept.
        oldest: Position,
    },
}

impl FollowerEvent {
    /// Whom to tell.
    pub fn follower(&self) -> FollowerId {
        match self {
            FollowerEvent::Subscribed { follower, .. }
            | FollowerEvent::Refused { follower, .. }
            | FollowerEvent::Unsubscribed { follower, .. }
            | FollowerEvent::Lost { follower, .. } => *follower,
        }
    }
}

#[derive(Debug)]
enum Entry {
    /// Frames of one channel: their numbers, and where their bytes lie.
    Frames {
        to: Arc<[FollowerId]>,
        numbers: Range<usize>,
        bytes: Range<usize>,
    },
    FollowerEvent(FollowerEvent),
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Feed {
    /// Frames, as the older protocol has them.
    bytes: Vec<u8>,
    /// Where each begins.
    starts: Vec<usize>,
    entries: Vec<Entry>,
}

/// A part of a feed.
#[derive(Debug)]
pub enum Part<'f> {
    /// Messages.
    Frames(Run<'f>),
    /// Something to tell one follower.
    FollowerEvent(&'f FollowerEvent),
}

/// Frames for the same followers.
#[derive(Debug)]
pub struct Run<'f> {
    /// Who gets them.
    pub to: &'f [FollowerId],
    bytes: &'f [u8],
    starts: &'f [usize],
    base: usize,
}

/// A run as followers of one protocol get it.
#[derive(Debug)]
pub enum Encoded {
    /// To be copied.
    Bytes(Vec<u8>),
    /// To be shared.
    Block(Block),
}

impl Feed {
    /// Whether there are no postponed parts.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Its parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.entries.iter().map(|entry| match entry {
            Entry::FollowerEvent(told) => Part::FollowerEvent(told),
            Entry::Frames { to, numbers, bytes } => Part::Frames(Run {
                to,
                bytes: &self.bytes[bytes.clone()],
                starts: &self.starts[numbers.clone()],
                base: bytes.start,
            }),
        })
    }

    pub(super) fn tell(&mut self, told: FollowerEvent) {
        self.entries.push(Entry::FollowerEvent(told));
    }

    /// Adds a message; returns the bytes of its frame.
    pub(super) fn push(&mut self, to: &Arc<[FollowerId]>, message: &Message<'_>) -> u64 {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.extend_from_slice(b"*4\r\n$8\r\nxmessage\r\n");
        // What both protocols have is written alike.
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
    /// Bytes of the frames, which are the same in both protocols.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The frames for a protocol.
    pub fn encode(&self, protocol: Protocol) -> Encoded {
        let mut bytes = self.bytes.to_vec();
        if protocol == Protocol::Resp3 {
            self.starts.iter().for_each(|start| bytes[start - self.base] = b'>');
        }
        // A block is worth it only for several.
        if bytes.len() >= SHARED_BYTES_MIN && self.to.len() > 1 {
            // Not counted: the window bounds it.
            Encoded::Block(Block::new(bytes, &Rc::default()))
        } else {
            Encoded::Bytes(bytes)
        }
    }
}

impl Encoded {
    /// Adds the frames to what a client has to be sent.
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
