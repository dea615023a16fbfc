//! Settings about users, and their file (`aclfile`).
//!
//! ```text
//! the first start of a leader, ACL LOAD -> file -> records of the log -> users on every server
//! ACL SAVE                              -> file
//! ```
//!
//! Users belong to the data. So the file is read at a start only if the data has no users. A restart undoes
//! no changes of clients, unless clients have deleted all users of the data.

use std::{fs, path::Path, sync::Arc};

use access::{Grammar, PasswordHash, is_user_name, parse_file};
use engine::{
    host::NO_FILE_OF_USERS,
    users::{UserSettings, Users, records, setting_of},
};
use env::{Entropy, crashsafe::write_atomically_with_mode};
use keyspace::{AccessClock, Effect, Freed, LIBRARIES_SLOT};
use settings::{Key, Settings};
use storage::Log;

use super::Config;
use crate::encryption::certificates_name_users;

/// The mode of the file of users: it has hashes of passwords, which nobody but the owner may read.
const MODE: u32 = 0o600;

/// The settings about users, out of all settings.
pub(super) fn user_settings(settings: &Settings) -> UserSettings {
    let password = |key| {
        let password = settings.text(key);
        (!password.is_empty()).then(|| PasswordHash::of(password.as_bytes()))
    };
    let servers = settings.text(Key::Masteruser).as_bytes();
    UserSettings {
        default_password: password(Key::Requirepass),
        servers: password(Key::Masterauth)
            .filter(|_| !matches!(servers, b"" | b"default") && is_user_name(servers))
            .map(|password| (servers.into(), password)),
        all_channels: settings.text(Key::AclPubsubDefault) == "allchannels",
        log_entries_max: settings.integer(Key::AcllogMaxLen) as usize,
        certificates_name_users: certificates_name_users(settings),
        are_audited: settings.switch(Key::Audit),
    }
}

impl Config {
    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Whether clients need no password, because the default user needs none.
    pub(crate) fn admits_everybody(&self) -> bool {
        self.users.current().default_user().admits_everybody()
    }

    /// Whether clients need no password and may do everything, because that is true of the default user.
    pub(crate) fn everybody_is_admin(&self) -> bool {
        let users = self.users.current();
        let default = users.default_user();
        default.admits_everybody() && default.rights.are_unrestricted()
    }

    /// Makes the users follow the data and the settings.
    pub(crate) fn follow_users(&self) {
        self.users.refresh(&self.keyspace, &self.clients);
    }

    /// Logs a warning if `requirepass` is not a password of the user `default`, whose record decides.
    pub(crate) fn report_ineffective_password(&self) {
        let settings = self.current();
        let password = settings.text(Key::Requirepass);
        let users = self.users.refresh(&self.keyspace, &self.clients);
        let default = &users.default_user().user;
        if !password.is_empty() && (default.needs_no_password || !default.accepts(password.as_bytes())) {
            tracing::warn!(
                target: "server",
                "requirepass has no effect: ACL SETUSER has changed the user default, whose own passwords count (ACL GETUSER default)"
            );
        }
    }

    /// Records the users of the file, if the data of this leader have none.
    ///
    /// # Errors
    /// The file cannot be read, or has errors: in words.
    pub(crate) fn import_users(&self, log: &Log, entropy: &dyn Entropy) -> Result<(), String> {
        if self.current().text(Key::Aclfile).is_empty() || self.node.refuses_changes() {
            return Ok(());
        }
        let Some(mut slot) = self.keyspace.try_lock(LIBRARIES_SLOT) else { return Ok(()) };
        if log.is_mirror() || log.is_frozen() {
            return Ok(());
        }
        if records(&slot.data_settings()).next().is_some() {
            tracing::info!(target: "server", "the data have users: aclfile is not read. ACL LOAD reads it");
            return Ok(());
        }
        let (path, content) = self.read_file_of_users().map_err(|text| match text.strip_prefix("ERR ") {
            Some(reason) => format!("aclfile: {reason}"),
            None => text,
        })?;
        let all_channels = self.users.settings().all_channels;
        let grammar = Grammar { commands: self.users.commands(), all_channels };
        let users = parse_file(&grammar, path.as_bytes(), &content)
            .map_err(|error| String::from_utf8_lossy(&error.text).into_owned())?;
        let (mut record, mut freed) = (Vec::new(), Freed::new());
        let count = users.len();
        for (name, user) in users {
            let (name, user) = (setting_of(&name), user.succeeding(None, entropy.random_u64()).encode());
            let effect = Effect::Setting { name: &name, value: Some(&user) };
            slot.apply(&effect, AccessClock::default(), &mut freed);
            effect.encode_into(&mut record);
        }
        self.append(log, slot, &record);
        tracing::info!(target: "server", file = path, users = count, "the users of the file are recorded in the data");
        Ok(())
    }

    /// The name of the file of users, and its content.
    pub(super) fn read_file_of_users(&self) -> Result<(String, Vec<u8>), String> {
        let path = self.file_of_users()?;
        let content = fs::read(&path)
            .map_err(|error| format!("ERR Error loading ACLs, opening file '{path}': {error}"))?;
        Ok((path, content))
    }

    pub(super) fn write_file_of_users(&self, content: &[u8]) -> Result<(), String> {
        let path = self.file_of_users()?;
        write_atomically_with_mode(Path::new(&path), content, MODE).map_err(|error| {
            tracing::error!(target: "server", file = path, %error, "the file of users cannot be written");
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information"
                .to_owned()
        })
    }

    fn file_of_users(&self) -> Result<String, String> {
        match self.current().text(Key::Aclfile) {
            "" => Err(NO_FILE_OF_USERS.into()),
            path => Ok(path.to_owned()),
        }
    }
}
