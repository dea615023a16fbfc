//! The leader's side: two threads per replica, their acknowledgements, and the log retained for them.
//!
//! ```text
//! REPLICATE -> "replica": decide, answer -> Relay: follow the log, write
//!              "replica-acks": read -> Leading -> commit, waits
//! ```
//!
//! This module has the sockets and threads around [`Relay`] and [`Leading`]. The crate `replication` makes
//! the decisions about a replica. A replica serves replicas of its own in the same way.
//!
//! Invariants
//! - A reply waits for a replica only if it needs acknowledgements of replicas. A slow replica is served from
//!   files; a replica that takes no bytes is disconnected.
//! - At most [`REPLICAS_MAX`] replicas are connected.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, Read, Write},
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

use engine::replication::{Address, Replica};
use lsn::Lsn;
use parking_lot::Mutex;
use replication::{
    Acked, HEARTBEAT_MS, Leading, LogHistory, Moment, Outgoing, Relay, RelayError, RelayOptions, RelayTurn,
    ReplicaId, SILENCE_MS, Session, Tail,
    join::{Claim, Decision, Reason},
};
use storage::{Log, Pin};

use super::{Node, failover};
use crate::repeated::Repeated;

/// The maximum number of replicas that are served at a time.
const REPLICAS_MAX: usize = 64;
/// The maximum number of replicas whose acknowledgements are remembered after they have left.
const LEFT_MAX: usize = REPLICAS_MAX;
/// A replica that takes no bytes for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_millis(2 * SILENCE_MS);
/// The timeout of one read of acknowledgements, after which the read is repeated.
const READ_TIMEOUT: Duration = Duration::from_millis(HEARTBEAT_MS);
/// The maximum number of bytes in one read of acknowledgements, which are small.
const ACK_READ_BYTES: usize = 4 << 10;
/// The maximum number of pieces in one write.
const PIECES_MAX: usize = 512;

/// The connected replicas, and the log retained for replicas.
pub(super) struct Leader {
    /// Locked after `connected` and `pin`: the order of locks is `connected`, `pin`, `leading`.
    pub(super) leading: Mutex<Leading>,
    connected: Mutex<Vec<Connected>>,
    /// Keeps the log that replicas need.
    pin: Mutex<Option<Pin>>,
    stopping: AtomicBool,
    /// The reasons for which replicas left or were refused, as logged lately.
    logged: Mutex<Repeated>,
    /// The position that each replica had acknowledged when its connection ended, with the epoch of this
    /// leader at that time.
    left_with: Mutex<BTreeMap<ReplicaId, (u32, Lsn)>>,
    /// How replicas have joined.
    pub(crate) joins: Joins,
}

/// How often replicas have joined since `CONFIG RESETSTAT`, by the answer of this leader.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    /// Partial syncs: replicas that went on from the position that they had, Redis replicas among them.
    pub(crate) resumed: AtomicU64,
    /// Replicas that had to copy all data.
    pub(crate) copied: AtomicU64,
    /// Replicas that wanted to continue from a position, but had to copy all data. Each of these counts in
    /// `copied`, too.
    pub(crate) not_resumed: AtomicU64,
}

impl Joins {
    pub(crate) fn reset(&self) {
        for count in [&self.resumed, &self.copied, &self.not_resumed] {
            count.store(0, Relaxed);
        }
    }
}

struct Connected {
    session: Session,
    claim: Claim,
    /// The user as whom the replica has logged in.
    user: Vec<u8>,
    address: Address,
    socket: TcpStream,
}

/// A replica as INFO shows it.
pub(crate) struct ReplicaFigures {
    pub(crate) claim: Claim,
    pub(crate) address: Address,
    pub(crate) acked: Acked,
}

impl Leader {
    pub(super) fn new(retained_bytes_max: u64, away_ms_max: u64) -> Leader {
        Leader {
            leading: Mutex::new(Leading::new(retained_bytes_max, away_ms_max)),
            connected: Mutex::default(),
            pin: Mutex::default(),
            stopping: false.into(),
            logged: Mutex::default(),
            left_with: Mutex::default(),
            joins: Joins::default(),
        }
    }

