//! The server around the front: shared parts, and one small interface per concern. The server implements
//! them.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::net::UnixStream,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use documents::{DbId, Documents, mango::Indexes};
use engine::{CommandTable, group::Group, replication::Replication};
use env::{Clock, Entropy};
use http::Request;
use hyper::body::Incoming;
use keyspace::Keyspace;
use lsn::Lsn;
use parking_lot::RwLockReadGuard;
use settings::{Key, NotStored, Settings};
use storage::Log;

use crate::{AccessLog, Feeds, Jwt, ProxySecret, Reply, Traces, Traffic};

/// The parts and interfaces that the front uses.
pub struct Host {
    /// The clocks: the time of day, and the monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for names and secrets.
    pub entropy: Arc<dyn Entropy + Send + Sync>,
    /// The settings of the server, read and changed.
    pub config: Arc<dyn HttpSettings>,
    /// The accounts of users, who are the same for both protocols.
    pub access: Arc<dyn Accounts>,
    /// Whether the server recovers or has a fault.
    pub status: Arc<dyn Status>,
    /// The databases; empty while the server recovers.
    pub store: Arc<OnceLock<Store>>,
    /// The changes feeds that are waiting.
    pub feeds: Arc<Feeds>,
    /// The background compaction of databases.
    pub compaction: Arc<dyn Compaction>,
    /// Whether this server may take writes and show data, by its role.
    pub replication: Arc<dyn Replication>,
    /// The members of this server's group, if it is in one.
    pub group: Arc<dyn Group>,
    /// The limit of waits for replicas.
    pub acks: Arc<dyn Acks>,
    /// Connections of the Redis protocol.
    pub redis: Arc<dyn Redis>,
    /// The figures that the port counts.
    pub traffic: Arc<Traffic>,
    /// The paths that are not CouchDB's.
    pub tools: Arc<dyn Tools>,
    /// The log of requests, if one can be kept.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// The traces of requests, if any can be kept.
    pub traces: Option<Arc<dyn Traces>>,
}

impl Host {
    /// The settings in force.
    pub(crate) fn settings(&self) -> RwLockReadGuard<'_, Settings> {
        self.config.current()
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.entropy.random_u64()
    }
}

/// The document databases and the log of their changes.
pub struct Store {
    /// The document databases, by name and by id.
    pub documents: Arc<Documents>,
    /// The indexes that Mango queries use.
    pub indexes: Arc<Indexes>,
    /// The settings of the data, users among them.
    pub keyspace: Arc<Keyspace>,
    /// The log that changes are appended to.
    pub log: Log,
    /// The thread that flushes the log.
    pub driver: Arc<dyn LogDriver>,
}

/// The thread that flushes the log.
pub trait LogDriver: Send + Sync {
    /// Wakes the thread that flushes the log, if records wait for it. Does not wait until they are flushed.
    fn wake_if_needed(&self);
}

/// Access to the settings of the server.
pub trait HttpSettings: Send + Sync {
    /// The settings in force, locked for reading: release them soon, and before any wait.
    fn current(&self) -> RwLockReadGuard<'_, Settings>;
    /// Gives a setting a value, or its default, for now and for the next start.
    ///
    /// # Errors
    /// The value is not valid, or the change cannot be stored.
    fn set_and_keep(&self, key: Key, value: Option<&str>) -> Result<(), NotStored>;
    /// The maximum number of connections to the HTTP port.
    fn connections_max(&self) -> u64;
}

/// The users of the server, who are the same for both protocols.
pub trait Accounts: Send + Sync {
    /// Whether only clients on this machine are served, all of them as admins.
    fn trusts_this_machine(&self) -> bool;
    /// Whether clients have to authenticate to be admins. Otherwise every client is an admin.
    fn has_admins(&self) -> bool;
    /// The user of this name, if it may log in; no password is checked, because the client has logged in
    /// before. While the server loads its data, only admins of the settings are known.
    fn account(&self, name: &str) -> Option<Account>;
    /// Judges a login by name and password. Does not wait: see [`LogIn`].
    fn log_in(&self, attempt: &Attempt<'_>) -> LogIn;
    /// The other servers whose word about users is trusted.
    fn trusted_issuers(&self) -> TrustedIssuers {
        TrustedIssuers::default()
    }
    /// Notes that a client at this address has shown a token that is refused. Must not slow down the address:
    /// nobody can guess a token.
    fn note_refused(&self, _address: IpAddr) {}
    /// Notes a request (method and path) for the audit, and whether it has succeeded.
    fn note_request(&self, _client: SocketAddr, _user: &str, _request: (&str, &str), _succeeded: bool) {}
}

/// Other servers whose word about users is trusted.
#[derive(Debug, Clone, Default)]
pub struct TrustedIssuers {
    /// The issuers of tokens.
    pub jwt: Option<Arc<Jwt>>,
    /// The proxy in front of this server.
    pub proxy: Option<Arc<ProxySecret>>,
}

/// A user, as HTTP knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The roles of the user.
    pub roles: Vec<String>,
    /// Whether it is an admin of the server.
    pub is_admin: bool,
    /// A digest that changes with its passwords, and differs between users who have had this name.
    pub login_digest: [u8; 32],
    /// The position of the user's record in the log, or one after it. Requests of the CouchDB protocol wait
    /// until it is committed. Zero for a user of the settings.
    pub lsn: Lsn,
}

