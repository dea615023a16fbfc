//! The messages between members, and their bytes. This is the only description of the format.
//!
//! A message has a fixed size; little-endian throughout.
//!
//! ```text
//!  0  u32  magic "SGRP"
//!  4  u8   kind, see below
//!  5  u8   bit 0: rejected; bit 1: the leader has released the voters for this candidate (a transfer);
//!          bit 2: the sender's disk has no room
//!  6  u16  zero
//!  8  u64  id of the sender
//! 16  u64  id of the receiver
//! 24  u64  term                      1 to 2^31 - 2: it becomes the epoch of batches, see `TERM_MAX`
//! 32  u64  index                     votes: the candidate's last index; ACCEPTED: the last durable index;
//!                                    RELEASE: the id of the candidate; HEARTBEAT: the index
//!                                    up to which all members have the log, as far as the leader knows
//! 40  u64  term of the entry there   votes only
//! 48  u64  committed index           HEARTBEAT: no more than the receiver is known to have
//! 56  u64  term of the entry there   votes and their answers only
//! 64  u64  when it was sent: microseconds of the sender's clock, which
//!                                    also counts while its machine is suspended
//! 72  u64  such a time of the receiver, repeated; 0 for none. HEARTBEAT ANSWER and ACCEPTED: of its newest
//!                                    heartbeat in this term. Others: of its last message that arrived
//! 80  u32  zero
//! 84  u32  crc32c of bytes 0..84
//! ```
//!
//! | kind | from | meaning |
//! |---|---|---|
//! | 1 PRE-VOTE, 2 PRE-VOTE ANSWER | candidate, voter | would it be elected? |
//! | 3 VOTE, 4 VOTE ANSWER | candidate, voter | an election |
//! | 5 HEARTBEAT, 6 HEARTBEAT ANSWER | leader, follower | the leader leads, the follower follows it |
//! | 7 ACCEPTED | follower | its log is durable up to the index, and equal to the leader's |
//! | 8 TIMEOUT NOW | leader | campaign at once |
//! | 9 RELEASE | leader | vote for this candidate, although the leader is alive |

use crate::{MemberId, TERM_MAX};

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 88;

/// The valid terms of messages. The engine would take a message of term 0 for its own and not check it. A
/// term above [`TERM_MAX`] would leave the group no term in which anybody can lead.
pub(crate) const TERMS: std::ops::RangeInclusive<u64> = 1..=TERM_MAX;
const MAGIC: u32 = u32::from_le_bytes(*b"SGRP");
const REJECTED: u8 = 1;
const RELEASED: u8 = 2;
const LACKS_ROOM: u8 = 4;

/// The kinds of messages; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The sender asks whether it would be elected.
    PreVote = 1,
    /// The answer to a pre-vote.
    PreVoteAnswer = 2,
    /// The sender requests a vote.
    Vote = 3,
    /// The answer to a request for a vote.
    VoteAnswer = 4,
    /// The sender leads.
    Heartbeat = 5,
    /// The answer to a heartbeat.
    HeartbeatAnswer = 6,
    /// The sender's log is durable up to the index.
    Accepted = 7,
    /// The receiver is to campaign at once.
    TimeoutNow = 8,
    /// The receiver may vote for a candidate although the sender leads.
    Release = 9,
}

pub(crate) const KINDS: [Kind; 9] = [
    Kind::PreVote,
    Kind::PreVoteAnswer,
    Kind::Vote,
    Kind::VoteAnswer,
    Kind::Heartbeat,
    Kind::HeartbeatAnswer,
    Kind::Accepted,
    Kind::TimeoutNow,
    Kind::Release,
];

/// A message; see the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The kind of the message.
    pub kind: Kind,
    /// Whether the vote is refused.
    pub is_rejected: bool,
    /// Whether the leader has released the voters from its lease, so that they may vote for the sender.
    pub is_released: bool,
    /// Whether the sender's disk has no room for the log.
    pub lacks_room: bool,
    /// The sender.
    pub from: MemberId,
    /// The receiver.
    pub to: MemberId,
    /// The term of the sender; in a pre-vote and an answer that grants it, the term that the candidate would
    /// begin.
    pub term: u64,
    /// Its meaning depends on the kind: see the layout in the module documentation, as for the fields below.
    pub index: u64,
    /// The term of the entry there, in votes.
    pub index_term: u64,
    /// An index up to which the log is committed.
    pub commit: u64,
    /// The term of the entry there, in votes and their answers.
    pub commit_term: u64,
    /// When the message was sent.
    pub sent_us: u64,
    /// The [`Message::sent_us`] of a message of the receiver, repeated; see the layout.
    pub echo_us: u64,
}

