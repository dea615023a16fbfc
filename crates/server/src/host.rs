//! The process as commands see it: implements [`engine::Host`] from the parts the server is made of.
//!
//! Settings that the hot path reads are kept in atomics beside the settings; CONFIG SET writes both.

pub(crate) mod config;
mod data_settings;

use std::{
    net::SocketAddr,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
};

use documents::Documents;
use engine::{
    CommandStats, DebugAccess, EventClass, Host, Interests, Loading, LogLevel, MemoryFigures, MemoryLimits,
    Responder, SaveAnswer, Scripts, ShutdownMode, WorkerStats,
    clients::{Client, ClientKind, Clients, Connected},
    observe::{LatencyEvent, Observer},
    replication::Replication,
};
use env::{Clock, Entropy, HeldDisk};
use keyspace::{EvictionPolicy, Keyspace};
use lsn::Lsn;
use parking_lot::{Mutex, RwLock};
use pubsub::{
    Hub,
    durable::{Flow, Request},
};
use recovery::progress::LoadProgress;
use settings::{Key, Lasting, OutputLimit, OutputLimits, Settings, setting_named};

use storage::{Durability, Log};
use tokio::{net::TcpStream, sync::Notify};

use crate::{
    backup::session::{Sessions, remove_unpinned},
    cross_protocol::CrossProtocol,
    documents::{Compactor, Feeds, Saver, Served},
    durable_channels::DurableChannels,
    inventory::Inventory,
    long_units::{LONG_UNITS_MAX, LongUnits},
    mailbox::{Mailbox, Message},
    replication::{Node, ReplicationHandle},
    scrub::Scrubber,
    snapshots::{AtStop, Snapshots},
};

/// The eviction policies by the names that `maxmemory-policy` takes.
const POLICIES: [(&str, EvictionPolicy); 8] = [
    ("noeviction", EvictionPolicy::NoEviction),
    ("allkeys-lru", EvictionPolicy::AllKeysLru),
    ("allkeys-lfu", EvictionPolicy::AllKeysLfu),
    ("allkeys-random", EvictionPolicy::AllKeysRandom),
    ("volatile-lru", EvictionPolicy::VolatileLru),
    ("volatile-lfu", EvictionPolicy::VolatileLfu),
    ("volatile-random", EvictionPolicy::VolatileRandom),
    ("volatile-ttl", EvictionPolicy::VolatileTtl),
];

/// Settings that are read for every round of commands.
#[derive(Default)]
struct Live {
    memory_bytes_max: AtomicU64,
    eviction_policy: AtomicU8,
    eviction_samples: AtomicU64,
    bulk_bytes_max: AtomicU64,
    request_bytes_max: AtomicU64,
    clients_max: AtomicU64,
    http_clients_max: AtomicU64,
    idle_timeout_seconds: AtomicU64,
    password_needed: AtomicBool,
    admin_password_set: AtomicBool,
    protected: AtomicBool,
    event_classes: AtomicU16,
    output_limits: RwLock<OutputLimits>,
    /// Whether there are any of the next.
    has_durable_channels: AtomicBool,
    /// Patterns of channels whose messages are kept in the log.
    durable_channels: RwLock<Vec<Box<[u8]>>>,
}

/// What is fixed when the server starts.
pub(crate) struct StartupInfo {
    pub(crate) dir: PathBuf,
    /// What is changed in the directory is changed through this.
    pub(crate) disk: HeldDisk,
    pub(crate) workers: usize,
    pub(crate) merges: bool,
    pub(crate) debug_access: DebugAccess,
    pub(crate) started_unix_ms: u64,
    pub(crate) run_id: String,
    pub(crate) redis_port: OnceLock<u16>,
}

