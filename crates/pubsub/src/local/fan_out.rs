//! Delivering a batch: from frames to the output of each subscriber.
//!
//! - Most subscribers have one subscription. For those of a channel, all messages of the channel in the batch
//!   are one piece, up to a limit of bytes, even if messages of other channels lie in between.
//! - For subscribers with several subscriptions, and those of patterns, consecutive messages of one channel
//!   are a run, which is one piece. So that the order is right for every subscriber, a run ends before a
//!   message of another channel. A run is a single message if a subscriber gets that message more than once
//!   (by name and by pattern, or by two patterns), or if the channel has no subscribers by name.

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
    /// Bytes of all blocks that are still referenced.
    block_bytes: Rc<Cell<usize>>,
    /// Bytes copied to single subscribers since the last [`Local::take_due`].
    pub(super) copied_bytes: usize,
    /// The indexes of the batch's entries, ordered by channel and then by position.
    by_channel: Vec<u32>,
    /// For each entry, whether a subscriber with several subscriptions, or one of a pattern, may get it.
    in_turn: Vec<bool>,
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

    /// Delivers to the members that `whom` selects. Returns whether any member was not selected.
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
    pub(super) fn deliver_batch(&mut self, batch: &Batch) {
        let mut by_channel = mem::take(&mut self.fan_out.by_channel);
        let mut in_turn = mem::take(&mut self.fan_out.in_turn);
        self.deliver_by_channel(batch, &mut by_channel, &mut in_turn);
        self.deliver_in_turn(batch, &in_turn);
        (self.fan_out.by_channel, self.fan_out.in_turn) = (by_channel, in_turn);
    }

    /// Delivers to subscribers whose only subscription is a channel, and marks the messages that others may
    /// get.
    fn deliver_by_channel(&mut self, batch: &Batch, by_channel: &mut Vec<u32>, in_turn: &mut Vec<bool>) {
        let Local { audiences, subscribers, due, fan_out, .. } = self;
        let entry = |index: &u32| &batch.entries[*index as usize];
        let address = |index: &u32| entry(index).topic.as_ref().map(Topic::address);
        by_channel.clear();
        by_channel.extend(0..batch.entries.len() as u32);
        by_channel.sort_unstable_by_key(|index| (address(index), *index));
        in_turn.clear();
        in_turn.resize(batch.entries.len(), false);
        for of_channel in by_channel.chunk_by(|left, right| address(left) == address(right)) {
            let first = entry(&of_channel[0]);
            let members = first.topic.as_ref().map(|topic| audiences[first.kind as usize].members(topic));
            let mut rest = of_channel;
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = |index: &&u32| {
                    bytes += entry(index).frame.len();
                    bytes <= RUN_BYTES_MAX
                };
                let count = rest.iter().take_while(fits).count().max(1);
                let (piece, after) = rest.split_at(count);
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
                rest = after;
            }
        }
    }

    /// Delivers the messages marked in `in_turn`, in order: to subscribers of their channels with several
    /// subscriptions, and to subscribers of matching patterns.
    fn deliver_in_turn(&mut self, batch: &Batch, in_turn: &[bool]) {
        let mut at = 0;
        for noted in in_turn.chunk_by(|left, right| left == right) {
            let mut rest = if noted[0] { &batch.entries[at..at + noted.len()] } else { &[] };
            at += noted.len();
            while !rest.is_empty() {
                let (run, after) = rest.split_at(self.run_len(batch, rest));
                self.deliver_run(batch, run);
                rest = after;
            }
        }
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
