//! Replies of one connection, in order, each held back until all that it shows is committed.
//!
//! This module has bytes, blocks that are shared with other connections, and gates. The module has no socket
//! and no clock.
//!
//! ```text
//!  sent          free                gated, in segments          being written
//!   |  may leave  |  gate 4096  |  gate 8192  |  (no gate yet)  |
//! --+-------------+-------------+-------------+-----------------+--> reply bytes
//! ```
//!
//! Invariants
//! - Bytes leave in the order they were written.
//! - Gates of the segments ascend: a reply never leaves before an earlier one of its connection.
//! - The bytes of [`Outbox::sendable`] have passed their gates; release builds too assert that the segments
//!   ascend.
//! - A block lies before a byte of the buffer, or at its end. It needs no gate of its own: it leaves when the
//!   bytes before it may.

use std::collections::VecDeque;

use lsn::Lsn;
use pubsub::{Block, Delivery};
use wire::decode::{DecodeLimits, Value, decode};

/// The capacity in bytes above which an empty buffer is given back to the allocator.
const BYTES_KEPT_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy)]
struct Segment {
    gate: Lsn,
    /// End of the segment, counted from the connection's first reply byte.
    end: u64,
}

/// The unsent replies of one connection, each with its gate.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that are sent.
    sent: usize,
    /// Position of `bytes[0]`, counted from the connection's first reply byte.
    base: u64,
    segments: VecDeque<Segment>,
    /// Whether the last segment belongs to the present round, and so may still grow.
    segment_open: bool,
    /// Everything before this position has passed its gate.
    free_end: u64,
    /// Blocks, each before the byte at its position.
    blocks: VecDeque<(u64, Block)>,
    /// Bytes at the front of the first block that are sent.
    block_sent: usize,
    /// The unsent bytes of all blocks together.
    block_bytes: usize,
}

