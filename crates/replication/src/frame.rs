//! The frames between a leader and a replica, once a connection carries the log. This is the only description
//! of the format.
//!
//! A frame is a header of 48 bytes and, only in LOG, a payload. Little-endian throughout.
//!
//! ```text
//!  0  u32  magic "SREP"
//!  4  u8   kind
//!  5  u8 x 3  zero
//!  8  u32  epoch: the highest that the sender has seen
//! 12  u32  bytes of payload after the header
//! 16  u64  position  |
//! 24  u64  position  |  see below
//! 32  u64  time      |
//! 40  u32  zero
//! 44  u32  crc32c of bytes 0..44
//! ```
//!
//! | kind | from | 16 | 24 | 32 | payload |
//! |---|---|---|---|---|---|
//! | 1 LOG | leader | start of the payload | commit | time of sending | whole batches of the log as on disk |
//! | 2 HEARTBEAT | leader | end of the shipped log | commit | distance, time of sending | |
//! | 3 FENCED | leader | 0 | 0 | 0 | |
//! | 4 ACK | replica | flushed | applied | as of which leader time | |
//!
//! - Times are milliseconds of the leader's monotonic clock; only the leader compares them. The time in an
//!   ACK comes from a frame whose commit position the replica has applied, not always the newest such frame,
//!   and is 0 before the first one. It bounds the age of a read on the replica.
//! - The highest byte of the time in a HEARTBEAT is the distance: the number of steps from the sender to the
//!   server that leads, 0 if the sender leads. Earlier versions send 0, and return the byte with the time.
//! - The payload has no checksum of its own: every record and every batch in it has one, and the receiver
//!   verifies all of them.
//! - FENCED means: the epoch in the header has begun, and the sender is no longer a leader. In an ACK, an
//!   epoch above the leader's says the same to the leader.
//! - Positions are below 2^62, so that sums of them do not overflow.

use lsn::Lsn;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;
/// The maximum bytes of the payload of one frame.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// The distance at which a server assumes that no server leads. If servers follow each other in a ring, every
/// distance grows with each heartbeat until it reaches this one.
pub const DISTANCE_MAX: u8 = 16;

/// The number of bits of the time in the time field of a HEARTBEAT; the distance is in the bits above.
const TIME_BITS: u32 = 56;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

const MAGIC: u32 = u32::from_le_bytes(*b"SREP");
const POSITION_END: u64 = 1 << 62;

const LOG: u8 = 1;
const HEARTBEAT: u8 = 2;
const FENCED: u8 = 3;
const ACK: u8 = 4;

/// A decoded header; see the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Whole batches of the log follow.
    Log {
        /// The highest epoch that the sender has seen.
        epoch: u32,
        /// Start of the batches.
        start: Lsn,
        /// Bytes of the payload.
        bytes: u32,
        /// The commit position of the sender.
        commit: Lsn,
        /// The time of sending, in milliseconds of the leader's monotonic clock.
        sent_ms: u64,
    },
    /// The leader is alive, and ships nothing now.
    Heartbeat {
        /// The highest epoch that the sender has seen.
        epoch: u32,
        /// End of the shipped log.
        end: Lsn,
        /// The commit position of the sender.
        commit: Lsn,
        /// Time of sending, below 2^56.
        sent_ms: u64,
        /// The number of steps from the sender to the server that leads.
        distance: u8,
    },
    /// The sender is no longer a leader.
    Fenced {
        /// The epoch that has begun.
        epoch: u32,
    },
    /// The progress of a replica.
    Ack {
        /// The highest epoch that the replica has seen.
        epoch: u32,
        /// The end of the log that is durable on the replica's disk.
        flushed: Lsn,
        /// The end of the log that is applied to the replica's memory.
        applied: Lsn,
        /// The replica has applied everything that was committed at this time of the leader.
        as_of_ms: u64,
    },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes do not begin as a frame does.
    #[error("the bytes are not a frame of replication")]
    Magic,
    /// Bytes were changed in transit.
    #[error("the checksum of a frame does not match")]
    Checksum,
    /// A kind that this version does not know.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A length, a position or a reserved field that no sender writes.
    #[error("a frame with impossible fields")]
    Fields,
    /// A payload above the limit.
    #[error("a frame of {0} bytes, more than {PAYLOAD_BYTES_MAX}")]
    TooLarge(u32),
}