/// See the module documentation.
pub(crate) struct ServerHost {
    pub(crate) facts: StartupInfo,
    pub(crate) progress: LoadProgress,
    /// Events of keys that were told.
    pub(crate) key_events: AtomicU64,
    /// Clients that were disconnected because they left too much unsent.
    pub(crate) slow_clients_cut: AtomicU64,
    /// How much there is, as far as it may be told.
    pub(crate) inventory: Inventory,
    /// Clients that speak HTTP on the port for Redis.
    pub(crate) cross_protocol: CrossProtocol,
    /// Replies that were errors because replicas had not acknowledged in time.
    pub(crate) ack_timeouts: AtomicU64,
    /// Whether the next of them is worth a line.
    tells_of_ack_timeouts: AtomicBool,
    /// Who has subscribed to what.
    pub(crate) channels: Arc<Hub>,
    /// Who follows durable channels in the log.
    pub(crate) durable_channels: Arc<DurableChannels>,
    pub(crate) snapshots: Snapshots,
    pub(crate) scrubber: Scrubber,
    pub(crate) backups: Sessions,
    /// Who waits for news of document databases.
    pub(crate) feeds: Arc<Feeds>,
    /// Saves document databases.
    pub(crate) saver: Saver,
    /// Compacts them.
    pub(crate) compactor: Compactor,
    served: OnceLock<Served>,
    /// Whom it follows, and who follows it.
    pub(crate) node: Arc<Node>,
    asked: ReplicationHandle,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    keyspace: Arc<Keyspace>,
    interests: Arc<Interests>,
    clients: Clients,
    stats: CommandStats,
    observer: Observer,
    settings: RwLock<Settings>,
    /// Held by whoever changes settings, or a file with settings. Of all lives of the process.
    lasting: Arc<Mutex<Lasting>>,
    data_settings: Mutex<data_settings::DataSettingsState>,
    scripts: Scripts,
    /// Runs what takes long.
    pub(crate) long_units: LongUnits,
    live: Live,
    log: OnceLock<Log>,
    mailboxes: OnceLock<Vec<Mailbox>>,
    rejected_connections: AtomicU64,
    stop: Notify,
    stop_asked: AtomicBool,
    /// What the stop is to do about a snapshot.
    at_stop: Mutex<AtStop>,
    /// The position of the record of the last FLUSHALL, and the position at which the log may be cut once
    /// that is durable.
    dead_before: Mutex<Option<(Lsn, Lsn)>>,
}