    /// Begins to count acknowledgements, as [`Leading::begin_at`] says. Disconnects all replicas, so that
    /// only acknowledgements on later connections count.
    pub(super) fn begin_at(&self, floor: Lsn, committed: Lsn) {
        self.leading.lock().begin_at(floor, committed);
        self.disconnect();
    }

    pub(super) fn set_limits(&self, retained_bytes_max: u64, away_ms_max: u64) {
        self.leading.lock().set_limits(retained_bytes_max, away_ms_max);
    }

    pub(super) fn count_flushed(&self, lsn: Lsn) -> usize {
        self.leading.lock().acks().count_flushed(lsn)
    }

    /// The number of replicas heard from within `silent_ms_max`.
    pub(super) fn count_heard(&self, now_ms: u64, silent_ms_max: u64) -> usize {
        self.leading.lock().acks().count_heard(now_ms, silent_ms_max)
    }

    /// The commit position if `count` replicas must have the log up to it. `own` is the end of the log on the
    /// disk here.
    pub(super) fn commit(&self, own: Lsn, count: usize) -> Lsn {
        self.leading.lock().commit(own, count)
    }

    /// Whether no replica is connected.
    pub(super) fn is_alone(&self) -> bool {
        self.connected.lock().is_empty()
    }

    pub(super) fn replicas(&self) -> Vec<ReplicaFigures> {
        let (connected, leading) = (self.connected.lock(), self.leading.lock());
        let figures = |connected: &Connected| {
            let (_, acked) = leading.acks().replicas().find(|(id, _)| *id == connected.claim.replica)?;
            let (claim, address) = (connected.claim, connected.address.clone());
            Some(ReplicaFigures { claim, address, acked: *acked })
        };
        connected.iter().filter_map(figures).collect()
    }

    /// Registers a replica, and closes an older connection of the same replica. `None` if [`REPLICAS_MAX`]
    /// others are connected.
    fn join(
        &self,
        (claim, user): (Claim, Vec<u8>),
        acked: Acked,
        address: &Address,
        socket: TcpStream,
    ) -> Option<Session> {
        let id = claim.replica;
        let mut connected = self.connected.lock();
        if let Some(older) = connected.iter().position(|other| other.claim.replica == id) {
            let _ = connected.swap_remove(older).socket.shutdown(Shutdown::Both);
        }
        if connected.len() >= REPLICAS_MAX {
            return None;
        }
        let session = self.leading.lock().join(id, acked);
        connected.push(Connected { session, claim, user, address: address.clone(), socket });
        Some(session)
    }

    fn leave(&self, session: Session, id: ReplicaId, epoch: u32) {
        if let Some(acked) = self.acknowledged(id, epoch) {
            let mut left_with = self.left_with.lock();
            if left_with.len() >= LEFT_MAX && !left_with.contains_key(&id) {
                left_with.pop_first();
            }
            left_with.insert(id, (epoch, acked));
        }
        self.connected.lock().retain(|other| other.session != session);
        self.leading.lock().leave(session);
    }

    /// The position up to which a replica has acknowledged the log as being on its disk. Acknowledgements of
    /// this epoch count, on the present connection or an earlier one.
    fn acknowledged(&self, id: ReplicaId, epoch: u32) -> Option<Lsn> {
        let earlier = self.left_with.lock().get(&id).filter(|(in_epoch, _)| *in_epoch == epoch).copied();
        let leading = self.leading.lock();
        let connected = leading.acks().replicas().find(|(other, _)| *other == id);
        connected.map(|(_, acked)| acked.flushed).max(earlier.map(|(_, acked)| acked))
    }

    /// Closes all connections; returns their number.
    pub(super) fn disconnect(&self) -> usize {
        let connected = self.connected.lock();
        connected.iter().for_each(|replica| _ = replica.socket.shutdown(Shutdown::Both));
        connected.len()
    }

