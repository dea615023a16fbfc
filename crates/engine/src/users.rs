//! The users in force: the users that the data has, compiled for the table of commands.
//!
//! ```text
//! record of the log -> Keyspace::data_settings -> Users::refresh -> UserSet -> one Arc per worker
//!                                 requirepass ----^     '-> clients of deleted users are closed,
//!                                                           subscriptions are reviewed
//! ```
//!
//! This module has the users by name with their rights, and the log of denials. It is not the language of
//! rules and judgements (`access`), and it does not store the users. Users are settings that belong to the
//! data; the name of such a setting is [`OF_USERS`] followed by the name of the user. So snapshots, replicas,
//! groups and backups carry users without code of their own for that, and an earlier version of the server
//! keeps users that it does not understand.
//!
//! Invariants
//! - `default` is always there. Without a record, `default` may do everything, by the password of the setting
//!   `requirepass`. The user of other servers (`masteruser`), without a record, may run the commands that
//!   servers send to each other; a record takes its place.
//! - A record that this version cannot read is a user who may not log in: never more rights than were given.
//! - A set of users does not change; a change of the users makes another one, with another generation.

mod log_in;
mod password_checks;
mod subscriptions;

use std::{
    collections::BTreeMap,
    fmt, mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use access::{
    Category, CommandList, CommandRule, Context as DenialContext, Denial, DenialLog, Denied, FailedLoginLine,
    FailedLogins, LoginOf, PasswordHash, Reason, Rights, Turn, User,
};
use keyspace::{DataSettings, Keyspace};
use lsn::Lsn;
use parking_lot::Mutex;

use crate::{
    CommandTable, Flags, Session,
    audit::{Action, Audit},
    clients::{Clients, DEFAULT_USER},
};

pub use log_in::LogIn;
pub use password_checks::{
    ACCEPTED_MS, CHECKS_PER_LOGIN_MAX, PAUSE_MS, PasswordCheck, PasswordChecks, REFUSED_MS, RUNNING_MAX,
    Verdict,
};
pub use subscriptions::may_listen;

/// The prefix in the name of a setting that keeps a user; the name of the user follows.
pub const OF_USERS: &str = "user:";

/// The prefix in the names of the secret settings that the front of documents keeps.
pub const OF_HTTP: &str = "http:";

/// The name of the setting that holds the password of the default user while that user has no record. If
/// there is a record, CONFIG SET of this setting changes the record, too.
pub const REQUIREPASS: &str = "requirepass";

/// The maximum number of users with a record.
const USERS_MAX: usize = 10_000;

/// The maximum bytes of the record of one user and the name of its setting together. There is a maximum
/// because FLUSHALL and every snapshot write the record again.
pub const USER_BYTES_MAX: usize = 64 << 10;

/// The maximum bytes of the records of all users, with the names of their settings.
const USERS_BYTES_MAX: usize = 16 << 20;

/// The name of the setting that keeps a user.
pub fn setting_of(user: &[u8]) -> Vec<u8> {
    [OF_USERS.as_bytes(), user].concat()
}

/// The name and the record of each user that the data have.
pub fn records(data: &DataSettings) -> impl Iterator<Item = (&[u8], &[u8])> {
    data.iter().filter_map(|(name, value)| Some((name.strip_prefix(OF_USERS.as_bytes())?, value)))
}

/// Whether there is room for these changes: each has the name of a setting and the new record of the user,
/// `None` to remove it. Changes that leave no more users and no more bytes than before always have room.
pub fn have_room<'c>(
    data: &DataSettings,
    changes: impl IntoIterator<Item = (&'c [u8], Option<&'c [u8]>)>,
) -> bool {
    let (count, bytes) = records(data).fold((0_usize, 0_usize), |(count, bytes), (name, record)| {
        (count + 1, bytes + OF_USERS.len() + name.len() + record.len())
    });
    let (mut count_after, mut bytes_after) = (count, bytes);
    for (name, record) in changes {
        if let Some(record) = record {
            (count_after, bytes_after) = (count_after + 1, bytes_after + name.len() + record.len());
        }
        if let Some(replaced) = data.get(name) {
            count_after = count_after.saturating_sub(1);
            bytes_after = bytes_after.saturating_sub(name.len() + replaced.len());
        }
    }
    count_after <= USERS_MAX.max(count) && bytes_after <= USERS_BYTES_MAX.max(bytes)
}

