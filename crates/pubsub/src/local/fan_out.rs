//! Delivering a batch: from frames to what each subscriber gets.
//!
//! Messages of one channel that follow each other are a run, whose frames every subscriber of it gets as one piece. A run
//! keeps the order that each subscriber sees: it ends where the next message is for another channel, and it is a single
//! message where somebody gets it more than once, by name and by patterns.

use std::{cell::Cell, rc::Rc};

use wire::Protocol;

use super::{Local, Subscriber, SubscriberId};
use crate::{
    batch::{Batch, Entry},
    delivery::{Block, SHARED_BYTES_MIN},
    hub::Kind,
    topic::Topic,
};

/// Frames of one run at most.
const RUN_BYTES_MAX: usize = 256 << 10;
/// A buffer above this is given back.
const BYTES_KEPT_MAX: usize = 64 << 10;

/// Frames on their way to several subscribers, encoded once per protocol that one of them speaks.
#[derive(Debug, Default)]
pub(super) struct FanOut {
    frames: [Frames; 2],
    /// Bytes of all blocks that somebody holds.
    block_bytes: Rc<Cell<usize>>,
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

    fn deliver(
        &mut self,
        members: &[SubscriberId],
        subscribers: &mut [Option<Subscriber>],
        due: &mut Vec<SubscriberId>,
        encode: impl Fn(Protocol, &mut Vec<u8>),
    ) {
        for id in members {
            let Some(subscriber) = &mut subscribers[id.index()] else {
                unreachable!("members have not left")
            };
            let Frames { bytes, block } = &mut self.frames[subscriber.protocol as usize];
            if bytes.is_empty() {
                encode(subscriber.protocol, bytes);
                *block = (bytes.len() >= SHARED_BYTES_MIN)
                    .then(|| Block::new(bytes.as_slice(), &self.block_bytes));
            }
            match block {
                Some(block) => subscriber.delivery.share(block),
                None => subscriber.delivery.copy(bytes),
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
    }
}

impl Local {
    pub(super) fn deliver_batch(&mut self, batch: &Batch) {
        let mut rest = &batch.entries[..];
        while !rest.is_empty() {
            let (run, after) = rest.split_at(self.run_len(batch, rest));
            self.deliver_run(batch, run);
            rest = after;
        }
    }

    fn deliver_run(&mut self, batch: &Batch, run: &[Entry]) {
        let Local { audiences, subscribers, due, fan_out, .. } = self;
        let first = &run[0];
        if let Some(topic) = &first.topic {
            let members = audiences[first.kind as usize].members(topic);
            fan_out.deliver(members, subscribers, due, |protocol, out| batch.copy_run(run, protocol, out));
        }
        for pattern in batch.patterns_of(first) {
            let members = audiences[Kind::Pattern as usize].members(pattern);
            fan_out.deliver(members, subscribers, due, |protocol, out| {
                run.iter().for_each(|entry| batch.write_matched(entry, pattern, protocol, out));
            });
        }
    }

    /// How many of the entries are a run; see the module documentation.
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
