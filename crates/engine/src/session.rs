//! A session: the state of one client between its commands.

use std::{cell::Cell, sync::Arc};

use access::CommandId;
use keyspace::{AccessClock, DbId};
use lsn::Lsn;
use pubsub::{
    SubscriberId,
    durable::{Flow, ReaderId},
};
use storage::Durability;
use wire::Protocol;

use crate::{
    ClientTracking, Transaction, Wait, Watches,
    clients::{Client, Clients},
    leases::Leases,
    replication::{RedisClaim, RedisReplica},
    unit::{Slots, UnitAccess},
    users::{LogIn, UserSet},
};

/// Which replies are sent (CLIENT REPLY).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// All replies are sent (CLIENT REPLY ON).
    #[default]
    On,
    /// No replies are sent (CLIENT REPLY OFF).
    Off,
    /// All replies are sent, except the reply of the next command.
    SkipNext,
    /// The reply of the present command is the one to skip.
    Skip,
}

/// The place that a connection has among those that a server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// One of the `maxclients` places for clients.
    #[default]
    Client,
    /// A place beyond those for clients, kept for other servers: clients must not keep members out of their
    /// own group, or replicas from their leader. Only commands with
    /// [`Flags::BETWEEN_SERVERS`](crate::Flags::BETWEEN_SERVERS) run there.
    Reserve,
    /// The connection has lost its reserved place: its client is no other server, or has not said so in time.
    Lost,
}

/// A claim by which a client becomes a server: all further bytes on its connection belong to a protocol
/// between servers. The claims are boxed, because there is almost never one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerClaim {
    /// A replica, with the arguments of REPLICATE.
    Replica(Box<[Vec<u8>]>),
    /// A member of the group, with the arguments of GROUP PEER.
    Member(Box<[Vec<u8>]>),
    /// A replica that is a Redis or Valkey server, or a tool that speaks like one.
    Redis(Box<RedisClaim>),
}

/// A client as a reader of durable channels.
#[derive(Debug)]
pub struct ChannelReader {
    /// The client's id among the readers.
    pub id: ReaderId,
    /// The flow control of the messages to this reader.
    pub flow: Arc<Flow>,
}

/// The state of one client. Belongs to one worker; the part that other threads may see is in [`Client`].
#[derive(Debug)]
pub struct Session {
    /// The entry in the list of clients.
    pub client: Arc<Client>,
    /// The database that the client has selected (SELECT).
    pub db: DbId,
    /// The protocol of the replies.
    pub protocol: Protocol,
    /// Whether the client counts as logged in.
    pub authenticated: bool,
    /// The user of the client.
    pub login: LogIn,
    /// The name in the client's certificate, if the names in certificates are names of users.
    pub certificate_name: Option<Box<[u8]>>,
    /// The user over HTTP whose commands these are, if an HTTP request runs them: the audit names this user.
    /// The rights are those of the user in `login`.
    pub on_behalf_of: Option<Box<[u8]>>,
    /// Whether a login has failed since the last one that succeeded.
    pub has_failed_login: bool,
    /// How many checks of passwords were begun for the command that waits for them.
    pub checks_begun: u8,
    /// The place of the connection among those that the server serves.
    pub place: Place,
    /// Which replies the client gets (CLIENT REPLY).
    pub reply_mode: ReplyMode,
    /// Written while the client gets no replies, and sent nevertheless: confirmations of changed
    /// subscriptions, and the messages delivered before them.
    pub confirmations: Vec<u8>,
    /// The durability that this client has requested; it counts where it is weaker than the server's.
    pub durability: Option<Durability>,
    /// Whether reads leave the access stamps alone (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Whether the client imports another server's data, so that no deadline has passed for it (CLIENT
    /// IMPORT-SOURCE).
    pub is_import_source: bool,
    /// Whether a client of a cluster accepts reads from a replica (READONLY).
    pub reads_replica: bool,
    /// The command that has made the client a monitor (MONITOR), which may not use keys itself; `None` for
    /// other clients.
    pub monitoring: Option<CommandId>,
    /// The state of CLIENT TRACKING. Boxed: most clients do not track.
    pub tracking: Option<Box<ClientTracking>>,
    /// The client's entry in the worker's channels, from its first command about subscriptions on, even one
    /// that ends them.
    pub subscriber: Option<SubscriberId>,
    /// The client as a reader of durable channels. Boxed: most clients read none.
    pub reader: Option<Box<ChannelReader>>,
    /// How often the client has become a reader.
    pub reader_generation: u32,
    /// Whether the client has subscriptions now.
    pub subscribed: bool,
    /// Whether the client has published in a transaction, a script or IDEMP, or to a durable channel. To keep
    /// the order, its later messages are notices, too ([`Notice`](crate::Notice)).
    pub publishes_in_turn: bool,
    /// The commands queued since MULTI. Boxed: most sessions have none.
    pub transaction: Option<Box<Transaction>>,
    /// The keys that the next transaction depends on.
    pub watches: Watches,
    /// The leases of the connection, which are released when the connection closes.
    pub leases: Leases,
    /// Offsets in the replies at which the running unit's lease tokens are filled in: a token derives from
    /// the position of the unit.
    pub granted: Vec<usize>,
    /// The wait of a client that is blocked: the client runs no command until the wait is over.
    pub wait: Option<Wait>,
    /// The position of the client's last write by a unit of its own; see [`Session::newest_write`].
    pub last_write: Lsn,
    /// Whether replies in RESP3 carry the position of a write (CLIENT LSN ON).
    pub tells_lsn: bool,
    /// Set if another server is taking the connection over.
    pub claim: Option<PeerClaim>,
    /// The client's description of itself as a replica (REPLCONF). Boxed: most clients are no replicas.
    pub redis_replica: Option<Box<RedisReplica>>,
    /// Set for good by the client's first command that may show or change data and passes the checks: from
    /// then on all its replies wait for the lease of a group's leader. The replies of a client without such a
    /// command do not wait for the lease: a follower needs them to join, an operator to look.
    pub shows_data: Cell<bool>,
    /// Whether the client runs no more commands: the connection is closed once the replies are sent.
    pub closing: bool,
    /// Milliseconds for which the worker holds the connection before the client's next command, or before the
    /// next attempt at a command that has to wait.
    pub pause_ms: u64,
    /// Whether a pause of clients holds the client (CLIENT PAUSE); it may end before `pause_ms` are over.
    pub is_held: bool,
}

