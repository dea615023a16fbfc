//! The settings in force: their values, the observers of a change, and CONFIG.
//!
//! ```text
//! start | CONFIG SET | /_node/_local/_config | SIGHUP | a record of the data
//!    -> checked as a whole -> the file, if the change is to last -> hot copies, observers, `settings`
//! ```
//!
//! The module is the one place that every change goes through. Parts that keep a copy of a setting observe
//! it.
//! The table of settings and their files are in the crate `settings`.
//!
//! Invariants
//! - An observer is called once with the settings in force when it is added, and then with every change.
//!   Changes come one at a time.

mod audit;
pub(crate) mod changing;
mod clients_max;
mod data_settings;
mod hot;
mod users;

use std::{path::PathBuf, sync::Arc};

use engine::{DebugAccess, EventClass, MemoryLimits, clients::Clients, users::Users};
use keyspace::Keyspace;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use pubsub::Hub;
use settings::{Key, Lasting, Settings, appendfsync_of, setting_named};
use storage::{Appender, Log};

pub(crate) use self::{clients_max::possible_clients, hot::HotSettings};
use self::{data_settings::DataSettingsState, users::user_settings};
use crate::{attached_log::AttachedLog, replication::Node};

/// Takes over the settings that concern a part. An observer must not read the [`Config`].
type Observer = Box<dyn Fn(&Settings) + Send + Sync>;

pub(crate) struct Config {
    settings: RwLock<Settings>,
    hot: HotSettings,
    observers: RwLock<Vec<Observer>>,
    /// The files of settings, shared by all incarnations within the process. A change of the files holds this
    /// lock for as long as the disk takes to answer. Therefore a thread that serves other clients must not
    /// wait for it.
    files: Arc<Mutex<Lasting>>,
    /// The configuration file, if there is one.
    config_file: Option<PathBuf>,
    /// Held while a change is put in force; locked after `files`.
    forcing: Mutex<()>,
    data: Mutex<DataSettingsState>,
    /// Appends the records that are made outside of commands: given settings, facts about the group, users of
    /// a file, the audit.
    recorder: Mutex<Option<Appender>>,
    debug_access: DebugAccess,
    /// Holds the settings of the data.
    keyspace: Arc<Keyspace>,
    /// Decides whether settings of the data may be set here.
    node: Arc<Node>,
    log: Arc<AttachedLog>,
    /// Knows whether any client listens to events.
    hub: Arc<Hub>,
    users: Arc<Users>,
    /// Closes or reviews the connections of users that were changed.
    clients: Arc<Clients>,
}

impl Config {
    pub(crate) fn new(
        settings: Settings,
        files: Arc<Mutex<Lasting>>,
        (keyspace, node): (Arc<Keyspace>, Arc<Node>),
        log: Arc<AttachedLog>,
        (hub, clients): (Arc<Hub>, Arc<Clients>),
    ) -> Config {
        let hot = HotSettings::default();
        hot.refresh(&settings);
        let debug_access = settings.debug_access();
        let users = Arc::new(Users::new(commands::table()));
        users.configure(user_settings(&settings));
        users.refresh(&keyspace, &clients);
        let config_file = files.lock().config_file().map(Into::into);
        Config {
            settings: RwLock::new(settings),
            config_file,
            forcing: Mutex::default(),
            hot,
            observers: RwLock::default(),
            files,
            data: Mutex::default(),
            recorder: Mutex::default(),
            debug_access,
            keyspace,
            node,
            log,
            hub,
            users,
            clients,
        }
    }

    /// Adds an observer; see the module documentation.
    pub(crate) fn observe(&self, observer: impl Fn(&Settings) + Send + Sync + 'static) {
        let _one_change_at_a_time = self.forcing.lock();
        let settings = self.current().clone();
        observer(&settings);
        self.observers.write().push(Box::new(observer));
    }

