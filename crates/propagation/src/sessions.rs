//! The streams of replicas, also of those that have left and may return.
//!
//! Invariants
//! - At most [`SESSIONS_MAX`] streams are known. A further stream replaces the oldest stream whose replica
//!   has left, or else the oldest stream.
//! - A stream has at most [`CHECKPOINTS_MAX`] checkpoints. A further checkpoint replaces the oldest one.
//! - A replica needs a full sync if its stream is forgotten, or if the replica's offset is before the first
//!   known checkpoint of the stream, or after the bytes that may have been sent.
//! - One connection continues a stream. While it is open, there are two cases for a later connection. If the
//!   replica of the later connection takes a new id, the connection gets a stream of its own, with the same
//!   bytes so far. Otherwise the later connection takes the stream over, and the notes of the earlier
//!   connection are ignored.

use std::collections::VecDeque;

use lsn::Lsn;

use crate::feed::{Checkpoint, Feed};

/// The maximum number of known streams.
pub const SESSIONS_MAX: usize = 64;
/// The maximum number of checkpoints of a stream. An idle stream gets one with each ping.
const CHECKPOINTS_MAX: usize = 4096;
/// A checkpoint is due this many bytes after the last one. For a replica that returns, about this many bytes
/// at most are rendered again, or one record, if that is longer.
const CHECKPOINT_BYTES: u64 = 1 << 20;

/// The replication ID of a stream: 40 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionId([u8; 20]);

impl SessionId {
    /// An id of random bytes.
    pub fn new(bytes: [u8; 20]) -> SessionId {
        SessionId(bytes)
    }

    /// The first 16 bytes: as many as other ids of replicas have, and enough to distinguish streams.
    pub fn first_bytes(&self) -> [u8; 16] {
        let mut first = [0; 16];
        first.copy_from_slice(&self.0[..16]);
        first
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The right of one connection to continue a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The id of the stream.
    pub id: SessionId,
    turn: u64,
}

#[derive(Debug)]
struct Known {
    ticket: Ticket,
    checkpoints: VecDeque<Checkpoint>,
    /// The end of the bytes of the stream that may have been sent.
    sent: u64,
    /// When its replica left; `None` while it is connected.
    left_ms: Option<u64>,
}

/// The known streams, the oldest first.
#[derive(Debug, Default)]
pub struct Sessions {
    known: VecDeque<Known>,
    turns: u64,
}

impl Sessions {
    /// Begins a stream; [`Sessions::note`] adds its first checkpoint.
    pub fn begin(&mut self, id: SessionId) -> Ticket {
        self.add(id, VecDeque::new(), 0)
    }

    fn add(&mut self, id: SessionId, checkpoints: VecDeque<Checkpoint>, sent: u64) -> Ticket {
        let ticket = Ticket { id, turn: self.next_turn() };
        if self.known.len() == SESSIONS_MAX {
            let left = self.known.iter().position(|known| known.left_ms.is_some());
            self.known.remove(left.unwrap_or(0));
        }
        self.known.push_back(Known { ticket, checkpoints, sent, left_ms: None });
        ticket
    }

    /// Continues a stream whose replica has `has` bytes of it; `None` if the replica needs a full sync. If
    /// another connection has the stream, the caller gets a copy of the stream with the id `own`; without
    /// `own`, it takes the stream over.
    pub fn resume(&mut self, id: &[u8], has: u64, own: Option<SessionId>) -> Option<(Ticket, Feed)> {
        let turn = self.next_turn();
        let known = self.known.iter_mut().find(|known| known.ticket.id.to_string().as_bytes() == id)?;
        let first =
            known.checkpoints.partition_point(|checkpoint| checkpoint.offset <= has).checked_sub(1)?;
        if has > known.sent {
            return None;
        }
        let checkpoints: Vec<Checkpoint> = known.checkpoints.range(first..).copied().collect();
        let feed = Feed::resumed(&checkpoints, has);
        if let Some(own) = own.filter(|_| known.left_ms.is_none()) {
            let (checkpoints, sent) = (known.checkpoints.clone(), known.sent);
            return Some((self.add(own, checkpoints, sent), feed));
        }
        known.ticket.turn = turn;
        known.left_ms = None;
        Some((known.ticket, feed))
    }

    /// Notes that bytes up to the checkpoint are about to be sent. Returns whether the stream still belongs
    /// to this connection.
    pub fn note(&mut self, ticket: Ticket, at: Checkpoint) -> bool {
        let Some(known) = self.find(ticket) else { return false };
        known.sent = known.sent.max(at.offset);
        let is_due = known.checkpoints.back().is_none_or(|last| {
            at.offset >= last.offset + CHECKPOINT_BYTES || (at.is_after_ping && at.offset > last.offset)
        });
        if is_due {
            if known.checkpoints.len() == CHECKPOINTS_MAX {
                known.checkpoints.pop_front();
            }
            known.checkpoints.push_back(at);
        }
        true
    }

