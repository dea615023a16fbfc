//! The join of a replica: its claim about its log, and the leader's decision.
//!
//! ```text
//! replica                                                                       leader
//! REPLICATE <version> <log id> <epoch> <end> <chain> <port> <replica id> [<process id>] ---> decide
//!    +RESUME <end> <epoch>     frames follow                          its log ends with a batch of ours
//!    +PROBE                    sends MARKS, cuts its tail, rejoins    its log differs from ours
//!    +FULL <http port>         copies everything                      its log is empty, or before our start
//!    -ERR ...                  gives up, or waits                     another log, epoch or version
//! REPLICATE MARKS <end> <chain> <end> <chain> ... -------------------------> newest_common
//!    :<end>, :-1 for none
//! ```
//!
//! This module contains the messages of both sides, and the decisions. It neither reads nor cuts a log: each
//! side provides its own log as a [`History`].
//!
//! The chain value of a batch covers its bytes and all batches before it (`storage`, `log/footer.rs`): two
//! logs with the same chain value at the same position are equal up to there. Nothing else proves that: two
//! servers that both became leaders can write different batches at the same positions, in the same epoch, at
//! the same time. Two logs are equal up to the newest batch whose chain value both have. The replica finds
//! this batch: it names the ends of its last batches, newest first, and the leader answers.
//!
//! Invariants
//! - The log is shipped from a position on only if both sides know the chain value of the batch that ends
//!   there, and it is the same.
//! - A log with another id than the leader's fits every leader if it is empty, and none if it has data.
//! - A leader serves no replica with the same log id that has seen a higher epoch, not even with a copy.
//! - Decisions depend only on the log on the leader's disk, never on unwritten records.

mod claim;
mod joining;
mod probe;

pub use claim::{Answer, Claim, Mark, PROTOCOL_VERSION, format_marks, parse_marks};
pub use joining::{JoinError, Joiner, Joining, Step, Verdict};
pub use probe::{MARKS_MAX, Probe, Probed};

use lsn::Lsn;

use crate::epoch::is_too_far;

/// A server's log, as the decisions of a join need it.
pub trait History {
    /// Why the log cannot be read.
    type Error;

    /// The first position of the log that is kept.
    fn start(&self) -> Lsn;

    /// The end of the log that may be shipped: a batch boundary.
    fn end(&self) -> Lsn;

    /// The batch that ends at `end`; `None` if no batch ends there, or it is not kept.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Self::Error>;
}

/// A batch, found by its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// The start of the batch; equal to its end if only its chain value is known.
    pub start: Lsn,
    /// The chain value: covers this batch and all before it.
    pub chain: u64,
}

/// The leader's decision on a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The log is shipped from this position.
    Resume(Lsn),
    /// The replica's log differs from the leader's: the replica must find the last common position.
    Probe,
    /// The replica needs a full sync.
    Full(Reason),
    /// The replica must not join.
    Refuse(Refusal),
    /// The replica knows a higher epoch: this server is no longer a leader.
    Fenced {
        /// The epoch in the claim of the replica.
        epoch: u32,
    },
}

impl Decision {
    /// The line with which a leader in `epoch` answers the replica. The leader serves full copies on
    /// `http_port`.
    pub fn line(&self, epoch: u32, http_port: u16) -> String {
        let answer = match *self {
            Decision::Resume(end) => Answer::Resume { end, epoch },
            Decision::Probe => Answer::Probe,
            Decision::Full(_) => Answer::Full { http_port },
            Decision::Refuse(reason) => return format!("-ERR {reason}"),
            Decision::Fenced { epoch } => {
                return format!("-ERR epoch {epoch} has begun, this server leads no more");
            }
        };
        format!("+{}", answer.line())
    }
}

/// Why a full sync is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// The replica's log is empty, or the replica calls it unusable.
    #[error("its log is empty")]
    Empty,
    /// The part of the log that the replica needs is not kept.
    #[error("its log ends at lsn {end}, the log here is kept from lsn {start} on")]
    Forgotten {
        /// The end of the replica's log.
        end: Lsn,
        /// The start of the leader's log.
        start: Lsn,
    },
}

/// Why a replica must not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The replica speaks another version of the protocol.
    #[error(
        "replication protocol version {0} is not supported, this server speaks version {PROTOCOL_VERSION}"
    )]
    Version(u32),
    /// The replica has another log.
    #[error("the replica holds another log; start it on an empty directory to have it copy this one")]
    OtherLog,
    /// The replica names an epoch that no leader can have reached.
    #[error(
        "the replica has seen epoch {epoch}, too far ahead of epoch {own} to be believed; start it on an empty directory"
    )]
    Epoch {
        /// The epoch that it names.
        epoch: u32,
        /// The leader's epoch.
        own: u32,
    },
}

/// Decides how a replica joins a leader of `epoch` with the log `log_id`.
///
/// # Errors
/// If the log of the leader cannot be read.
pub fn decide<H: History>(
    claim: &Claim,
    log_id: [u8; 16],
    epoch: u32,
    history: &H,
) -> Result<Decision, H::Error> {
    let Mark { end, chain } = claim.mark;
    let start = history.start();
    if claim.version != PROTOCOL_VERSION {
        return Ok(Decision::Refuse(Refusal::Version(claim.version)));
    }
    if claim.log_id != log_id {
        // The epochs that the replica has seen belong to another log, so they are not compared.
        let empty = end == Lsn::ZERO;
        return Ok(if empty { Decision::Full(Reason::Empty) } else { Decision::Refuse(Refusal::OtherLog) });
    }
    if is_too_far(claim.epoch, epoch) {
        return Ok(Decision::Refuse(Refusal::Epoch { epoch: claim.epoch, own: epoch }));
    }
    if claim.epoch > epoch {
        return Ok(Decision::Fenced { epoch: claim.epoch });
    }
    if end == Lsn::ZERO {
        return Ok(Decision::Full(Reason::Empty));
    }
    if end > history.end() {
        return Ok(Decision::Probe);
    }
    if end >= start
        && let Some(ours) = history.batch_ending_at(end)?
    {
        return Ok(if ours.chain == chain { Decision::Resume(end) } else { Decision::Probe });
    }
    Ok(if end <= start { Decision::Full(Reason::Forgotten { end, start }) } else { Decision::Probe })
}

/// The newest of these marks of a replica that is also in the leader's log.
///
/// # Errors
/// If the log cannot be read.
pub fn newest_common<H: History>(marks: &[Mark], history: &H) -> Result<Option<Lsn>, H::Error> {
    let mut newest = None;
    for mark in marks.iter().filter(|mark| (history.start()..=history.end()).contains(&mark.end)) {
        let is_ours = history.batch_ending_at(mark.end)?.is_some_and(|ours| ours.chain == mark.chain);
        newest = newest.max(is_ours.then_some(mark.end));
    }
    Ok(newest)
}

#[cfg(test)]
mod tests;
