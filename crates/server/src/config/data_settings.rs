//! Settings that belong to the data: the log has them, so replicas, backups and a new leader have them as
//! well.
//!
//! ```text
//! CONFIG SET at the leader -> record -> Keyspace::data_settings -> put_data_settings_in_force: in force here
//! a file, a variable or a flag at the start of a leader -> record_given -> the same
//! a leader's record on its replica, once applied -> the same
//! ```
//!
//! Invariants
//! - The value in the log is in force on every server that has applied its record, with two exceptions. A
//!   value given at the start of a leader, or in its file when the file is read again, overrides the log's
//!   value until it is recorded itself; a line of the server's log reports the record. A value that this
//!   version does not understand is not in force; a line reports that, too.
//! - Given values are recorded before any later write. So every server that acknowledges a later write has
//!   the given values in its log as well. While they cannot be recorded, the leader takes no writes.
//! - A given value is recorded once; see [`OwedSettings`].

use std::sync::Arc;

use engine::users::{OF_HTTP, OF_USERS};
use keyspace::{AccessClock, DataSettings, Effect, Freed, LIBRARIES_SLOT, SlotGuard};
use lsn::Lsn;
use membership::OF_GROUP;
use recovery::salvage::OF_RECOVERY;
use settings::{Key, OPTIONS, Origin, OwedSettings, RecordedSetting};
use storage::Log;

use super::Config;

/// The maximum size of the value of a setting that belongs to the data. Snapshots and FLUSHALL write all
/// these values again, so they must be small.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;

/// The settings that belong to the data, as this server has seen them last.
#[derive(Debug, Default)]
pub(crate) struct DataSettingsState {
    /// The values in the data at the last look.
    followed: Arc<DataSettings>,
    /// Values given at the start, or in a file that was read again, that are not records yet.
    given: OwedSettings,
}

impl DataSettingsState {
    /// Forgets the given value of a setting, because a later change replaces it. Returns the mark that must
    /// be recorded together with the change.
    pub(super) fn supersede_given(&mut self, key: Key) -> Option<(String, String)> {
        self.given.supersede(OPTIONS[key as usize].name)
    }
}

impl Config {
    /// Makes a leader record the values given at its start.
    pub(crate) fn give_to_data(&self) {
        let given = {
            let (lasting, settings) = (self.files.lock(), self.current());
            let is_given = |key: Key| lasting.origin(key) != Origin::Default;
            let keys = OPTIONS.iter().filter(|it| it.of_data).map(|it| it.key).filter(|key| is_given(*key));
            keys.map(|key| (key, settings.rendered(key))).collect::<Vec<_>>()
        };
        self.give(given);
    }

    /// Arranges that these values are recorded, unless the same values were given last.
    pub(super) fn give(&self, given: Vec<(Key, String)>) {
        let given = given.into_iter().map(|(key, value)| (OPTIONS[key as usize].name, value));
        let owed = OwedSettings::new(given.collect(), &self.keyspace.data_settings());
        let mut state = self.data.lock();
        self.node.owe_settings(!owed.is_empty());
        state.given = owed;
    }

    /// Records the given values. Called before anything is served, after a file was read again, and once a
    /// second. Logs a line when the record is durable. Returns whether there is a new record, whose values
    /// the caller must [put in force](Config::put_data_settings_in_force).
    ///
    /// # Panics
    /// Outside of the runtime, if there is anything to record.
    pub(crate) fn record_given(&self, log: &Log) -> bool {
        let mut state = self.data.lock();
        if state.given.is_empty() {
            // A CONFIG SET may have replaced the given values, so nothing is owed any more.
            self.node.owe_settings(false);
            return false;
        }
        // A long unit may hold the slot.
        let Some(mut slot) = self.keyspace.try_lock(LIBRARIES_SLOT) else { return false };
        // A leader that steps down locks this slot while its log becomes a mirror. So a log that is no mirror
        // at this check does not become one before the record is appended.
        if self.node.refuses_changes() || log.is_mirror() || log.is_frozen() {
            return false;
        }
        let mut record = Vec::new();
        let recorded = state.given.record(&mut slot, &mut record);
        let position = self.append(log, slot, &record);
        // Writes are taken only from here on, so they have later positions than the record.
        self.node.owe_settings(false);
        drop(state);
        if let Some(position) = position {
            let log = log.clone();
            tokio::task::spawn_blocking(move || tell_when_durable(&log, position, recorded));
        }
        position.is_some()
    }

