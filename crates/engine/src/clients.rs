//! The clients: the connections of the Redis protocol, as any worker may see them.
//!
//! This module has one [`Client`] per connection with the fields that CLIENT LIST shows and CLIENT KILL
//! selects by. A connection that a Sheaf replica or a member of the group has taken over is no client.
//! A `Client` is neither the session (a worker's own) nor the connection (its socket and buffers). Nothing
//! here decides about permissions.
//!
//! Invariants
//! - Ids start at 1 and grow with every connection.
//! - Fields that change with every command are relaxed stores: no lock, no shared counter, no
//!   read-modify-write. Each of these fields has one writer at a time: the worker of the connection, the
//!   thread of its long unit, or the thread that ends its wait. If the client is a Redis replica, the writer
//!   is the thread that reads from it or the thread that writes to it. Readers see slightly stale values.
//! - Killing ends a wait for a key at once, but closes nothing itself: the worker closes the connection when
//!   the signal reaches it.

mod filter;
mod line;
mod list;
mod monitors;
mod pause;
mod signal;
mod waiter;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use keyspace::DbId;
use lsn::Lsn;
use parking_lot::Mutex;
use storage::Durability;
use wire::Protocol;

use crate::CommandError;

pub use filter::{ClientCondition, ClientFilter, are_capabilities, are_flags};
pub use list::Clients;
pub(crate) use monitors::{Monitors, append_line};
pub(crate) use pause::may_change;
pub use pause::{Pause, PauseSwitch, Paused};
pub use signal::{PUSHED_BYTES_MAX, Signal, Signaller};
pub use waiter::{Awaited, Nothing, Waiter, Wants};

/// The user that every client is at first.
pub const DEFAULT_USER: &str = "default";

/// The error for a connection above the maximum number of clients, as in Redis.
pub const TOO_MANY_CLIENTS: CommandError = CommandError::Text("ERR max number of clients reached");

/// The value of `Client::last_command` before the first command.
const NO_COMMAND: u16 = u16::MAX;
/// The value of `Client::durability` for a client that follows the server's durability.
const NO_WISH: u8 = u8::MAX;
/// The value of `Client::queued` while the client has no transaction.
const NO_TRANSACTION: u32 = u32::MAX;

/// The properties of a connection that are known when it is accepted.
pub struct Connected {
    /// The address of the other side as CLIENT LIST shows it, such as `127.0.0.1:52001`.
    pub peer: String,
    /// The user of the operating system on the other side of a Unix socket.
    pub peer_uid: Option<u32>,
    /// The address of this server to which the client connected.
    pub local: String,
    /// The number of the socket's file descriptor, for CLIENT LIST.
    pub fd: i32,
    /// The time of the connection, unix milliseconds.
    pub now_ms: u64,
    /// Takes signals to the thread that serves the connection.
    pub signaller: Signaller,
}

/// The kind of a client, as the TYPE filters name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// A client that has no subscriptions and is no replica.
    Normal,
    /// The server that this one replicates.
    Master,
    /// A Redis replica of this server.
    Replica,
    /// A client that has a subscription of any kind and is no replica.
    PubSub,
}

impl ClientKind {
    /// The kind with this name, in upper or lower case.
    pub fn parse(name: &[u8]) -> Option<ClientKind> {
        const NAMES: [(&str, ClientKind); 6] = [
            ("normal", ClientKind::Normal),
            ("master", ClientKind::Master),
            ("primary", ClientKind::Master),
            ("replica", ClientKind::Replica),
            ("slave", ClientKind::Replica),
            ("pubsub", ClientKind::PubSub),
        ];
        NAMES.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }
}

/// A name that a client may give itself or its library: printable ASCII without spaces, so that lists stay
/// one line per client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Label(Box<str>);

impl Label {
    /// The label, or `None` if the text is not printable ASCII or has spaces. An empty text stands for no
    /// label.
    pub fn parse(text: &[u8]) -> Option<Label> {
        let text = std::str::from_utf8(text).ok()?;
        text.bytes().all(|byte| byte.is_ascii_graphic()).then(|| Label(text.into()))
    }

