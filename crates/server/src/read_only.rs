//! Why the server takes no writes, if so: one answer for `/_up`, INFO and metrics.
//!
//! What it is: what a write would be told now. What it is not: asked by writes, each of which is admitted where it is made.

use engine::replication::Replication;
use storage::{Admission, Log};

/// See the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    /// It follows another server. That is no fault.
    Replica,
    /// Fewer replicas are connected than `min-replicas-to-write` asks for.
    TooFewReplicas,
    /// The disk has no room for the log.
    DiskFull,
    /// Damaged data was left out at the start, and nobody has accepted that yet.
    Unconfirmed,
    /// The disk has not answered for seconds.
    DiskStalled,
    /// A write or a sync of the log has failed: the server is about to stop.
    LogFailed,
}

impl ReadOnly {
    /// All reasons, for metrics.
    pub(crate) const ALL: [ReadOnly; 6] = [
        ReadOnly::Replica,
        ReadOnly::TooFewReplicas,
        ReadOnly::DiskFull,
        ReadOnly::Unconfirmed,
        ReadOnly::DiskStalled,
        ReadOnly::LogFailed,
    ];

    /// The reason that holds now, the gravest first. `None` also while the log is recovered.
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
            None => None,
            Some(_) if replication.is_read_only() => Some(ReadOnly::Replica),
            Some(_) => Some(ReadOnly::TooFewReplicas),
        }
    }

    /// Its name in metrics and in `/_up`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReadOnly::Replica => "replica",
            ReadOnly::TooFewReplicas => "too_few_replicas",
            ReadOnly::DiskFull => "disk_full",
            ReadOnly::Unconfirmed => "unconfirmed",
            ReadOnly::DiskStalled => "disk_stalled",
            ReadOnly::LogFailed => "log_failed",
        }
    }

    /// The reason in words, for people.
    pub(crate) fn reason(self, log: Option<&Log>) -> String {
        match self {
            ReadOnly::Replica => "This server is a replica and takes no writes.".into(),
            ReadOnly::TooFewReplicas => {
                "Fewer replicas are connected than min-replicas-to-write asks for.".into()
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

    /// Whether the disk is to blame.
    pub(crate) fn is_failed_write(self) -> bool {
        matches!(self, ReadOnly::DiskFull | ReadOnly::DiskStalled | ReadOnly::LogFailed)
    }

    /// Whether no load should be sent here: a replica serves what it is for.
    pub(crate) fn is_fault(self) -> bool {
        self != ReadOnly::Replica
    }
}
