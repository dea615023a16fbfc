//! Passwords, and the admission of connections: the same rules for the Redis port and the HTTP port.
//!
//! Users belong to the data (`engine::users`). Over HTTP, each user who may do everything is an admin, and so
//! is `admin-user` with `admin-password`. While `default` needs no password, protected mode serves only
//! clients on this machine.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use couch::{LogIn, Resource};
use engine::{
    CommandError, Place,
    clients::{Clients, DEFAULT_USER, TOO_MANY_CLIENTS},
    users::Principal,
};
use env::Clock;
use settings::{Key, RESERVED_PLACES};
use subtle::ConstantTimeEq;

use crate::config::Config;

const PROTECTED: CommandError = CommandError::Text(
    "DENIED Sheaf is running in protected mode: it has no password, so it serves only clients on this machine. Set one \
     (requirepass), or turn protected-mode off if the network is trusted.",
);

pub(crate) struct Access {
    config: Arc<Config>,
    clients: Arc<Clients>,
    clock: Arc<dyn Clock>,
    /// Connections that were refused.
    pub(crate) rejected_connections: AtomicU64,
}

impl Access {
    pub(crate) fn new(config: Arc<Config>, clients: Arc<Clients>, clock: Arc<dyn Clock>) -> Access {
        Access { config, clients, clock, rejected_connections: AtomicU64::new(0) }
    }

    /// Admits a connection from `peer`. There are [`RESERVED_PLACES`] more places than clients may take, so
    /// that replicas and members find one even when clients have taken all of theirs.
    ///
    /// # Errors
    /// The reply to a connection that is not served.
    pub(crate) fn admit(&self, peer: &SocketAddr) -> Result<Place, CommandError> {
        let hot = self.config.hot();
        let (served, clients_max) = (self.clients.count() as u64, hot.clients_max());
        let error = if served >= clients_max + RESERVED_PLACES {
            TOO_MANY_CLIENTS
        } else if hot.is_protected()
            && self.config.admits_everybody()
            && !peer.ip().to_canonical().is_loopback()
        {
            PROTECTED
        } else {
            return Ok(if served < clients_max { Place::Client } else { Place::Reserve });
        };
        self.note_rejected();
        Err(error)
    }

    /// How many more clients of the Redis protocol there may be.
    pub(crate) fn places_left(&self) -> u64 {
        self.config.hot().clients_max().saturating_sub(self.clients.count() as u64)
    }

    /// Counts a connection that is not served, or no longer.
    pub(crate) fn note_rejected(&self) {
        self.rejected_connections.fetch_add(1, Relaxed);
    }

    /// Whether HTTP serves only clients on this machine, all of them as admins.
    pub(crate) fn trusts_this_machine(&self) -> bool {
        self.config.hot().is_protected() && !self.has_http_admins()
    }

    /// Whether any client has to authenticate over HTTP.
    pub(crate) fn has_http_admins(&self) -> bool {
        !self.config.everybody_is_admin() || self.config.hot().has_admin_password()
    }

    /// The password of the HTTP admin of this name, if such an admin exists and its password comes from a
    /// setting.
    pub(crate) fn http_admin_password(&self, name: &str) -> Option<String> {
        let is_changed = self.config.users().current().default_user().has_record();
        let settings = self.config.current();
        let admins = [("default", Key::Requirepass), (settings.text(Key::AdminUser), Key::AdminPassword)];
        // A user with a record has the passwords of the record.
        let admins = admins.into_iter().skip(usize::from(is_changed));
        let mut passwords = admins.filter(|(admin, _)| *admin == name).map(|(_, key)| settings.text(key));
        passwords.find(|password| !password.is_empty()).map(str::to_owned)
    }

    /// Judges a name and a password over HTTP. Failures slow down the address, as on the Redis port.
    pub(crate) fn log_in_over_http(
        &self,
        address: IpAddr,
        name: &str,
        password: &str,
        resource: Option<Resource>,
    ) -> LogIn {
        let (users, now_ms) = (self.config.users(), self.clock.unix_ms());
        if users.begin_login(address, now_ms).is_err() {
            return LogIn::TooEarly;
        }
        let judged = match resource {
            _ if self.is_http_admin(name, password) => LogIn::Admin,
            Some(resource) if self.may_use(name, password, resource) => LogIn::Permitted,
            _ => LogIn::Wrong,
        };
        if judged == LogIn::Wrong {
            users.note_failed_http_login(address, name.as_bytes(), now_ms);
        } else {
            users.note_login(address, name.as_bytes());
        }
        judged
    }

    /// Whether these are the name and the password of an HTTP admin: one of the settings, or a user who may
    /// do everything.
    fn is_http_admin(&self, name: &str, password: &str) -> bool {
        let wanted = self.http_admin_password(name);
        wanted.is_some_and(|wanted| are_equal(wanted.as_bytes(), password.as_bytes()))
            || self.user_of(name, password).is_some_and(|user| user.rights.are_unrestricted())
    }

    /// Whether these are the name and the password of a user with the right to a resource: to the command
    /// that shows as much.
    fn may_use(&self, name: &str, password: &str, resource: Resource) -> bool {
        let command: &[u8] = match resource {
            Resource::Metrics => b"info",
            Resource::Backup => b"replicate",
        };
        let command = self.config.users().commands().find(command);
        self.user_of(name, password).zip(command).is_some_and(|(user, command)| user.rights.allow(command))
    }

    /// The user of the data with this name, if this is its password.
    fn user_of(&self, name: &str, password: &str) -> Option<Arc<Principal>> {
        let users = self.config.users().current();
        // `default` without a record has the password of a setting, or none.
        let user = users.get(name.as_bytes()).filter(|user| user.has_record() || name != DEFAULT_USER)?;
        user.user.accepts(password.as_bytes()).then(|| user.clone())
    }
}

/// Takes the same time wherever the two differ.
fn are_equal(wanted: &[u8], given: &[u8]) -> bool {
    wanted.ct_eq(given).into()
}
