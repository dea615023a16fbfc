//! Votes and commitment in a group of servers: who leads, and which part of the log a majority has.
//!
//! ```text
//!                     ballot (to be saved), messages, committed position, leadership
//!                          ^
//! ticks, messages ----> Member ---- Raft engine (crate `raft`) ---- Entries: references to batches
//!                          ^
//! batches: accepted (a follower, before its log takes them), durable (everybody)
//! ```
//!
//! An entry of Raft is a batch of the byte log: its index is the batch's number + 1, its term the epoch of
//! the batch's footer. The engine never holds data. Batches are sent as bytes on the connection that ships
//! the log, so no message has entries. Raft's append is a call: a follower that receives batches passes
//! references to them to its own engine ([`Member::accept`]). Votes, heartbeats and acknowledgements are
//! [`Message`]s.
//!
//! What it is not: sockets, files, threads, clocks, or the log. The server and the simulation drive the same
//! [`Member`].
//!
//! Invariants
//! - The term and the vote of a ballot are durable before any message of that term leaves ([`Actions`]),
//!   except pre-votes, which only ask about a term.
//! - A follower takes bytes into its log only after the engine has accepted their batch, in the term of the
//!   leader that sent it. An acknowledgement leaves only when the batch is durable at the follower.
//! - A leader proposes only batches of its own term that are durable on its own disk. The first one is
//!   proposed by the election, before it is written, and counts here only when it is durable.
//! - A member campaigns only if every change of members that it knows to be committed is in force at it.
//! - A lease ([`Member::lease_until_us`]) ends before any voter that granted it can elect another leader.
//!   There is no lease during a transfer, nor until all releases of the transfer have expired.
//! - For one election timeout after its start, a member votes for no other member, because it may have
//!   granted a lease before. There is one exception: it votes for a candidate for whom its leader has
//!   released it. That leader then has no lease, and no lease of an earlier term was left when the leader was
//!   elected.
//! - A witness is a voter that keeps the log and has no data. It campaigns later than the other members, so
//!   it normally wins only if it has batches that all others lack. A witness forgets no log that a member may
//!   still lack ([`Member::held_by_all`]).

#![forbid(unsafe_code)]

mod entries;
mod interface;
mod lease;
mod member;
mod message;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod transfers;

use std::fmt;

use lsn::Lsn;

pub use interface::{Actions, Ballot, Leadership, Link, Members, Progress, Refused, Start, TransferError};
pub use member::Member;
pub use message::{Kind, MESSAGE_BYTES, Message, MessageError};

/// The length of a tick in microseconds. The caller ticks once in each such period, and does not repeat
/// missed ticks.
pub const TICK_US: u64 = 50_000;
/// Ticks between two heartbeats.
pub const HEARTBEAT_TICKS: usize = 2;
/// The minimum number of ticks without a leader after which a voter campaigns, unless it is the only voter. A
/// random number of ticks below this minimum is added.
pub const ELECTION_TICKS: usize = 10;
/// The minimum for a witness; a number below [`ELECTION_TICKS`] is added, too. Every other member can
/// campaign once before a witness does, and often twice.
pub const WITNESS_TICKS: usize = 3 * ELECTION_TICKS;
/// The last term: a term becomes the epoch of batches, and the control file of the log has no room for a
/// higher one. After the leader of this term has ended, nobody can lead any more, and the data must be
/// restored into a new group. With an election every second, this takes 68 years.
pub const TERM_MAX: u64 = (1 << 31) - 2;
/// How far the term of a message may be ahead of a member's own term. A message farther ahead is ignored,
/// because a forged one could take the group to the last term. With an election every second, a member would
/// have to be absent for half a year to be this far behind.
pub const TERM_JUMP_MAX: u64 = 1 << 24;
/// The election timeout in microseconds.
pub const ELECTION_US: u64 = ELECTION_TICKS as u64 * TICK_US;

/// The id of a member of a group: random, never 0, kept in its data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u64);

impl MemberId {
    /// An id; `None` for 0, which means nobody.
    pub const fn new(id: u64) -> Option<MemberId> {
        if id == 0 { None } else { Some(MemberId(id)) }
    }

    /// The id as a number, which is never 0.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Parses the output of [`Display`](fmt::Display). `None` for every other text, even for another spelling
    /// of the number, because members are also compared by the texts of their ids.
    pub fn parse(text: &str) -> Option<MemberId> {
        let id = u64::from_str_radix(text, 16).ok().and_then(MemberId::new)?;
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for MemberId {
    /// 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A batch of the log, by reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// The number of the batch over the life of the log, from 0.
    pub number: u64,
    /// The epoch of its writer.
    pub epoch: u32,
    /// The end of the batch.
    pub end: Lsn,
}
