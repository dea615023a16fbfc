//! The reasons for refusing a change of documents before it is tried.

use storage::{Admission, Log};

/// Why a change was refused; the `Display` text is sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The server is recovering.
    #[error("The server is loading its data; try again when /_up says ok.")]
    Loading,
    /// It follows a leader, which takes the writes.
    #[error("This server is a replica and takes no writes: send them to its leader.")]
    Replica,
    /// It follows a leader, and does not know yet how many of its own records that leader has.
    #[error("This server follows a leader that it has not caught up with yet; try again, or ask the leader.")]
    Stale,
    /// It is the leader, but must not write for this reason.
    #[error("{0}")]
    Leader(&'static str),
    /// The disk has no room for the log.
    #[error("The disk is full, so nothing can be written: {0}")]
    DiskFull(String),
    /// Damaged data was left out at the start, and the operator has not confirmed that yet.
    #[error(
        "Damaged data was left out at the start: writes are taken once CONFIG SET force-recovery confirmed accepts that."
    )]
    Unconfirmed,
    /// The log's disk writes take too long.
    #[error("The disk takes too long to write the log; try again later.")]
    Stalled,
    /// The log has failed: whether a change already begun is kept shows after the next start.
    #[error("The log could not be written; whether the change is kept is unknown.")]
    LogFailed,
}

impl Refusal {
    /// The refusal for an answer of the log other than [`Admission::Go`] and [`Admission::Wait`].
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
