//! The reason why no write can be acknowledged now, if any: one answer for `/_up`, INFO, metrics and the log.
//!
//! It is for display only. Writes do not consult it; each is admitted where it is executed, by the same
//! [`Replication`] and the same [`Log`].

use engine::replication::{
    NOT_COMMITTED, Replication, SETTINGS_OWED, WRITE_DEPOSED, WRITE_REMOVED, WRITE_WITNESS,
};
use storage::{Admission, Log};

/// Writes a line of the log when such a reason comes or goes that no other part tells: groups tell of their
/// members, the log of its disk, and a replica is no fault.
#[derive(Debug, Default)]
pub(crate) struct Reporter(Option<ReadOnly>);

impl Reporter {
    /// To be called once a second.
    pub(crate) fn look(&mut self, log: Option<&Log>, replication: &dyn Replication) {
        let is_untold = |reason: &ReadOnly| {
            use ReadOnly::{Deposed, SettingsOwed, TooFewAcks, TooFewReplicas};
            matches!(reason, Deposed | SettingsOwed | TooFewAcks | TooFewReplicas)
        };
        let now = ReadOnly::of(log, replication).filter(is_untold);
        if now == self.0 {
            return;
        }
        match now {
            Some(reason) => {
                tracing::warn!(target: "server", why = reason.name(), "no write can be acknowledged: {}", reason.reason(log))
            }
            None => {
                tracing::info!(target: "server", "writes can be acknowledged again")
            }
        }
        self.0 = now;
    }
}

/// A state in which the server refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    /// It follows a leader. This is not a fault.
    Replica,
    /// It has given up the lead and follows nobody: another server leads, or may lead.
    Deposed,
    /// Settings given at the start are about to be written to the log.
    SettingsOwed,
    /// It is a witness of its group: it has no data, so it takes no reads either.
    Witness,
    /// Its group has removed it: it takes no reads either.
    Removed,
    /// It belongs to a group, and a majority of the members is not reachable, or has not elected a leader
    /// yet; or it leads, and no majority takes its log.
    NoMajority,
    /// Fewer replicas are connected than `min-replicas-to-write` requires.
    TooFewReplicas,
    /// Fewer replicas are connected than a reply waits for (`ack-replicas`).
    TooFewAcks,
    /// The disk has no room for the log.
    DiskFull,
    /// Damaged data was left out at the start, and the operator has not confirmed that yet.
    Unconfirmed,
    /// The disk has not answered for seconds.
    DiskStalled,
    /// A write or a sync of the log has failed: the server is about to stop.
    LogFailed,
}

impl ReadOnly {
    /// All reasons, for metrics.
    pub(crate) const ALL: [ReadOnly; 12] = [
        ReadOnly::Replica,
        ReadOnly::Deposed,
        ReadOnly::SettingsOwed,
        ReadOnly::Witness,
        ReadOnly::Removed,
        ReadOnly::NoMajority,
        ReadOnly::TooFewReplicas,
        ReadOnly::TooFewAcks,
        ReadOnly::DiskFull,
        ReadOnly::Unconfirmed,
        ReadOnly::DiskStalled,
        ReadOnly::LogFailed,
    ];

    /// The current reason, the gravest first. `None` also during recovery.
    pub(crate) fn of(log: Option<&Log>, replication: &dyn Replication) -> Option<ReadOnly> {
        let log = log?;
        match log.admit(0) {
            Admission::Poisoned => return Some(ReadOnly::LogFailed),
            Admission::Frozen => return Some(ReadOnly::Unconfirmed),
            Admission::NoRoom => return Some(ReadOnly::DiskFull),
            Admission::Stalled => return Some(ReadOnly::DiskStalled),
            Admission::Go | Admission::Wait => {}
        }
        match replication.refuses_writes() {
            Some(WRITE_WITNESS) => return Some(ReadOnly::Witness),
            Some(WRITE_REMOVED) => return Some(ReadOnly::Removed),
            _ => {}
        }
        if replication.lacks_majority() {
            return Some(ReadOnly::NoMajority);
        }
        match replication.refuses_writes() {
            None => replication.lacks_acks().then_some(ReadOnly::TooFewAcks),
            Some(WRITE_DEPOSED) => Some(ReadOnly::Deposed),
            Some(_) if replication.is_read_only() => Some(ReadOnly::Replica),
            Some(SETTINGS_OWED) => Some(ReadOnly::SettingsOwed),
            Some(NOT_COMMITTED) => Some(ReadOnly::NoMajority),
            Some(_) => Some(ReadOnly::TooFewReplicas),
        }
    }

    /// Its name in metrics and in `/_up`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReadOnly::Replica => "replica",
            ReadOnly::Deposed => "deposed",
            ReadOnly::SettingsOwed => "settings_owed",
            ReadOnly::Witness => "witness",
            ReadOnly::Removed => "removed",
            ReadOnly::NoMajority => "no_majority",
            ReadOnly::TooFewReplicas => "too_few_replicas",
            ReadOnly::TooFewAcks => "too_few_acks",
            ReadOnly::DiskFull => "disk_full",
            ReadOnly::Unconfirmed => "unconfirmed",
            ReadOnly::DiskStalled => "disk_stalled",
            ReadOnly::LogFailed => "log_failed",
        }
    }

    /// The reason as a sentence.
    pub(crate) fn reason(self, log: Option<&Log>) -> String {
        match self {
            ReadOnly::Replica => "This server is a replica and takes no writes.".into(),
            ReadOnly::Deposed => {
                "This server has given up the lead, and follows nobody: another server leads, or is being told to. Once that is \
                 over, REPLICAOF host port has this one follow it, REPLICAOF NO ONE has this one lead."
                    .into()
            }
            ReadOnly::SettingsOwed => "The settings that were given at the start are being written to the log.".into(),
            ReadOnly::Witness => "This server is a witness of its group and has no data.".into(),
            ReadOnly::Removed => "This server was removed from its group. Ask a member of the group.".into(),
            ReadOnly::NoMajority => {
                "A majority of the group's members must be reachable, and take the log of its leader.".into()
            }
            ReadOnly::TooFewReplicas => {
                "Fewer replicas are connected than min-replicas-to-write asks for.".into()
            }
            ReadOnly::TooFewAcks => {
                "Fewer replicas are connected than ack-replicas asks for, so no write is acknowledged.".into()
            }
            ReadOnly::DiskFull => {
                let reason = log.map(|log| log.no_room_reason()).unwrap_or_default();
                format!("The disk is full, so nothing can be written: {reason}")
            }
            ReadOnly::Unconfirmed => {
                "Damaged data was left out at the start: CONFIG SET force-recovery confirmed accepts that."
                    .into()
            }
            ReadOnly::DiskStalled => "The disk takes too long to write the log.".into(),
            ReadOnly::LogFailed => {
                let reason = log.and_then(|log| log.poison_reason()).unwrap_or_default();
                format!("The log could not be written: {reason}")
            }
        }
    }

    /// Whether a failing disk is the cause.
    pub(crate) fn is_failed_write(self) -> bool {
        matches!(self, ReadOnly::DiskFull | ReadOnly::DiskStalled | ReadOnly::LogFailed)
    }

    /// Whether clients should avoid this server; a replica is healthy, and a witness has nothing for
    /// them.
    pub(crate) fn is_fault(self) -> bool {
        self != ReadOnly::Replica
    }
}