    /// Closes the connections of replicas whose user may not have the log any more.
    pub(super) fn review(&self, may_replicate: impl Fn(&[u8]) -> bool) {
        for replica in self.connected.lock().iter().filter(|replica| !may_replicate(&replica.user)) {
            let _ = replica.socket.shutdown(Shutdown::Both);
            tracing::warn!(
                target: "replication", replica = %replica.address,
                "disconnected a replica: its user may not run REPLICATE any more"
            );
        }
    }

    /// If an incident of a replica must be logged now, returns how often the same incident was not logged
    /// before.
    pub(super) fn news(&self, node: &Node, replica: &str, reason: &str) -> Option<u64> {
        self.logged.lock().note(&format!("{replica} {reason}"), node.now_ms())
    }

    /// Accepts no more replicas and disconnects the present ones.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.disconnect();
    }

    /// Pins the log that replicas need, within the limits of retention. Called once a second, and when a
    /// replica joins.
    pub(super) fn keep_log(&self, log: &Log, now_ms: u64) {
        let mut pin = self.pin.lock();
        let from = self.leading.lock().keep_from(log.shippable_lsn(), now_ms);
        // The new pin is made before the old one is dropped, so that no log is removed in between.
        let kept = from.and_then(|from| log.pin(from.max(log.start_lsn())));
        *pin = kept;
    }
}

impl From<ReplicaFigures> for Replica {
    fn from(figures: ReplicaFigures) -> Replica {
        Replica { address: figures.address, flushed: figures.acked.flushed }
    }
}

/// Serves the replica that sent REPLICATE on this connection, on its own thread.
pub(super) fn serve(node: &Arc<Node>, (socket, from): (TcpStream, IpAddr), words: &[Vec<u8>], user: Vec<u8>) {
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (claim, node) = (Claim::parse(&words), node.clone());
    let run = move || {
        let peer = Address { host: shown_host(from), port: claim.map_or(0, |claim| claim.port) }.to_string();
        if let Err(reason) = join(&node, (socket, from), claim, user)
            && let Some(unlogged) = node.leader.news(&node, &peer, &reason)
        {
            tracing::warn!(target: "replication", replica = peer, reason, unlogged, "a replica has left");
        }
        // The log is kept for a while, in case the replica reconnects; it is not kept for a replica that was
        // refused.
        if let Some(claim) = claim {
            node.leader.leading.lock().left(claim.replica, node.now_ms());
        }
    };
    if let Err(error) = thread::Builder::new().name("replica".into()).spawn(run) {
        tracing::warn!(target: "replication", %error, "cannot serve a replica");
    }
}

