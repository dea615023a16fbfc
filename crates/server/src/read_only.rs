//! The reason why the server takes no writes, if any: one answer for `/_up`, INFO and metrics.
//!
//! It is for display only. Writes do not consult it; each is admitted where it is executed.

use engine::Host;
use storage::Admission;

use crate::host::ServerHost;

/// A state in which the server refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    /// It follows a leader. This is not a fault.
    Replica,
    /// Fewer replicas are connected than `min-replicas-to-write` requires.
    TooFewReplicas,
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
    pub(crate) const ALL: [ReadOnly; 6] = [
        ReadOnly::Replica,
        ReadOnly::TooFewReplicas,
        ReadOnly::DiskFull,
        ReadOnly::Unconfirmed,
        ReadOnly::DiskStalled,
        ReadOnly::LogFailed,
    ];

    /// The current reason, the gravest first. `None` also during recovery.
    pub(crate) fn of(host: &ServerHost) -> Option<ReadOnly> {
        let log = host.log()?;
        match log.admit(0) {
            Admission::Poisoned => return Some(ReadOnly::LogFailed),
            Admission::Frozen => return Some(ReadOnly::Unconfirmed),
            Admission::NoRoom => return Some(ReadOnly::DiskFull),
            Admission::Stalled => return Some(ReadOnly::DiskStalled),
            Admission::Go | Admission::Wait => {}
        }
        let replication = host.replication();
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

    /// The reason as a sentence.
    pub(crate) fn reason(self, host: &ServerHost) -> String {
        let log = host.log();
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

    /// Whether a failing disk is the cause.
    pub(crate) fn is_failed_write(self) -> bool {
        matches!(self, ReadOnly::DiskFull | ReadOnly::DiskStalled | ReadOnly::LogFailed)
    }

    /// Whether clients should avoid this server; a replica is healthy.
    pub(crate) fn is_fault(self) -> bool {
        self != ReadOnly::Replica
    }
}