impl ServerHost {
    pub(crate) fn new(
        (settings, lasting): (Settings, Arc<Mutex<Lasting>>),
        facts: StartupInfo,
        node: Arc<Node>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> ServerHost {
        let hash_seed = entropy.random_u64();
        let host = ServerHost {
            progress: LoadProgress::new(clock.clone()),
            keyspace: Arc::new(Keyspace::new(keyspace::Options { hash_seed })),
            interests: Arc::default(),
            key_events: 0.into(),
            slow_clients_cut: 0.into(),
            inventory: Inventory::default(),
            cross_protocol: CrossProtocol::default(),
            ack_timeouts: 0.into(),
            tells_of_ack_timeouts: true.into(),
            channels: Hub::new(facts.workers, entropy.random_u64()),
            durable_channels: Arc::default(),
            snapshots: Snapshots::new(clock.unix_ms()),
            scrubber: Scrubber::default(),
            backups: Sessions::default(),
            feeds: Arc::default(),
            saver: Saver::default(),
            compactor: Compactor::default(),
            served: OnceLock::new(),
            asked: ReplicationHandle(node.clone()),
            node,
            clients: Clients::new(),
            stats: CommandStats::new(facts.workers + LONG_UNITS_MAX, commands::table()),
            observer: Observer::default(),
            scripts: Scripts::default(),
            long_units: LongUnits::default(),
            live: Live::default(),
            log: OnceLock::new(),
            mailboxes: OnceLock::new(),
            rejected_connections: 0.into(),
            stop: Notify::new(),
            stop_asked: false.into(),
            at_stop: Mutex::new(AtStop::IfWorthIt),
            dead_before: Mutex::new(None),
            settings: RwLock::new(settings),
            lasting,
            data_settings: Mutex::default(),
            facts,
            clock,
            entropy,
        };
        host.refresh(&host.settings.read());
        host
    }

    /// Copies the settings that the hot path reads.
    fn refresh(&self, settings: &Settings) {
        let live = &self.live;
        live.memory_bytes_max.store(settings.integer(Key::Maxmemory), Relaxed);
        live.eviction_samples.store(settings.integer(Key::MaxmemorySamples), Relaxed);
        live.bulk_bytes_max.store(settings.integer(Key::ProtoMaxBulkLen), Relaxed);
        live.request_bytes_max.store(settings.integer(Key::ClientQueryBufferLimit), Relaxed);
        let clients_max = config::ClientsMax::possible(settings.integer(Key::Maxclients));
        live.clients_max.store(clients_max.redis, Relaxed);
        live.http_clients_max.store(clients_max.http, Relaxed);
        live.idle_timeout_seconds.store(settings.integer(Key::Timeout), Relaxed);
        live.password_needed.store(!settings.text(Key::Requirepass).is_empty(), Relaxed);
        live.admin_password_set.store(!settings.text(Key::AdminPassword).is_empty(), Relaxed);
        let classes = EventClass::parse(settings.text(Key::NotifyKeyspaceEvents)).unwrap_or_default();
        live.event_classes.store(classes.bits(), Relaxed);
        *live.output_limits.write() = settings.output_limits();
        let patterns = settings.text(Key::DurableChannels).split_ascii_whitespace();
        let patterns: Vec<Box<[u8]>> = patterns.map(|pattern| pattern.as_bytes().into()).collect();
        live.has_durable_channels.store(!patterns.is_empty(), Relaxed);
        *live.durable_channels.write() = patterns;
        live.protected.store(settings.switch(Key::ProtectedMode), Relaxed);
        self.interests.tracking().set_keys_max(settings.integer(Key::TrackingTableMaxKeys) as usize);
        let slower_than_us = settings.signed(Key::SlowlogLogSlowerThan);
        self.observer.slow_log.configure(slower_than_us, settings.integer(Key::SlowlogMaxLen));
        self.observer.latency.set_threshold_ms(settings.integer(Key::LatencyMonitorThreshold));
        self.keyspace.set_packed_limits(settings.packed_limits());
        self.scripts.settings.set_memory(settings.integer(Key::ScriptMaxMemory));
        self.scripts.settings.set_instructions(settings.integer(Key::ScriptMaxInstructions));
        self.scripts.settings.set_busy_after(settings.integer(Key::BusyReplyThreshold));
        self.scripts.settings.set_rolls_back(settings.switch(Key::ScriptRollback));
        self.node.configure(settings);
        let policy = settings.text(Key::MaxmemoryPolicy);
        let number =
            POLICIES.iter().position(|(name, _)| *name == policy).expect("every choice is a policy; tested");
        live.eviction_policy.store(number as u8, Relaxed);
        if let (Some(log), Some(durability)) =
            (self.log.get(), Durability::parse(settings.text(Key::Durability)))
        {
            log.set_durability(durability);
        }
    }

    /// Recovery is done: the log takes writes.
    pub(crate) fn attach(&self, log: Log) {
        let _ = self.log.set(log);
        self.progress.finish();
    }

    /// The workers have started.
    pub(crate) fn set_mailboxes(&self, mailboxes: &[Mailbox]) {
        let _ = self.mailboxes.set(mailboxes.to_vec());
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    pub(crate) fn keyspace(&self) -> &Arc<Keyspace> {
        &self.keyspace
    }

    pub(crate) fn interests(&self) -> &Arc<Interests> {
        &self.interests
    }

    pub(crate) fn settings(&self) -> parking_lot::RwLockReadGuard<'_, Settings> {
        self.settings.read()
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.entropy.random_u64()
    }

    /// The counters of a worker; behind those of the workers are those of the threads of long units.
    pub(crate) fn worker_stats(&self, index: usize) -> Arc<WorkerStats> {
        self.stats.worker(index)
    }

    /// The monotonic clock, in microseconds, for who has to look at it often.
    pub(crate) fn clock_us(&self) -> engine::ClockUs {
        let clock = self.clock.clone();
        Arc::new(move || clock.monotonic_us())
    }

    pub(crate) fn merges(&self) -> bool {
        self.facts.merges
    }

    pub(crate) fn bulk_bytes_max(&self) -> usize {
        self.live.bulk_bytes_max.load(Relaxed) as usize
    }

    pub(crate) fn request_bytes_max(&self) -> usize {
        self.live.request_bytes_max.load(Relaxed) as usize
    }

    /// How much a client that does this may leave unsent.
    pub(crate) fn output_limit(&self, kind: ClientKind) -> OutputLimit {
        self.live.output_limits.read().of(kind)
    }

    pub(crate) fn idle_timeout_seconds(&self) -> u64 {
        self.live.idle_timeout_seconds.load(Relaxed)
    }

    /// The document databases, and how they are changed; `None` while the server recovers.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.served.get()
    }