    /// The text; empty for no label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The labels that a client has given itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    /// The name of the connection (CLIENT SETNAME).
    pub name: Label,
    /// The name of the client's library (CLIENT SETINFO LIB-NAME).
    pub library: Label,
    /// The version of the client's library (CLIENT SETINFO LIB-VER).
    pub library_version: Label,
}

/// One connected client, as any worker may see it.
pub struct Client {
    id: u64,
    peer: Box<str>,
    peer_uid: Option<u32>,
    local: Box<str>,
    fd: i32,
    created_ms: u64,
    signaller: Signaller,
    last_active_ms: AtomicU64,
    /// Commands that have run, also within scripts and transactions. A command that waits for a key counts
    /// when its wait ends.
    commands: AtomicU64,
    last_command: AtomicU16,
    db: AtomicU8,
    resp: AtomicU8,
    durability: AtomicU8,
    queued: AtomicU32,
    watched: AtomicU32,
    no_evict: AtomicBool,
    no_touch: AtomicBool,
    import_source: AtomicBool,
    handles_redirects: AtomicBool,
    is_replica: AtomicBool,
    monitoring: AtomicBool,
    /// Subscriptions to channels, patterns, shard channels and durable channels.
    subscriptions: [AtomicU32; 4],
    tracking: AtomicBool,
    tracks_prefixes: AtomicBool,
    redirect_broken: AtomicBool,
    /// The client that gets the invalidations in this client's place; 0 for none.
    redirect: AtomicU64,
    closing: AtomicBool,
    killed: AtomicBool,
    /// Whether a review was signalled and has not begun.
    awaits_review: AtomicBool,
    /// Whether pushed bytes wait for the reply of the client's long unit.
    pushes_wait: AtomicBool,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
    query_buffer_bytes: AtomicU64,
    output_buffer_bytes: AtomicU64,
    pushed_bytes: AtomicU64,
    labels: Mutex<Labels>,
    user: Mutex<Arc<[u8]>>,
    /// The wait of this client for a key; empty, dead or ended while the client does not wait for one.
    waiter: Mutex<Weak<Waiter>>,
    /// Whether the client waits for a position of the log (WAIT, WAITAOF, WAITLSN).
    awaits_position: AtomicBool,
    /// The client's place among the clients that a pause holds; 0 if no pause holds the client.
    pause_ticket: AtomicU64,
    /// The end, in the log, of the newest unit that changed data and served a wait of this client.
    served_at: AtomicU64,
}

impl Client {
    fn new(id: u64, connected: Connected) -> Client {
        let Connected { peer, peer_uid, local, fd, now_ms, signaller } = connected;
        Client {
            id,
            peer: peer.into(),
            peer_uid,
            local: local.into(),
            fd,
            created_ms: now_ms,
            signaller,
            last_active_ms: now_ms.into(),
            commands: 0.into(),
            last_command: NO_COMMAND.into(),
            db: 0.into(),
            resp: 2.into(),
            durability: NO_WISH.into(),
            queued: NO_TRANSACTION.into(),
            watched: 0.into(),
            no_evict: false.into(),
            no_touch: false.into(),
            import_source: false.into(),
            handles_redirects: false.into(),
            is_replica: false.into(),
            monitoring: false.into(),
            subscriptions: Default::default(),
            tracking: false.into(),
            tracks_prefixes: false.into(),
            redirect_broken: false.into(),
            redirect: 0.into(),
            closing: false.into(),
            killed: false.into(),
            awaits_review: false.into(),
            pushes_wait: false.into(),
            input_bytes: 0.into(),
            output_bytes: 0.into(),
            query_buffer_bytes: 0.into(),
            output_buffer_bytes: 0.into(),
            pushed_bytes: 0.into(),
            labels: Mutex::default(),
            user: Mutex::new(DEFAULT_USER.as_bytes().into()),
            waiter: Mutex::default(),
            awaits_position: false.into(),
            pause_ticket: 0.into(),
            served_at: 0.into(),
        }
    }

    /// The number of the connection, from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The address of the other side.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The IP address of the other side; 127.0.0.1 if it has none, as behind a Unix socket.
    pub fn address(&self) -> IpAddr {
        self.peer.parse().map_or(Ipv4Addr::LOCALHOST.into(), |peer: SocketAddr| peer.ip().to_canonical())
    }