impl Outbox {
    /// The buffer that replies are appended to.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The number of bytes that are not sent yet, blocks included.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.block_bytes
    }

    /// The memory of the unsent bytes that no other connection shares. This is the capacity of the buffer,
    /// which may be more than the number of bytes in it.
    pub fn own_memory_bytes(&self) -> usize {
        if self.bytes.len() == self.sent { 0 } else { self.bytes.capacity() }
    }

    /// Whether all bytes and blocks are sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Starts a round: replies of one round that wait share a segment, and leave together.
    #[inline]
    pub fn begin_round(&mut self) {
        self.segment_open = false;
    }

    /// The position at which the next reply starts; for [`Outbox::hold`].
    #[inline]
    pub fn mark(&self) -> u64 {
        self.end()
    }

    /// Holds back everything from `mark` on, later replies included, until `gate` is committed.
    #[inline]
    pub fn hold(&mut self, mark: u64, gate: Lsn) {
        let end = self.end();
        match self.segments.back_mut() {
            Some(last) if self.segment_open || last.gate >= gate => {
                last.gate = last.gate.max(gate);
                last.end = end;
            }
            back => {
                if back.is_none() {
                    self.free_end = mark;
                }
                self.segments.push_back(Segment { gate, end });
                self.segment_open = true;
            }
        }
    }

    /// The gate of the newest segment, if this round has opened it.
    #[inline]
    pub fn held_in_round(&self) -> Option<Lsn> {
        self.segments.back().filter(|_| self.segment_open).map(|segment| segment.gate)
    }

    /// Releases the segments whose gates are committed.
    #[inline]
    pub fn release(&mut self, committed: Lsn) {
        while let Some(segment) = self.segments.front().filter(|segment| segment.gate <= committed) {
            assert!(self.free_end <= segment.end, "segments ascend");
            self.free_end = segment.end;
            self.segments.pop_front();
        }
    }

    /// Appends a reply, without copying a long one if there is nothing before it.
    pub fn append(&mut self, reply: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, reply);
        } else {
            self.bytes.append(reply);
        }
    }

    /// Appends messages of channels: bytes are copied, blocks are shared with other connections.
    pub fn deliver(&mut self, delivery: &mut Delivery) {
        let start = self.end();
        if self.bytes.is_empty() {
            delivery.swap_bytes(&mut self.bytes);
        } else {
            self.bytes.extend_from_slice(delivery.bytes());
        }
        for (position, block) in delivery.take_blocks() {
            self.block_bytes += block.len();
            self.blocks.push_back((start + position as u64, block));
        }
    }

    /// How many bytes of the buffer have passed their gates.
    #[inline]
    fn free(&self) -> usize {
        if self.segments.is_empty() {
            return self.bytes.len();
        }
        assert!(self.free_end <= self.end(), "no more is free than was written");
        // `free_end` can be before the end of the sent bytes: a reply without a gate has left, and the reply
        // after it waits.
        (self.free_end.saturating_sub(self.base) as usize).max(self.sent)
    }

    /// The bytes that may be sent now, in one piece: the first of [`Outbox::pieces`], or nothing.
    #[inline]
    pub fn sendable(&self) -> &[u8] {
        if self.blocks.is_empty() {
            &self.bytes[self.sent..self.free()]
        } else {
            self.pieces().next().unwrap_or(&[])
        }
    }

    /// Whether the bytes that may be sent can be in several pieces.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// All that may be sent now. No piece is empty.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (mut from, free, mut block_sent) = (self.sent, self.free(), self.block_sent);
        let mut blocks =
            self.blocks.iter().map(|(position, block)| ((position - self.base) as usize, block)).peekable();
        std::iter::from_fn(move || {
            let next = blocks.peek().filter(|(position, _)| *position <= free);
            let (start, end) = (from, next.map_or(free, |(position, _)| *position));
            from = end;
            if start < end {
                return Some(&self.bytes[start..end]);
            }
            next?;
            let (_, block) = blocks.next()?;
            Some(&block[std::mem::take(&mut block_sent)..])
        })
    }

    /// Notes that this many of the sendable bytes were sent.
    #[inline]
    pub fn consume(&mut self, mut count: usize) {
        while let Some((position, block)) = self.blocks.front() {
            let before = (*position - self.base) as usize - self.sent;
            if count < before {
                break;
            }
            self.sent += before;
            count -= before;
            let taken = count.min(block.len() - self.block_sent);
            self.block_sent += taken;
            self.block_bytes -= taken;
            count -= taken;
            if self.block_sent < block.len() {
                break;
            }
            self.blocks.pop_front();
            self.block_sent = 0;
        }
        self.sent += count;
        assert!(self.sent <= self.bytes.len(), "more was sent than there was");
        if self.sent == self.bytes.len() {
            self.base += self.sent as u64;
            self.sent = 0;
            if self.bytes.capacity() > BYTES_KEPT_MAX {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        } else if self.sent > BYTES_KEPT_MAX && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.base += self.sent as u64;
            self.sent = 0;
        }
    }

    /// Replaces each reply that waits for a gate up to `up_to` by an error; the errors need no gate. Pushes
    /// stay. Returns the number of errors; `None`: the bytes cannot be divided into replies, or a block lies
    /// among them, and nothing has changed.
    pub fn fail_held(&mut self, up_to: Lsn, error: &[u8]) -> Option<u64> {
        let count = self.segments.iter().take_while(|segment| segment.gate <= up_to).count();
        let Some(last) = count.checked_sub(1).and_then(|last| self.segments.get(last)) else {
            return Some(0);
        };
        let (start, end, end_position) = (self.free(), (last.end - self.base) as usize, last.end);
        let (first, last) = (self.base + start as u64, last.end);
        if self.blocks.iter().any(|(position, _)| (first + 1..=last).contains(position)) {
            return None;
        }
        let (replaced, failed) = with_errors(&self.bytes[start..end], error)?;
        let moved = |position: u64| position - end_position + first + replaced.len() as u64;
        self.segments.drain(..count);
        self.segments.iter_mut().for_each(|segment| segment.end = moved(segment.end));
        self.blocks.iter_mut().filter(|(position, _)| *position > last).for_each(|(position, _)| {
            *position = moved(*position);
        });
        self.free_end = moved(end_position);
        self.bytes.splice(start..end, replaced);
        Some(failed)
    }

    /// Throws away everything that still waits for its gate, because those gates will never be committed.
    pub fn discard_held(&mut self) {
        if !self.segments.is_empty() {
            let free = (self.free_end.saturating_sub(self.base) as usize).max(self.sent);
            self.bytes.truncate(free);
            self.segments.clear();
            let end = self.end();
            while let Some((_, block)) = self.blocks.pop_back_if(|(position, _)| *position > end) {
                self.block_bytes -= block.len();
            }
        }
    }

    /// Whether any reply waits for its gate.
    #[inline]
    pub fn is_holding(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// Replaces each of these replies by an error; returns the errors and their number. `None` if the bytes are
/// not whole replies.
fn with_errors(mut replies: &[u8], error: &[u8]) -> Option<(Vec<u8>, u64)> {
    let limits = DecodeLimits { bytes_max: usize::MAX, elements_max: usize::MAX, nesting_max: usize::MAX };
    let (mut bytes, mut failed) = (Vec::new(), 0);
    while !replies.is_empty() {
        let (value, len) = decode(replies, &limits).ok()??;
        if let Value::Push(_) = value {
            bytes.extend_from_slice(&replies[..len]);
        } else {
            bytes.extend_from_slice(error);
            failed += 1;
        }
        replies = &replies[len..];
    }
    Some((bytes, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outbox from which bytes have left before.
    fn used() -> Outbox {
        let mut outbox = Outbox::default();
        outbox.bytes_mut().extend_from_slice(b"earlier");
        outbox.consume(7);
        assert_eq!(outbox.mark(), 7, "counted from the first byte of all");
        outbox
    }

    fn reply(outbox: &mut Outbox, text: &str, gate: u64) {
        let mark = outbox.mark();
        outbox.bytes_mut().extend_from_slice(text.as_bytes());
        if gate > 0 {
            outbox.hold(mark, Lsn::new(gate));
        }
    }

    fn sendable(outbox: &Outbox) -> &str {
        std::str::from_utf8(outbox.sendable()).unwrap()
    }

    #[test]
    fn free_replies_leave_at_once_and_held_ones_in_order() {
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "a", 0);
        reply(&mut outbox, "b", 10);
        reply(&mut outbox, "c", 0);
        assert_eq!(sendable(&outbox), "a");
        assert_eq!(outbox.held_in_round(), Some(Lsn::new(10)));
        outbox.consume(1);
        assert_eq!(sendable(&outbox), "");
        outbox.begin_round();
        reply(&mut outbox, "d", 20);
        outbox.release(Lsn::new(9));
        assert_eq!(sendable(&outbox), "");
        outbox.release(Lsn::new(10));
        assert_eq!(sendable(&outbox), "b");
        outbox.release(Lsn::new(20));
        assert_eq!(sendable(&outbox), "bcd");
        outbox.consume(3);
        assert!(outbox.is_empty());
        reply(&mut outbox, "e", 0);
        assert_eq!(sendable(&outbox), "e");
    }

    #[test]
    fn a_round_shares_one_segment() {
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "a", 10);
        reply(&mut outbox, "b", 30);
        outbox.release(Lsn::new(10));
        assert_eq!(sendable(&outbox), "", "one write for the round");
        outbox.release(Lsn::new(30));
        assert_eq!(sendable(&outbox), "ab");
    }

    #[test]
    fn a_smaller_gate_behind_a_larger_one_waits_for_its_turn() {
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "a", 30);
        outbox.begin_round();
        reply(&mut outbox, "b", 10);
        assert_eq!(outbox.held_in_round(), None, "nothing new to wait for");
        outbox.release(Lsn::new(10));
        assert_eq!(sendable(&outbox), "");
        outbox.release(Lsn::new(30));
        assert_eq!(sendable(&outbox), "ab");
    }

    #[test]
    fn an_equal_gate_in_the_next_round_adds_no_wait() {
        let mut outbox = used();
        for text in ["a", "b"] {
            outbox.begin_round();
            reply(&mut outbox, text, 30);
        }
        assert_eq!(outbox.held_in_round(), None);
        outbox.release(Lsn::new(30));
        assert_eq!(sendable(&outbox), "ab");
    }

    #[test]
    fn held_replies_are_discarded_and_free_replies_still_leave() {
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "a", 0);
        reply(&mut outbox, "b", 10);
        outbox.discard_held();
        reply(&mut outbox, "-IOERR", 0);
        assert_eq!(sendable(&outbox), "a-IOERR");
    }

    /// The bytes that leave if the socket takes `at_once` bytes at a time.
    fn drain(outbox: &mut Outbox, at_once: usize) -> String {
        let mut sent = Vec::new();
        loop {
            let bytes: Vec<u8> = outbox.pieces().flatten().copied().take(at_once).collect();
            assert!(bytes.starts_with(outbox.sendable()) || outbox.sendable().len() > at_once);
            if bytes.is_empty() {
                return String::from_utf8(sent).unwrap();
            }
            outbox.consume(bytes.len());
            sent.extend(bytes);
        }
    }

    /// Delivers messages to one client, the long ones as blocks, and returns their encoded bytes.
    fn deliver(outbox: &mut Outbox, payloads: &[&str]) -> String {
        let mut local = pubsub::Hub::new(1, 1).local(0);
        let id = local.join(1, wire::Protocol::Resp2);
        for (index, payload) in payloads.iter().enumerate() {
            // Different channels, so that each message is delivered by itself.
            let channel = [b'a' + index as u8];
            local.subscribe(id, pubsub::Kind::Channel, &channel);
            local.publish(pubsub::Kind::Channel, &channel, payload.as_bytes());
        }
        local.deliver();
        let mut expected = Vec::new();
        local.take_due(|_, delivery| {
            delivery.append_to(&mut expected);
            outbox.deliver(delivery);
            true
        });
        String::from_utf8(expected).unwrap()
    }

    #[test]
    fn blocks_leave_in_their_place() {
        let (long, longer) = ("x".repeat(5000), "y".repeat(9000));
        for at_once in [1, 7, 4096, 1 << 20] {
            let mut outbox = used();
            outbox.begin_round();
            reply(&mut outbox, "before", 0);
            let mut expected = format!("before{}", deliver(&mut outbox, &[&long, "short", &longer, &long]));
            reply(&mut outbox, "held", 10);
            let first_len = outbox.len() - "held".len();
            assert_eq!(first_len, expected.len());
            expected += &format!("held{}", deliver(&mut outbox, &[&longer, "short"]));
            assert_eq!(outbox.len(), expected.len());
            assert!(outbox.has_blocks());
            let sent = drain(&mut outbox, at_once);
            assert_eq!(sent, expected[..first_len], "what comes behind a held reply waits with it");
            outbox.release(Lsn::new(10));
            assert_eq!(sent + &drain(&mut outbox, at_once), expected);
            assert!(outbox.is_empty() && !outbox.has_blocks());
        }
    }

    #[test]
    fn replies_that_wait_for_too_long_are_errors_one_for_each() {
        const ERROR: &[u8] = b"-NO\r\n";
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "+free\r\n", 0);
        reply(&mut outbox, "+a\r\n", 10);
        reply(&mut outbox, ">1\r\n:7\r\n", 0);
        reply(&mut outbox, "*2\r\n$2\r\n\r\n\r\n:1\r\n", 10);
        outbox.begin_round();
        reply(&mut outbox, "+later\r\n", 30);
        reply(&mut outbox, "+behind\r\n", 0);
        assert_eq!(outbox.fail_held(Lsn::new(9), ERROR), Some(0));
        outbox.consume(3);
        assert_eq!(outbox.fail_held(Lsn::new(29), ERROR), Some(2));
        assert_eq!(sendable(&outbox), "ee\r\n-NO\r\n>1\r\n:7\r\n-NO\r\n");
        outbox.release(Lsn::new(29));
        outbox.consume(5);
        assert!(outbox.is_holding());
        assert_eq!(outbox.fail_held(Lsn::new(30), ERROR), Some(1));
        assert_eq!(sendable(&outbox), "NO\r\n>1\r\n:7\r\n-NO\r\n-NO\r\n+behind\r\n");
        assert!(!outbox.is_holding());
        reply(&mut outbox, "+next\r\n", 40);
        assert!(sendable(&outbox).ends_with("+behind\r\n"));
        outbox.release(Lsn::new(40));
        assert!(sendable(&outbox).ends_with("+behind\r\n+next\r\n"));
    }

    #[test]
    fn blocks_stay_where_they_are_when_replies_before_them_fail() {
        let mut outbox = used();
        outbox.begin_round();
        reply(&mut outbox, "+a\r\n", 10);
        outbox.begin_round();
        reply(&mut outbox, "+b\r\n", 20);
        let messages = deliver(&mut outbox, &[&"x".repeat(5000), "short"]);
        assert_eq!(outbox.fail_held(Lsn::new(10), b"-ERROR\r\n"), Some(1));
        assert_eq!(drain(&mut outbox, 100), "-ERROR\r\n");
        outbox.release(Lsn::new(20));
        assert_eq!(drain(&mut outbox, 100), format!("+b\r\n{messages}"));
    }

    #[test]
    fn blocks_stay_where_they_are_when_replies_behind_them_fail() {
        let mut outbox = used();
        outbox.begin_round();
        let message = deliver(&mut outbox, &[&"x".repeat(5000)]);
        reply(&mut outbox, "+a\r\n", 10);
        assert_eq!(outbox.fail_held(Lsn::new(10), b"-ERROR\r\n"), Some(1));
        assert_eq!(drain(&mut outbox, 100), message + "-ERROR\r\n");
    }

    #[test]
    fn blocks_behind_discarded_replies_are_discarded() {
        let long = "x".repeat(5000);
        let mut outbox = used();
        outbox.begin_round();
        let before = deliver(&mut outbox, &[&long]);
        reply(&mut outbox, "held", 10);
        deliver(&mut outbox, &[&long]);
        outbox.discard_held();
        reply(&mut outbox, "-IOERR", 0);
        assert_eq!(drain(&mut outbox, 1 << 20), before + "-IOERR");
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_reply_is_copied_only_behind_others() {
        let mut outbox = used();
        let mut long = b"long".to_vec();
        let address = long.as_ptr();
        outbox.append(&mut long);
        assert_eq!(outbox.sendable().as_ptr(), address);
        outbox.append(&mut b", next".to_vec());
        assert_eq!(sendable(&outbox), "long, next");
    }

    #[test]
    fn memory_counts_while_bytes_are_not_sent() {
        let mut outbox = used();
        assert!(outbox.is_empty() && outbox.own_memory_bytes() == 0);
        outbox.append(&mut Vec::with_capacity(100));
        reply(&mut outbox, "ab", 0);
        outbox.consume(1);
        assert!(!outbox.is_empty());
        assert_eq!(outbox.own_memory_bytes(), outbox.bytes.capacity());
        outbox.consume(1);
        assert!(outbox.is_empty() && outbox.own_memory_bytes() == 0);
    }

    #[test]
    fn an_empty_buffer_is_given_back_if_it_is_large() {
        for (capacity, kept) in [(BYTES_KEPT_MAX, BYTES_KEPT_MAX), (BYTES_KEPT_MAX + 1, 0)] {
            let mut outbox = Outbox::default();
            outbox.append(&mut Vec::with_capacity(capacity));
            reply(&mut outbox, "a", 0);
            outbox.consume(1);
            assert_eq!(outbox.bytes.capacity(), kept);
        }
    }

    #[test]
    fn sent_bytes_are_given_back_while_the_rest_waits() {
        let more = BYTES_KEPT_MAX + 1;
        // Bytes written and bytes sent. Memory is given back only after many bytes were sent, and only if
        // fewer are left to be moved.
        for (written, sent, is_given_back) in
            [(more, more - 1, false), (2 * more, more, false), (2 * more - 2, more, true)]
        {
            let mut outbox = used();
            outbox.begin_round();
            reply(&mut outbox, &"x".repeat(sent), 0);
            reply(&mut outbox, &"y".repeat(written - sent), 10);
            outbox.begin_round();
            reply(&mut outbox, "z", 20);
            outbox.consume(sent);
            let kept = outbox.bytes.len() - outbox.len();
            assert_eq!(kept, if is_given_back { 0 } else { sent });
            outbox.release(Lsn::new(10));
            assert_eq!(outbox.sendable().len(), written - sent);
            outbox.release(Lsn::new(20));
            assert_eq!(outbox.sendable().last(), Some(&b'z'));
        }
    }
}