    /// Serves document databases from now on.
    pub(crate) fn serve_documents(&self, served: Served) {
        assert!(self.served.set(served).is_ok(), "documents are served once");
    }

    pub(crate) fn requires_password_now(&self) -> bool {
        self.live.password_needed.load(Relaxed)
    }

    pub(crate) fn rejected_connections(&self) -> u64 {
        self.rejected_connections.load(Relaxed)
    }

    /// Why a connection from `peer` may not be served, as the reply that says so.
    pub(crate) fn refuse(&self, peer: &SocketAddr) -> Option<&'static [u8]> {
        let reason: &[u8] = if self.clients.count() as u64 >= self.live.clients_max.load(Relaxed) {
            b"-ERR max number of clients reached\r\n"
        } else if self.is_protected_from(peer) {
            b"-DENIED Sheaf is running in protected mode: it has no password, so it serves only clients on this \
              machine. Set one (requirepass), or turn protected-mode off if the network is trusted.\r\n"
        } else {
            return None;
        };
        self.rejected_connections.fetch_add(1, Relaxed);
        Some(reason)
    }

    /// Whether it serves only clients on this machine, of which `peer` is none.
    pub(crate) fn is_protected_from(&self, peer: &SocketAddr) -> bool {
        self.live.protected.load(Relaxed)
            && !self.live.password_needed.load(Relaxed)
            && !peer.ip().to_canonical().is_loopback()
    }

    /// Whether over HTTP it serves only clients on this machine, all of them as admins.
    pub(crate) fn trusts_its_machine(&self) -> bool {
        self.live.protected.load(Relaxed) && !self.has_http_admins()
    }

    /// Whether somebody must be asked who they are over HTTP.
    pub(crate) fn has_http_admins(&self) -> bool {
        self.live.password_needed.load(Relaxed) || self.live.admin_password_set.load(Relaxed)
    }

    /// The password of an admin over HTTP, if somebody with this name is one.
    pub(crate) fn http_admin_password(&self, name: &str) -> Option<String> {
        let settings = self.settings.read();
        let admins = [("default", Key::Requirepass), (settings.text(Key::AdminUser), Key::AdminPassword)];
        let mut passwords =
            admins.into_iter().filter(|(admin, _)| *admin == name).map(|(_, key)| settings.text(key));
        passwords.find(|password| !password.is_empty()).map(str::to_owned)
    }

    /// Whether this is the name and the password of an admin.
    pub(crate) fn is_http_admin(&self, name: &str, password: &str) -> bool {
        let wanted = self.http_admin_password(name);
        wanted.is_some_and(|wanted| are_equal(wanted.as_bytes(), password.as_bytes()))
    }

    /// Connections to the Redis port at most.
    pub(crate) fn clients_max(&self) -> u64 {
        self.live.clients_max.load(Relaxed)
    }

    /// Connections to the HTTP port at most.
    pub(crate) fn http_clients_max(&self) -> u64 {
        self.live.http_clients_max.load(Relaxed)
    }

    pub(crate) fn register_client(
        &self,
        stream: &TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        mailbox: Mailbox,
    ) -> Arc<Client> {
        self.clients.register(Connected {
            peer: peer.to_string(),
            local: local.to_string(),
            fd: stream.as_raw_fd(),
            now_ms: self.unix_ms(),
            signaller: Box::new(move |id, signal| mailbox.signal(id, signal)),
        })
    }

    /// Whether damaged data was left out at the start, and nobody has accepted that yet.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.log.get().is_some_and(Log::is_frozen)
    }

    /// Whether messages of any channel are kept in the log.
    pub(crate) fn has_durable_channels(&self) -> bool {
        self.live.has_durable_channels.load(Relaxed)
    }

    /// Completes when SHUTDOWN or a signal asked to stop.
    pub(crate) async fn stop_requested(&self) {
        self.stop.notified().await;
    }

    /// Asks to stop.
    pub(crate) fn request_stop(&self) {
        self.stop_asked.store(true, Relaxed);
        self.stop.notify_one();
    }

    /// What the stop that was asked for is to do about a snapshot.
    pub(crate) fn at_stop(&self) -> AtStop {
        *self.at_stop.lock()
    }

    /// Notes the slowest write or sync of the log for LATENCY. Called once a second, as LATENCY keeps the worst of each.
    pub(crate) fn note_log_latency(&self) {
        if let Some(log) = self.log.get() {
            self.observer.latency.took(LatencyEvent::LogSync, log.stats().take_slowest_us(), self.unix_ms());
        }
    }

    /// Ends the waits for replicas that have lasted for too long. Called once a second.
    pub(crate) fn time_out_acks(&self) {
        let Some(up_to) = self.node.overdue() else {
            self.tells_of_ack_timeouts.store(true, Relaxed);
            return;
        };
        for mailbox in self.mailboxes.get().into_iter().flatten() {
            mailbox.send(Message::Overdue(up_to));
        }
    }

    /// So many replies are errors because replicas have not acknowledged in time. Said once, until they have caught up.
    pub(crate) fn ack_timed_out(&self, replies: u64) {
        if replies == 0 {
            return;
        }
        self.ack_timeouts.fetch_add(replies, Relaxed);
        if self.tells_of_ack_timeouts.swap(false, Relaxed) {
            tracing::warn!(
                target: "replication",
                "too few replicas acknowledge: replies to writes are errors (NOREPLICAS). Start replicas, or lower ack-replicas"
            );
        }
    }

    /// Ends the backups that must end, and removes what they have kept. Called once a second.
    pub(crate) fn end_due_backups(&self) {
        let Some(log) = self.log.get() else { return };
        let retained_bytes_max = self.settings().integer(Key::BackupRetentionBytes);
        if self.backups.end_due(self.monotonic_us(), retained_bytes_max, log) {
            remove_unpinned(self, log);
        }
    }

    /// Keeps the log for durable channels, and removes what need not be kept any more. Called once a second.
    pub(crate) fn renew_retention(&self) {
        if let Some(log) = self.log.get() {
            self.durable_channels.retention.renew(self, log);
        }
    }

    /// Cuts the log after a FLUSHALL that is durable: nothing before it is needed. Called once a second.
    pub(crate) fn cut_dead_log(&self) {
        let Some(log) = self.log.get() else { return };
        let Some((record, boundary)) = *self.dead_before.lock() else { return };
        if log.durable_lsn() < record {
            return;
        }
        let saved_lsn = self.served().and_then(|served| served.documents.saved_lsn());
        if saved_lsn.is_some_and(|saved_lsn| saved_lsn < boundary) {
            // FLUSHALL is about keys: documents need the log until they are saved. The next look tries again.
            self.saver.ask();
            return;
        }
        // Not before: a FLUSHALL takes this lock under those of all slots.
        let mut dead = self.dead_before.lock();
        if *dead != Some((record, boundary)) {
            return;
        }
        *dead = None;
        drop(dead);
        match log.truncate_before(boundary) {
            Ok(true) => {}
            // A backup reads it; the next look tries again, unless there is a newer FLUSHALL.
            Ok(false) => _ = self.dead_before.lock().get_or_insert((record, boundary)),
            Err(error) => {
                tracing::warn!(target: "server", %error, "cannot remove the log before the last FLUSHALL");
            }
        }
    }
}