    /// Whether the client has connected from a loopback address or through a Unix socket.
    pub fn is_local(&self) -> bool {
        self.peer_uid.is_some()
            || self.peer.parse().is_ok_and(|peer: SocketAddr| peer.ip().to_canonical().is_loopback())
    }

    /// The user of the operating system on the other side, if the client has connected through a Unix socket.
    pub fn peer_uid(&self) -> Option<u32> {
        self.peer_uid
    }

    /// Notes that a unit has served a wait of this client. The unit changed data, and ends at `lsn` in the
    /// log. To be called before the client is answered.
    pub(crate) fn note_served(&self, lsn: Lsn) {
        self.served_at.fetch_max(lsn.get(), Relaxed);
    }

    pub(crate) fn served_at(&self) -> Lsn {
        Lsn::new(self.served_at.load(Relaxed))
    }

    /// Decides whether bytes that are pushed to this client wait for the reply of its long unit: from the
    /// first moment at which they may invalidate a value in that reply. To be set while the slots of the unit
    /// are locked, so that every later change of a key of the unit is pushed after it.
    pub(crate) fn set_pushes_wait(&self, wait: bool) {
        self.pushes_wait.store(wait, Relaxed);
    }

    /// Whether pushed bytes wait for the reply of the client's long unit, if it has one.
    pub(crate) fn pushes_wait(&self) -> bool {
        self.pushes_wait.load(Relaxed)
    }

    /// The address of this server to which the client connected.
    pub fn local(&self) -> &str {
        &self.local
    }

    /// Unix milliseconds of the connect.
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// Notes that the client is a Redis replica.
    pub fn set_replica(&self) {
        self.is_replica.store(true, Relaxed);
    }

    /// The kind of the client: [`ClientKind::Replica`] after [`Client::set_replica`], [`ClientKind::PubSub`]
    /// with any subscription, else [`ClientKind::Normal`].
    pub fn kind(&self) -> ClientKind {
        if self.is_replica.load(Relaxed) {
            return ClientKind::Replica;
        }
        let subscribed = self.subscriptions().iter().any(|count| *count > 0);
        if subscribed { ClientKind::PubSub } else { ClientKind::Normal }
    }

    /// Unix milliseconds of the last command that ran, or of the connect.
    pub fn last_active_ms(&self) -> u64 {
        self.last_active_ms.load(Relaxed)
    }

