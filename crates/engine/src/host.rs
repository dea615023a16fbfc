//! What a command may ask of the process it runs in. The server implements it; tests and simulations bring their own.
//!
//! Narrow on purpose: a method here is a thing no keyspace, log or session can answer.

use std::sync::Arc;

use documents::Documents;
use keyspace::EvictionPolicy;
use pubsub::durable::{Flow, Request};

use crate::{
    EventClass, LogLevel, Promise, Scripts,
    clients::{Client, Clients},
    observe::Observer,
    replication::{Replication, Standalone},
    stats::CommandStats,
};

/// How far recovery has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loading {
    /// 0 to 100.
    pub percent: f64,
    /// Seconds until it is done at the present rate; `None` before there is a rate.
    pub eta_seconds: Option<f64>,
}

/// The memory limit in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of data above which commands that add data are refused or keys are evicted; 0 for no limit.
    pub memory_bytes_max: u64,
    /// What to evict.
    pub policy: EvictionPolicy,
    /// Keys compared per eviction.
    pub samples: usize,
}

/// What the process says about its memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryFigures {
    /// In memory now.
    pub resident_bytes: u64,
    /// The most that was ever in memory.
    pub resident_bytes_max: u64,
    /// Taken from the system by the allocator.
    pub committed_bytes: u64,
    /// What the process may count on; 0 if unknown.
    pub system_bytes: u64,
    /// The ring of the log.
    pub log_buffer_bytes: u64,
}

/// Who may run DEBUG (`enable-debug-command`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DebugAccess {
    /// Nobody.
    #[default]
    Nobody,
    /// Clients on the machine of the server.
    Local,
    /// Everybody.
    Everybody,
}

impl DebugAccess {
    /// Whether this client may.
    pub fn includes(self, client: &Client) -> bool {
        match self {
            DebugAccess::Nobody => false,
            DebugAccess::Local => client.is_local(),
            DebugAccess::Everybody => true,
        }
    }
}

/// The error of SAVE and BGSAVE while a snapshot is being taken.
pub const SAVE_IN_PROGRESS: &str = "ERR Background save already in progress";

/// What came of asking for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveAnswer {
    /// It is being taken.
    Started,
    /// It will be taken after the one that is being taken.
    Scheduled,
    /// One is being taken, and another was not wanted then.
    InProgress,
    /// None is taken before somebody has accepted what was lost; see [`Host::confirm_recovery`].
    Unconfirmed,
}

/// What SHUTDOWN was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Stop in order.
    InOrder,
    /// Stop in order, after a snapshot.
    Save,
    /// Stop in order, without a snapshot.
    NoSave,
    /// Cancel a stop that has not happened yet.
    Abort,
}

/// See the module documentation. All methods may be called from any worker.
pub trait Host: Send + Sync {
    /// What it knows of other servers.
    fn replication(&self) -> &dyn Replication {
        &Standalone
    }
    /// `Some` while recovery runs: most commands are refused with LOADING.
    fn loading(&self) -> Option<Loading>;
    /// The document databases; `None` while they are loaded.
    fn documents(&self) -> Option<&Documents> {
        None
    }
    /// The memory limit in force.
    fn memory_limits(&self) -> MemoryLimits;
    /// What the process says about its memory.
    fn memory_figures(&self) -> MemoryFigures;
    /// Has every thread give memory that is free back to the system; returns at once.
    fn release_unused_memory(&self);
    /// The allocator's own report.
    fn allocator_report(&self) -> String;
    /// Whether messages to this channel are kept in the log (`durable-channels`).
    fn is_durable_channel(&self, channel: &[u8]) -> bool;
    /// Passes a request on to the thread of durable channels; what comes of it is told to the worker.
    fn ask_channels(&self, request: Request);
    /// For a client that begins to follow durable channels.
    fn new_flow(&self) -> Arc<Flow>;
    /// The events that are wanted (`notify-keyspace-events`).
    fn event_classes(&self) -> EventClass;
    /// Who may run DEBUG.
    fn debug_access(&self) -> DebugAccess;
    /// Monotonic microseconds, for latencies.
    fn monotonic_us(&self) -> u64;
    /// The connections of the server.
    fn clients(&self) -> &Clients;
    /// The scripts that clients may call.
    fn scripts(&self) -> &Scripts;
    /// Writes a message of a script to the log of the process.
    fn log_script(&self, level: LogLevel, message: &str);
    /// Counters of all workers together.
    fn command_stats(&self) -> &CommandStats;
    /// The instruments of the server.
    fn observer(&self) -> &Observer;
    /// Whether a password is needed at all.
    fn requires_password(&self) -> bool;
    /// Whether this name and password open the server.
    fn authenticate(&self, user: &[u8], password: &[u8]) -> bool;
    /// The text of INFO for the given lower-case section names; none: the default sections. It shows what is in the log up to
    /// the position; [`lsn::Lsn::ZERO`]: nothing that must be waited for.
    fn info(&self, sections: &[String]) -> (String, lsn::Lsn);
    /// (name, value) of every setting whose name matches the glob, in table order.
    fn config_get(&self, pattern: &[u8]) -> Vec<(&'static str, String)>;
    /// Whether the setting of this name belongs to the data.
    fn is_of_data(&self, setting: &[u8]) -> bool {
        let _ = setting;
        false
    }
    /// Sets all or nothing, but for those settings that belong to the data: these are returned, and are in force when
    /// [`Host::apply_data_settings`] is called after their record has a position. The error is the whole error text, prefix included.
    ///
    /// # Errors
    /// An unknown or immutable setting, or a value out of range; a setting that the leader has to set.
    fn config_set(&self, settings: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String>;
    /// Puts in force what the data say of settings. Not under the lock of a slot.
    fn apply_data_settings(&self) {}
    /// Writes the settings back to the configuration file. The error is the whole error text.
    ///
    /// # Errors
    /// If the server runs without a file or it cannot be written.
    fn config_rewrite(&self) -> Result<(), String>;
    /// Resets what INFO counts.
    fn reset_stats(&self);
    /// Begins to stop the server; returns at once. The error is the whole error text.
    ///
    /// # Errors
    /// If there is nothing to abort.
    fn shutdown(&self, mode: ShutdownMode) -> Result<(), String>;
    /// Asks for a snapshot; returns at once. While one is being taken, another only if it may be `scheduled`.
    fn save(&self, scheduled: bool) -> SaveAnswer;
    /// Asks for a snapshot, for a client that waits until it is taken; returns at once.
    ///
    /// # Errors
    /// The whole error text, if one is being taken; the promise is forgotten.
    fn save_and_tell(&self, promise: Promise) -> Result<(), &'static str>;
    /// The operator accepts what a forced recovery has lost: has the server take writes again, and then keeps the promise.
    ///
    /// # Errors
    /// The whole error text, if there is nothing to accept or somebody is at it; the promise is forgotten.
    fn confirm_recovery(&self, promise: Promise) -> Result<(), &'static str>;
    /// Unix seconds of the newest snapshot, or of the start if there is none.
    fn last_save_unix_s(&self) -> u64;
    /// A unit with a FLUSHALL has the position `record`, and nothing after it is in the log yet: every slot is locked. What
    /// the log holds before `dead_before`, where the record has not begun, is dead once the record is durable.
    fn flushing_all(&self, record: lsn::Lsn, dead_before: lsn::Lsn);
}