impl Host for ServerHost {
    fn replication(&self) -> &dyn Replication {
        &self.asked
    }

    fn loading(&self) -> Option<Loading> {
        self.progress.loading()
    }

    fn documents(&self) -> Option<&Documents> {
        self.served().map(|served| &*served.documents)
    }

    fn memory_limits(&self) -> MemoryLimits {
        let (_, policy) = POLICIES[self.live.eviction_policy.load(Relaxed) as usize];
        MemoryLimits {
            memory_bytes_max: self.live.memory_bytes_max.load(Relaxed),
            policy,
            samples: self.live.eviction_samples.load(Relaxed) as usize,
        }
    }

    fn memory_figures(&self) -> MemoryFigures {
        MemoryFigures {
            resident_bytes: env::process::rss_bytes(),
            resident_bytes_max: env::process::peak_rss_bytes(),
            committed_bytes: env::allocator::committed_bytes(),
            system_bytes: env::process::memory_total_bytes(),
            log_buffer_bytes: self.log.get().map_or(0, Log::ring_bytes),
        }
    }

    fn release_unused_memory(&self) {
        let workers = self.mailboxes.get().into_iter().flatten();
        workers.for_each(|mailbox| mailbox.send(Message::ReleaseMemory));
    }

    fn allocator_report(&self) -> String {
        env::allocator::report()
    }

