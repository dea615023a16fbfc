//! Delivering a batch: from frames to the output of each subscriber.
//!
//! - Most subscribers have one subscription. If that is to a channel, all messages of the channel in the
//!   batch are one piece, up to a limit of bytes, even if messages of other channels lie in between.
//! - For subscribers with several subscriptions, and subscribers of patterns, consecutive messages of one
//!   channel are a run, which is one piece. So that the order is right for every subscriber, a run ends
//!   before a message of another channel. A run is a single message in two cases: a subscriber gets that
//!   message more than once (by name and by pattern, or by two patterns), or the channel has no subscribers
//!   by name.
//! - A subscriber gets all its messages in one of these two ways, so the order of its messages does not
//!   depend on the other way. Delivering can stop after every piece.

use std::{cell::Cell, mem, rc::Rc};

use wire::Protocol;

use super::{Local, Subscriber, SubscriberId};
use crate::{
    batch::{Batch, Entry},
    delivery::{Block, SHARED_BYTES_MIN},
    kind::Kind,
    topic::Topic,
};

/// The maximum bytes of frames in one run, or in one piece of a channel, unless a single frame is larger.
const RUN_BYTES_MAX: usize = 256 << 10;
/// The maximum bytes of a buffer that is kept after use.
const BYTES_KEPT_MAX: usize = 64 << 10;

/// Frames for several subscribers, encoded once per protocol in use.
#[derive(Debug, Default)]
pub(super) struct FanOut {
    frames: [Frames; 2],
    /// Bytes of all blocks made here that are still referenced.
    block_bytes: Rc<Cell<usize>>,
    /// Bytes copied to single subscribers since the last [`Local::take_due`].
    pub(super) copied_bytes: usize,
    /// A delivered batch without messages; the next one takes its lists over.
    spare: Delivering,
}

/// A batch that is being delivered, and its progress.
#[derive(Debug, Default)]
pub(super) struct Delivering {
    pub(super) batch: Batch,
    /// The indexes of the batch's entries, ordered by channel and then by position.
    by_channel: Vec<u32>,
    /// For each entry, whether a subscriber with several subscriptions, or a subscriber of a pattern, may get
    /// it.
    in_turn: Vec<bool>,
    /// How many entries of `by_channel` are delivered to the subscribers whose only subscription is their
    /// channel.
    done_by_channel: usize,
    /// How many entries are delivered to the other subscribers.
    done_in_turn: usize,
}

#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    block: Option<Block>,
}

impl FanOut {
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes.get()
    }

    /// Delivers to the members that `whom` selects. Returns whether a member whose client is connected was
    /// not selected.
    fn deliver(
        &mut self,
        members: &[SubscriberId],
        subscribers: &mut [Option<Subscriber>],
        due: &mut Vec<SubscriberId>,
        whom: impl Fn(&Subscriber) -> bool,
        encode: impl Fn(Protocol, &mut Vec<u8>),
    ) -> bool {
        let mut has_others = false;
        for id in members {
            let Some(subscriber) = &mut subscribers[id.index()] else {
                unreachable!("members have not left")
            };
            if subscriber.is_gone {
                continue;
            }
            if !whom(subscriber) {
                has_others = true;
                continue;
            }
            let Frames { bytes, block } = &mut self.frames[subscriber.protocol as usize];
            if bytes.is_empty() {
                encode(subscriber.protocol, bytes);
                *block = (bytes.len() >= SHARED_BYTES_MIN)
                    .then(|| Block::new(bytes.as_slice(), &self.block_bytes));
            }
            match block {
                Some(block) => subscriber.delivery.share(block),
                None => {
                    subscriber.delivery.copy(bytes);
                    self.copied_bytes += bytes.len();
                }
            }
            if !subscriber.is_due {
                subscriber.is_due = true;
                due.push(*id);
            }
        }
        for Frames { bytes, block } in &mut self.frames {
            *block = None;
            bytes.clear();
            if bytes.capacity() > BYTES_KEPT_MAX {
                *bytes = Vec::new();
            }
        }
        has_others
    }
}

impl Local {
    pub(super) fn begin_delivering(&mut self, batch: Batch) -> Delivering {
        let Delivering { mut by_channel, mut in_turn, .. } = mem::take(&mut self.fan_out.spare);
        let address = |index: &u32| batch.entries[*index as usize].topic.as_ref().map(Topic::address);
        by_channel.clear();
        by_channel.extend(0..batch.entries.len() as u32);
        by_channel.sort_unstable_by_key(|index| (address(index), *index));
        in_turn.clear();
        in_turn.resize(batch.entries.len(), false);
        Delivering { batch, by_channel, in_turn, done_by_channel: 0, done_in_turn: 0 }
    }

    /// Delivers pieces until the copied bytes exceed a limit. Returns whether the batch is delivered.
    pub(super) fn deliver_up_to(&mut self, current: &mut Delivering, copied_bytes_max: usize) -> bool {
        while self.deliver_by_channel(current) || self.deliver_in_turn(current) {
            if self.fan_out.copied_bytes > copied_bytes_max {
                return false;
            }
        }
        true
    }

