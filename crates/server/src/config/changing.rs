//! Changes of settings while the server runs: by CONFIG SET, over HTTP, and by a configuration file that is
//! read again.
//!
//! Invariants
//! - A change of settings and of their files holds the lock of `files`, so that no change undoes another one
//!   unseen. The disk may keep it locked for long; therefore only threads that serve no other clients lock
//!   it.
//! - Another lock, `forcing`, is held while a change is put in force. A CONFIG SET of settings of the data
//!   changes no file: it needs `forcing` alone.
//! - A lasting change is on disk before it is in force, so that an OK means both. A failed change changes
//!   nothing.

use std::{fmt, path::Path, time::Duration};

use engine::{CommandError, UNCONFIRMED};
use parking_lot::MutexGuard;
use recovery::group_state::check_durability;
use settings::{
    ConfigError, Key, Lasting, NotStored, OPTIONS, Origin, Settings, in_our_words, inert_named, setting_named,
};
use storage::{Admission, Log};

use super::{Config, data_settings::VALUE_BYTES_MAX, possible_clients, users::user_settings};
use crate::{encryption::Encryption, http::issuers, logging};

/// How long a client's change of settings waits for an earlier one.
const TURN: Duration = Duration::from_secs(10);

/// Why a value is refused.
struct Refused {
    name: String,
    reason: String,
}

/// The error in the words of Redis.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { name, reason } = self;
        write!(f, "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
    }
}

impl Config {
    /// Sets all of the settings or none. Settings that belong to the data are not set, but returned.
    pub(super) fn set_settings(&self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<(String, String)>, String> {
        let is_of_data =
            |(name, _): &(&[u8], &[u8])| setting_named(name).is_some_and(|option| option.of_data);
        // A change of settings of the data changes no file.
        let mut lasting = match pairs.iter().all(is_of_data) {
            true => None,
            false => {
                Some(self.files_in_turn().map_err(|reason| format!("ERR CONFIG SET failed - {reason}"))?)
            }
        };
        let (changed, keys) = self.changed(pairs).map_err(|refused| refused.to_string())?;
        let (of_data, own): (Vec<Key>, Vec<Key>) =
            keys.into_iter().partition(|key| OPTIONS[*key as usize].of_data);
        if let Some(first) = of_data.first() {
            self.require_leader_of_data(OPTIONS[*first as usize].name)?;
        }
        if let Some(lasting) = &mut lasting {
            self.storing(|| lasting.keep(&changed, &own, &|| self.note_kept()))
                .map_err(|reason| format!("ERR CONFIG SET failed - {reason}"))?;
        }
        if of_data.contains(&Key::AckReplicas) && self.node.votes().is_some() {
            tracing::warn!(
                target: "server", ack_replicas = changed.integer(Key::AckReplicas),
                "ack-replicas has no effect in a group, whose majority acknowledges writes. It is in the data, and takes effect where they \
                 are served without the group (sheaf restore of a backup, --group none)"
            );
        }
        let mut recorded = Vec::new();
        for key in of_data {
            recorded.push((OPTIONS[key as usize].name.to_owned(), changed.rendered(key)));
            recorded.extend(self.data.lock().supersede_given(key));
        }
        if lasting.is_some() {
            self.put_own_in_force(changed);
        }
        Ok(recorded)
    }

    /// Locks the files for a client's change, once an earlier change is done.
    ///
    /// # Errors
    /// The earlier change has waited for the disk for longer than [`TURN`]. The wait is bounded because few
    /// threads are there for clients that wait.
    fn files_in_turn(&self) -> Result<MutexGuard<'_, Lasting>, String> {
        self.files.try_lock_for(TURN).ok_or_else(|| {
            format!(
                "an earlier change has waited for the disk for {} seconds: nothing was changed",
                TURN.as_secs()
            )
        })
    }

    /// Runs `store`, which changes the file of settings that clients have set. While the disk takes too long
    /// for it, the server reports that the disk does not answer. With a configuration file it does not,
    /// because that file may be on another disk.
    fn storing<T>(&self, store: impl FnOnce() -> T) -> T {
        if self.config_file.is_none() { self.node.during_write(store) } else { store() }
    }

    /// Puts changed settings in force, except settings of the data. Those keep their present values, because
    /// they may have changed since `changed` was computed. `files` is locked.
    fn put_own_in_force(&self, mut changed: Settings) {
        let _one_change_at_a_time = self.forcing.lock();
        let current = self.current().clone();
        OPTIONS.iter().filter(|it| it.of_data).for_each(|it| changed.take_from(&current, it.key));
        self.put_in_force(changed);
    }