/// Answers a replica, and ships the log if the answer is RESUME.
fn join(
    node: &Arc<Node>,
    (mut socket, from): (TcpStream, IpAddr),
    claim: Option<Claim>,
    user: Vec<u8>,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    socket.set_nonblocking(false).map_err(text)?;
    // Over TLS, the socket is the plain end of a tunnel. That is a Unix socket, which never delays bytes and
    // refuses the option.
    let _ = socket.set_nodelay(true);
    socket.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(text)?;
    let own_socket = socket.try_clone().map_err(text)?;
    let mut say = |line: String| socket.write_all(format!("{line}\r\n").as_bytes()).map_err(text);
    let Some(log) = node.log().filter(|_| !node.leader.stopping.load(SeqCst)) else {
        return say("-LOADING this server is starting".into());
    };
    let Some(claim) = claim else { return say("-ERR no arguments of REPLICATE".into()) };
    if node.is_itself(claim.replica) {
        return say("-ERR this server is to follow itself, or a copy of its directory has replication.json of it: name another \
             leader, or remove that file from the copy"
            .into());
    }
    // Keeps the log on which the decision depends from being removed before the decision is carried out.
    node.leader.leading.lock().hear(&claim);
    node.leader.keep_log(log, node.now_ms());
    let decision = node.leader.leading.lock().decide(&claim, log, &LogHistory(log));
    let decision = decision.map_err(|error| error.to_string())?;
    let line = decision.line(log.epoch(), node.http_port());
    let replica = Address { host: shown_host(from), port: claim.port }.to_string();
    failover::note_claim(node, &claim, &decision);
    let at = match decision {
        Decision::Resume(at) => at,
        Decision::Probe => {
            tracing::info!(target: "replication", replica, end = claim.mark.end.get(), "the log of a replica has diverged from ours");
            return say(line);
        }
        Decision::Full(reason) if node.is_witness() => {
            node.leader.leading.lock().forget(claim.replica);
            tracing::info!(target: "replication", replica, %reason, "a replica needs a copy of the data, which a witness does not have");
            return say(format!(
                "-ERR a witness leads, and has no data to copy ({reason}): wait for another member that has data"
            ));
        }
        Decision::Full(reason) => {
            tracing::info!(target: "replication", replica, %reason, "a replica copies everything");
            node.leader.joins.copied.fetch_add(1, Relaxed);
            if matches!(reason, Reason::Forgotten { .. }) {
                node.leader.joins.not_resumed.fetch_add(1, Relaxed);
            }
            node.leader.keep_log(log, node.now_ms());
            return say(line);
        }
        Decision::Refuse(reason) => {
            let reason = reason.to_string();
            if let Some(unlogged) = node.leader.news(node, &replica, &reason) {
                tracing::warn!(target: "replication", replica, reason, unlogged, "refused a replica");
            }
            return say(line);
        }
        Decision::Fenced { epoch } => {
            node.fence(epoch);
            return say(line);
        }
    };
    let epoch = log.epoch();
    let address = Address { host: node.peer_host(from), port: claim.port };
    if node.votes().is_some()
        && let Some(acked) = node.leader.acknowledged(claim.replica, epoch).filter(|acked| at < *acked)
    {
        tracing::error!(
            target: "group", replica = %address, end = at.get(), acknowledged = acked.get(),
            "a member has lost a part of the log that it had acknowledged: an older copy of its directory was put back, or its disk \
             loses what was synced. Until it has caught up, acknowledged writes may be on this server's disk alone; and it may have \
             forgotten a vote. Replace it: stop it, GROUP REMOVE it here, and have it join with an empty directory"
        );
    }
    let relay = Mutex::new(Relay::new(node.relay_options(), epoch, at, node.now_ms()));
    let acked = relay.lock().acked();
    let Some(session) = node.leader.join((claim, user), acked, &address, own_socket) else {
        node.leader.leading.lock().forget(claim.replica);
        return say(format!("-ERR {REPLICAS_MAX} replicas are connected, and no more are taken"));
    };
    node.acked();
    let told = say(line);
    let ended = told.and_then(|()| {
        tracing::info!(target: "replication", replica = %address, from = at.get(), "a replica follows");
        node.leader.joins.resumed.fetch_add(1, Relaxed);
        converse(node, log, &socket, &relay, session)
    });
    node.leader.leave(session, claim.replica, epoch);
    node.acked();
    ended
}

/// Ships the log and reads acknowledgements until the connection ends; returns the reason.
fn converse(
    node: &Arc<Node>,
    log: &Log,
    socket: &TcpStream,
    relay: &Mutex<Relay>,
    session: Session,
) -> Result<(), String> {
    thread::scope(|scope| {
        let acks = thread::Builder::new().name("replica-acks".into());
        let read = || {
            let ended = read_acks(node, socket, relay, session);
            let _ = socket.shutdown(Shutdown::Both);
            log.wake_cursors();
            ended
        };
        let reader = acks.spawn_scoped(scope, read).map_err(|error| error.to_string())?;
        let shipped = ship(node, log, socket, relay);
        let _ = socket.shutdown(Shutdown::Both);
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The thread that failed first has a more precise reason than the other thread, which only found the
        // socket closed.
        Err(match (shipped, read) {
            (shipped, Some(reason)) if shipped == CLOSED => reason,
            (shipped, _) => shipped,
        })
    })
}