    /// Records a fact about the group in the data. Returns the position of the record; `None` if the slot is
    /// locked, nothing may be written here, the fact is not new, or the log is poisoned.
    pub(crate) fn record_of_group(&self, log: &Log, name: &str, value: &str) -> Option<Lsn> {
        let name = format!("{OF_GROUP}{name}");
        let mut slot = self.keyspace.try_lock(LIBRARIES_SLOT)?;
        if log.is_mirror() || log.is_frozen() || self.node.refuses_changes() {
            return None;
        }
        let effect = Effect::Setting { name: name.as_bytes(), value: Some(value.as_bytes()) };
        let (mut record, mut freed) = (Vec::new(), Freed::new());
        if slot.apply(&effect, AccessClock::default(), &mut freed).changed {
            effect.encode_into(&mut record);
        }
        self.append(log, slot, &record)
    }

    /// Appends a record of settings, which were applied in this slot, to the log. Returns its position;
    /// `None` if the record is empty, or the log is poisoned.
    pub(super) fn append(&self, log: &Log, slot: SlotGuard<'_>, record: &[u8]) -> Option<Lsn> {
        self.append_marked(log, slot, record, false)
    }

    /// As [`Config::append`]. `has_messages` says whether the record has messages to durable channels.
    pub(super) fn append_marked(
        &self,
        log: &Log,
        mut slot: SlotGuard<'_>,
        record: &[u8],
        has_messages: bool,
    ) -> Option<Lsn> {
        if record.is_empty() {
            return None;
        }
        let mut recorder = self.recorder.lock();
        let position =
            match recorder.get_or_insert_with(|| log.appender()).reserve_marked(record, has_messages) {
                Ok(pending) => {
                    let position = pending.lsn();
                    slot.set_last_lsn(position);
                    drop(slot);
                    pending.publish();
                    Some(position)
                }
                // The log is poisoned; the server stops.
                Err(_) => {
                    slot.set_last_lsn(Lsn::MAX);
                    None
                }
            };
        if let Some(threads) = self.log.threads() {
            threads.wake_if_needed();
        }
        position
    }

    /// Puts the values of the data in force, if they have changed.
    pub(crate) fn put_data_settings_in_force(&self) {
        if Arc::ptr_eq(&self.keyspace.data_settings(), &self.data.lock().followed) {
            return;
        }
        // The settings are read under the lock, so that no older state replaces a newer one.
        let _one_change_at_a_time = self.forcing.lock();
        let said = self.keyspace.data_settings();
        let mut changed = self.current().clone();
        {
            let mut state = self.data.lock();
            let belongs_elsewhere = |name: &[u8]| {
                OwedSettings::is_mark(name)
                    || [OF_GROUP, OF_USERS, OF_HTTP, OF_RECOVERY]
                        .iter()
                        .any(|others| name.starts_with(others.as_bytes()))
            };
            for (name, value) in said.iter().filter(|(name, _)| !belongs_elsewhere(name)) {
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                let known = OPTIONS.iter().find(|it| it.of_data && it.name == name);
                if known.is_some_and(|it| state.given.has(it.name)) {
                    continue;
                }
                // A newer version may have written the record.
                if known.is_none() || changed.set(&name, &value).is_err() {
                    tracing::warn!(target: "server", setting = %name, "the data hold a value of this setting that this version does not understand");
                }
            }
            state.followed = said;
        }
        if changed != *self.current() {
            let shown = OPTIONS
                .iter()
                .filter(|it| it.of_data)
                .map(|it| format!("{}={}", it.name, changed.rendered(it.key)));
            let shown = shown.collect::<Vec<_>>().join(" ");
            tracing::info!(target: "server", settings = shown, "settings that belong to the data");
            self.put_in_force(changed);
        }
    }
}

/// Logs that settings are recorded, once the record is durable. Blocks.
fn tell_when_durable(log: &Log, position: Lsn, recorded: Vec<RecordedSetting>) {
    // The log reports its own errors, and the server stops.
    if log.make_durable(position).is_err() {
        return;
    }
    for RecordedSetting { name, before, now } in recorded {
        let before = before.unwrap_or_else(|| b"nothing".to_vec());
        let before = String::from_utf8_lossy(&before);
        tracing::info!(target: "server", setting = name, %before, now, "the value given here is recorded in the data");
    }
}