    /// The settings in force, read-locked. A caller that waits for a disk clones them first: a change of
    /// settings waits until every read lock is released, and later readers wait behind the change.
    pub(crate) fn current(&self) -> RwLockReadGuard<'_, Settings> {
        self.settings.read()
    }

    pub(crate) fn hot(&self) -> &HotSettings {
        &self.hot
    }

    /// The value that CONFIG GET shows for a setting of Redis that has no effect here: the true value for
    /// this server if it is known, else `value`.
    fn shown_inert(&self, name: &str, value: &str) -> String {
        match name {
            "cluster-enabled" if self.hot.emulates_cluster() => "yes".into(),
            _ => value.into(),
        }
    }

    /// Whether a forced recovery has left out damaged data, and no operator has accepted that yet.
    fn awaits_confirmation(&self) -> bool {
        self.log.get().is_some_and(Log::is_frozen)
    }
}

impl engine::SettingsInForce for Config {
    fn memory_limits(&self) -> MemoryLimits {
        self.hot.memory_limits()
    }

    fn sparse_bytes_max(&self) -> usize {
        self.hot.sparse_bytes_max()
    }

    fn event_classes(&self) -> EventClass {
        // Without a subscriber to events, no event is noted, and events cost no more than this check.
        if self.hub.hears_of_keys() { self.hot.event_classes() } else { EventClass::NONE }
    }

    fn debug_access(&self) -> DebugAccess {
        self.debug_access
    }

    fn is_durable_channel(&self, channel: &[u8]) -> bool {
        self.hot.is_durable_channel(channel)
    }

    fn document_limits(&self) -> documents::Limits {
        let document_bytes_max = self.settings.read().integer(Key::MaxDocumentSize) as usize;
        documents::Limits { document_bytes_max, ..documents::Limits::default() }
    }

    fn emulates_cluster(&self) -> bool {
        self.hot.emulates_cluster()
    }

    fn get(&self, pattern: &[u8]) -> Vec<(&'static str, String)> {
        let settings = self.settings.read();
        let matches = |name: &str| wire::glob::matches_ignore_case(pattern, name.as_bytes());
        let shown = |(name, value): (&'static str, String)| match name {
            "maxclients" => (name, self.hot.clients_max().to_string()),
            // REPLICAOF, FAILOVER and votes change the role, too.
            "replica-of" | "replicaof" | "slaveof" => (name, self.node.shown_replica_of(&value)),
            _ if is_hidden(&settings, name) => (name, String::new()),
            _ => (name, value),
        };
        let known = settings.iter().map(|(option, value)| (option.name, value));
        let known = known.chain(settings.aliases()).map(shown);
        let inert = settings.inert().map(|(name, value)| (name, self.shown_inert(name, value)));
        let mut found: Vec<_> = known.chain(inert).filter(|(name, _)| matches(name)).collect();
        if matches("appendfsync") {
            found.push(("appendfsync", appendfsync_of(&settings).into()));
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

    fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        self.set_settings(pairs)
    }

    fn require_say_over_data(&self, setting: &str) -> Result<(), String> {
        self.require_leader_of_data(setting)
    }

    fn apply_data_settings(&self) {
        self.put_data_settings_in_force();
    }

    fn read_users(&self) -> Result<(String, Vec<u8>), String> {
        self.read_file_of_users()
    }

    fn write_users(&self, content: &[u8]) -> Result<(), String> {
        self.write_file_of_users(content)
    }

    fn rewrite(&self) -> Result<(), String> {
        self.rewrite_file()
    }
}

/// Whether CONFIG GET hides the value of a setting: `admin-password`, which Redis does not have, and
/// passwords that come from a file. It shows other passwords, as Redis does.
fn is_hidden(settings: &Settings, name: &str) -> bool {
    let is_from_file = |file: Key| !settings.text(file).is_empty();
    match setting_named(name.as_bytes()).map(|setting| setting.key) {
        Some(Key::AdminPassword) => true,
        Some(Key::Requirepass) => is_from_file(Key::RequirepassFile),
        Some(Key::Masterauth) => is_from_file(Key::MasterauthFile),
        _ => false,
    }
}