    fn ask_channels(&self, request: Request) {
        self.durable_channels.ask(request);
    }

    fn new_flow(&self) -> Arc<Flow> {
        self.durable_channels.new_flow()
    }

    fn is_durable_channel(&self, channel: &[u8]) -> bool {
        self.has_durable_channels()
            && self.live.durable_channels.read().iter().any(|pattern| wire::glob::matches(pattern, channel))
    }

    fn event_classes(&self) -> EventClass {
        // Without anybody who would hear of them, events cost nothing but this.
        if !self.channels.hears_of_keys() {
            return EventClass::NONE;
        }
        EventClass::from_bits(self.live.event_classes.load(Relaxed))
    }

    fn debug_access(&self) -> DebugAccess {
        self.facts.debug_access
    }

    fn monotonic_us(&self) -> u64 {
        self.clock.monotonic_us()
    }

    fn clients(&self) -> &Clients {
        &self.clients
    }

    fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    fn log_script(&self, level: LogLevel, message: &str) {
        match level {
            LogLevel::Debug => tracing::trace!("script: {message}"),
            LogLevel::Verbose => tracing::debug!("script: {message}"),
            LogLevel::Notice => tracing::info!("script: {message}"),
            LogLevel::Warning => tracing::warn!("script: {message}"),
        }
    }

    fn command_stats(&self) -> &CommandStats {
        &self.stats
    }

    fn observer(&self) -> &Observer {
        &self.observer
    }

    fn requires_password(&self) -> bool {
        self.requires_password_now()
    }

    fn authenticate(&self, user: &[u8], password: &[u8]) -> bool {
        let settings = self.settings.read();
        let wanted = settings.text(Key::Requirepass).as_bytes();
        user == b"default" && (wanted.is_empty() || are_equal(wanted, password))
    }

