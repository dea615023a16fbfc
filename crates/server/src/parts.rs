//! The parts of a server, and how they are wired.
//!
//! A part gets the parts that it depends on when it is made, so this module shows the dependencies. What
//! exists only after recovery, such as the log, is passed in by `serve`. Background jobs hold only the parts
//! that they use. Workers, INFO and metrics use almost all parts, and hold [`Parts`].
//!
//! Invariants
//! - No part holds [`Parts`], and no two parts hold each other, so that the memory of an incarnation is freed
//!   when it ends. Two exceptions end with [`Node::stop`] and [`Group::stop`]: the parts with which a replica
//!   follows hold [`Parts`], and the votes of a group hold the parts that they report to.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use engine::{CommandStats, DocumentsCell, Host, Scripts, clients::Clients, observe::Observer};
use env::{Clock, Entropy};
use keyspace::Keyspace;
use parking_lot::Mutex;
use pubsub::Hub;
use recovery::progress::LoadProgress;
use settings::{Key, Lasting, Settings};
use storage::{Durability, Log};

use crate::{
    access::Access,
    attached_log::AttachedLog,
    backup::Backups,
    config::Config,
    connection::UnreadReplies,
    cross_protocol::CrossProtocol,
    data::Data,
    dead_log::DeadLog,
    documents::{Compactor, Saver},
    durable_channels::DurableChannels,
    encryption::Encryption,
    group::{Group, GroupHandle},
    http::access_log::AccessLog,
    inventory::Inventory,
    logging,
    long_units::{LONG_UNITS_MAX, LongUnits},
    mailbox::Mailbox,
    process::ServerProcess,
    rates::Rates,
    read_only::ReadOnly,
    reaper::ReaperFigures,
    replication::{Node, handle::ReplicationHandle},
    scrub::Scrubber,
    snapshots::{Persistence, Snapshots, Sources},
    startup_info::StartupInfo,
    stop::Stop,
    traces::Traces,
};

/// Events that INFO and metrics count, and that no other part counts.
#[derive(Default)]
pub(crate) struct Counters {
    /// Keyspace notifications that were sent.
    pub(crate) key_events: AtomicU64,
    /// Clients that were disconnected because they received too slowly, or sent too much behind a blocked
    /// command.
    pub(crate) slow_clients_cut: AtomicU64,
    /// Clients of the Redis protocol that were disconnected because they had to log in and did not.
    pub(crate) login_timeouts: AtomicU64,
}

pub(crate) struct Parts {
    pub(crate) startup: Arc<StartupInfo>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Arc<Config>,
    pub(crate) access: Arc<Access>,
    /// The certificates, if there is a door for TLS.
    pub(crate) encryption: Option<Arc<Encryption>>,
    pub(crate) data: Data,
    pub(crate) clients: Arc<Clients>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) counters: Counters,
    /// The counters of the HTTP port.
    pub(crate) traffic: Arc<couch::Traffic>,
    /// The log of requests over HTTP.
    pub(crate) access_log: Arc<AccessLog>,
    pub(crate) rates: Rates,
    /// How many values the reaper has yet to free, and how many it has freed since CONFIG RESETSTAT.
    pub(crate) freed: Arc<ReaperFigures>,
    pub(crate) unread_replies: UnreadReplies,
    pub(crate) cross_protocol: CrossProtocol,
    pub(crate) progress: Arc<LoadProgress>,
    pub(crate) log: Arc<AttachedLog>,
    pub(crate) dead_log: Arc<DeadLog>,
    pub(crate) documents: Arc<DocumentsCell>,
    pub(crate) saver: Arc<Saver>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) node: Arc<Node>,
    pub(crate) replication: Arc<ReplicationHandle>,
    pub(crate) group: Arc<Group>,
    pub(crate) inventory: Inventory,
    pub(crate) durable_channels: Arc<DurableChannels>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) backups: Arc<Backups>,
    pub(crate) long_units: Arc<LongUnits>,
    pub(crate) stop: Arc<Stop>,
    pub(crate) traces: Arc<Traces>,
    pub(crate) mailboxes: OnceLock<Vec<Mailbox>>,
}

