//! Passwords, and the admission of connections, for the Redis port and the HTTP port.
//!
//! Users belong to the data (`engine::users`) and are the same for both protocols. Over HTTP, `admin-user`
//! with `admin-password` is one more user, and an admin; each user who may run all commands of administrators
//! is an admin, too. Protected mode serves only clients on this machine while `default` needs no password.
//! Over HTTP it does so only while `default` may also do everything and `admin-password` is not set.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use access::{LoginOf, PasswordHash, Turn, Waiter, is_role};
use couch::{Account, Attempt, LogIn, Resource};
use engine::{
    CommandError, Place,
    audit::Action,
    clients::{Clients, DEFAULT_USER, TOO_MANY_CLIENTS},
    users::{Principal, Verdict},
};
use env::Clock;
use lsn::Lsn;
use recovery::progress::LoadProgress;
use settings::{Key, RESERVED_PLACES};
use subtle::ConstantTimeEq;

use crate::{config::Config, http::issuers::Issuers};

const PROTECTED: CommandError = CommandError::Text(
    "DENIED Sheaf is running in protected mode: it has no password, so it serves only clients on this machine. Set one \
     (requirepass), or turn protected-mode off if the network is trusted.",
);

pub(crate) struct Access {
    config: Arc<Config>,
    clients: Arc<Clients>,
    clock: Arc<dyn Clock>,
    progress: Arc<LoadProgress>,
    /// The other servers whose word about users is trusted.
    pub(crate) issuers: Arc<Issuers>,
    /// Connections that were turned away since CONFIG RESETSTAT.
    pub(crate) rejected_connections: AtomicU64,
    /// Connections that were admitted, and that no worker has registered yet.
    arriving: Arc<AtomicU64>,
}

/// Counts an admitted connection until a worker registers or drops it.
pub(crate) struct Arrival(Arc<AtomicU64>);