    fn info(&self, sections: &[String]) -> (String, Lsn) {
        crate::info::render(self, sections)
    }

    fn config_get(&self, pattern: &[u8]) -> Vec<(&'static str, String)> {
        let settings = self.settings.read();
        let matches = |name: &str| wire::glob::matches_ignore_case(pattern, name.as_bytes());
        let shown = |(name, value): (&'static str, String)| match name {
            "maxclients" => (name, self.clients_max().to_string()),
            _ => (name, value),
        };
        let known = settings.iter().map(|(option, value)| (option.name, value)).map(shown);
        let known = known.chain(settings.aliases());
        let mut found: Vec<_> = known.filter(|(name, _)| matches(name)).collect();
        if matches("appendfsync") {
            let policy = match settings.text(Key::Durability) {
                "strict" | "commit" => "always",
                "interval" => "everysec",
                _ => "no",
            };
            found.push(("appendfsync", policy.into()));
        }
        if matches("force-recovery") {
            let state = if self.awaits_confirmation() { "unconfirmed" } else { "no" };
            found.push(("force-recovery", state.into()));
        }
        found
    }

    fn is_of_data(&self, setting: &[u8]) -> bool {
        setting_named(setting).is_some_and(|option| option.of_data)
    }

    fn config_set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        self.set_settings(pairs)
    }

    fn apply_data_settings(&self) {
        self.put_data_settings_in_force();
    }

    fn config_rewrite(&self) -> Result<(), String> {
        self.rewrite_config()
    }

    fn reset_stats(&self) {
        self.stats.reset();
        self.rejected_connections.store(0, Relaxed);
        self.slow_clients_cut.store(0, Relaxed);
    }

    fn shutdown(&self, mode: ShutdownMode) -> Result<(), String> {
        match mode {
            // Connections end first, so that by the time an abort can arrive, it is too late.
            ShutdownMode::Abort => return Err("ERR No shutdown in progress.".into()),
            ShutdownMode::InOrder => {}
            ShutdownMode::Save => *self.at_stop.lock() = AtStop::Take,
            ShutdownMode::NoSave => *self.at_stop.lock() = AtStop::Leave,
        }
        self.request_stop();
        Ok(())
    }

    fn save(&self, scheduled: bool) -> SaveAnswer {
        if self.awaits_confirmation() { SaveAnswer::Unconfirmed } else { self.snapshots.ask(scheduled) }
    }

    fn save_and_tell(&self, responder: Responder) -> Result<(), &'static str> {
        if self.awaits_confirmation() {
            return Err("ERR a forced recovery must be confirmed first: CONFIG SET force-recovery confirmed");
        }
        self.snapshots.ask_and_tell(responder)
    }

    fn confirm_recovery(&self, responder: Responder) -> Result<(), &'static str> {
        if !self.awaits_confirmation() {
            return Err("ERR there is no forced recovery to confirm");
        }
        self.snapshots.confirm(responder)
    }

    fn last_save_unix_s(&self) -> u64 {
        self.snapshots.figures().last_unix_ms / 1000
    }

    fn flushing_all(&self, record: Lsn, dead_before: Lsn) {
        *self.dead_before.lock() = Some((record, dead_before));
    }
}

/// Compared in full whatever differs first, so that the time says nothing about a password.
fn are_equal(wanted: &[u8], given: &[u8]) -> bool {
    wanted.iter().zip(given).fold(wanted.len() == given.len(), |so_far, (a, b)| so_far & (a == b))
}

#[cfg(test)]
mod tests {
    use settings::{Kind, OPTIONS};

    use super::*;

    #[test]
    fn every_choice_of_the_policy_setting_is_a_policy() {
        let Kind::Choice(names) = OPTIONS[Key::MaxmemoryPolicy as usize].kind else { panic!("a choice") };
        assert!(names.iter().eq(POLICIES.iter().map(|(name, _)| name)));
    }
}
