//! The reasons why the server refuses changes of documents, whatever they are, or shows no documents at all.

use engine::replication::{
    Availability, COMMITS_NOTHING, NO_LEADER, NOT_JOINED, READ_DEPOSED, READ_REMOVED, READ_WITNESS,
    WriteRefusal,
};
use storage::{Admission, Log};

/// Why a change was refused, or why no documents are shown; the `Display` text is sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The server is recovering.
    #[error("The server is loading its data; try again when /_up says ok.")]
    Loading,
    /// The server follows a leader, which takes the writes.
    #[error("This server is a replica and takes no writes: send them to its leader.")]
    Replica,
    /// The server follows the leader of its group.
    #[error("This member of the group follows and takes no writes: send them to the leader.")]
    Follower,
    /// The server is a witness of its group and has no data.
    #[error("This server is a witness of its group: it keeps the log and has no data. Ask another member.")]
    Witness,
    /// The group has removed the server.
    #[error("This server was removed from its group. Ask a member of the group.")]
    Removed,
    /// The server asks to join a group, which has not accepted it yet.
    #[error("This server is not in its group yet: it asks to be added, and its log says what keeps it out.")]
    Joining,
    /// The server is a member of a group, and knows no leader or does not hear its leader. Or it leads, and
    /// another member may have been elected.
    #[error("The group has no leader: a majority of its members must be reachable. Try again.")]
    NoMajority,
    /// The server leads its group, and no majority takes its log.
    #[error("The group commits nothing: no majority of its members takes the leader's log. Try again.")]
    NotCommitted,
    /// The server follows a leader and shows no data: it does not know which of its data is committed, or is
    /// far behind.
    #[error("This server follows a leader that it has not caught up with yet; try again, or ask the leader.")]
    Stale,
    /// The server has given up the lead.
    #[error("This server has given up the lead: another server leads, or is being told to; ask that one.")]
    Deposed,
    /// The server hands over the lead.
    #[error("This server is handing over the lead to a replica: try again, or send writes to that one.")]
    HandingOver,
    /// The server follows nobody, but must not write for this reason.
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
    /// The slot of the users stays locked, for instance by a script.
    #[error("A script is running that keeps users from being changed; try again.")]
    UsersLocked,
    /// The log has failed: whether a change already begun is kept shows after the next start.
    #[error("The log could not be written; whether the change is kept is unknown.")]
    LogFailed,
}

impl Refusal {
    /// The reason why this server takes no writes, whatever its log says.
    pub(super) fn of_writes(server: &dyn Availability) -> Option<Refusal> {
        let reason = server.refuses_writes()?;
        Some(match reason {
            WriteRefusal::Replica if server.is_in_group() => Refusal::Follower,
            WriteRefusal::Replica => Refusal::Replica,
            WriteRefusal::Witness => Refusal::Witness,
            WriteRefusal::Removed => Refusal::Removed,
            WriteRefusal::Joining => Refusal::Joining,
            WriteRefusal::NoLeader => Refusal::NoMajority,
            WriteRefusal::NotCommitted => Refusal::NotCommitted,
            WriteRefusal::Deposed => Refusal::Deposed,
            WriteRefusal::HandingOver => Refusal::HandingOver,
            WriteRefusal::SettingsOwed | WriteRefusal::TooFewReplicas => Refusal::Leader(reason.error()),
        })
    }

    /// The reason why this server shows no data.
    pub(super) fn of_reads(server: &dyn Availability) -> Option<Refusal> {
        let reason = server.refuses_reads()?;
        Some(match reason {
            READ_WITNESS => Refusal::Witness,
            READ_REMOVED => Refusal::Removed,
            READ_DEPOSED => Refusal::Deposed,
            NOT_JOINED => Refusal::Joining,
            NO_LEADER => Refusal::NoMajority,
            COMMITS_NOTHING => Refusal::NotCommitted,
            _ => Refusal::Stale,
        })
    }

    /// The seconds after which a client should try again, if this state probably ends soon.
    pub(super) fn retry_after_s(&self) -> Option<&'static str> {
        let ends_soon = matches!(
            self,
            Refusal::Follower
                | Refusal::HandingOver
                | Refusal::Joining
                | Refusal::NoMajority
                | Refusal::NotCommitted
                | Refusal::Stale
                | Refusal::UsersLocked
        );
        ends_soon.then_some("1")
    }

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