    /// Keeps the memory of a delivered batch for later messages of this worker to itself, unless such
    /// messages wait in a batch already. Keeps the lists for the next delivery.
    pub(super) fn end_delivering(&mut self, mut current: Delivering) {
        current.batch.clear();
        let own = &mut self.outgoing[self.worker];
        if own.is_empty() {
            *own = mem::take(&mut current.batch);
        }
        self.fan_out.spare = current;
    }

    /// Delivers the next piece to subscribers whose only subscription is a channel, and marks the messages
    /// that other subscribers may get. Returns `false` if there is no next piece.
    fn deliver_by_channel(&mut self, current: &mut Delivering) -> bool {
        let Local { audiences, subscribers, due, fan_out, .. } = self;
        let Delivering { batch, by_channel, in_turn, done_by_channel, .. } = current;
        let entry = |index: &u32| &batch.entries[*index as usize];
        let address = |index: &u32| entry(index).topic.as_ref().map(Topic::address);
        let rest = &by_channel[*done_by_channel..];
        let Some(first) = rest.first() else { return false };
        let of_channel = address(first);
        let mut bytes = 0;
        let belongs = |index: &&u32| {
            bytes += entry(index).frame.len();
            bytes <= RUN_BYTES_MAX && address(index) == of_channel
        };
        let piece = &rest[..rest.iter().take_while(belongs).count().max(1)];
        let members =
            entry(first).topic.as_ref().map(|topic| audiences[entry(first).kind as usize].members(topic));
        let has_others = fan_out.deliver(
            members.unwrap_or(&[]),
            subscribers,
            due,
            Subscriber::has_one,
            |protocol, out| {
                batch.copy_frames(piece.iter().map(entry), protocol, out);
            },
        );
        for index in piece {
            in_turn[*index as usize] = has_others || !entry(index).patterns.is_empty();
        }
        *done_by_channel += piece.len();
        true
    }

    /// Delivers the next run of the messages marked in `in_turn`, in order: to subscribers of their channel
    /// with several subscriptions, and to subscribers of matching patterns. Returns `false` if there is no
    /// next run.
    fn deliver_in_turn(&mut self, current: &mut Delivering) -> bool {
        let Delivering { batch, in_turn, done_in_turn, .. } = &*current;
        let passed = in_turn[*done_in_turn..].iter().take_while(|is_marked| !**is_marked).count();
        let from = done_in_turn + passed;
        let entries = &batch.entries[from..];
        if entries.is_empty() {
            return false;
        }
        let of_run = &in_turn[from..from + self.run_len(batch, entries)];
        let run = &entries[..of_run.iter().take_while(|is_marked| **is_marked).count()];
        self.deliver_run(batch, run);
        current.done_in_turn = from + run.len();
        true
    }

    fn deliver_run(&mut self, batch: &Batch, run: &[Entry]) {
        let Local { audiences, subscribers, due, fan_out, .. } = self;
        let first = &run[0];
        if let Some(topic) = &first.topic {
            let members = audiences[first.kind as usize].members(topic);
            let has_several = |subscriber: &Subscriber| !subscriber.has_one();
            fan_out.deliver(members, subscribers, due, has_several, |protocol, out| {
                batch.copy_frames(run.iter(), protocol, out);
            });
        }
        for pattern in batch.patterns_of(first) {
            let members = audiences[Kind::Pattern as usize].members(pattern);
            fan_out.deliver(
                members,
                subscribers,
                due,
                |_| true,
                |protocol, out| {
                    run.iter().for_each(|entry| batch.write_matched(entry, pattern, protocol, out));
                },
            );
        }
    }

    /// The number of leading entries that form a run; see the module documentation.
    fn run_len(&self, batch: &Batch, entries: &[Entry]) -> usize {
        let first = &entries[0];
        let patterns = batch.patterns_of(first);
        let Some(topic) = &first.topic else { return 1 };
        let belongs = |entry: &&Entry| {
            let of_topic = entry.topic.as_ref().is_some_and(|it| it.is(topic)) && entry.kind == first.kind;
            let bytes = entry.frame.end - first.frame.start;
            of_topic && bytes <= RUN_BYTES_MAX && are_same(batch.patterns_of(entry), patterns)
        };
        let run = 1 + entries[1..].iter().take_while(belongs).count();
        if run > 1 && self.overlaps(topic, patterns) { 1 } else { run }
    }

    /// Whether a subscriber gets a message of this channel more than once.
    fn overlaps(&self, topic: &Topic, patterns: &[Topic]) -> bool {
        let by_pattern = &self.audiences[Kind::Pattern as usize];
        patterns.iter().enumerate().any(|(index, pattern)| {
            by_pattern.members(pattern).iter().any(|id| {
                let [channels, of_patterns, ..] = &self.subscriber(*id).memberships;
                channels.has_topic(topic)
                    || patterns[..index].iter().any(|other| of_patterns.has_topic(other))
            })
        })
    }
}

fn are_same(left: &[Topic], right: &[Topic]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.is(right))
}
