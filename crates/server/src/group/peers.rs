//! The connections to the other members, for messages of the votes.
//!
//! ```text
//! to each member:   "group-peer" connects: GROUP PEER version group from to -> +OK; any thread writes to it
//! from each member: GROUP PEER takes a client's connection over -> "group-inbox" reads messages -> Votes
//! ```
//!
//! A message is lost, together with its connection, if it cannot be written at once, or if the other host
//! does not acknowledge it within [`ANSWER_TIMEOUT`]. The votes tolerate lost messages better than messages
//! that a healed network delivers seconds late. The log has connections of its own.
//!
//! Invariants
//! - A connection of another group, of another version or to another member is refused with the reason. A
//!   connection ends if a damaged message comes, or one from another sender or to another receiver.
//! - Refused connections and messages are counted, and change nothing. Each [`Cause`] is logged once a minute
//!   at most, whatever a stranger sends.
//! - A member has one connection to each other member; strangers share a few places here ([`Inboxes`]).
//! - A server that has joined no group yet does not know the id of its group. It accepts a connection from
//!   any group, and processes none of its messages. So the leader can check who answers at an address before
//!   it lists a member there.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use consensus::{MESSAGE_BYTES, Member, MemberId, Message};
use engine::replication::Address;
use membership::{Listed, MEMBERS_MAX, Roster, Votes};
use parking_lot::{Condvar, Mutex};

use super::inboxes::Inboxes;
use crate::{
    repeated::Repeated,
    replication::line::{Introduction, ask, connect_within, keep_alive, limit_unacknowledged},
};

/// The version of messages and of the commands between members.
pub(super) const PEER_VERSION: u32 = 1;
/// The code of the error that tells a member of its removal.
pub(super) const REMOVED: &str = "REMOVED";
/// The code of the error that asks to try again.
const LOADING: &str = "LOADING";
/// The pause after a failed attempt to connect.
const RETRY_PERIOD: Duration = Duration::from_millis(100);
/// The period at which an idle connection is checked.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The time that a member may take to answer, and its host to acknowledge a message: two election timeouts. A
/// connection that was made while the member restarted may never be answered, and the votes need the next
/// connection soon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// A sender that the roster does not list is disconnected after this time of silence. Members may be silent:
/// followers send each other nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// The time after which an unreachable member is reported in a warning.
const GRACE_MS: u64 = 3_000;

/// The longest word of GROUP PEER that is shown: longer than any id.
const WORD_BYTES_MAX: usize = 64;

/// The maximum number of servers whose last message is remembered. A roster can list far fewer; the rest is
/// for strangers that may join.
const HEARD_MAX: usize = 4 * MEMBERS_MAX;

/// Why a connection or a message of a member is refused, or why a message changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Version,
    Group,
    Receiver,
    Sender,
    Removed,
    Damaged,
    FarTerm,
    EarlierTerm,
}

/// A cause, and the reason in words.
pub(super) struct Refusal {
    cause: Cause,
    reason: String,
}

impl Refusal {
    fn new(cause: Cause, reason: impl Into<String>) -> Refusal {
        Refusal { cause, reason: reason.into() }
    }

    /// The refusal of a server that is no member. The group has removed it, or never had it: removed members
    /// are not remembered.
    pub(super) fn removed(id: MemberId) -> Refusal {
        Refusal::new(
            Cause::Removed,
            format!("the group has no member {id}: it was removed (GROUP REMOVE), or never belonged to it"),
        )
    }
}

/// The connection to one other member. It carries only messages to that member.
struct Peer {
    address: Address,
    /// Writes never block.
    socket: Mutex<Option<TcpStream>>,
    /// Whether the connection must be checked before the pause is over.
    wanted: (Mutex<bool>, Condvar),
    stopping: AtomicBool,
}

/// When a member was last heard, and in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    /// Microseconds of the votes' clock.
    pub(super) at_us: u64,
    pub(super) term: u64,
}

