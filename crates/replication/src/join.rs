//! How a replica joins: what it says of its log, and what the leader makes of it.
//!
//! ```text
//! replica                                                                         leader
//! REPLICATE <version> <log id> <epoch> <end> <chain> <port> <replica id> --------> decide
//!    +RESUME <end> <epoch>     frames follow                                       the end of its log is one of ours
//!    +PROBE                    asks with MARKS, cuts its tail, begins anew         its log goes on otherwise than ours
//!    +FULL <http port>         copies everything                                   what it needs is forgotten, or it is empty
//!    -ERR ...                  gives up, or waits                                  another log
//! REPLICATE MARKS <end> <chain> <end> <chain> ... -------------------------------> newest_common
//!    :<end>, :-1 for none
//! ```
//!
//! What it is: the words of both sides, and the decisions.
//! What it is not: who reads the log or cuts it. Both sides show theirs as a [`History`].
//!
//! The chain value of a batch stands for its bytes and for all batches before it (`storage`, `log/footer.rs`): two logs that have the
//! same chain value at the same position are the same up to there. Nothing else says so: two servers that both were made leaders
//! write different batches to the same positions, in the same epoch, at the same time. The newest batch whose chain value both have
//! is where two logs part, and it is found by asking for the ends of the replica's last batches, newest first.
//!
//! Invariants
//! - Nothing is resumed unless the chain value of the batch before is known to both sides and the same.
//! - A replica that has never written anything fits every log; another log's never does.
//! - Decisions are made from what the leader has on its disk, never from what it is about to write.

mod claim;
mod joining;
mod probe;

pub use claim::{Answer, Claim, Mark, PROTOCOL_VERSION, format_marks, parse_marks};
pub use joining::{JoinError, Joiner, Joining, Step, Verdict};
pub use probe::{MARKS_MAX, Probe, Probed};

use lsn::Lsn;

use crate::epoch::is_too_far;

/// A log as the other side of a join wants to know it.
pub trait History {
    /// Why it cannot be read.
    type Error;

    /// The first position that is kept.
    fn start(&self) -> Lsn;

    /// Where what is durable ends: a batch boundary.
    fn end(&self) -> Lsn;

    /// The batch that ends there, if one does and it is kept.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn batch_ending_at(&self, end: Lsn) -> Result<Option<Ending>, Self::Error>;
}

/// A batch of a log, from behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Where it starts; where it ends, if nothing is known of it but its chain value.
    pub start: Lsn,
    /// Stands for this batch and all before it.
    pub chain: u64,
}

/// How a replica may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The log is shipped from here on.
    Resume(Lsn),
    /// Its log goes on otherwise than ours: it is to find out where they part.
    Probe,
    /// It has to copy everything.
    Full(Reason),
    /// It must not join.
    Refuse(Refusal),
    /// It knows a higher epoch: this server is no leader any more.
    Fenced {
        /// The higher epoch.
        epoch: u32,
    },
}

impl Decision {
    /// The line that tells the replica: of a leader in `epoch`, whose full copies are served on `http_port`.
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

/// Why a replica has to copy everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// It has nothing yet.
    #[error("its log is empty")]
    Empty,
    /// The log that it needs is not kept.
    #[error("its log ends at lsn {end}, the log here is kept from lsn {start} on")]
    Forgotten {
        /// Where its log ends.
        end: Lsn,
        /// Where ours starts.
        start: Lsn,
    },
}

/// Why a replica must not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Of another version.
    #[error(
        "replication protocol version {0} is not supported, this server speaks version {PROTOCOL_VERSION}"
    )]
    Version(u32),
    /// Its data is something else.
    #[error("the replica holds another log; start it on an empty directory to have it copy this one")]
    OtherLog,
    /// It speaks of an epoch that nobody can have reached.
    #[error(
        "the replica has seen epoch {epoch}, too far ahead of epoch {own} to be believed; start it on an empty directory"
    )]
    Epoch {
        /// What it says.
        epoch: u32,
        /// Ours.
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

/// The newest of these ends of a replica's batches that is one of ours.
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
