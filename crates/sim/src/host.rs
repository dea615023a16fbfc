//! The host of a simulated server.
//!
//! It has the minimum that [`Host`] requires, and the server's bookkeeping of FLUSHALL: the part of the log
//! that is obsolete once the FLUSHALL is durable. It cannot be configured: no password, no memory limit, no
//! CONFIG. Requests of XSUBSCRIBE are dropped.

use std::sync::{Arc, Mutex};

use documents::Documents;
use engine::{
    CommandStats, DebugAccess, EventClass, Host, Loading, LogLevel, MemoryFigures, MemoryLimits, Responder,
    SaveAnswer, Scripts, ShutdownMode, clients::Clients, observe::Observer,
};
use env::{Clock, SimClock};
use keyspace::EvictionPolicy;
use lsn::Lsn;
use pubsub::durable::{Flow, Request};
use storage::{Error, Log};

/// The prefix of durable channels in a simulation.
const DURABLE_CHANNELS: &[u8] = b"durable";

/// The host of a simulated server.
pub struct SimHost {
    clock: Arc<SimClock>,
    clients: Clients,
    stats: CommandStats,
    observer: Observer,
    scripts: Scripts,
    log: Log,
    documents: Option<Arc<Documents>>,
    /// The position of the record of the last FLUSHALL, and the position at which the log may be cut once
    /// that is durable.
    dead_before: Mutex<Option<(Lsn, Lsn)>>,
}

impl SimHost {
    /// Creates a host for this number of workers on this log.
    pub fn new(clock: Arc<SimClock>, log: Log, workers: usize) -> SimHost {
        let (clients, stats) = (Clients::new(), CommandStats::new(workers, commands::table()));
        let (observer, scripts) = (Observer::default(), Scripts::default());
        SimHost {
            clock,
            clients,
            stats,
            observer,
            scripts,
            log,
            documents: None,
            dead_before: Mutex::new(None),
        }
    }

    /// Adds document databases.
    pub fn with_documents(self, documents: Arc<Documents>) -> SimHost {
        SimHost { documents: Some(documents), ..self }
    }

    /// Cuts the log before a FLUSHALL that has become durable; the server does this once a second.
    ///
    /// # Errors
    /// I/O errors; no data is lost then.
    pub fn cut_dead_log(&self) -> Result<(), Error> {
        let mut dead = self.dead_before.lock().expect("one thread");
        let Some((record, boundary)) = *dead else { return Ok(()) };
        if self.log.durable_lsn() < record {
            return Ok(());
        }
        *dead = None;
        self.log.truncate_before(boundary).map(drop)
    }
}

impl Host for SimHost {
    fn loading(&self) -> Option<Loading> {
        None
    }

    fn documents(&self) -> Option<&Documents> {
        self.documents.as_deref()
    }

    fn memory_limits(&self) -> MemoryLimits {
        MemoryLimits { memory_bytes_max: 0, policy: EvictionPolicy::NoEviction, samples: 5 }
    }

    fn memory_figures(&self) -> MemoryFigures {
        MemoryFigures::default()
    }

    fn release_unused_memory(&self) {}

    fn allocator_report(&self) -> String {
        String::new()
    }

    fn is_durable_channel(&self, channel: &[u8]) -> bool {
        channel.starts_with(DURABLE_CHANNELS)
    }

    fn ask_channels(&self, _request: Request) {}

    fn new_flow(&self) -> Arc<Flow> {
        Arc::new(Flow::new(|| {}))
    }

    fn event_classes(&self) -> EventClass {
        EventClass::NONE
    }

    fn debug_access(&self) -> DebugAccess {
        DebugAccess::Nobody
    }

    fn monotonic_us(&self) -> u64 {
        self.clock.monotonic_us()
    }

    fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    fn log_script(&self, _level: LogLevel, _message: &str) {}

    fn clients(&self) -> &Clients {
        &self.clients
    }

    fn command_stats(&self) -> &CommandStats {
        &self.stats
    }

    fn observer(&self) -> &Observer {
        &self.observer
    }

    fn requires_password(&self) -> bool {
        false
    }

    fn authenticate(&self, _user: &[u8], _password: &[u8]) -> bool {
        true
    }

    fn info(&self, _sections: &[String]) -> (String, Lsn) {
        (String::new(), Lsn::ZERO)
    }

    fn config_get(&self, _pattern: &[u8]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn config_set(&self, _settings: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        Err("ERR a simulation has no settings".into())
    }

    fn config_rewrite(&self) -> Result<(), String> {
        Err("ERR a simulation has no settings".into())
    }

    fn reset_stats(&self) {
        self.stats.reset();
    }

    fn shutdown(&self, _mode: ShutdownMode) -> Result<(), String> {
        Err("ERR a simulation is stopped by its test".into())
    }

    fn save(&self, _scheduled: bool) -> SaveAnswer {
        // The world takes snapshots at random steps.
        SaveAnswer::Started
    }

    fn save_and_tell(&self, _promise: Responder) -> Result<(), &'static str> {
        Err("ERR a simulation takes snapshots when it likes")
    }

    fn confirm_recovery(&self, _promise: Responder) -> Result<(), &'static str> {
        Err("ERR a simulation confirms by itself")
    }

    fn last_save_unix_s(&self) -> u64 {
        self.clock.unix_ms() / 1000
    }

    fn flushing_all(&self, record: Lsn, dead_before: Lsn) {
        *self.dead_before.lock().expect("one thread") = Some((record, dead_before));
    }
}
