//! The types of the inputs and outputs of a [`Member`](crate::Member).

use lsn::Lsn;

use crate::{Batch, MemberId, Message};

/// The members of a group, as the engine counts them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The members whose votes and acknowledgements count.
    pub voters: Vec<MemberId>,
    /// The members that follow without a vote.
    pub learners: Vec<MemberId>,
}

/// The persistent part of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ballot {
    /// The term of the member, which never goes back.
    pub term: u64,
    /// The vote of the member in that term.
    pub voted_for: Option<MemberId>,
}

/// A member at its start.
#[derive(Debug, Clone)]
pub struct Start<'s> {
    /// The id of the member.
    pub id: MemberId,
    /// Whether the member is a witness, which keeps the log and no data: it campaigns later than the others.
    pub is_witness: bool,
    /// The members that were last in force here. (A set of members is saved before it comes into force.)
    /// Later changes in the log are not included, because perhaps they are not committed. Otherwise the
    /// member sets of two servers could differ by two changes, and both could find majorities.
    pub members: Members,
    /// The position of the log up to which `members` includes every change of members.
    pub configured_up_to: Lsn,
    /// The ballot of the member, as it was saved; without a vote if the log has seen a later term.
    pub ballot: Ballot,
    /// The last batch of the member's log that is certainly committed; `None` if none is.
    pub committed: Option<Batch>,
    /// The batches after `committed`, up to the end of the durable log.
    pub batches: &'s [Batch],
    /// The present time of the member's clock, in microseconds.
    pub now_us: u64,
    /// The seed for the random part of election timeouts.
    pub seed: u64,
}

/// The leader, as far as a member knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// The member knows of no leader.
    Unknown {
        /// The term of the member.
        term: u64,
    },
    /// Another member leads.
    Follows {
        /// The term in which the leader leads.
        term: u64,
        /// The leader.
        leader: MemberId,
    },
    /// This member leads. It may write batches of this term only.
    Leads {
        /// The term in which this member leads.
        term: u64,
    },
}

impl Leadership {
    /// The term of the member that has this knowledge.
    pub fn term(self) -> u64 {
        match self {
            Leadership::Leads { term } | Leadership::Follows { term, .. } | Leadership::Unknown { term } => {
                term
            }
        }
    }
}

/// The connection on which a follower receives the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The leader at the other end of the connection.
    pub leader: MemberId,
    /// The leader's term.
    pub term: u64,
}

/// Why batches are not accepted. The connection on which they came must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// This member does not follow the sender in the term of the connection.
    #[error(
        "term {known} has begun, or another leader is known, since the connection of term {link} was made"
    )]
    NotLeader {
        /// The term of the connection.
        link: u64,
        /// The term of this member.
        known: u64,
    },
    /// The batches do not follow the log of this member.
    #[error("batch {found} does not follow batch {expected} of the log here")]
    Gap {
        /// The number of the first batch.
        found: u64,
        /// The number that must come next.
        expected: u64,
    },
}

/// Why the lead cannot be transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// This member does not lead.
    #[error("this member does not lead")]
    NotLeader,
    /// The other member is no voter, or is this member.
    #[error("it is no other voter of the group")]
    NoVoter,
}

/// A member's progress, as the leader knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The id of the member whose progress this is.
    pub id: MemberId,
    /// The position up to which the member's log is durable and equal to the leader's; `None` if the leader
    /// does not know it, or the member lags too far.
    pub durable: Option<Lsn>,
    /// The position up to which the member knows the log to be committed; `None` if the leader does not know
    /// it, or the member lags too far.
    pub committed: Option<Lsn>,
    /// Whether the member's disk has no room for more of the log, as the member said last.
    pub lacks_room: bool,
}

/// The actions that follow from inputs. The ballot must be durable before the other actions are carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actions {
    /// The ballot to be saved before all else.
    pub ballot: Option<Ballot>,
    /// The messages to be sent.
    pub messages: Vec<Message>,
    /// The position up to which the log is committed, if it has moved.
    pub committed: Option<Lsn>,
    /// The leadership, if it has changed.
    pub leadership: Option<Leadership>,
}

impl Actions {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Actions::default()
    }
}
