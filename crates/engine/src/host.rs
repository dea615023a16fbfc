//! The process around the executors, as commands see it: shared parts, and one small interface per concern.
//!
//! The server implements the interfaces; tests and simulations bring their own.
//!
//! The interfaces are narrow on purpose: a method belongs here only if no keyspace, log or session can answer
//! it.

use std::sync::{Arc, OnceLock};

use documents::Documents;
use env::Clock;
use keyspace::EvictionPolicy;
use lsn::Lsn;
use pubsub::durable::{Flow, Request};

use crate::{
    EventClass, LogLevel, Responder, Scripts,
    clients::{Client, Clients},
    group::Group,
    observe::Observer,
    replication::Replication,
    stats::CommandStats,
    users::Users,
};

/// The progress of recovery, for INFO.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loading {
    /// The share of the data that is loaded, in percent, 0 to 100.
    pub percent: f64,
    /// Seconds until recovery is done, at its average rate so far; `None` before anything is loaded.
    pub eta_seconds: Option<f64>,
}

/// The memory limit in force, and how room is made under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes of data above which commands that add data are refused or keys are evicted; 0 for no limit.
    pub memory_bytes_max: u64,
    /// The choice of keys to evict.
    pub policy: EvictionPolicy,
    /// The number of keys that are compared for each eviction.
    pub samples: usize,
}

/// The memory of the process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryFigures {
    /// Resident memory of the process now.
    pub resident_bytes: u64,
    /// The highest resident memory so far.
    pub resident_bytes_max: u64,
    /// The memory of the machine, or the limit of the process's control group if that is less; 0 if unknown.
    pub system_bytes: u64,
    /// The memory of the ring of the log.
    pub log_buffer_bytes: u64,
    /// The resident memory beside the data when the process began to serve: the program, its threads and
    /// buffers; 0 if unknown.
    pub beside_data_bytes: u64,
}

/// The clients that may run DEBUG (`enable-debug-command`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DebugAccess {
    /// No client may run DEBUG.
    #[default]
    Nobody,
    /// Clients that have connected from a loopback address or through a Unix socket.
    Local,
    /// Every client may run DEBUG.
    Everybody,
}

impl DebugAccess {
    /// Whether this client may run DEBUG.
    pub fn includes(self, client: &Client) -> bool {
        match self {
            DebugAccess::Nobody => false,
            DebugAccess::Local => client.is_local(),
            DebugAccess::Everybody => true,
        }
    }
}

/// The error of SAVE and BGSAVE while a snapshot is running or wanted.
pub const SAVE_IN_PROGRESS: &str = "ERR Background save already in progress";

/// The answer to a request for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveAnswer {
    /// The snapshot begins at once.
    Started,
    /// The snapshot begins when the running one, if there is one, has ended.
    Scheduled,
    /// A snapshot is running or wanted, and the caller did not allow scheduling another.
    InProgress,
    /// No snapshot is taken before an operator has accepted the loss; see [`Persistence::confirm_recovery`].
    Unconfirmed,
}

/// The answer to the wish to give up a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// The snapshot in progress ends without a result.
    Running,
    /// The snapshot that was to follow is not taken.
    Scheduled,
    /// There is no snapshot that can be given up.
    Nothing,
}

/// How SHUTDOWN stops the server, or that it cancels a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Stop in order, after a snapshot if the next start would have to replay much without it.
    InOrder,
    /// Stop in order, after a snapshot.
    Save,
    /// Stop in order, without a snapshot.
    NoSave,
    /// Cancel a shutdown that is still in progress.
    Abort,
}

/// The document databases; empty until they are loaded.
pub type DocumentsCell = OnceLock<Arc<Documents>>;