impl Parts {
    /// Why no write can be acknowledged now; `None` if writes can.
    pub(crate) fn read_only(&self) -> Option<ReadOnly> {
        ReadOnly::of(self.log.serving(&self.progress), &*self.replication)
    }

    pub(crate) fn new(
        (settings, files): (Settings, Arc<Mutex<Lasting>>),
        startup: StartupInfo,
        node: Arc<Node>,
        (encryption, stop, traces): (Option<Arc<Encryption>>, Arc<Stop>, Arc<Traces>),
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> Parts {
        let startup = Arc::new(startup);
        let data = Data {
            keyspace: Arc::new(Keyspace::new(keyspace::Options { hash_seed: entropy.random_u64() })),
            interests: Arc::default(),
            hub: Hub::new(startup.workers, entropy.random_u64()),
            stats: Arc::new(CommandStats::new(startup.workers + LONG_UNITS_MAX + 1, commands::table())),
            entropy: entropy.clone(),
        };
        let (log, documents) = (Arc::<AttachedLog>::default(), Arc::<DocumentsCell>::default());
        let of_data = (data.keyspace.clone(), node.clone());
        let (clients, scripts) = (Arc::new(Clients::new()), Arc::<Scripts>::default());
        let listeners = (data.hub.clone(), clients.clone());
        let config = Arc::new(Config::new(settings, files, of_data, log.clone(), listeners));
        let observer = Arc::<Observer>::default();
        let progress = Arc::new(LoadProgress::new(clock.clone()));
        let saver = Arc::new(Saver::new(documents.clone(), node.clone(), clock.clone()));
        let snapshots = Arc::new(Snapshots::new(Sources {
            startup: startup.clone(),
            clock: clock.clone(),
            config: config.clone(),
            keyspace: data.keyspace.clone(),
            node: node.clone(),
            saver: saver.clone(),
            progress: progress.clone(),
            log: log.clone(),
            stats: data.stats.clone(),
        }));
        let replication = Arc::new(ReplicationHandle(node.clone()));
        let group = Group::new(node.clone(), config.clone(), data.keyspace.clone(), entropy.clone());
        let group = Arc::new(group);
        let parts = Parts {
            access: Arc::new(Access::new(config.clone(), clients.clone(), clock.clone(), progress.clone())),
            encryption,
            counters: Counters::default(),
            traffic: Arc::default(),
            access_log: Arc::default(),
            rates: Rates::default(),
            freed: Arc::default(),
            unread_replies: UnreadReplies::default(),
            cross_protocol: CrossProtocol::default(),
            dead_log: Arc::new(DeadLog::new(log.clone(), documents.clone(), saver.clone())),
            compactor: Arc::new(Compactor::new(documents.clone(), saver.clone(), clock.clone())),
            inventory: Inventory::new(data.keyspace.clone(), log.clone(), replication.clone(), clock.clone()),
            durable_channels: Arc::default(),
            scrubber: Arc::new(Scrubber::new(
                startup.clone(),
                clock.clone(),
                config.clone(),
                snapshots.clone(),
            )),
            backups: Arc::new(Backups::new((&snapshots, group.clone()), documents.clone(), entropy)),
            long_units: Arc::new(LongUnits::new(
                data.clone(),
                startup.workers,
                clock.clone(),
                config.clone(),
                log.clone(),
            )),
            stop,
            traces,
            mailboxes: OnceLock::new(),
            startup,
            clock,
            config,
            data,
            clients,
            scripts,
            observer,
            progress,
            log,
            documents,
            saver,
            group,
            node,
            replication,
            snapshots,
        };
        parts.observe_settings();
        parts
    }

    /// Makes the parts that keep copies of settings follow them.
    fn observe_settings(&self) {
        let (interests, keyspace) = (self.data.interests.clone(), self.data.keyspace.clone());
        let (observer, scripts) = (self.observer.clone(), self.scripts.clone());
        let (node, log) = (self.node.clone(), self.log.clone());
        self.config.observe(move |settings| {
            interests.tracking().set_keys_max(settings.integer(Key::TrackingTableMaxKeys) as usize);
            keyspace.set_packed_limits(settings.packed_limits());
        });
        self.config.observe(move |settings| {
            let slower_than_us = settings.signed(Key::SlowlogLogSlowerThan);
            observer.slow_log.configure(slower_than_us, settings.integer(Key::SlowlogMaxLen));
            observer.latency.set_threshold_ms(settings.integer(Key::LatencyMonitorThreshold));
        });
        self.config.observe(move |settings| {
            scripts.settings.set_memory(settings.integer(Key::ScriptMaxMemory));
            scripts.settings.set_instructions(settings.integer(Key::ScriptMaxInstructions));
            scripts.settings.set_busy_after(settings.integer(Key::BusyReplyThreshold));
            scripts.settings.set_rolls_back(settings.switch(Key::ScriptRollback));
        });
        self.config.observe(move |settings| node.configure(settings));
        self.config.observe(logging::configure);
        let (traces, observer) = (self.traces.clone(), self.observer.clone());
        if traces.is_on() {
            observer.traces.send_to(traces.clone());
            self.config.observe(move |settings| {
                traces.configure(settings);
                observer.traces.set_share(settings.millionths(Key::OtelSampleRatio));
            });
        }
        let access_log = self.access_log.clone();
        self.config.observe(move |settings| access_log.configure(settings));
        if let Some(encryption) = self.encryption.clone() {
            self.config.observe(move |settings| encryption.follow(settings));
        }
        let issuers = self.access.issuers.clone();
        self.config.observe(move |settings| issuers.follow(settings));
        self.config.observe(move |settings| {
            if let (Some(log), Some(durability)) =
                (log.get(), Durability::parse(settings.text(Key::Durability)))
            {
                log.set_durability(durability);
            }
        });
    }

    /// The interfaces that commands use.
    pub(crate) fn engine_host(self: &Arc<Self>) -> Host {
        Host {
            clock: self.clock.clone(),
            clients: self.clients.clone(),
            scripts: self.scripts.clone(),
            stats: self.data.stats.clone(),
            observer: self.observer.clone(),
            documents: self.documents.clone(),
            config: self.config.clone(),
            users: self.config.users().clone(),
            persistence: Arc::new(Persistence {
                snapshots: self.snapshots.clone(),
                dead_log: self.dead_log.clone(),
            }),
            replication: self.replication.clone(),
            group: Arc::new(GroupHandle(self.group.clone())),
            durable_channels: self.durable_channels.clone(),
            process: Arc::new(ServerProcess(self.clone())),
        }
    }

    /// Whether a forced recovery has left out damaged data, and no operator has accepted that yet.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.log.get().is_some_and(Log::is_frozen)
    }

    /// The number of clients of both ports that failed to log in in time. Some were disconnected because they
    /// had to log in and did not. Others were turned away because too many logins of their address waited.
    pub(crate) fn login_timeouts(&self) -> u64 {
        let turned_away = self.config.users().logins_turned_away.load(Relaxed);
        self.counters.login_timeouts.load(Relaxed) + self.traffic.login_timeouts() + turned_away
    }

    /// Resets the counters that CONFIG RESETSTAT resets; some counters of INFO are not among them.
    pub(crate) fn reset_counters(&self) {
        self.data.stats.reset();
        self.config.users().counts.reset();
        self.config.users().logins_turned_away.store(0, Relaxed);
        self.access.rejected_connections.store(0, Relaxed);
        self.counters.slow_clients_cut.store(0, Relaxed);
        self.counters.login_timeouts.store(0, Relaxed);
        self.traffic.reset_login_timeouts();
        self.freed.freed.store(0, Relaxed);
        self.node.joins().reset();
    }
}