    /// The position of the log from which a replica that has `has` bytes is served when it returns; `None` if
    /// it would need a full sync, or if the stream no longer belongs to this connection.
    pub fn needed(&mut self, ticket: Ticket, has: u64) -> Option<Lsn> {
        let checkpoints = &self.find(ticket)?.checkpoints;
        let later = checkpoints.partition_point(|checkpoint| checkpoint.offset <= has);
        Some(checkpoints[later.checked_sub(1)?].lsn)
    }

    /// Notes that the connection has ended.
    pub fn leave(&mut self, ticket: Ticket, now_ms: u64) {
        if let Some(known) = self.find(ticket) {
            known.left_ms = Some(now_ms);
        }
    }

    /// Forgets a stream that has no replica to return to it.
    pub fn forget(&mut self, ticket: Ticket) {
        self.known.retain(|known| known.ticket != ticket);
    }

    /// Forgets the streams whose replicas left more than `away_ms_max` ago.
    pub fn forget_left(&mut self, now_ms: u64, away_ms_max: u64) {
        let is_kept =
            |known: &Known| known.left_ms.is_none_or(|left| now_ms.saturating_sub(left) <= away_ms_max);
        self.known.retain(is_kept);
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.ticket == ticket)
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Checkpoint {
        Checkpoint { offset, lsn: Lsn::new(offset), db: None, is_after_ping: false }
    }

    fn id(number: u8) -> SessionId {
        SessionId::new([number; 20])
    }

    #[test]
    fn a_replica_goes_on_where_its_stream_is_known() {
        let mut sessions = Sessions::default();
        let name = id(1).to_string();
        let ticket = sessions.begin(id(1));
        assert!(sessions.resume(name.as_bytes(), 0, None).is_none(), "the copy was not complete");
        for offset in [100, 200, CHECKPOINT_BYTES + 100] {
            assert!(sessions.note(ticket, at(offset)));
        }
        assert_eq!(sessions.needed(ticket, 99), None);
        assert_eq!(sessions.needed(ticket, CHECKPOINT_BYTES), Some(Lsn::new(100)));
        let mut from = |has| sessions.resume(name.as_bytes(), has, None).map(|(_, feed)| feed.lsn().get());
        assert_eq!((from(99), from(100), from(CHECKPOINT_BYTES)), (None, Some(100), Some(100)));
        assert_eq!(from(CHECKPOINT_BYTES + 100), Some(CHECKPOINT_BYTES + 100));
        assert_eq!(from(CHECKPOINT_BYTES + 101), None, "this was never sent");
        assert!(sessions.resume(id(2).to_string().as_bytes(), 100, None).is_none());
        assert!(!sessions.note(ticket, at(2 * CHECKPOINT_BYTES)), "another connection has taken it over");
    }

    #[test]
    fn two_replicas_in_one_stream_are_both_served() {
        let mut sessions = Sessions::default();
        let name = id(1).to_string();
        let first = sessions.begin(id(1));
        assert!(sessions.note(first, at(100)));
        let (second, feed) = sessions.resume(name.as_bytes(), 100, Some(id(2))).expect("a stream of its own");
        assert_eq!((second.id, feed.lsn().get()), (id(2), 100));
        for offset in [200, CHECKPOINT_BYTES + 200] {
            assert!(sessions.note(first, at(offset)) && sessions.note(second, at(offset + 1)));
        }
        sessions.leave(second, 0);
        let name = id(2).to_string();
        let (again, _) = sessions.resume(name.as_bytes(), 100, Some(id(3))).expect("its own stream");
        assert_eq!(again.id, id(2), "nobody else has it");
        sessions.forget(again);
        assert!(sessions.resume(name.as_bytes(), 100, Some(id(3))).is_none());
    }

    #[test]
    fn streams_are_forgotten_after_a_while_and_when_there_are_too_many() {
        let mut sessions = Sessions::default();
        let tickets: Vec<Ticket> = (0..SESSIONS_MAX as u8).map(|number| sessions.begin(id(number))).collect();
        tickets.iter().for_each(|ticket| assert!(sessions.note(*ticket, at(1))));
        sessions.leave(tickets[5], 1000);
        sessions.begin(id(100));
        assert!(!sessions.note(tickets[5], at(2)) && sessions.note(tickets[0], at(2)));
        sessions.leave(tickets[7], 2000);
        sessions.forget_left(2500, 500);
        assert!(sessions.note(tickets[7], at(2)));
        sessions.forget_left(2501, 500);
        assert!(!sessions.note(tickets[7], at(3)));
    }
}
