//! Cuts the bytes received from a peer into frames.
//!
//! Invariants
//! - An inbox holds at most one frame of the largest size and the bytes of one read after it: bytes are read
//!   into the inbox only when it contains no whole frame.
//! - Payloads are lent in place, without a copy.

use std::ops::Range;

use crate::frame::{Frame, FrameError, HEADER_BYTES};

/// The least space for one read, so that few system calls take in many bytes.
const READ_BYTES: usize = 256 << 10;
/// The most memory that an empty inbox keeps.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Received bytes that are not yet processed.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Inbox {
    /// The buffer to which received bytes are appended, up to its capacity.
    pub fn space(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        // Room for the whole rest of a large frame, so that one read can complete it.
        let frame = Frame::decode(&self.bytes).ok().flatten();
        let missing =
            frame.map_or(0, |it| (HEADER_BYTES + it.payload_bytes()).saturating_sub(self.bytes.len()));
        self.bytes.reserve(missing.max(READ_BYTES));
        &mut self.bytes
    }

    /// The next whole frame, and the range of its payload; `None` if more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<(Frame, Range<usize>)>, FrameError> {
        let rest = &self.bytes[self.consumed..];
        let Some(frame) = Frame::decode(rest)? else { return Ok(None) };
        let bytes = HEADER_BYTES + frame.payload_bytes();
        if rest.len() < bytes {
            return Ok(None);
        }
        let payload = self.consumed + HEADER_BYTES..self.consumed + bytes;
        self.consumed += bytes;
        Ok(Some((frame, payload)))
    }

    /// The payload at the range that [`Inbox::next`] returned last.
    pub(crate) fn payload(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }
}

#[cfg(test)]
mod tests {
    use lsn::Lsn;
    use proptest::prelude::*;

    use super::*;

    fn log(start: u64, bytes: u32) -> Frame {
        Frame::Log { epoch: 1, start: Lsn::new(start), bytes, commit: Lsn::ZERO, sent_ms: 0 }
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_their_division_into_reads(
            payloads in prop::collection::vec(1..5000u32, 1..12),
            pieces in prop::collection::vec(1..4000usize, 1..20),
        ) {
            let mut wire = Vec::new();
            for (number, &bytes) in (0u8..).zip(&payloads) {
                wire.extend_from_slice(&log(number.into(), bytes).encode());
                wire.extend(std::iter::repeat_n(number, bytes as usize));
            }
            let (mut inbox, mut came, mut rest) = (Inbox::default(), 0, wire.as_slice());
            for piece in pieces.into_iter().cycle() {
                let (now, later) = rest.split_at(piece.min(rest.len()));
                inbox.space().extend_from_slice(now);
                rest = later;
                while let Some((frame, place)) = inbox.next().expect("sound frames") {
                    prop_assert_eq!(frame, log(came as u64, payloads[came]));
                    prop_assert!(inbox.payload(place).iter().all(|&byte| usize::from(byte) == came));
                    came += 1;
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(came, payloads.len());
        }
    }

    #[test]
    fn memory_of_a_large_frame_is_given_back() {
        let mut inbox = Inbox::default();
        assert!(inbox.space().capacity() >= READ_BYTES && READ_BYTES > 1000);
        let bytes = 5 << 20;
        inbox.space().extend_from_slice(&log(0, bytes).encode());
        let room = inbox.space().capacity();
        assert!(room >= HEADER_BYTES + bytes as usize, "all of it can be read at once");
        assert!(room < 2 * bytes as usize, "{room}");
        inbox.space().resize(HEADER_BYTES + bytes as usize, 0);
        assert!(inbox.next().expect("a sound frame").is_some());
        assert!(inbox.space().capacity() <= KEPT_BYTES_MAX);
    }
}