/// The reason for the end if the other side has closed the connection.
const CLOSED: &str = "the connection was closed";

/// Ships the log until this server stops or something fails; returns the reason. The connection may still be
/// open.
fn ship(node: &Node, log: &Log, socket: &TcpStream, relay: &Mutex<Relay>) -> String {
    let mut tail = Tail(log.cursor(relay.lock().position()));
    let mut out = Vec::new();
    loop {
        if node.leader.stopping.load(SeqCst) {
            return "this server stops".into();
        }
        let moment = Moment {
            now_ms: node.now_ms(),
            // Each write blocks until all its bytes have left, so no bytes are unsent here.
            unsent_bytes: 0,
            shippable: log.shippable_lsn(),
            commit: node.commit_lsn(),
            epoch: log.epoch(),
            has_tick_ended: true,
            distance: node.distance(),
        };
        let turn = match relay.lock().step(moment, &mut tail, &mut out) {
            Ok(turn) => turn,
            Err(RelayError::Source(error)) => return error,
            Err(error) => return error.to_string(),
        };
        let send = |pieces: &[IoSlice<'_>]| (&*socket).write_vectored(pieces);
        let unacknowledged_bytes = || env::socket::unacknowledged_bytes(socket).unwrap_or(0);
        if let Err(error) = write(send, unacknowledged_bytes, &out) {
            return match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => CLOSED.into(),
                io::ErrorKind::WouldBlock => {
                    format!("it has taken nothing for {} s", WRITE_TIMEOUT.as_secs())
                }
                _ => format!("cannot send: {error}"),
            };
        }
        out.clear();
        if let RelayTurn::Wait { until_ms } = turn {
            tail.0.wait(Duration::from_millis(until_ms.saturating_sub(node.now_ms()).max(1)));
        }
    }
}

