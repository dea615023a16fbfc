//! Why a change of documents is not even tried.

use storage::{Admission, Log};

/// See the module documentation. What it displays is what the client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The server recovers.
    #[error("The server is loading its data; try again when /_up says ok.")]
    Loading,
    /// It follows another server, which takes the writes.
    #[error("This server is a replica and takes no writes: send them to its leader.")]
    Replica,
    /// It follows another server, and does not know yet which of its own records that one has.
    #[error("This server follows a leader that it has not caught up with yet; try again, or ask the leader.")]
    Stale,
    /// It leads, but may not write for this reason.
    #[error("{0}")]
    Leader(&'static str),
    /// The disk has no room for the log.
    #[error("The disk is full, so nothing can be written: {0}")]
    DiskFull(String),
    /// Damaged data was left out at the start, and nobody has accepted that yet.
    #[error(
        "Damaged data was left out at the start: writes are taken once CONFIG SET force-recovery confirmed accepts that."
    )]
    Unconfirmed,
    /// The log takes too long.
    #[error("The disk takes too long to write the log; try again later.")]
    Stalled,
    /// The log has failed: whether what was begun is kept will be seen after the next start.
    #[error("The log could not be written; whether the change is kept is unknown.")]
    LogFailed,
}

impl Refusal {
    /// The refusal in an answer of the log that is neither "go" nor "wait".
    pub(super) fn of(admission: Admission, log: &Log) -> Option<Refusal> {
        match admission {
            Admission::Go | Admission::Wait => None,
            Admission::NoRoom => Some(Refusal::DiskFull(log.no_room_reason())),
            Admission::Frozen => Some(Refusal::Unconfirmed),
            Admission::Stalled => Some(Refusal::Stalled),
            Admission::Poisoned => Some(Refusal::LogFailed),
        }
    }
}