impl Frame {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, epoch, payload_bytes, first, second, time_ms) = match *self {
            Frame::Log { epoch, start, bytes, commit, sent_ms } => {
                (LOG, epoch, bytes, start, commit, sent_ms)
            }
            Frame::Heartbeat { epoch, end, commit, sent_ms, distance } => {
                let time_ms = u64::from(distance) << TIME_BITS | sent_ms & TIME_MASK;
                (HEARTBEAT, epoch, 0, end, commit, time_ms)
            }
            Frame::Fenced { epoch } => (FENCED, epoch, 0, Lsn::ZERO, Lsn::ZERO, 0),
            Frame::Ack { epoch, flushed, applied, as_of_ms } => (ACK, epoch, 0, flushed, applied, as_of_ms),
        };
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = kind;
        out[8..12].copy_from_slice(&epoch.to_le_bytes());
        out[12..16].copy_from_slice(&payload_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&first.get().to_le_bytes());
        out[24..32].copy_from_slice(&second.get().to_le_bytes());
        out[32..40].copy_from_slice(&time_ms.to_le_bytes());
        let crc = crc32c::crc32c(&out[..44]);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header at the front of `bytes`; `None` if it is incomplete.
    ///
    /// # Errors
    /// If these bytes are not the beginning of a frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        let magic = MAGIC.to_le_bytes();
        if bytes.iter().zip(&magic).any(|(found, wanted)| found != wanted) {
            return Err(FrameError::Magic);
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| header[at + index]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));
        if u32_at(44) != crc32c::crc32c(&header[..44]) {
            return Err(FrameError::Checksum);
        }
        let (epoch, bytes, first, second, time_ms) =
            (u32_at(8), u32_at(12), u64_at(16), u64_at(24), u64_at(32));
        if first.max(second) >= POSITION_END {
            return Err(FrameError::Fields);
        }
        let (first, second) = (Lsn::new(first), Lsn::new(second));
        let frame = match header[4] {
            LOG if bytes as usize > PAYLOAD_BYTES_MAX => return Err(FrameError::TooLarge(bytes)),
            LOG => Frame::Log { epoch, start: first, bytes, commit: second, sent_ms: time_ms },
            HEARTBEAT => {
                let (distance, sent_ms) = ((time_ms >> TIME_BITS) as u8, time_ms & TIME_MASK);
                Frame::Heartbeat { epoch, end: first, commit: second, sent_ms, distance }
            }
            FENCED => Frame::Fenced { epoch },
            ACK => Frame::Ack { epoch, flushed: first, applied: second, as_of_ms: time_ms },
            kind => return Err(FrameError::Kind(kind)),
        };
        // A header that is not encoded to the same bytes has values in fields that are reserved, or that its
        // kind does not use. A LOG needs a payload.
        let is_empty_log = header[4] == LOG && bytes == 0;
        if is_empty_log || frame.encode() != *header { Err(FrameError::Fields) } else { Ok(Some(frame)) }
    }

    /// The time of an ACK without the distance: a replica of an earlier version returns the time of a
    /// HEARTBEAT with the distance in it.
    pub(crate) fn time_of_ack(as_of_ms: u64) -> u64 {
        as_of_ms & TIME_MASK
    }

    /// Bytes that follow the header.
    pub fn payload_bytes(&self) -> usize {
        if let Frame::Log { bytes, .. } = *self { bytes as usize } else { 0 }
    }

    /// The highest epoch that the sender has seen.
    pub fn epoch(&self) -> u32 {
        match *self {
            Frame::Log { epoch, .. }
            | Frame::Heartbeat { epoch, .. }
            | Frame::Fenced { epoch }
            | Frame::Ack { epoch, .. } => epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_frame() -> impl Strategy<Value = Frame> {
        let position = || (0..POSITION_END).prop_map(Lsn::new);
        let fields = (any::<u32>(), position(), position(), any::<u64>(), 1..=PAYLOAD_BYTES_MAX as u32);
        (0..4u8, fields).prop_map(|(kind, (epoch, first, second, time_ms, bytes))| match kind {
            0 => Frame::Log { epoch, start: first, bytes, commit: second, sent_ms: time_ms },
            1 => {
                let (distance, sent_ms) = ((time_ms >> TIME_BITS) as u8, time_ms & TIME_MASK);
                Frame::Heartbeat { epoch, end: first, commit: second, sent_ms, distance }
            }
            2 => Frame::Fenced { epoch },
            _ => Frame::Ack { epoch, flushed: first, applied: second, as_of_ms: time_ms },
        })
    }

    proptest! {
        #[test]
        fn encoded_frames_decode(frame in some_frame(), behind: Vec<u8>) {
            let mut bytes = frame.encode().to_vec();
            bytes.extend_from_slice(&behind);
            prop_assert_eq!(Frame::decode(&bytes), Ok(Some(frame)));
        }

        #[test]
        fn a_frame_that_is_cut_short_is_waited_for(frame in some_frame(), len in 0..HEADER_BYTES) {
            prop_assert_eq!(Frame::decode(&frame.encode()[..len]), Ok(None));
        }

        #[test]
        fn every_flipped_bit_is_noticed(frame in some_frame(), bit in 0..HEADER_BYTES * 8) {
            let mut bytes = frame.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::decode(&bytes).is_err());
        }
    }

    #[test]
    fn other_protocols_are_told_at_once() {
        for request in ["GET / HTTP/1.1\r\n", "*1\r\n$4\r\nPING\r\n", "S!", "\0"] {
            assert_eq!(Frame::decode(request.as_bytes()), Err(FrameError::Magic), "{request}");
        }
    }

    /// A header with a valid checksum and arbitrary fields.
    fn sealed(change: impl FnOnce(&mut [u8; HEADER_BYTES])) -> [u8; HEADER_BYTES] {
        let mut header = Frame::Fenced { epoch: 1 }.encode();
        change(&mut header);
        let crc = crc32c::crc32c(&header[..44]);
        header[44..48].copy_from_slice(&crc.to_le_bytes());
        header
    }

    #[test]
    fn fields_that_nobody_writes_are_refused() {
        let cases: [(&str, [u8; HEADER_BYTES], FrameError); 7] = [
            ("kind", sealed(|it| it[4] = 9), FrameError::Kind(9)),
            ("reserved byte", sealed(|it| it[6] = 1), FrameError::Fields),
            ("reserved word", sealed(|it| it[41] = 1), FrameError::Fields),
            ("payload of a FENCED", sealed(|it| it[12] = 1), FrameError::Fields),
            ("empty LOG", sealed(|it| it[4] = LOG), FrameError::Fields),
            ("position", sealed(|it| [it[4], it[23]] = [ACK, 0x40]), FrameError::Fields),
            (
                "length",
                sealed(|it| [it[4], it[12], it[14]] = [LOG, 1, 0x80]),
                FrameError::TooLarge(PAYLOAD_BYTES_MAX as u32 + 1),
            ),
        ];
        for (what, header, error) in cases {
            assert_eq!(Frame::decode(&header), Err(error), "{what}");
        }
        let bytes = PAYLOAD_BYTES_MAX as u32;
        let largest = Frame::Log { epoch: 1, start: Lsn::ZERO, bytes, commit: Lsn::ZERO, sent_ms: 0 };
        assert_eq!(Frame::decode(&largest.encode()), Ok(Some(largest)));
    }
}