/// Work for a thread that serves no clients.
pub type Work = Box<dyn FnOnce() + Send>;

/// A login by name and password.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The number of the login: the same when the login asks again, and different from that of every other
    /// login.
    pub number: u64,
    /// The address of the client.
    pub address: IpAddr,
    /// The name of the user.
    pub name: &'a str,
    /// The password. Names are text in this protocol, passwords are bytes.
    pub password: &'a [u8],
    /// A resource to which the user must have a right, if the login is for one.
    pub resource: Option<Resource>,
}

/// A judgement about a name and a password.
pub enum LogIn {
    /// The name and the password are those of a user who may log in and use the resource.
    Accepted(Account),
    /// The name and the password are those of a user who may log in, but not use the resource.
    LacksRight,
    /// No user who may log in has this name and password.
    Wrong,
    /// Logins from this address have failed: ask again after this time.
    NotYet {
        /// The pause in milliseconds.
        pause_ms: u64,
    },
    /// Logins from this address have failed, and too many others wait.
    TooMany,
    /// The server loads its data, and does not know the user.
    Loading,
    /// The check of the password takes long: run this work, then ask again.
    Begins(Work),
    /// This password is being checked already, or as many other passwords as may be checked at a time: ask
    /// again a little later.
    Later,
}

/// A resource for admins, and for other users with a right to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// `/metrics`, for users who may run INFO.
    Metrics,
    /// `/_backup`, for users who may run REPLICATE, which gives all data as well.
    Backup,
}

/// The progress of recovery.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The completed part of the work, in percent: 0 to 100.
    pub percent: f64,
    /// Seconds until recovery is done, at its average rate so far; `None` before anything is loaded.
    pub eta_seconds: Option<f64>,
    /// Bytes that were processed so far.
    pub bytes: u64,
    /// Bytes that have to be processed in all.
    pub total_bytes: u64,
}

/// A fault because of which the server takes no writes.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The short name of the fault.
    pub name: &'static str,
    /// The reason, in words.
    pub reason: String,
}

/// The state of the server.
pub trait Status: Send + Sync {
    /// The progress of recovery; `None` once it is done.
    fn loading(&self) -> Option<Progress>;
    /// The fault because of which the server takes no writes, if there is one; loading is one.
    fn fault(&self) -> Option<Fault>;
}

/// A compaction in progress.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// The database that is being compacted.
    pub db: DbId,
    /// The completed part of the compaction, in percent: 0 to 100.
    pub percent: u8,
    /// When the compaction began, in milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// The compaction of databases, in the background.
pub trait Compaction: Send + Sync {
    /// Requests the compaction of a database.
    fn ask(&self, db: DbId);
    /// Whether a database waits for its compaction, or is being compacted.
    fn is_to_compact(&self, db: DbId) -> bool;
    /// The compaction in progress.
    fn running(&self) -> Option<Running>;
}

/// The limit of waits for replicas (`ack-timeout`).
pub trait Acks: Send + Sync {
    /// How long a reply waits for replicas; `None` if it does not wait for any, or waits without a limit.
    fn timeout_ms(&self) -> Option<u64>;
    /// Counts a reply that is an error because the limit has passed.
    fn timed_out(&self);
}

/// The server of the Redis protocol.
pub trait Redis: Send + Sync {
    /// Connects a client of the Redis protocol; lists of clients show the client with the address `peer`. The
    /// client is logged in as `user` if an enabled admin of the Redis protocol has this name, otherwise as
    /// the default user. The audit notes the commands of the client as those of `user`. The returned stream
    /// is non-blocking.
    ///
    /// # Errors
    /// The reason why the client is not served, as a text for the client.
    fn connect(&self, peer: SocketAddr, user: Option<&str>) -> Result<UnixStream, String>;
    /// The table of its commands.
    fn commands(&self) -> &'static CommandTable;
}

/// The future of a reply.
pub type Answer = Pin<Box<dyn Future<Output = Reply>>>;

/// The paths of the HTTP port that are not CouchDB's, such as `/metrics`; they are for admins, and for users
/// with the right to the resource.
pub trait Tools: Send + Sync {
    /// The resource to which paths with this first segment belong; `None` if they are no tools.
    fn serves(&self, first_segment: &str) -> Option<Resource>;
    /// Answers a request that was admitted.
    fn answer(&self, request: Request<Incoming>) -> Answer;
}