impl Session {
    /// The session of a client that has just connected.
    pub fn new(client: Arc<Client>, authenticated: bool) -> Session {
        Session {
            client,
            db: DbId::ZERO,
            protocol: Protocol::Resp2,
            authenticated,
            login: LogIn::default(),
            certificate_name: None,
            on_behalf_of: None,
            has_failed_login: false,
            checks_begun: 0,
            place: Place::default(),
            reply_mode: ReplyMode::On,
            confirmations: Vec::new(),
            durability: None,
            no_touch: false,
            is_import_source: false,
            reads_replica: false,
            monitoring: None,
            tracking: None,
            subscriber: None,
            reader: None,
            reader_generation: 0,
            subscribed: false,
            publishes_in_turn: false,
            transaction: None,
            watches: Watches::default(),
            leases: Leases::default(),
            granted: Vec::new(),
            wait: None,
            last_write: Lsn::ZERO,
            tells_lsn: false,
            claim: None,
            redis_replica: None,
            shows_data: Cell::new(false),
            closing: false,
            pause_ms: 0,
            is_held: false,
        }
    }

    /// Lets the client's next command run: ends the wait for `pause_ms`, or for the end of CLIENT PAUSE.
    pub fn end_pause(&mut self, clients: &Clients) {
        (self.pause_ms, self.is_held) = (0, false);
        clients.pause().let_go(&self.client);
    }

    /// Makes the client this user from now on.
    pub fn log_in(&mut self, login: LogIn) {
        login.show(&self.client);
        (self.login, self.authenticated, self.has_failed_login) = (login, true, false);
    }

    /// Makes the client the user that its certificate names, if there is such a user and that user is
    /// enabled.
    pub fn log_in_by_certificate(&mut self, users: &UserSet) {
        let named = self.certificate_name.as_deref().and_then(|name| users.get(name));
        if let Some(principal) = named.filter(|principal| principal.user.is_enabled) {
            self.log_in(LogIn::new(principal, users.generation));
        }
    }

    /// Makes the client carry the commands of this admin over HTTP. The client becomes the user of that name,
    /// if that is an enabled admin of the Redis protocol, and otherwise the default user.
    pub fn log_in_over_http(&mut self, name: Box<[u8]>, users: &UserSet) {
        let known = users.get(&name).filter(|known| known.is_admin && known.user.is_enabled);
        self.log_in(LogIn::new(known.unwrap_or(users.default_user()), users.generation));
        self.on_behalf_of = Some(name);
    }