/// The process around the executors; see the module documentation. Everything may be used from any worker.
#[derive(Clone)]
pub struct Host {
    /// The clocks. A command takes the time of day from its unit, not from here.
    pub clock: Arc<dyn Clock>,
    /// The clients of the Redis protocol.
    pub clients: Arc<Clients>,
    /// The scripts that clients may call.
    pub scripts: Arc<Scripts>,
    /// The counters of all workers.
    pub stats: Arc<CommandStats>,
    /// The instruments of the server: the slow log, the latency monitor, and traces.
    pub observer: Arc<Observer>,
    /// The document databases; empty until they are loaded.
    pub documents: Arc<DocumentsCell>,
    /// The settings in force: CONFIG, and the values that commands need.
    pub config: Arc<dyn SettingsInForce>,
    /// The users and their rights, the log of denials, and the audit.
    pub users: Arc<Users>,
    /// Snapshots, and room in the log.
    pub persistence: Arc<dyn Persistence>,
    /// The state of replication and the requests to change it.
    pub replication: Arc<dyn Replication>,
    /// The group of this server, or its absence.
    pub group: Arc<dyn Group>,
    /// The thread that reads durable channels from the log.
    pub durable_channels: Arc<dyn DurableChannels>,
    /// The process as a whole: loading, INFO, memory, shutdown.
    pub process: Arc<dyn Process>,
}

impl Host {
    /// The document databases; `None` until they are loaded.
    pub fn documents(&self) -> Option<&Documents> {
        self.documents.get().map(|documents| &**documents)
    }

    /// Monotonic microseconds, to measure durations.
    pub fn monotonic_us(&self) -> u64 {
        self.clock.monotonic_us()
    }
}

/// The error of ACL LOAD and ACL SAVE without a file, as in Redis.
pub const NO_FILE_OF_USERS: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify \
                                    users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you \
                                    have a Redis configuration file set) in order to store users in the Redis \
                                    configuration.";

