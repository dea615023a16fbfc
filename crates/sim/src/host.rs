//! The host of a simulated server.
//!
//! The host has the minimum that [`Host`] requires, and the server's bookkeeping of FLUSHALL: the part of the
//! log that is obsolete once the FLUSHALL is durable. The host cannot be configured: no password, no memory
//! limit, no CONFIG. Requests of XSUBSCRIBE are dropped.

use std::sync::{Arc, Mutex, OnceLock};

use documents::Documents;
use engine::{
    CancelAnswer, CommandStats, DebugAccess, DurableChannels, EventClass, Host, Loading, LogLevel,
    MemoryFigures, MemoryLimits, Persistence, Process, Responder, SaveAnswer, Session, SettingsInForce,
    ShutdownMode,
    clients::{Clients, Connected, Signaller},
    group::NoGroup,
    replication::Standalone,
    users::Users,
};
use env::{Clock, SimClock};
use keyspace::EvictionPolicy;
use lsn::Lsn;
use pubsub::durable::{Flow, Request};
use storage::{Error, Log};

/// The prefix of durable channels in a simulation.
const DURABLE_CHANNELS: &[u8] = b"durable";

/// The interfaces of a simulated server with this number of workers on this log, and its bookkeeping of
/// FLUSHALL.
pub fn sim_host(
    clock: Arc<SimClock>,
    log: Log,
    workers: usize,
    documents: Option<Arc<Documents>>,
) -> (Host, Arc<DeadLog>) {
    let dead_log = Arc::new(DeadLog { log, clock: clock.clone(), dead_before: Mutex::new(None) });
    let documents = documents.map_or_else(OnceLock::new, OnceLock::from);
    let host = Host {
        clock,
        clients: Arc::new(Clients::new()),
        scripts: Arc::default(),
        stats: Arc::new(CommandStats::new(workers, commands::table())),
        observer: Arc::default(),
        documents: Arc::new(documents),
        config: Arc::new(Fixed { event_classes: EventClass::NONE }),
        users: Arc::new(Users::new(commands::table())),
        persistence: dead_log.clone(),
        replication: Arc::new(Standalone),
        group: Arc::new(NoGroup),
        durable_channels: Arc::new(Fixed { event_classes: EventClass::NONE }),
        process: Arc::new(Fixed { event_classes: EventClass::NONE }),
    };
    (host, dead_log)
}

/// The session of a client that has just connected.
pub(crate) fn session_of(host: &Host, index: usize, signaller: Signaller) -> Session {
    let connected = Connected {
        peer: format!("sim:{index}"),
        peer_uid: None,
        local: "sim:0".into(),
        fd: 0,
        now_ms: host.clock.unix_ms(),
        signaller,
    };
    Session::new(host.clients.register(connected), true)
}

/// The host, with keyspace notifications for all changes.
pub(crate) fn with_events(host: Host) -> Host {
    let event_classes = EventClass::parse("KEA").unwrap_or_default();
    Host { config: Arc::new(Fixed { event_classes }), ..host }
}

/// Cuts the log before a FLUSHALL.
pub struct DeadLog {
    log: Log,
    clock: Arc<SimClock>,
    /// The position of the record of the last FLUSHALL, and the position at which the log may be cut once the
    /// record is durable.
    dead_before: Mutex<Option<(Lsn, Lsn)>>,
}

impl DeadLog {
    /// Cuts the log before a FLUSHALL that has become durable, if that is possible now.
    ///
    /// # Errors
    /// I/O errors; no data is lost then, and the next call tries again.
    pub fn cut(&self) -> Result<(), Error> {
        let mut dead = self.dead_before.lock().expect("one thread");
        let Some((record, boundary)) = *dead else { return Ok(()) };
        if self.log.durable_lsn() >= record && self.log.truncate_before(boundary)? {
            *dead = None;
        }
        Ok(())
    }
}

impl Persistence for DeadLog {
    fn save(&self, _scheduled: bool) -> SaveAnswer {
        // The world takes snapshots at random steps.
        SaveAnswer::Started
    }

    fn cancel_save(&self) -> CancelAnswer {
        CancelAnswer::Nothing
    }

    fn save_and_respond(&self, _responder: Responder) -> Result<(), &'static str> {
        Err("ERR a simulation takes snapshots when it likes")
    }

    fn confirm_recovery(&self, _responder: Responder) -> Result<(), &'static str> {
        Err("ERR a simulation confirms by itself")
    }

    fn last_save_unix_s(&self) -> u64 {
        self.clock.unix_ms() / 1000
    }

    fn flushing_all(&self, record: Lsn, dead_before: Lsn) {
        *self.dead_before.lock().expect("one thread") = Some((record, dead_before));
    }

    fn make_room_for(&self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }
}

/// The rest of a simulated server: nothing of it changes.
struct Fixed {
    event_classes: EventClass,
}

impl SettingsInForce for Fixed {
    fn memory_limits(&self) -> MemoryLimits {
        MemoryLimits { memory_bytes_max: 0, policy: EvictionPolicy::NoEviction, samples: 5 }
    }

    fn event_classes(&self) -> EventClass {
        self.event_classes
    }

    fn debug_access(&self) -> DebugAccess {
        DebugAccess::Nobody
    }

    fn is_durable_channel(&self, channel: &[u8]) -> bool {
        channel.starts_with(DURABLE_CHANNELS)
    }

    fn get(&self, _pattern: &[u8]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn set(&self, _settings: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        Err("ERR a simulation has no settings".into())
    }

    fn rewrite(&self) -> Result<(), String> {
        Err("ERR a simulation has no settings".into())
    }
}

impl DurableChannels for Fixed {
    fn request(&self, _request: Request) {}

    fn new_flow(&self) -> Arc<Flow> {
        Arc::new(Flow::new(|| {}))
    }
}

impl Process for Fixed {
    fn loading(&self) -> Option<Loading> {
        None
    }

    fn info(&self, _sections: &[String]) -> (String, Lsn) {
        (String::new(), Lsn::ZERO)
    }

    fn fill_secret(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn reset_stats(&self) {}

    fn memory_figures(&self) -> MemoryFigures {
        MemoryFigures::default()
    }

    fn release_unused_memory(&self) {}

    fn allocator_report(&self) -> String {
        String::new()
    }

    fn log_script(&self, _level: LogLevel, _message: &str) {}

    fn shutdown(&self, _mode: ShutdownMode) -> Result<(), String> {
        Err("ERR a simulation is stopped by its test".into())
    }
}