    /// Makes the client the default user again, even if its certificate names another user. The client has to
    /// log in if the default user needs a password.
    pub fn log_out(&mut self, users: &UserSet) {
        self.login = LogIn::chosen_default();
        self.login.show(&self.client);
        self.authenticated = users.default_user().admits_everybody();
    }

    /// The position of the client's last write. If a blocked command was served within the unit of another
    /// client, that is a write of this client, too.
    pub fn newest_write(&self) -> Lsn {
        self.last_write.max(self.client.served_at())
    }

    /// Whether the client has to log in before its next command, by these users. To be asked once the data
    /// are loaded.
    pub fn has_to_log_in(&self, users: &UserSet) -> bool {
        // A client that connected during loading becomes the user of its certificate with its next command.
        let is_nobody = self.login.is_provisional() && self.certificate_name.is_none();
        (!self.authenticated || is_nobody) && !users.default_user().admits_everybody()
    }

    /// Whether every command is permitted, by the users of this generation.
    #[inline]
    pub(crate) fn may_do_everything(&self, generation: u64) -> bool {
        self.authenticated && self.login.may_do_everything(generation)
    }

    /// The slots that EXEC locks: the slots of all keys of queued commands, and of all watched keys; `None`:
    /// every slot.
    pub(crate) fn slots_of_transaction(&self) -> Option<Slots> {
        let Some(transaction) = &self.transaction else { return Some(Slots::new()) };
        let mut slots = transaction.slots()?.clone();
        slots.extend(self.watches.keys().map(keyspace::slot_of));
        Some(slots)
    }

    /// Changes which replies the client gets (CLIENT REPLY).
    pub fn set_reply_mode(&mut self, mode: ReplyMode) {
        self.reply_mode = mode;
        // The command that changes the mode is itself answered in the new mode.
        self.confirmations.clear();
    }

    /// Whether the present command sends no reply.
    pub fn is_silent(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// Takes the session away for a command that runs on another thread. The parts for channels and for
    /// closing the connection stay, with copies of the user and the protocol; nothing else of the session may
    /// be used until the session [comes back](Session::return_from_thread).
    pub(crate) fn go_away(&mut self) -> Session {
        self.client.set_pushes_wait(false);
        let mut stand_in = Session::new(self.client.clone(), self.authenticated);
        stand_in.login = self.login.clone();
        let mut away = std::mem::replace(self, stand_in);
        away.swap_connection(self);
        self.protocol = away.protocol;
        away
    }

    /// Puts the session back, after the command on another thread.
    pub fn return_from_thread(&mut self, mut session: Session) {
        session.swap_connection(self);
        session.closing |= self.closing;
        *self = session;
    }

    /// Swaps the parts that belong to the worker and its connection.
    fn swap_connection(&mut self, other: &mut Session) {
        std::mem::swap(&mut self.subscriber, &mut other.subscriber);
        std::mem::swap(&mut self.reader, &mut other.reader);
        std::mem::swap(&mut self.reader_generation, &mut other.reader_generation);
        std::mem::swap(&mut self.subscribed, &mut other.subscribed);
        std::mem::swap(&mut self.wait, &mut other.wait);
    }

    /// Whether [`Executor::release_leases`](crate::Executor::release_leases) has leases to release when the
    /// client has disconnected.
    pub fn holds_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Ends the transaction, if there is one, and all watches, as DISCARD does.
    pub fn end_transaction(&mut self) {
        self.transaction = None;
        self.end_watches();
        self.client.set_queued(None);
    }

    /// Ends all watches, as UNWATCH does.
    pub fn end_watches(&mut self) {
        if !self.watches.is_empty() {
            self.watches.clear();
            self.client.set_watched(0);
        }
    }

    /// Deadlines up to this time have expired for this client; see [`Unit::as_of_ms`](crate::Unit::as_of_ms).
    #[inline]
    pub fn as_of_ms(&self, now_ms: u64) -> u64 {
        if self.is_import_source { 0 } else { now_ms }
    }

    #[inline]
    pub(crate) fn access(&self, clock: AccessClock) -> UnitAccess {
        let touches = !self.no_touch && !self.is_import_source;
        UnitAccess { as_of_ms: self.as_of_ms(clock.now_ms), clock, touches }
    }

    /// The durability in force for this client: its own wish, never more than the server's setting.
    #[inline]
    pub fn effective_durability(&self, server: Durability) -> Durability {
        self.durability.map_or(server, |wish| wish.min(server))
    }
}
