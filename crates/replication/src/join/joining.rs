//! The replica's side of a join: interprets each answer of the leader, and determines the next request.
//!
//! ```text
//! claim --> +RESUME ------------------------> Follow
//!       --> +PROBE --> marks --> :<end> ----> Cut          (again while the leader knows none of the marks)
//!       |                   '--> none left -> CopyAnew
//!       '-> +FULL ---------------------------> Copy
//! ```
//!
//! A [`Joining`] does not own the connection: its owner sends the requests and receives the lines, over one
//! connection or several.
//!
//! Invariants
//! - A leader whose epoch is lower than one already followed is not followed.
//! - Nothing is cut at a position where no batch of the log here ends.

use lsn::Lsn;

use super::{Answer, History, Mark, PROTOCOL_VERSION, Probe, Probed, claim::Claim, format_marks};
use crate::{ProcessId, ReplicaId, epoch::is_too_far};

/// The state of a replica when it joins.
#[derive(Debug, Clone, Copy)]
pub struct Joiner {
    /// The identity of its log.
    pub log_id: [u8; 16],
    /// The identity of the replica.
    pub replica: ReplicaId,
    /// The identity of its process.
    pub process: Option<ProcessId>,
    /// The port on which it serves clients.
    pub port: u16,
    /// The highest epoch that it has followed.
    pub seen_epoch: u32,
    /// The highest epoch in its log.
    pub log_epoch: u32,
    /// The end of its durable log.
    pub end: Lsn,
    /// The replica's log is unusable: it requests a copy of everything.
    pub copies_anew: bool,
}

/// The next step of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send REPLICATE with these arguments to the leader.
    Ask(Vec<String>),
    /// The join has ended.
    Settled(Verdict),
}

/// The outcome of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Frames follow on the connection of the answer.
    Follow {
        /// The leader's epoch.
        epoch: u32,
    },
    /// The logs are equal up to this position: cut the rest.
    Cut(Lsn),
    /// The kept parts of the logs have nothing in common: join again with [`Joiner::copies_anew`].
    CopyAnew,
    /// Copy everything.
    Copy {
        /// The port of the leader's host that serves the copy.
        http_port: u16,
    },
}

/// The beginning of the answer of Redis and Valkey to a command that they do not know.
const UNKNOWN_COMMAND: &str = "-ERR unknown command";

/// Why a leader is not followed. Formatted as the rest of a sentence that begins with the leader's address,
/// except for [`JoinError::Log`], which has the text of the error of the log here.
#[derive(Debug, thiserror::Error)]
pub enum JoinError<E> {
    /// The leader's answer is an error, is not understood, or is for another position.
    #[error("refuses: {0}")]
    Refused(String),
    /// The server does not know the command: it is no Sheaf.
    #[error(
        "is a Redis or Valkey server, which a Sheaf does not follow: `sheaf import --from` copies its data while it runs"
    )]
    NoSheaf,
    /// The leader leads in an earlier epoch.
    #[error("leads in epoch {epoch}, epoch {seen} has begun")]
    Deposed {
        /// The leader's epoch.
        epoch: u32,
        /// The highest epoch that the replica has followed.
        seen: u32,
    },
    /// The leader names an epoch that no leader can have reached.
    #[error(
        "leads in epoch {epoch}, it says: too far ahead of epoch {known} to be believed. If it is true, start this server on an \
         empty directory"
    )]
    TooFar {
        /// The epoch that it names.
        epoch: u32,
        /// The highest epoch known here.
        known: u32,
    },
    /// The leader names a position that is not a batch boundary here.
    #[error("names lsn {0}, where no batch ends here")]
    NoBatch(Lsn),
    /// The log here cannot be read.
    #[error(transparent)]
    Log(E),
}

/// A join in progress.
#[derive(Debug)]
pub struct Joining {
    joiner: Joiner,
    probe: Option<Probe>,
}

impl Joining {
    /// Begins a join: the first step sends the claim.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn begin<H: History>(joiner: Joiner, history: &H) -> Result<(Joining, Step), H::Error> {
        let mark = if joiner.copies_anew {
            Mark { end: Lsn::ZERO, chain: 0 }
        } else {
            let chain = history.batch_ending_at(joiner.end)?.map_or(0, |batch| batch.chain);
            Mark { end: joiner.end, chain }
        };
        let Joiner { log_id, replica, process, port, seen_epoch: epoch, .. } = joiner;
        let claim = Claim { version: PROTOCOL_VERSION, log_id, epoch, mark, port, replica, process };
        Ok((Joining { joiner, probe: None }, Step::Ask(claim.arguments())))
    }

    /// Processes a line of the leader, without its terminator.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn hear<H: History>(&mut self, line: &str, history: &H) -> Result<Step, JoinError<H::Error>> {
        let refused = || match line.starts_with(UNKNOWN_COMMAND) {
            true => JoinError::NoSheaf,
            false => JoinError::Refused(line.to_string()),
        };
        if self.probe.is_some() {
            let common = line.strip_prefix(':').and_then(|number| number.parse::<i64>().ok());
            let common = common.ok_or_else(refused)?;
            return self.probe(u64::try_from(common).ok().map(Lsn::new), history);
        }
        let Joiner { seen_epoch, log_epoch, end, .. } = self.joiner;
        let answer = line.strip_prefix('+').and_then(|line| Answer::parse(line.as_bytes()));
        match answer.ok_or_else(refused)? {
            Answer::Resume { epoch, .. } if epoch < seen_epoch => {
                Err(JoinError::Deposed { epoch, seen: seen_epoch })
            }
            Answer::Resume { epoch, .. } if is_too_far(epoch, seen_epoch.max(log_epoch)) => {
                Err(JoinError::TooFar { epoch, known: seen_epoch.max(log_epoch) })
            }
            Answer::Resume { end: at, epoch } if at == end => Ok(Step::Settled(Verdict::Follow { epoch })),
            Answer::Resume { .. } => Err(refused()),
            Answer::Full { http_port } => Ok(Step::Settled(Verdict::Copy { http_port })),
            Answer::Probe => {
                self.probe = Some(Probe::new(end));
                self.probe(None, history)
            }
        }
    }

    fn probe<H: History>(&mut self, answer: Option<Lsn>, history: &H) -> Result<Step, JoinError<H::Error>> {
        let Some(probe) = &mut self.probe else { return Ok(Step::Settled(Verdict::CopyAnew)) };
        match probe.next(answer, history).map_err(JoinError::Log)? {
            Probed::Ask(marks) => {
                Ok(Step::Ask(["MARKS".to_string()].into_iter().chain(format_marks(&marks)).collect()))
            }
            Probed::Nothing => Ok(Step::Settled(Verdict::CopyAnew)),
            Probed::Common(at) => {
                let is_ours = history.batch_ending_at(at).map_err(JoinError::Log)?.is_some();
                if is_ours { Ok(Step::Settled(Verdict::Cut(at))) } else { Err(JoinError::NoBatch(at)) }
            }
        }
    }
}