/// A user in force, with its rights compiled for the table of commands.
#[derive(Debug)]
pub struct Principal {
    /// The name of the user, as in AUTH.
    pub name: Box<[u8]>,
    /// The user as data: passwords and rules.
    pub user: User,
    /// The rights of the user, compiled from its rules.
    pub rights: Rights,
    /// Whether the user may run every command of administrators, and so give itself any right: the role
    /// `_admin`.
    pub is_admin: bool,
    /// Whether the user may run at least one of the commands of replicas and members. If so, other servers
    /// may log in as this user.
    pub may_be_server: bool,
    /// A position in the log at or after the last change of this user: a reply that depends on the user waits
    /// until this position is committed.
    pub lsn: Lsn,
    /// The record of the user; `None` if the data have no record of this user.
    record: Option<Box<[u8]>>,
}

impl Principal {
    fn new(name: &[u8], user: User, (record, lsn): (Option<&[u8]>, Lsn), table: &CommandTable) -> Principal {
        let rights = Rights::new(&user, table.commands());
        let mut of_admins = table.commands().iter().filter(|(_, it)| it.categories.has(Category::Admin));
        let is_admin = rights.are_unrestricted() || of_admins.all(|(id, _)| rights.allow(id));
        let may_be_server = table.commands().iter().zip(table.rows()).any(|((id, _), row)| {
            row.flags.has(Flags::BETWEEN_SERVERS) && !row.flags.has(Flags::NO_AUTH) && rights.allow(id)
        });
        let record = record.map(Box::from);
        Principal { name: name.into(), user, rights, is_admin, may_be_server, lsn, record }
    }

    fn of_record(name: &[u8], (record, lsn): (&[u8], Lsn), table: &CommandTable) -> Principal {
        let user = User::decode(record).unwrap_or_else(|error| {
            let user = String::from_utf8_lossy(name);
            tracing::error!(target: "server", %user, %error, "the record of a user cannot be read: it is disabled");
            User::initial(false)
        });
        Principal::new(name, user, (Some(record), lsn), table)
    }

    /// Whether the data have a record of the user.
    pub fn has_record(&self) -> bool {
        self.record.is_some()
    }

    /// Whether clients can be this user without a password.
    pub fn admits_everybody(&self) -> bool {
        self.user.is_enabled && self.user.needs_no_password
    }
}

/// The generations of data and settings that a set of users was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    data_generation: u64,
    settings_generation: u64,
}

/// The users of one moment, by name; the set does not change.
#[derive(Debug)]
pub struct UserSet {
    /// Rises when the users change.
    pub generation: u64,
    /// A position in the log at or after the last change of the users.
    pub lsn: Lsn,
    by_name: BTreeMap<Box<[u8]>, Arc<Principal>>,
    origin: Origin,
}

impl UserSet {
    /// The users before there are data: the default user alone.
    pub(crate) fn initial(table: &CommandTable) -> UserSet {
        let default = Principal::new(DEFAULT_USER.as_bytes(), User::all_powerful(), (None, Lsn::ZERO), table);
        UserSet {
            generation: 0,
            lsn: Lsn::ZERO,
            by_name: BTreeMap::from([(default.name.clone(), Arc::new(default))]),
            origin: Origin { data_generation: u64::MAX, settings_generation: u64::MAX },
        }
    }

    /// The user of this name; `None` if there is none.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Principal>> {
        self.by_name.get(name)
    }

    /// The user of clients that have not logged in.
    pub fn default_user(&self) -> &Arc<Principal> {
        self.get(DEFAULT_USER.as_bytes()).expect("it is always there")
    }

    /// All users, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Principal>> {
        self.by_name.values()
    }

    /// Whether the two sets share all their users.
    fn has_users_of(&self, other: &UserSet) -> bool {
        self.by_name.len() == other.by_name.len()
            && self.by_name.iter().all(|(name, user)| other.is_same(name, user))
    }

    fn is_same(&self, name: &[u8], user: &Arc<Principal>) -> bool {
        self.get(name).is_some_and(|known| Arc::ptr_eq(known, user))
    }
}