/// The settings in force, as commands ask for them and as CONFIG changes them.
pub trait SettingsInForce: Send + Sync {
    /// The memory limit in force, read at the start of each round.
    fn memory_limits(&self) -> MemoryLimits;
    /// The length up to which a HyperLogLog keeps the sparse encoding (`hll-sparse-max-bytes`).
    fn sparse_bytes_max(&self) -> usize {
        3000
    }
    /// The classes of events to note (`notify-keyspace-events`); none while no client subscribes to events.
    fn event_classes(&self) -> EventClass;
    /// The clients that may run DEBUG.
    fn debug_access(&self) -> DebugAccess;
    /// Whether messages to this channel are written to the log (`durable-channels`).
    fn is_durable_channel(&self, channel: &[u8]) -> bool;
    /// The sizes of documents that clients may send (`max-document-size`).
    fn document_limits(&self) -> documents::Limits {
        documents::Limits::default()
    }
    /// Whether CLUSTER answers, and a follower sends the clients of a cluster to its leader
    /// (`cluster-emulation`).
    fn emulates_cluster(&self) -> bool {
        false
    }
    /// Name and value, as CONFIG GET shows them, of each setting that has a name or an alias matching the
    /// glob.
    fn get(&self, pattern: &[u8]) -> Vec<(&'static str, String)>;
    /// Whether the setting of this name belongs to the data.
    fn is_of_data(&self, setting: &[u8]) -> bool {
        let _ = setting;
        false
    }
    /// Sets all or none of the settings. Settings that belong to the data are not set but returned: the
    /// caller records them, and [`SettingsInForce::apply_data_settings`] then puts them in force. The error
    /// is the whole error text, prefix included.
    ///
    /// # Errors
    /// An unknown or immutable setting, a value that is refused, a setting that belongs to the data and may
    /// not change here now (see [`SettingsInForce::require_say_over_data`]), or values that cannot be stored.
    fn set(&self, settings: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String>;
    /// Checks that this server may change the data, as CONFIG SET of this setting does.
    ///
    /// # Errors
    /// The whole error text, if this server may not change the data.
    fn require_say_over_data(&self, setting: &str) -> Result<(), String> {
        _ = setting;
        Ok(())
    }
    /// Puts the settings that belong to the data in force. Must not be called under the lock of a slot.
    fn apply_data_settings(&self) {}
    /// The name and the content of the file of users (`aclfile`).
    ///
    /// # Errors
    /// The whole error text, if there is no such file or it cannot be read.
    fn read_users(&self) -> Result<(String, Vec<u8>), String> {
        Err(NO_FILE_OF_USERS.into())
    }
    /// Replaces the content of the file of users.
    ///
    /// # Errors
    /// The whole error text, if there is no such file or it cannot be written.
    fn write_users(&self, content: &[u8]) -> Result<(), String> {
        _ = content;
        Err(NO_FILE_OF_USERS.into())
    }
    /// Writes the settings back to the configuration file. The error is the whole error text.
    ///
    /// # Errors
    /// If the server runs without a configuration file, or the file cannot be brought up to date.
    fn rewrite(&self) -> Result<(), String>;
}

/// Snapshots, the confirmation of a forced recovery, and room in the log.
pub trait Persistence: Send + Sync {
    /// Requests a snapshot; returns at once. While a snapshot is running or wanted, another is accepted only
    /// if it may be `scheduled`.
    fn save(&self, scheduled: bool) -> SaveAnswer;
    /// Gives up the snapshot in progress, or else the one that is wanted next.
    fn cancel_save(&self) -> CancelAnswer;
    /// Requests a snapshot and returns at once; `responder` is answered when the snapshot is complete or has
    /// failed.
    ///
    /// # Errors
    /// The whole error text, if a snapshot is running or wanted, or a forced recovery is not confirmed; the
    /// responder is dropped.
    fn save_and_respond(&self, responder: Responder) -> Result<(), &'static str>;
    /// Accepts, for the operator, the loss of a forced recovery: makes the server take writes again. Answers
    /// `responder` after that, or with an error if the server could not be made to take writes.
    ///
    /// # Errors
    /// The whole error text, if there is no loss to accept or another client is accepting it; the responder
    /// is dropped.
    fn confirm_recovery(&self, responder: Responder) -> Result<(), &'static str>;
    /// Unix seconds of the newest snapshot, or of the start if there is none.
    fn last_save_unix_s(&self) -> u64;
    /// Notes that a unit with a FLUSHALL has reserved the position `record`. The unit still holds the locks
    /// of all slots, so the calls come in the order of their records. Once the record is durable, no key
    /// needs the log before `dead_before`, a position at or before the start of the record.
    fn flushing_all(&self, record: Lsn, dead_before: Lsn);
    /// Makes room in the log for a record of `bytes`, which may take milliseconds.
    ///
    /// # Errors
    /// The reason why there is no room for the record.
    fn make_room_for(&self, bytes: u64) -> Result<(), String>;
}

/// The thread that reads durable channels from the log.
pub trait DurableChannels: Send + Sync {
    /// Passes a request to the thread. The answer, if the request gets one, goes to the reader's worker.
    fn request(&self, request: Request);
    /// The flow control of a client that begins to read durable channels.
    fn new_flow(&self) -> Arc<Flow>;
}

/// The process as a whole: its progress, memory and end.
pub trait Process: Send + Sync {
    /// `Some` while recovery runs: most commands are refused with LOADING.
    fn loading(&self) -> Option<Loading>;
    /// The text of INFO for the given lower-case section names, or for the default sections if none is given.
    /// The position is the gate of the text; [`Lsn::ZERO`]: the text may be sent at once.
    fn info(&self, sections: &[String]) -> (String, Lsn);
    /// Fills bytes from a source of randomness that is fit for secrets.
    fn fill_secret(&self, bytes: &mut [u8]);
    /// Resets the counters of INFO.
    fn reset_stats(&self);
    /// The figures of the memory of the process, for INFO.
    fn memory_figures(&self) -> MemoryFigures;
    /// Has every worker return free memory to the system; returns at once.
    fn release_unused_memory(&self);
    /// The report of the memory allocator about itself, as text.
    fn allocator_report(&self) -> String;
    /// Writes a message of a script to the log of the process.
    fn log_script(&self, level: LogLevel, message: &str);
    /// Has a thread that serves no clients do some work; returns at once.
    fn run_apart(&self, work: Box<dyn FnOnce() + Send>);
    /// Begins to stop the server; returns at once. The error is the whole error text.
    ///
    /// # Errors
    /// For [`ShutdownMode::Abort`]: there is no shutdown, or it cannot be aborted.
    fn shutdown(&self, mode: ShutdownMode) -> Result<(), String>;
}