/// Writes all frames, up to [`PIECES_MAX`] pieces with each system call. A full socket takes more bytes only
/// when a third of its buffer is free. So a write that ends at its timeout is repeated, as long as the
/// replica has acknowledged something meanwhile.
fn write(
    mut send: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    mut unacknowledged_bytes: impl FnMut() -> u64,
    out: &[Outgoing<Arc<[u8]>>],
) -> io::Result<()> {
    let pieces = out.iter().flat_map(|outgoing| {
        let payload = outgoing.payload.as_deref().unwrap_or_default();
        [IoSlice::new(&outgoing.header), IoSlice::new(payload)]
    });
    let mut pieces: Vec<IoSlice<'_>> = pieces.filter(|piece| !piece.is_empty()).collect();
    let mut rest = &mut pieces[..];
    while !rest.is_empty() {
        let count = rest.len().min(PIECES_MAX);
        let before_bytes = unacknowledged_bytes();
        match send(&rest[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && unacknowledged_bytes() < before_bytes => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads acknowledgements until the connection ends. Returns the reason, or `None` if the connection was
/// closed or has failed.
fn read_acks(
    node: &Arc<Node>,
    mut socket: &TcpStream,
    relay: &Mutex<Relay>,
    session: Session,
) -> Option<String> {
    socket.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    let mut bytes = [0; ACK_READ_BYTES];
    loop {
        let read = match socket.read(&mut bytes) {
            Ok(0) => return None,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        let received = {
            let mut relay = relay.lock();
            relay.inbox().extend_from_slice(&bytes[..read]);
            relay.receive(node.now_ms())
        };
        match received {
            Ok(Some(acked)) => {
                node.leader.leading.lock().note(session, acked);
                node.acked();
            }
            Ok(None) => {}
            Err(close) => {
                if let replication::Close::Fenced { epoch, .. } = close {
                    node.fence(epoch);
                }
                return Some(close.to_string());
            }
        }
    }
}

/// The options of a relay whose steps ship about `flush_bytes` each. Since writes block, bytes that are
/// appended during a write go with the next step.
pub(super) fn relay_options(flush_bytes: u64) -> RelayOptions {
    let most = RelayOptions::default();
    RelayOptions { flush_bytes, round_bytes_max: flush_bytes.clamp(1, most.round_bytes_max), ..most }
}

/// The address as shown to users: an IPv4-mapped IPv6 address is shown as IPv4.
pub(super) fn shown_host(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;

    use replication::{
        frame::HEADER_BYTES,
        join::{Mark, PROTOCOL_VERSION},
    };

    use super::*;

    #[test]
    fn a_write_lasts_as_long_as_the_replica_acknowledges_something() {
        let timed_out = || Err(io::ErrorKind::WouldBlock.into());
        let out = [Outgoing { header: [7; HEADER_BYTES], payload: None }];
        // The numbers of unacknowledged bytes before each attempt, and after each attempt that times out.
        let mut unacknowledged = [900, 800, 800, 700, 700].into_iter();
        let mut attempts = 0;
        let send = |pieces: &[IoSlice<'_>]| {
            attempts += 1;
            if attempts < 3 { timed_out() } else { Ok(pieces[0].len()) }
        };
        write(send, || unacknowledged.next().unwrap(), &out).unwrap();
        assert_eq!(attempts, 3);
        let error = write(|_| timed_out(), || 900, &out).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "it has taken nothing");
    }

    fn id(number: usize) -> ReplicaId {
        ReplicaId::new([number as u8; 16])
    }

    fn acked(flushed: u64) -> Acked {
        Acked { flushed: Lsn::new(flushed), applied: Lsn::ZERO, as_of_ms: 0, heard_ms: 0 }
    }

    #[test]
    fn what_was_acknowledged_in_an_epoch_is_known_after_the_connection_has_ended() {
        let leader = Leader::new(0, 0);
        let join = |number, flushed| leader.leading.lock().join(id(number), acked(flushed));
        let known = |number, epoch| leader.acknowledged(id(number), epoch).map(Lsn::get);
        assert_eq!(known(1, 1), None);
        let first = join(1, 4096);
        leader.leading.lock().note(first, acked(12_288));
        assert_eq!(known(1, 1), Some(12_288));
        leader.leave(first, id(1), 1);
        assert_eq!((known(1, 1), known(1, 2), known(2, 1)), (Some(12_288), None, None));
        let second = join(1, 8192);
        assert_eq!(known(1, 1), Some(12_288), "it has lost some");
        leader.leave(second, id(1), 1);
        assert_eq!(known(1, 1), Some(12_288));
        for number in 2..=LEFT_MAX + 2 {
            leader.leave(join(number, 4096), id(number), 1);
        }
        assert_eq!(leader.left_with.lock().len(), LEFT_MAX);
    }

    #[test]
    fn there_are_only_so_many_replicas_and_each_counts_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let leader = Leader::new(0, 0);
        let join = |number: usize| {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let address = Address { host: "here".into(), port: 1 };
            let claim = Claim {
                version: PROTOCOL_VERSION,
                log_id: [0; 16],
                epoch: 1,
                mark: Mark { end: Lsn::ZERO, chain: 0 },
                port: 1,
                replica: id(number),
                process: None,
            };
            leader.join((claim, Vec::new()), acked(0), &address, socket)
        };
        let sessions: Vec<Session> = (0..REPLICAS_MAX).map(|number| join(number).unwrap()).collect();
        assert_eq!(join(REPLICAS_MAX), None);
        let again = join(3).expect("it takes the place of its older connection");
        assert_eq!(leader.replicas().len(), REPLICAS_MAX);
        leader.leave(sessions[3], id(3), 1);
        assert_eq!(leader.replicas().len(), REPLICAS_MAX, "the older connection was over already");
        leader.leave(again, id(3), 1);
        assert!(join(REPLICAS_MAX).is_some() && leader.replicas().len() == REPLICAS_MAX);
    }
}