/// The settings of this server about users.
#[derive(Debug, Clone)]
pub struct UserSettings {
    /// The password of the default user without a record (`requirepass`); `None` if that user needs no
    /// password.
    pub default_password: Option<PasswordHash>,
    /// The user as whom other servers log in (`masteruser`, `masterauth`), as long as the data have no such
    /// user: a server that joins has no data yet.
    pub servers: Option<(Arc<[u8]>, PasswordHash)>,
    /// Whether new and reset users may use all channels (`acl-pubsub-default`).
    pub all_channels: bool,
    /// The maximum number of entries in the log of denials (`acllog-max-len`).
    pub log_entries_max: usize,
    /// Whether the name in a client's certificate says which user the client is (`tls-auth-clients-user`).
    pub certificates_name_users: bool,
    /// Whether the actions of administrators are written down (`audit`).
    pub are_audited: bool,
}

impl UserSettings {
    /// The defaults: the default user needs no password.
    pub const DEFAULT: UserSettings = UserSettings {
        default_password: None,
        servers: None,
        all_channels: false,
        log_entries_max: 128,
        certificates_name_users: false,
        are_audited: false,
    };
}

/// A function that is called after each change of the users. The function must neither wait nor ask for the
/// users.
type Observer = Box<dyn Fn() + Send + Sync>;

/// The functions that are called after changes of the users.
#[derive(Default)]
struct Observers(Mutex<Vec<Observer>>);

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}

/// Denials since the start, or since CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct DenialCounts([AtomicU64; 4]);

impl DenialCounts {
    /// The number of denials for this reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// Resets the counts of all reasons to 0 (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// The users of a server, as all workers share them.
#[derive(Debug)]
pub struct Users {
    table: &'static CommandTable,
    current: Mutex<Arc<UserSet>>,
    settings: Mutex<UserSettings>,
    settings_generation: AtomicU64,
    denials: Mutex<DenialLog>,
    failed_logins: Mutex<FailedLogins>,
    observers: Observers,
    /// The checks of passwords that take long.
    pub password_checks: PasswordChecks,
    /// The actions of administrators, and logins that failed, that are to be written down.
    pub audit: Audit,
    /// The numbers of denials, by reason.
    pub counts: DenialCounts,
    /// The number of logins that were refused because too many others from their address wait; since the
    /// start or CONFIG RESETSTAT.
    pub logins_turned_away: AtomicU64,
}

impl Users {
    /// The default user alone, without a password.
    pub fn new(table: &'static CommandTable) -> Users {
        Users {
            table,
            current: Mutex::new(Arc::new(UserSet::initial(table))),
            settings: Mutex::new(UserSettings::DEFAULT),
            settings_generation: AtomicU64::new(0),
            denials: Mutex::default(),
            failed_logins: Mutex::default(),
            observers: Observers::default(),
            password_checks: PasswordChecks::default(),
            audit: Audit::default(),
            counts: DenialCounts::default(),
            logins_turned_away: AtomicU64::new(0),
        }
    }

    /// The table of commands that rights are compiled for.
    pub fn table(&self) -> &'static CommandTable {
        self.table
    }