impl Arrival {
    fn begin(arriving: &Arc<AtomicU64>) -> Arrival {
        arriving.fetch_add(1, Relaxed);
        Arrival(arriving.clone())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Access {
    pub(crate) fn new(
        config: Arc<Config>,
        clients: Arc<Clients>,
        clock: Arc<dyn Clock>,
        progress: Arc<LoadProgress>,
    ) -> Access {
        Access {
            config,
            clients,
            clock,
            progress,
            issuers: Arc::default(),
            rejected_connections: AtomicU64::new(0),
            arriving: Arc::default(),
        }
    }

    /// Admits a connection from `peer`. There are [`RESERVED_PLACES`] more places than clients may take, so
    /// that replicas and members find one even when clients have taken all of theirs.
    ///
    /// # Errors
    /// The reply to a connection that is not served.
    pub(crate) fn admit(&self, peer: &SocketAddr) -> Result<(Place, Arrival), CommandError> {
        let hot = self.config.hot();
        let (served, clients_max) = (self.served(), hot.clients_max());
        let error = if served >= clients_max + RESERVED_PLACES {
            TOO_MANY_CLIENTS
        } else if hot.is_protected()
            && self.config.admits_everybody()
            && !peer.ip().to_canonical().is_loopback()
        {
            PROTECTED
        } else {
            let place = if served < clients_max { Place::Client } else { Place::Reserve };
            return Ok((place, Arrival::begin(&self.arriving)));
        };
        self.note_rejected();
        Err(error)
    }

    /// How many more clients of the Redis protocol there may be.
    pub(crate) fn places_left(&self) -> u64 {
        self.config.hot().clients_max().saturating_sub(self.served())
    }

    /// The connections that have a place, also those that wait for their worker.
    fn served(&self) -> u64 {
        self.clients.count() as u64 + self.arriving.load(Relaxed)
    }

    /// Counts a connection that is turned away, at once or later.
    pub(crate) fn note_rejected(&self) {
        self.rejected_connections.fetch_add(1, Relaxed);
    }

    /// Whether HTTP serves clients on this machine only, and treats all of them as admins.
    pub(crate) fn trusts_this_machine(&self) -> bool {
        self.config.hot().is_protected() && !self.has_http_admins()
    }

    /// Whether clients have to authenticate over HTTP to be admins.
    pub(crate) fn has_http_admins(&self) -> bool {
        !self.config.everybody_is_admin() || self.config.hot().has_admin_password()
    }

    /// The password of the HTTP admin of this name, if such an admin exists and its password comes from a
    /// setting.
    pub(crate) fn http_admin_password(&self, name: &str) -> Option<String> {
        let is_changed = self.config.users().current().default_user().has_record();
        let settings = self.config.current();
        let admins = [("default", Key::Requirepass), (settings.text(Key::AdminUser), Key::AdminPassword)];
        // If `default` has a record, the record has its passwords, and `requirepass` does not count.
        let admins = admins.into_iter().skip(usize::from(is_changed));
        let mut passwords = admins.filter(|(admin, _)| *admin == name).map(|(_, key)| settings.text(key));
        passwords.find(|password| !password.is_empty()).map(str::to_owned)
    }

    /// The account of an enabled user with this name, for a client that has logged in before. While the data
    /// are loaded, only admins of the settings are known.
    pub(crate) fn http_account(&self, name: &str) -> Option<Account> {
        if let Some(password) = self.http_admin_password(name) {
            return Some(admin_of_settings(&password));
        }
        let user = self.user_of(name)?;
        (user.user.is_enabled && !self.lacks_certificate(&user)).then(|| account_of(&user))
    }

    /// Whether only a certificate could prove that a client is this user: the user needs no password, and
    /// certificates name users. No client may be such a user over HTTP, where certificates prove no user.
    fn lacks_certificate(&self, user: &Principal) -> bool {
        user.user.needs_no_password && self.config.users().settings().certificates_name_users
    }

    /// Judges a name and a password over HTTP. Failures slow down the address, as on the Redis port.
    pub(crate) fn log_in_over_http(&self, attempt: &Attempt<'_>) -> LogIn {
        let Attempt { number, address, name, password, resource } = *attempt;
        let (users, now_ms) = (self.config.users(), self.clock.unix_ms());
        let login = LoginOf { address, user: name.as_bytes(), waiter: Waiter::Http(number) };
        if let Some(refused) = refused(users.ask_login(login, now_ms)) {
            return refused;
        }
        let judged = match self.judge(name, password, resource, now_ms) {
            Ok(judged) => judged,
            Err(unknown) => return unknown,
        };
        let is_right = !matches!(judged, Judged::Wrong);
        if let Some(refused) = refused(users.attempt_login(login, is_right, now_ms)) {
            return refused;
        }
        match judged {
            Judged::MayUse(account) => LogIn::Accepted(account),
            Judged::LacksRight => LogIn::LacksRight,
            Judged::Wrong => {
                users.note_failed_http_login(address, name.as_bytes(), now_ms);
                LogIn::Wrong
            }
        }
    }

    /// Notes that a token was refused.
    pub(crate) fn note_refused_token(&self, address: IpAddr) {
        self.config.users().note_refused_token(address, self.clock.unix_ms());
    }

    /// Notes a request over HTTP in the audit, if the audit is on.
    pub(crate) fn note_request(
        &self,
        client: SocketAddr,
        user: &str,
        (method, path): (&str, &str),
        succeeded: bool,
    ) {
        let audit = &self.config.users().audit;
        if audit.is_on() {
            let (client, now_ms) = (client.to_string(), self.clock.unix_ms());
            let action = Action { name: b"HTTP", user: user.as_bytes(), client: &client, succeeded, now_ms };
            audit.note(action, [method.as_bytes(), path.as_bytes()].into_iter());
        }
    }

    /// Whether the user with this name and password may log in and use the resource.
    ///
    /// # Errors
    /// If the judgement takes time: [`LogIn::Begins`] or [`LogIn::Later`] for a password whose check takes
    /// long, [`LogIn::Loading`] while the data are loaded.
    fn judge(
        &self,
        name: &str,
        password: &[u8],
        resource: Option<Resource>,
        now_ms: u64,
    ) -> Result<Judged, LogIn> {
        // An admin of the settings has only the password of the setting.
        if let Some(wanted) = self.http_admin_password(name) {
            let is_right = are_equal(wanted.as_bytes(), password);
            return Ok(if is_right { Judged::MayUse(admin_of_settings(&wanted)) } else { Judged::Wrong });
        }
        if self.progress.loading().is_some() {
            return Err(LogIn::Loading);
        }
        let Some(user) = self.user_of(name) else { return Ok(Judged::Wrong) };
        let accepts = match user.user.accepts_at_once(password) {
            Some(accepts) => accepts,
            None => self.accepts_derived(&user, password, now_ms)?,
        };
        let may_use = resource.is_none_or(|resource| self.may_use(&user, resource));
        Ok(match accepts && !self.lacks_certificate(&user) {
            true if may_use => Judged::MayUse(account_of(&user)),
            true => Judged::LacksRight,
            false => Judged::Wrong,
        })
    }

    /// Whether `password` is the one from which the user's derived password was made.
    ///
    /// # Errors
    /// If the check takes time: [`LogIn::Begins`] or [`LogIn::Later`].
    fn accepts_derived(&self, user: &Principal, password: &[u8], now_ms: u64) -> Result<bool, LogIn> {
        let Some(derived) = &user.user.derived_password else { return Ok(false) };
        let users = self.config.users().clone();
        match users.password_checks.verdict(derived, password, now_ms) {
            Verdict::Known(accepts) => Ok(accepts),
            Verdict::Later => Err(LogIn::Later),
            Verdict::Begins(check) => {
                let running = users.clone();
                Err(LogIn::Begins(Box::new(move || running.password_checks.run(check, now_ms))))
            }
        }
    }

    /// Whether a user may use a resource. An admin may; another user needs the right to the command that
    /// shows the same data.
    fn may_use(&self, user: &Principal, resource: Resource) -> bool {
        let command: &[u8] = match resource {
            Resource::Metrics => b"info",
            Resource::Backup => b"replicate",
        };
        let command = self.config.users().commands().find(command);
        user.is_admin || command.is_some_and(|command| user.rights.allow(command))
    }

    /// The user of the data with this name. None while the data are loaded, because the users in memory may
    /// be old; and none for `default` without a record.
    fn user_of(&self, name: &str) -> Option<Arc<Principal>> {
        if self.progress.loading().is_some() {
            return None;
        }
        self.config.follow_users();
        let users = self.config.users().current();
        // `default` without a record has the password of a setting, or none.
        users.get(name.as_bytes()).filter(|user| user.has_record() || name != DEFAULT_USER).cloned()
    }
}

/// The judgement of a name and a password.
enum Judged {
    MayUse(Account),
    /// Name and password are right, but the user may not use the resource.
    LacksRight,
    Wrong,
}

/// The answer to a login whose turn has not come.
fn refused(turn: Turn) -> Option<LogIn> {
    match turn {
        Turn::Now => None,
        Turn::Later { pause_ms } => Some(LogIn::NotYet { pause_ms }),
        Turn::TooMany => Some(LogIn::TooMany),
    }
}

/// The role of users that may do everything.
const ADMIN_ROLE: &str = "_admin";

fn admin_of_settings(password: &str) -> Account {
    let login_digest = *PasswordHash::of(password.as_bytes()).bytes();
    Account { roles: vec![ADMIN_ROLE.into()], is_admin: true, login_digest, lsn: Lsn::ZERO }
}

fn account_of(user: &Principal) -> Account {
    let roles = user.user.roles.iter().filter(|role| is_role(role));
    let mut roles: Vec<String> = roles.map(|role| String::from_utf8_lossy(role).into_owned()).collect();
    if user.is_admin {
        roles.insert(0, ADMIN_ROLE.into());
    }
    Account { roles, is_admin: user.is_admin, login_digest: user.user.login_digest(), lsn: user.lsn }
}

/// Compares two passwords. For passwords of equal length, this takes the same time wherever they differ.
fn are_equal(wanted: &[u8], given: &[u8]) -> bool {
    wanted.ct_eq(given).into()
}