    /// Checks that this server may set values that belong to the data.
    pub(super) fn require_leader_of_data(&self, name: &str) -> Result<(), String> {
        if self.node.refuses_changes() {
            return Err(format!(
                "READONLY '{name}' belongs to the data: set it on the leader, its replicas have it then"
            ));
        }
        let Some(log) = self.log.get() else {
            return Err("LOADING Redis is loading the dataset in memory".into());
        };
        if log.admit(0) == Admission::Stalled {
            return Err(CommandError::LogStalled.to_string());
        }
        if self.awaits_confirmation() {
            return Err(UNCONFIRMED.into());
        }
        Ok(())
    }

    /// A copy of the settings in force with the given values, and the keys of the given settings.
    fn changed(&self, pairs: &[(&[u8], &[u8])]) -> Result<(Settings, Vec<Key>), Refused> {
        let mut changed = self.current().clone();
        let mut keys = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name = String::from_utf8_lossy(name);
            let failed = |reason: String| Refused { name: name.to_string(), reason };
            // Settings are text, in the file too: a password with other bytes could not be stored unchanged.
            let value = std::str::from_utf8(value).map_err(|_| failed("the value is not UTF-8".into()))?;
            if inert_named(&name).is_some() {
                tell_that_it_has_no_effect(changed.set_inert_live(&name, value).map_err(failed)?);
                continue;
            }
            let in_force = changed.clone();
            let (ours, value) = in_our_words(&name, value, &in_force).map_err(failed)?;
            let setting = changed.set_live(ours, value).map_err(|error| match error {
                ConfigError::Invalid { reason, .. } => failed(reason),
                other => failed(other.for_client()),
            })?;
            if setting.of_data && value.len() > VALUE_BYTES_MAX {
                return Err(failed(format!("a value has at most {VALUE_BYTES_MAX} bytes")));
            }
            if setting.key == Key::Maxclients {
                let wanted = changed.integer(Key::Maxclients);
                let possible = possible_clients(wanted).redis;
                if possible < wanted {
                    return Err(failed(format!(
                        "The operating system is not able to handle the specified number of clients, try with {possible}"
                    )));
                }
            }
            if setting.key == Key::Durability && self.node.votes().is_some() {
                check_durability(changed.text(Key::Durability)).map_err(failed)?;
            }
            keys.push(setting.key);
        }
        Encryption::check(&changed, &keys).map_err(|(key, reason)| {
            let name = OPTIONS[key as usize].name.to_owned();
            Refused { name, reason }
        })?;
        logging::check(&changed, &keys)
            .and_then(|()| issuers::check(&changed, &keys))
            .map_err(|(key, reason)| Refused { name: OPTIONS[key as usize].name.to_owned(), reason })?;
        Ok((changed, keys))
    }

    /// Gives the setting the segment size of the directory's log. Warns of another size in a file, a variable
    /// or a flag, which has no effect.
    pub(crate) fn adopt_segment_bytes(&self, log: &Log) {
        let lasting = self.files.lock();
        let (mut changed, actual) = (self.current().clone(), log.segment_bytes());
        let configured = changed.integer(Key::LogSegmentBytes);
        if configured == actual {
            return;
        }
        if lasting.origin(Key::LogSegmentBytes) != Origin::Default {
            tracing::warn!(
                target: "server", configured, actual,
                "log-segment-bytes was fixed when the directory was created: the configured size has no effect"
            );
        }
        let name = OPTIONS[Key::LogSegmentBytes as usize].name;
        // The setting accepts every segment size that a log can have.
        if changed.set(name, &actual.to_string()).is_ok() {
            self.put_own_in_force(changed);
        }
    }

    /// Seals the file of settings set by clients, if there is one, and notes in the control file that the
    /// directory has such a file. Called once the log is attached; each later change of the file does the
    /// same.
    ///
    /// # Errors
    /// In words: why the file cannot be sealed, or the control file cannot be written.
    pub(crate) fn protect_kept(&self) -> Result<(), String> {
        self.files.lock().seal_kept(&|| self.note_kept()).map_err(|error| error.to_string())
    }

    /// Notes in the control file that the directory has a file of settings set by clients. Does nothing while
    /// the server recovers, because there is no log yet: [`Config::protect_kept`] notes it later.
    fn note_kept(&self) -> Result<(), NotStored> {
        self.log.get().map_or(Ok(()), Log::note_settings).map_err(|error| match error.is_disk_full() {
            true => NotStored::NoRoom(error.to_string()),
            false => NotStored::Refused(error.to_string()),
        })
    }

    /// Puts settings in force; `forcing` is locked. An observer may wait for the disk: `settings` is locked
    /// only afterwards, so that readers of settings do not wait, too.
    pub(super) fn put_in_force(&self, changed: Settings) {
        self.hot.refresh(&changed);
        self.observers.read().iter().for_each(|observe| observe(&changed));
        self.users.configure(user_settings(&changed));
        *self.settings.write() = changed;
        self.follow_users();
    }

    /// Gives a setting a value, or its default, for now and for the next start.
    ///
    /// # Errors
    /// The setting or its value is refused, or the change cannot be stored.
    pub(crate) fn set_and_keep(&self, key: Key, value: Option<&str>) -> Result<(), NotStored> {
        let option = &OPTIONS[key as usize];
        let mut lasting = self.files_in_turn().map_err(NotStored::Refused)?;
        let wanted = value.unwrap_or(option.default);
        let changed = self.changed(&[(option.name.as_bytes(), wanted.as_bytes())]);
        let (changed, _) = changed.map_err(|refused| refused.reason)?;
        self.storing(|| lasting.keep_one(&changed, key, value.is_none(), &|| self.note_kept()))?;
        self.put_own_in_force(changed);
        Ok(())
    }

    /// The configuration file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.config_file.as_deref()
    }

    /// Writes the changes since the start to the configuration file.
    pub(super) fn rewrite_file(&self) -> Result<(), String> {
        let mut lasting =
            self.files_in_turn().map_err(|reason| format!("ERR Rewriting config file: {reason}"))?;
        let settings = self.current().clone();
        lasting.rewrite(&settings)
    }

    /// Takes over changes of the configuration file. One line of the server's log reports the result.
    pub(crate) fn reload(&self) {
        let mut lasting = self.files.lock();
        let follows = self.node.refuses_changes();
        let Some(file) = lasting.config_file().map(|file| file.display().to_string()) else {
            tracing::info!(target: "server", "SIGHUP: there is no configuration file to read again");
            return;
        };
        let mut reread = match lasting.reread() {
            Ok(reread) => reread,
            Err(error) => {
                tracing::warn!(target: "server", %error, "SIGHUP: the configuration file changes nothing");
                return;
            }
        };
        let is_of_data = |(key, _): &(Key, String)| OPTIONS[*key as usize].of_data;
        let (of_data, changed): (Vec<_>, Vec<_>) = reread.changed.into_iter().partition(is_of_data);
        reread.changed = changed;
        let given: Vec<&str> = of_data.iter().map(|(key, _)| OPTIONS[*key as usize].name).collect();
        if follows {
            reread.overridden.extend(&given);
        } else if !of_data.is_empty() {
            self.give(of_data);
            if let Some(log) = self.log.get() {
                self.record_given(log);
            }
        }
        let names: Vec<&str> = reread.changed.iter().map(|(key, _)| OPTIONS[*key as usize].name).collect();
        let pairs: Vec<_> = names
            .iter()
            .zip(&reread.changed)
            .map(|(name, (_, value))| (name.as_bytes(), value.as_bytes()))
            .collect();
        let refused = match self.changed(&pairs) {
            Ok((changed, _)) => {
                self.put_own_in_force(changed);
                String::new()
            }
            Err(refused) => refused.to_string(),
        };
        drop(lasting);
        self.put_data_settings_in_force();
        let changed: Vec<&str> = names.iter().chain(given.iter().filter(|_| !follows)).copied().collect();
        tracing::info!(
            target: "server", file, changed = changed.join(", "), refused, overridden = reread.overridden.join(", "),
            needs_restart = reread.needs_restart.join(", "), "SIGHUP: the configuration file was read again"
        );
    }
}

/// Tells an administrator, when the setting is set for the first time, that it has no effect.
fn tell_that_it_has_no_effect(first_set: Option<&'static str>) {
    if let Some(setting) = first_set {
        tracing::info!(
            target: "server", setting,
            "CONFIG SET of a setting of Redis that has no effect here: it is shown, until the server stops, and nothing else"
        );
    }
}
