//! The rules of a round: the refusals that follow from the state of the process, and the checks that depend
//! on it alone.

use keyspace::{EvictionPolicy, Keyspace};
use storage::{Admission, Appender};

use crate::{CommandError, Flags, Host, MemoryLimits, Row, clients::Pause, replication::WriteRefusal};

/// The rules of one round: the state of the process as it was when the round began.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The memory limit in force; no limit while the server is read-only.
    pub limits: MemoryLimits,
    /// Whether the server is loading its data, so that most commands are refused.
    pub loading: bool,
    /// Whether nothing is appended, not even expiries: another server writes the log, or may be about to.
    pub read_only: bool,
    /// Why replication refuses the writes of clients; `None` if it does not.
    pub refusal: Option<WriteRefusal>,
    /// The error with which replication refuses the reads of clients; `None` if it does not.
    pub read_refusal: Option<&'static str>,
    /// Whether commands with keys may have to be sent to the leader; see [`crate::redirect`].
    pub(crate) redirects: bool,
    pub(crate) pause: Option<Pause>,
}

impl Rules {
    /// The rules of an executor before its first round.
    pub(crate) const LOADING: Rules = Rules {
        limits: MemoryLimits { memory_bytes_max: 0, policy: EvictionPolicy::NoEviction, samples: 0 },
        loading: true,
        read_only: false,
        refusal: None,
        read_refusal: None,
        redirects: false,
        pause: None,
    };

    pub(crate) fn now(host: &Host) -> Rules {
        let replication = &host.replication;
        let (read_only, refusal) = (replication.is_read_only(), replication.refuses_writes());
        let mut limits = host.config.memory_limits();
        if read_only {
            // Eviction is the leader's task.
            limits.memory_bytes_max = 0;
        }
        Rules {
            limits,
            loading: host.process.loading().is_some(),
            read_only,
            refusal,
            read_refusal: replication.refuses_reads(),
            redirects: matches!(refusal, Some(WriteRefusal::Replica | WriteRefusal::HandingOver))
                && host.config.emulates_cluster(),
            pause: host.clients.pause().at(&*host.clock),
        }
    }
}

/// Whether a record of about `bytes` may be appended now.
pub(crate) fn admit(appender: Option<&Appender>, bytes: u64) -> Admission {
    appender.map_or(Admission::Wait, |appender| appender.admit(bytes))
}

impl Rules {
    /// Whether neither expiry nor eviction removes keys here: another server writes the log, or no majority
    /// takes this server's log.
    pub(crate) fn keeps_all(&self) -> bool {
        self.read_only || self.refusal == Some(WriteRefusal::NotCommitted)
    }

    /// Asks the log whether a write may be executed. Returns `false` if the log cannot take the write now.
    pub(crate) fn admit_write(&self, appender: Option<&Appender>, bytes: u64) -> Result<bool, CommandError> {
        if let Some(refusal) = self.refusal {
            return Err(CommandError::Text(refusal.error()));
        }
        match admit(appender, bytes) {
            Admission::Go => Ok(true),
            Admission::Wait => Ok(false),
            Admission::NoRoom => {
                let reason = appender.map_or_else(String::new, |it| it.log().no_room_reason());
                Err(CommandError::DiskFull(reason))
            }
            Admission::Frozen => Err(CommandError::RecoveryUnconfirmed),
            Admission::Stalled => Err(CommandError::LogStalled),
            Admission::Poisoned => Err(CommandError::LogFailed),
        }
    }

    /// Checks the command of a waiting client again, when it can be served: the rules may have changed since
    /// it began to wait. Slots are locked, so nothing can be evicted here. `false`: the waiter must be served
    /// in a unit of its own, after an attempt to make room.
    ///
    /// # Errors
    /// The client gets the error instead of the element, which stays.
    pub(crate) fn admit_waiter(
        &self,
        row: &Row,
        appender: Option<&Appender>,
        keyspace: &Keyspace,
    ) -> Result<bool, CommandError> {
        if let Some(refusal) = self.read_refusal.filter(|_| is_denied_when_stale(row)) {
            return Err(CommandError::Text(refusal));
        }
        if !row.flags.has(Flags::WRITE) {
            return Ok(true);
        }
        // `false` is ignored: if the log cannot take the record now, the record, which is small, waits as a
        // transaction's record does.
        self.admit_write(appender, 0)?;
        let limits = &self.limits;
        let fits = limits.memory_bytes_max == 0 || keyspace.bytes() <= limits.memory_bytes_max;
        if fits || !row.flags.has(Flags::DENYOOM) {
            Ok(true)
        } else if limits.policy == EvictionPolicy::NoEviction {
            Err(CommandError::OutOfMemory)
        } else {
            Ok(false)
        }
    }
}

/// Whether a command is refused where data may not be shown. Writes are not: [`Rules::refusal`] decides about
/// them.
pub fn is_denied_when_stale(row: &Row) -> bool {
    // A command that wraps another one (IDEMP) shows the stored reply, so it counts as a read.
    let is_refused_as_write = row.flags.has(Flags::WRITE) && !row.flags.has(Flags::WRAPS);
    !row.flags.has(Flags::STALE) && !is_refused_as_write && !row.treatment.asks_for_life
}