#[cfg(test)]
impl Message {
    /// A message that has only a kind and a term.
    pub(crate) fn plain(kind: Kind, from: MemberId, to: MemberId, term: u64) -> Message {
        Message {
            kind,
            is_rejected: false,
            is_released: false,
            lacks_room: false,
            from,
            to,
            term,
            index: 0,
            index_term: 0,
            commit: 0,
            commit_term: 0,
            sent_us: 0,
            echo_us: 0,
        }
    }
}

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes do not begin as a message does.
    #[error("the bytes are not a message of a group")]
    Magic,
    /// Bytes were changed in transit.
    #[error("the checksum of a message does not match")]
    Checksum,
    /// The message has a kind, a flag, an id, a term or a reserved field that no sender writes.
    #[error("a message with impossible fields")]
    Fields,
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = [0; MESSAGE_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = self.kind as u8;
        out[5] = u8::from(self.is_rejected) * REJECTED
            + u8::from(self.is_released) * RELEASED
            + u8::from(self.lacks_room) * LACKS_ROOM;
        let numbers = [
            self.from.get(),
            self.to.get(),
            self.term,
            self.index,
            self.index_term,
            self.commit,
            self.commit_term,
            self.sent_us,
            self.echo_us,
        ];
        for (place, number) in out[8..80].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..84]);
        out[84..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// See [`MessageError`].
    pub fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Result<Message, MessageError> {
        if bytes[0..4] != MAGIC.to_le_bytes() {
            return Err(MessageError::Magic);
        }
        if bytes[84..] != crc32c::crc32c(&bytes[..84]).to_le_bytes() {
            return Err(MessageError::Checksum);
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let kind = usize::from(bytes[4]).checked_sub(1).and_then(|index| KINDS.get(index));
        let member = |at: usize| MemberId::new(number(at)).ok_or(MessageError::Fields);
        let decoded = Message {
            kind: *kind.ok_or(MessageError::Fields)?,
            is_rejected: bytes[5] & REJECTED > 0,
            is_released: bytes[5] & RELEASED > 0,
            lacks_room: bytes[5] & LACKS_ROOM > 0,
            from: member(8)?,
            to: member(16)?,
            term: Some(number(24)).filter(|term| TERMS.contains(term)).ok_or(MessageError::Fields)?,
            index: number(32),
            index_term: number(40),
            commit: number(48),
            commit_term: number(56),
            sent_us: number(64),
            echo_us: number(72),
        };
        // A message that is not encoded to the same bytes again has values in reserved fields.
        if decoded.encode() == *bytes { Ok(decoded) } else { Err(MessageError::Fields) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_message() -> impl Strategy<Value = Message> {
        let numbers = prop::array::uniform9(any::<u64>());
        (0..KINDS.len(), any::<[bool; 3]>(), numbers).prop_map(
            |(kind, [is_rejected, is_released, lacks_room], it)| Message {
                kind: KINDS[kind],
                is_rejected,
                is_released,
                lacks_room,
                from: MemberId::new(it[0] | 1).expect("not 0"),
                to: MemberId::new(it[1] | 1).expect("not 0"),
                term: it[2] % TERMS.end() + 1,
                index: it[3],
                index_term: it[4],
                commit: it[5],
                commit_term: it[6],
                sent_us: it[7],
                echo_us: it[8],
            },
        )
    }

    proptest! {
        #[test]
        fn a_message_is_decoded_as_it_was_encoded(message in some_message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn a_changed_bit_is_noticed(message in some_message(), bit in 0..MESSAGE_BYTES * 8) {
            let mut bytes = message.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Message::decode(&bytes).is_err());
        }
    }

    #[test]
    fn reserved_fields_are_zero_and_ids_are_not() {
        let of = |at: usize, byte: u8| {
            let mut bytes = [0; MESSAGE_BYTES];
            bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
            (bytes[4], bytes[8], bytes[16], bytes[24]) = (Kind::Vote as u8, 1, 2, 1);
            bytes[at] = byte;
            let crc = crc32c::crc32c(&bytes[..84]);
            bytes[84..].copy_from_slice(&crc.to_le_bytes());
            Message::decode(&bytes)
        };
        assert!(of(24, 7).is_ok_and(|message| message.term == 7 && message.kind == Kind::Vote));
        for (at, byte) in
            [(4, 0), (4, 10), (5, 8), (6, 1), (8, 0), (16, 0), (24, 0), (27, 128), (28, 1), (80, 1)]
        {
            assert_eq!(of(at, byte), Err(MessageError::Fields), "byte {at}");
        }
    }
}