    /// Seconds since the last command that ran, or since the connect.
    pub fn idle_seconds(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_active_ms()) / 1000
    }

    /// Notes that a command runs: its row index, and the time in unix milliseconds.
    #[inline]
    pub fn runs(&self, row: usize, now_ms: u64) {
        self.last_command.store(row as u16, Relaxed);
        self.last_active_ms.store(now_ms, Relaxed);
        self.count_command();
    }

    /// Counts a command that runs, or a command whose wait is over. The thread that ends a wait counts the
    /// command before the client is answered, so that there is one writer at a time.
    #[inline]
    pub(crate) fn count_command(&self) {
        self.commands.store(self.commands.load(Relaxed) + 1, Relaxed);
    }

    /// Takes back the count of the last command, which begins to wait.
    pub(crate) fn uncount_command(&self) {
        self.commands.store(self.commands.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// The row index of the command that runs, or has run last.
    pub(crate) fn last_command(&self) -> Option<usize> {
        Some(self.last_command.load(Relaxed)).filter(|row| *row != NO_COMMAND).map(usize::from)
    }

    /// Counts bytes received from the client, as they are after decryption. Only one thread calls this: the
    /// worker, or the thread that reads from a Redis replica.
    #[inline]
    pub fn received(&self, bytes: u64) {
        self.input_bytes.store(self.input_bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// Counts bytes sent to the client, as they are before encryption. Only one thread calls this: the
    /// worker, or the thread that writes to a Redis replica.
    #[inline]
    pub fn sent(&self, bytes: u64) {
        self.output_bytes.store(self.output_bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// Bytes received from and sent to the client, as they are without encryption.
    pub fn traffic_bytes(&self) -> (u64, u64) {
        (self.input_bytes.load(Relaxed), self.output_bytes.load(Relaxed))
    }

    /// Notes the bytes received and not yet executed, and the bytes for the client not yet sent.
    #[inline]
    pub fn set_buffered(&self, query_bytes: u64, output_bytes: u64) {
        self.query_buffer_bytes.store(query_bytes, Relaxed);
        self.output_buffer_bytes.store(output_bytes, Relaxed);
    }

    /// Memory of the client in bytes: this entry and its buffers.
    pub fn memory_bytes(&self) -> u64 {
        let buffered = self.query_buffer_bytes.load(Relaxed) + self.output_buffer_bytes.load(Relaxed);
        size_of::<Client>() as u64 + buffered
    }

    /// Bytes for the client that are not yet sent.
    pub fn output_buffer_bytes(&self) -> u64 {
        self.output_buffer_bytes.load(Relaxed)
    }

    /// Notes the database that the client has selected (SELECT).
    pub fn set_db(&self, db: DbId) {
        self.db.store(db.get(), Relaxed);
    }

    /// The database that the client has selected.
    pub fn db(&self) -> DbId {
        DbId::new(self.db.load(Relaxed)).unwrap_or(DbId::ZERO)
    }

    /// Notes that the client understands redirections (CLIENT CAPA REDIRECT).
    pub fn set_handles_redirects(&self) {
        self.handles_redirects.store(true, Relaxed);
    }

    /// The capabilities of the client, as the letters of the field `capa` of CLIENT LIST.
    pub fn capabilities(&self) -> &'static str {
        if self.handles_redirects.load(Relaxed) { "r" } else { "" }
    }

    /// Notes the protocol of the replies.
    pub fn set_protocol(&self, protocol: Protocol) {
        let version = match protocol {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        };
        self.resp.store(version, Relaxed);
    }

    /// The protocol of the replies, as last noted; RESP2 at first.
    pub fn protocol(&self) -> Protocol {
        if self.resp.load(Relaxed) == 3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Notes the numbers of subscriptions to channels, patterns, shard channels and durable channels.
    pub fn set_subscriptions(&self, counts: [usize; 4]) {
        self.subscriptions.iter().zip(counts).for_each(|(known, count)| known.store(count as u32, Relaxed));
    }

    /// The numbers of subscriptions; see [`Client::set_subscriptions`].
    pub fn subscriptions(&self) -> [u32; 4] {
        self.subscriptions.each_ref().map(|count| count.load(Relaxed))
    }

    /// Notes the tracking of this client; `None` if it is off. The pair holds the client that gets the
    /// invalidations in place of this one, if any, and whether this client tracks by prefixes.
    pub(crate) fn set_tracking(&self, tracking: Option<(Option<u64>, bool)>) {
        let (redirect, prefixes) = tracking.unwrap_or((None, false));
        self.redirect.store(redirect.unwrap_or(0), Relaxed);
        self.tracks_prefixes.store(prefixes, Relaxed);
        self.redirect_broken.store(false, Relaxed);
        self.tracking.store(tracking.is_some(), Relaxed);
    }

    /// Notes that the client that gets the invalidations in place of this one has disconnected.
    pub(crate) fn set_redirect_broken(&self) {
        self.redirect_broken.store(true, Relaxed);
    }

    /// Notes the durability that the client has requested; `None`: the server's.
    pub fn set_durability(&self, wish: Option<Durability>) {
        self.durability.store(wish.map_or(NO_WISH, |wish| wish as u8), Relaxed);
    }

    /// Notes the number of commands queued since MULTI; `None`: no transaction.
    pub fn set_queued(&self, count: Option<usize>) {
        self.queued.store(count.map_or(NO_TRANSACTION, |count| count as u32), Relaxed);
    }

    /// Notes the number of keys that the client watches (WATCH).
    pub fn set_watched(&self, count: usize) {
        self.watched.store(count as u32, Relaxed);
    }

    /// The number of keys that the client watches.
    pub fn watched(&self) -> u32 {
        self.watched.load(Relaxed)
    }

    /// Notes whether CLIENT NO-EVICT is on, for CLIENT LIST. The command has no other effect.
    pub fn set_no_evict(&self, no_evict: bool) {
        self.no_evict.store(no_evict, Relaxed);
    }

    /// Whether CLIENT NO-EVICT is on, for CLIENT LIST.
    pub fn no_evict(&self) -> bool {
        self.no_evict.load(Relaxed)
    }

    /// Notes whether reads of this client leave the access stamps alone (CLIENT NO-TOUCH).
    pub fn set_no_touch(&self, no_touch: bool) {
        self.no_touch.store(no_touch, Relaxed);
    }

    /// Notes whether the client is a monitor (MONITOR).
    pub fn set_monitoring(&self, monitoring: bool) {
        self.monitoring.store(monitoring, Relaxed);
    }

    pub(crate) fn is_monitoring(&self) -> bool {
        self.monitoring.load(Relaxed)
    }

    /// Notes that the connection closes once its replies are sent.
    pub fn set_closing(&self) {
        self.closing.store(true, Relaxed);
    }

    /// Whether the connection closes once its replies are sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// The labels that the client has given itself.
    pub fn labels(&self) -> Labels {
        self.labels.lock().clone()
    }

    /// Changes the labels of the client, under their lock.
    pub fn change_labels(&self, change: impl FnOnce(&mut Labels)) {
        change(&mut self.labels.lock());
    }

    /// The name of the client's user; `default` before a login.
    pub fn user(&self) -> Arc<[u8]> {
        self.user.lock().clone()
    }

    /// Notes the name of the client's user.
    pub fn set_user(&self, name: &Arc<[u8]>) {
        *self.user.lock() = name.clone();
    }

    /// Notes that the client begins to wait for a key, or that this wait is over (`None`).
    pub(crate) fn set_waiter(&self, waiter: Option<&Arc<Waiter>>) {
        *self.waiter.lock() = waiter.map(Arc::downgrade).unwrap_or_default();
    }

    /// The client's wait for a key; `None` if it does not wait for one.
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        self.waiter.lock().upgrade().filter(|waiter| !waiter.has_ended())
    }

    /// Notes that the client begins to wait for a position of the log, or that this wait is over.
    pub(crate) fn set_awaits_position(&self, awaits: bool) {
        self.awaits_position.store(awaits, Relaxed);
    }

    /// Whether the client is blocked in a command, waiting for a key, for a position of the log, or for the
    /// end of a pause.
    pub fn is_blocked(&self) -> bool {
        self.awaits_position.load(Relaxed) || self.pause_ticket.load(Relaxed) > 0 || self.waiter().is_some()
    }

    /// Whether [`Client::kill`] was called: the connection is closed, or about to be.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn connected(peer: &str) -> Connected {
        Connected {
            peer: peer.to_string(),
            peer_uid: None,
            local: "127.0.0.1:6379".to_string(),
            fd: 8,
            now_ms: 1_000,
            signaller: Box::new(|_, _| {}),
        }
    }

    #[test]
    fn labels_are_printable_and_have_no_spaces() {
        for good in ["", "a", "redis-py(my_app)", "!~"] {
            assert_eq!(
                Label::parse(good.as_bytes()).map(|label| label.as_str().to_string()).as_deref(),
                Some(good)
            );
        }
        for bad in [&b"a b"[..], b"a\n", b"\t", b"\x7f", b"\x00", "ä".as_bytes(), b"\xff"] {
            assert_eq!(Label::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn kinds_have_the_names_of_redis() {
        assert_eq!(ClientKind::parse(b"NORMAL"), Some(ClientKind::Normal));
        assert_eq!(ClientKind::parse(b"slave"), ClientKind::parse(b"replica"));
        assert_eq!(ClientKind::parse(b"Master"), Some(ClientKind::Master));
        assert_eq!(ClientKind::parse(b"pubsub"), Some(ClientKind::PubSub));
        assert_eq!(ClientKind::parse(b"other"), None);
    }

    #[test]
    fn traffic_and_activity_are_counted() {
        let client = Clients::new().register(connected("a:1"));
        client.received(10);
        client.received(5);
        client.sent(7);
        client.runs(3, 4_500);
        assert_eq!(client.traffic_bytes(), (15, 7));
        assert_eq!((client.last_active_ms(), client.idle_seconds(9_600)), (4_500, 5));
        assert_eq!(client.idle_seconds(0), 0, "a clock set back is no negative age");
    }
}