/// The connections; see the module documentation.
pub(crate) struct Peers {
    votes: Arc<Votes>,
    own: MemberId,
    name: String,
    /// The id of the group; empty until the group has told this server the id.
    group_id: Mutex<String>,
    introduction: Box<dyn Fn() -> Introduction + Send + Sync>,
    peers: Mutex<BTreeMap<MemberId, Arc<Peer>>>,
    inboxes: Mutex<Inboxes>,
    heard: Mutex<BTreeMap<MemberId, Heard>>,
    /// Whether the leader has said that this member was removed.
    is_removed: AtomicBool,
    refused: AtomicU64,
    outdated: AtomicU64,
    /// Causes that were logged.
    logged: Mutex<Repeated>,
    stopping: AtomicBool,
}

impl Peers {
    pub(super) fn new(
        votes: Arc<Votes>,
        group_id: &str,
        introduction: impl Fn() -> Introduction + Send + Sync + 'static,
    ) -> Peers {
        Peers {
            own: votes.id(),
            name: votes.state().name.clone(),
            votes,
            group_id: Mutex::new(group_id.into()),
            introduction: Box::new(introduction),
            peers: Mutex::default(),
            inboxes: Mutex::default(),
            heard: Mutex::default(),
            is_removed: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            outdated: AtomicU64::new(0),
            logged: Mutex::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Sets the id of the group: members of another group are refused.
    pub(super) fn set_group(&self, group_id: &str) {
        *self.group_id.lock() = group_id.into();
    }

    /// Connects to the members of this roster only. Until the roster is in force, the connections to the
    /// members that it removes are kept as well.
    pub(super) fn follow(self: &Arc<Self>, roster: &Roster, is_in_force: bool) {
        let leaving = if is_in_force { &[][..] } else { &roster.leaving };
        let all: Vec<&Listed> = roster.members.iter().chain(leaving).collect();
        let mut peers = self.peers.lock();
        let mut gone = Vec::new();
        for id in peers.keys().copied().collect::<Vec<_>>() {
            let listed = all.iter().find(|listed| listed.member_id() == Some(id)).map(|it| it.address());
            if peers.get(&id).is_some_and(|peer| Some(&peer.address) != listed.as_ref()) {
                gone.extend(peers.remove(&id));
            }
            if listed.is_none() {
                // The removed member connects again, and is told of its removal.
                self.close_of(id);
            }
        }
        for listed in all {
            let Some(id) = listed.member_id().filter(|&id| id != self.own && !peers.contains_key(&id)) else {
                continue;
            };
            let peer = Arc::new(Peer {
                address: listed.address(),
                socket: Mutex::default(),
                wanted: Default::default(),
                stopping: AtomicBool::new(false),
            });
            let (connecting, peers_of_it) = (peer.clone(), self.clone());
            let thread = thread::Builder::new().name("group-peer".into());
            match thread.spawn(move || connecting.run(&peers_of_it, id)) {
                Ok(_) => _ = peers.insert(id, peer),
                Err(error) => tracing::error!(target: "group", %error, "cannot start a thread"),
            }
        }
        drop(peers);
        gone.iter().for_each(|peer| peer.stop());
    }

    /// Sends messages. A message to a member without a connection is lost.
    pub(super) fn send(&self, messages: &[Message]) {
        let peers = self.peers.lock();
        for message in messages {
            if let Some(peer) = peers.get(&message.to) {
                peer.send(&message.encode());
            }
        }
    }

    /// When a member was last heard; `None` if never, or if that was forgotten.
    pub(super) fn heard(&self, id: MemberId) -> Option<Heard> {
        self.heard.lock().get(&id).copied()
    }

    /// Whether the connection to a member is up. Followers send each other nothing, so they know nothing else
    /// of each other.
    pub(super) fn is_connected(&self, id: MemberId) -> bool {
        self.peers.lock().get(&id).is_some_and(|peer| peer.socket.lock().as_ref().is_some_and(is_alive))
    }

    /// Whether the leader has said that this member was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(SeqCst)
    }

    /// The number of messages and connections that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The number of messages of earlier terms than this member's own, which decide nothing here.
    pub(super) fn outdated(&self) -> u64 {
        self.outdated.load(Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        let peers = std::mem::take(&mut *self.peers.lock());
        peers.values().for_each(|peer| peer.stop());
        self.inboxes.lock().close_all();
    }

    /// Serves the member that has connected, after [`Peers::check`].
    pub(super) fn serve(self: &Arc<Self>, mut socket: TcpStream, from: MemberId) {
        let peers = self.clone();
        let run = move || {
            // The refusal is counted before the connection is closed, so that a client that sees the end also
            // sees the count.
            if let Err(refusal) = peers.receive(&mut socket, from) {
                peers.count_refusal(&format!("a message of the member {from}"), &refusal);
            }
        };
        if let Err(error) = thread::Builder::new().name("group-inbox".into()).spawn(run) {
            tracing::error!(target: "group", %error, "cannot start a thread");
        }
    }

    /// The senders that have a connection, and that the roster did not list when they connected.
    pub(super) fn unlisted(&self) -> Vec<MemberId> {
        self.inboxes.lock().unlisted()
    }

    /// Closes the connections from a member.
    pub(super) fn close_of(&self, from: MemberId) {
        self.inboxes.lock().close_of(from);
    }

    /// Refuses a connection.
    pub(super) fn refuse(&self, (socket, from): (TcpStream, IpAddr), refusal: &Refusal) {
        let from = from.to_canonical();
        self.count_refusal(&format!("a connection from {from}"), refusal);
        let code = if refusal.cause == Cause::Removed { REMOVED } else { "ERR" };
        answer_once(socket, code, &refusal.reason);
    }

    fn count_refusal(&self, what: &str, refusal: &Refusal) {
        self.refused.fetch_add(1, Relaxed);
        if let Some(unlogged) = self.note(refusal.cause) {
            let reason = &refusal.reason;
            tracing::warn!(target: "group", what, reason, unlogged, "refused what a member of a group would send");
        }
    }

    fn count_outdated(&self, message: &Message) {
        self.outdated.fetch_add(1, Relaxed);
        if let Some(unlogged) = self.note(Cause::EarlierTerm) {
            let (member, term) = (message.from, message.term);
            tracing::info!(target: "group", %member, term, unlogged, "ignored a message of an earlier term");
        }
    }

    /// If this cause is to be logged now, returns how often it was suppressed since it was last logged.
    fn note(&self, cause: Cause) -> Option<u64> {
        self.logged.lock().note(&format!("{cause:?}"), self.votes.now_us() / 1000)
    }

    fn receive(&self, socket: &mut TcpStream, from: MemberId) -> Result<(), Refusal> {
        let is_listed = self.peers.lock().contains_key(&from);
        // An error of the socket ends the connection, and is not logged as a fault.
        let Ok(handle) = socket.try_clone() else { return Ok(()) };
        let number = self.inboxes.lock().open(from, is_listed, handle);
        // Over TLS, the socket is the plain end of a tunnel: a Unix socket, which refuses options of TCP and
        // has no other host to be probed. So errors are ignored.
        let _ = keep_alive(&*socket).and_then(|()| limit_unacknowledged(&*socket, ANSWER_TIMEOUT));
        let begun = socket
            .set_nonblocking(false)
            .and_then(|()| socket.set_read_timeout(Some(SILENCE)))
            .and_then(|()| socket.set_write_timeout(Some(SILENCE)))
            .and_then(|()| socket.write_all(b"+OK\r\n"));
        // If a member has just connected, the connection to it is tried; if its connection has ended, the one
        // to it is checked.
        self.look_at(from);
        let read = if begun.is_ok() { self.read(socket, from) } else { Ok(()) };
        self.inboxes.lock().ended(number);
        self.look_at(from);
        read
    }

    /// Makes the thread of the connection to this member check that connection now, and connect again if it
    /// has ended.
    fn look_at(&self, id: MemberId) {
        if let Some(peer) = self.peers.lock().get(&id) {
            peer.wake();
        }
    }

    /// The member that sent these words of GROUP PEER.
    ///
    /// # Errors
    /// If the member is refused.
    pub(super) fn check(&self, words: &[Vec<u8>]) -> Result<MemberId, Refusal> {
        let words: Vec<_> = words.iter().map(|word| shown(word)).collect();
        let [version, group_id, from, to] = words[..] else {
            return Err(Refusal::new(Cause::Version, "no arguments of GROUP PEER"));
        };
        if version != PEER_VERSION.to_string() {
            let reason = format!(
                "version {version} of the protocol of groups is not supported, this server speaks version {PEER_VERSION}"
            );
            return Err(Refusal::new(Cause::Version, reason));
        }
        let own_group = self.group_id.lock().clone();
        if !own_group.is_empty() && group_id != own_group {
            let reason = format!(
                "this server belongs to another group: to the group '{}' with the id {own_group}, and the one that connects to a group with \
                 the id {group_id}. A member that has lost its directory and is started with --group, but without --join, founds a group of \
                 its own: start it on an empty directory, with --join",
                self.name
            );
            return Err(Refusal::new(Cause::Group, reason));
        }
        if MemberId::parse(to) != Some(self.own) {
            let reason = format!(
                "this server is another member, {}: its directory was replaced, or its address is that of another one",
                self.own
            );
            return Err(Refusal::new(Cause::Receiver, reason));
        }
        let other = MemberId::parse(from).filter(|from| *from != self.own);
        other.ok_or_else(|| Refusal::new(Cause::Sender, "no id of another member"))
    }

    /// Passes messages to the votes until the connection ends. Returns an error if this server has to close
    /// the connection.
    fn read(&self, socket: &mut TcpStream, from: MemberId) -> Result<(), Refusal> {
        let mut bytes = [0; MESSAGE_BYTES];
        while self.awaits_message(socket, from) && socket.read_exact(&mut bytes).is_ok() {
            let message =
                Message::decode(&bytes).map_err(|error| Refusal::new(Cause::Damaged, error.to_string()))?;
            if message.from != from || message.to != self.own {
                return Err(Refusal::new(Cause::Sender, "it is between other members"));
            }
            let own_term = |member: &Member| member.is_too_far(&message).then(|| member.term());
            if let Some(own_term) = self.votes.look(own_term).flatten() {
                let reason = format!("it is of term {}, far ahead of term {own_term} here", message.term);
                return Err(Refusal::new(Cause::FarTerm, reason));
            }
            let heard = Heard { at_us: self.votes.now_us(), term: message.term };
            self.note_heard(from, heard);
            self.votes.note_heard(from);
            let is_outdated = self.votes.input(|member, now_us| {
                let is_outdated = message.term < member.term();
                member.receive(&message, now_us);
                is_outdated
            });
            if is_outdated == Some(true) {
                self.count_outdated(&message);
            }
        }
        Ok(())
    }

    /// Waits for a message. Returns whether one begins; otherwise the connection is to be closed.
    fn awaits_message(&self, socket: &TcpStream, from: MemberId) -> bool {
        while !self.stopping.load(SeqCst) {
            match socket.peek(&mut [0]) {
                Ok(bytes) => return bytes > 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The read timeout is over.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.peers.lock().contains_key(&from) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Notes when a member was heard. The number of remembered senders that the roster does not list is
    /// limited.
    fn note_heard(&self, from: MemberId, heard: Heard) {
        let mut all = self.heard.lock();
        if all.len() >= HEARD_MAX && !all.contains_key(&from) {
            let peers = self.peers.lock();
            all.retain(|id, _| peers.contains_key(id));
        }
        all.insert(from, heard);
    }

    /// Checks that the member with this id answers at this address, and belongs to this group or to none yet.
    ///
    /// # Errors
    /// The reason, if the check fails.
    pub(super) fn meet(&self, address: &Address, id: MemberId) -> Result<(), String> {
        self.connect(address, id).map(drop)
    }

    fn connect(&self, address: &Address, id: MemberId) -> Result<TcpStream, String> {
        let mut socket = connect_within(ANSWER_TIMEOUT, address, &(self.introduction)(), |_| Ok(()))?;
        let group_id = self.group_id.lock().clone();
        let words =
            ["GROUP", "PEER", &PEER_VERSION.to_string(), &group_id, &self.own.to_string(), &id.to_string()];
        let answer = ask(&mut socket, &words.map(String::from))?;
        if answer != "+OK" {
            return Err(answer.trim_start_matches('-').trim_start_matches("ERR ").to_string());
        }
        Ok(socket)
    }
}

/// A word of a stranger, in the form in which a reason may show it.
fn shown(word: &[u8]) -> &str {
    let is_word = word.len() <= WORD_BYTES_MAX && word.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(word).ok().filter(|_| is_word).unwrap_or("?")
}

/// Refuses a connection with an error, without waiting.
fn answer_once(mut socket: TcpStream, code: &str, reason: &str) {
    let _ = socket.set_nonblocking(true);
    let _ = socket.write(format!("-{code} {reason}\r\n").as_bytes());
}

/// Asks a member to try again.
pub(super) fn put_off(socket: TcpStream) {
    answer_once(socket, LOADING, "this server is starting");
}

impl Peer {
    fn send(&self, bytes: &[u8]) {
        let mut socket = self.socket.lock();
        let Some(stream) = &mut *socket else { return };
        if !matches!(stream.write(bytes), Ok(written) if written == bytes.len()) {
            let _ = stream.shutdown(Shutdown::Both);
            *socket = None;
            self.wake();
        }
    }

    fn wake(&self) {
        *self.wanted.0.lock() = true;
        self.wanted.1.notify_all();
    }

    /// Ends the thread of this connection; an attempt to connect may still go on for some seconds.
    fn stop(&self) {
        self.stopping.store(true, SeqCst);
        if let Some(socket) = &*self.socket.lock() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.wake();
    }

    fn run(&self, peers: &Peers, id: MemberId) {
        let mut logged = Repeated::default();
        let mut down_since_ms = None;
        while !self.stopping.load(SeqCst) {
            let now_ms = peers.votes.now_us() / 1000;
            *self.wanted.0.lock() = false;
            let is_up = {
                let mut socket = self.socket.lock();
                socket.take_if(|socket| !is_alive(socket));
                socket.is_some()
            };
            let reached = match is_up {
                true => Ok(()),
                false => self.reach(peers, id),
            };
            let pause = match reached {
                Ok(()) => {
                    down_since_ms = None;
                    LOOK_PERIOD
                }
                Err(reason) => {
                    if reason.starts_with(REMOVED) {
                        peers.is_removed.store(true, SeqCst);
                    }
                    let is_long = now_ms >= *down_since_ms.get_or_insert(now_ms) + GRACE_MS;
                    if is_long && let Some(unlogged) = logged.note(&reason, now_ms) {
                        tracing::warn!(target: "group", member = %id, address = %self.address, reason, unlogged, "cannot reach a member");
                    }
                    RETRY_PERIOD
                }
            };
            let mut wanted = self.wanted.0.lock();
            if !*wanted && !self.stopping.load(SeqCst) {
                self.wanted.1.wait_for(&mut wanted, pause);
            }
        }
    }

    fn reach(&self, peers: &Peers, id: MemberId) -> Result<(), String> {
        let socket = peers.connect(&self.address, id)?;
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        *self.socket.lock() = Some(socket);
        // The member is told at once who leads, and not with the next heartbeat: it may wait for a leader.
        peers.votes.input(|member, now_us| member.announce(now_us));
        Ok(())
    }
}

/// Whether the connection is still open at the other end. The other end sends nothing after its `+OK`.
fn is_alive(socket: &TcpStream) -> bool {
    let mut byte = [0];
    matches!(socket.peek(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
