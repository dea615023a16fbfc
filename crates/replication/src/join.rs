//! The join handshake: the replica describes its log, the leader decides how it joins.
//!
//! ```text
//! replica                                                            leader
//! REPLICATE <version> <log id> <epoch> <end> <chain> <port> <replica id> ---> decide
//!    +RESUME <end> <epoch>   frames follow                          the replica's end is a batch end of ours
//!    +PROBE                  sends MARKS, cuts its tail, rejoins    the logs have diverged
//!    +FULL <http port>       copies everything                      its position is not kept, or it is empty
//!    -ERR ...                gives up, or waits                     another log
//! REPLICATE MARKS <end> <chain> <end> <chain> ... ------------------------> newest_common
//!    :<end>, :-1 for none
//! ```
//!
//! This module has the messages of both sides, and the decisions. It does not access a log: each side passes
//! its own as a [`History`].
//!
//! The chain value of a batch covers its bytes and all batches before it (`storage`, `log/footer.rs`): two
//! logs with the same chain value at the same position are identical up to there. No weaker check suffices:
//! two servers that were both promoted write different batches to the same positions, in the same epoch, at
//! the same time. Two logs diverge after the newest batch whose chain value both have; the leader finds it
//! among the ends of the replica's last batches, newest first.
//!
//! Invariants
//! - A partial sync needs the chain value of the preceding batch to be known to both sides and equal.
//! - An empty replica may join any log; a replica of another log is always refused.
//! - Decisions depend only on the leader's durable log, never on pending writes.

mod claim;
mod probe;

pub use claim::{Answer, Claim, Mark, PROTOCOL_VERSION, format_marks, parse_marks};
pub use probe::{MARKS_MAX, Probe, Probed};

use lsn::Lsn;

use crate::epoch::is_too_far;

/// The properties of a log that the handshake needs.
pub trait History {
    /// The error of reading the log.
    type Error;

    /// The first position that is still kept.
    fn start(&self) -> Lsn;

    /// The end of the durable log: a batch boundary.
    fn end(&self) -> Lsn;

    /// The batch that ends at `end`; `None` if no batch ends there or it is not kept.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Self::Error>;
}

/// A batch, found by its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// The start of the batch; equal to its end if only the chain value is known.
    pub start: Lsn,
    /// The chain value: covers this batch and all before it.
    pub chain: u64,
}

/// How a replica may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Partial sync: ship the log from this position.
    Resume(Lsn),
    /// The logs have diverged: the replica has to find the common position first.
    Probe,
    /// Full sync: the replica has to copy everything.
    Full(Reason),
    /// The replica must not join.
    Refuse(Refusal),
    /// The replica has seen a higher epoch: this server is no longer the leader.
    Fenced {
        /// The higher epoch.
        epoch: u32,
    },
}

/// Why a full sync is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// The replica has no data yet.
    #[error("its log is empty")]
    Empty,
    /// The log after the replica's end is not kept any more.
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
    /// The replica speaks another protocol version.
    #[error(
        "replication protocol version {0} is not supported, this server speaks version {PROTOCOL_VERSION}"
    )]
    Version(u32),
    /// The replica's data belongs to another log.
    #[error("the replica holds another log; start it on an empty directory to have it copy this one")]
    OtherLog,
    /// The replica's epoch is implausibly far ahead; see [`crate::epoch`].
    #[error(
        "the replica has seen epoch {epoch}, too far ahead of epoch {own} to be believed; start it on an empty directory"
    )]
    Epoch {
        /// The replica's epoch.
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
    if end == Lsn::ZERO {
        return Ok(Decision::Full(Reason::Empty));
    }
    if claim.log_id != log_id {
        return Ok(Decision::Refuse(Refusal::OtherLog));
    }
    if is_too_far(claim.epoch, epoch) {
        return Ok(Decision::Refuse(Refusal::Epoch { epoch: claim.epoch, own: epoch }));
    }
    if claim.epoch > epoch {
        return Ok(Decision::Fenced { epoch: claim.epoch });
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

/// The newest of the replica's batch ends that the leader's log also has, with the same chain value.
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