    /// The commands that rules can name.
    pub fn commands(&self) -> &'static CommandList {
        self.table.commands()
    }

    /// The settings about users, as they are in force.
    pub fn settings(&self) -> UserSettings {
        self.settings.lock().clone()
    }

    /// Puts settings in force: passwords from the next [`Users::refresh`] on, the others at once.
    pub fn configure(&self, settings: UserSettings) {
        let passwords = |it: &UserSettings| (it.default_password, it.servers.clone());
        let after = passwords(&settings);
        self.audit.set_on(settings.are_audited);
        let before = mem::replace(&mut *self.settings.lock(), settings);
        if passwords(&before) != after {
            self.settings_generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Has `observer` called after each change of the users.
    pub fn observe(&self, observer: impl Fn() + Send + Sync + 'static) {
        self.observers.0.lock().push(Box::new(observer));
    }

    /// The users as of the last [`Users::refresh`].
    pub fn current(&self) -> Arc<UserSet> {
        self.current.lock().clone()
    }

    /// Whether these users still match the data and the settings. The check costs two loads.
    #[inline]
    pub fn is_current(&self, users: &UserSet, keyspace: &Keyspace) -> bool {
        users.origin == self.origin(keyspace)
    }

    #[inline]
    fn origin(&self, keyspace: &Keyspace) -> Origin {
        Origin {
            data_generation: keyspace.data_settings_generation(),
            settings_generation: self.settings_generation.load(Ordering::Acquire),
        }
    }

    /// The users that follow from the present data and settings. The first call after a change of users also
    /// closes the connections of deleted users, has the connections reviewed that may have lost a channel,
    /// and calls the observers.
    #[cold]
    pub fn refresh(&self, keyspace: &Keyspace, clients: &Clients) -> Arc<UserSet> {
        let mut current = self.current.lock();
        // The origin is read before the data, so that the next call finds every change after this point.
        let origin = self.origin(keyspace);
        if current.origin == origin {
            return current.clone();
        }
        let (data, lsn) = keyspace.data_settings_and_lsn();
        let mut next = UserSet { origin, lsn: current.lsn, ..UserSet::initial(self.table) };
        next.generation = current.generation;
        for (name, record) in records(&data) {
            let known = current.get(name).filter(|known| known.record.as_deref() == Some(record));
            let user = known
                .cloned()
                .unwrap_or_else(|| Arc::new(Principal::of_record(name, (record, lsn), self.table)));
            next.by_name.insert(name.into(), user);
        }
        for (name, user) in self.without_records() {
            if next.get(&name).is_none_or(|known| !known.has_record()) {
                let known = current.get(&name).filter(|it| !it.has_record() && it.user == user);
                let user = || Arc::new(Principal::new(&name, user.clone(), (None, lsn), self.table));
                next.by_name.insert((*name).into(), known.cloned().unwrap_or_else(user));
            }
        }
        if current.generation == 0 || !next.has_users_of(&current) {
            next.generation += 1;
            next.lsn = lsn;
        }
        let next = Arc::new(next);
        let before = mem::replace(&mut *current, next.clone());
        drop(current);
        if before.generation != next.generation {
            subscriptions::review(&before, &next, clients);
            self.observers.0.lock().iter().for_each(|observe| observe());
        }
        next
    }

    /// The user of this name as the settings alone define it, even if a record takes its place.
    pub fn of_settings(&self, name: &[u8]) -> Option<User> {
        self.without_records().into_iter().find(|(known, _)| **known == *name).map(|(_, user)| user)
    }

    /// The users that exist without a record: the default user, and the user of other servers, if it is set.
    fn without_records(&self) -> Vec<(Arc<[u8]>, User)> {
        let mut users = vec![(DEFAULT_USER.as_bytes().into(), self.default_user())];
        users.extend(self.settings().servers.map(|(name, password)| (name, self.servers_user(password))));
        users
    }

    /// The user of other servers without a record: it may run the commands that servers send to each other.
    fn servers_user(&self, password: PasswordHash) -> User {
        let mut user = User { is_enabled: true, passwords: vec![password], ..User::initial(false) };
        for row in self.table.rows().iter().filter(|row| row.flags.has(Flags::BETWEEN_SERVERS)) {
            user.root.commands.add(CommandRule::allow(row.name));
        }
        user
    }

    /// The default user without a record.
    pub fn default_user(&self) -> User {
        let all_powerful = User::all_powerful();
        match self.settings().default_password {
            None => all_powerful,
            Some(password) => User { needs_no_password: false, passwords: vec![password], ..all_powerful },
        }
    }

    /// Notes that a call was denied to the user of a session.
    pub fn note_denied(&self, denied: &Denied<'_>, context: DenialContext, session: &Session, now_ms: u64) {
        let (reason, object) = denied.entry(self.table.commands());
        self.note((reason, object), context, session.login.name(), session, now_ms);
    }

    /// Asks whether a login may be judged now, or has to wait because earlier logins from its address have
    /// failed.
    pub fn ask_login(&self, login: LoginOf<'_>, now_ms: u64) -> Turn {
        self.note_turn(self.failed_logins.lock().ask(login, now_ms))
    }

    /// Whether a login may be judged now. If not, the login gets no place in the queue of waiting logins.
    pub fn may_log_in_now(&self, login: LoginOf<'_>, now_ms: u64) -> bool {
        self.failed_logins.lock().is_turn(login, now_ms)
    }

    /// Makes an attempt to log in, whose password is right or not (`is_right`). The attempt has to wait if
    /// earlier logins from its address have failed. The caller notes a failure.
    pub fn attempt_login(&self, login: LoginOf<'_>, is_right: bool, now_ms: u64) -> Turn {
        self.note_turn(self.failed_logins.lock().attempt(login, is_right, now_ms))
    }

    fn note_turn(&self, turn: Turn) -> Turn {
        self.logins_turned_away.fetch_add(u64::from(turn == Turn::TooMany), Ordering::Relaxed);
        turn
    }

    /// Slows down the next attempts from this address, because an attempt has failed.
    fn slow_down(&self, address: IpAddr, user: &[u8], now_ms: u64) {
        let Some(line) = self.failed_logins.lock().failed(address, user, now_ms) else { return };
        let FailedLoginLine { failures, unlogged } = line;
        tracing::warn!(target: "server", %address, failures, unlogged, "a client failed to log in");
    }

    /// Notes that the token of a client over HTTP was refused. This slows down no login.
    pub fn note_refused_token(&self, address: IpAddr, now_ms: u64) {
        self.counts.0[Reason::Auth as usize].fetch_add(1, Ordering::Relaxed);
        self.audit_failed_login(b"HTTP", b"", &address.to_string(), now_ms);
    }

    fn audit_failed_login(&self, name: &[u8], user: &[u8], client: &str, now_ms: u64) {
        if self.audit.is_on() {
            let is_user = self.current().get(user).is_some();
            let user = if is_user { user } else { b"" };
            self.audit.note_failed_login(Action { name, user, client, succeeded: false, now_ms });
        }
    }

    /// Notes that a client could not log in over HTTP as `user`.
    pub fn note_failed_http_login(&self, address: IpAddr, user: &[u8], now_ms: u64) {
        self.counts.0[Reason::Auth as usize].fetch_add(1, Ordering::Relaxed);
        self.audit_failed_login(b"HTTP", user, &address.to_string(), now_ms);
        self.slow_down(address, user, now_ms);
    }

    /// Notes that a client could not log in as `user`; `command` is the command that it sent.
    pub fn note_failed_login(&self, command: &[u8], user: &[u8], session: &Session, now_ms: u64) {
        self.slow_down(session.client.address(), user, now_ms);
        self.audit_failed_login(&command.to_ascii_lowercase(), user, session.client.peer(), now_ms);
        let context =
            if session.transaction.is_some() { DenialContext::Multi } else { DenialContext::TopLevel };
        self.note((Reason::Auth, command), context, user, session, now_ms);
    }

    fn note(
        &self,
        (reason, object): (Reason, &[u8]),
        context: DenialContext,
        user: &[u8],
        session: &Session,
        now_ms: u64,
    ) {
        self.counts.0[reason as usize].fetch_add(1, Ordering::Relaxed);
        let mut client = String::new();
        session.client.render(self.table, now_ms, &mut client);
        let denial = Denial {
            reason,
            context,
            object: object.into(),
            user: user.into(),
            client: client.into_bytes().into(),
        };
        let entries_max = self.settings().log_entries_max;
        self.denials.lock().note(denial, now_ms, entries_max);
    }

    /// The log of denials, locked (ACL LOG).
    pub fn denials(&self) -> parking_lot::MutexGuard<'_, DenialLog> {
        self.denials.lock()
    }
}

#[cfg(test)]
mod tests;
