//! The replicas that are Redis or Valkey servers: which of them are connected, and which streams may be
//! continued.
//!
//! `redis_feed` serves these replicas. They count neither for `ack-replicas` nor for WAIT, because such a
//! replica acknowledges bytes that it has in memory only.
//!
//! Invariants
//! - At most [`REDIS_REPLICAS_MAX`] connections have a [`Place`]. Each has its place before its threads
//!   begin.
//! - An event that is repeated for the same replica is logged once in a while.

use std::{
    net::{Shutdown, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::Thread,
};

use engine::replication::{Address, Replica};
use lsn::Lsn;
use parking_lot::Mutex;
use propagation::{Acks, SESSIONS_MAX, SessionId, Sessions, Ticket};
use replication::ReplicaId;

use super::Node;
use crate::repeated::Repeated;

/// The maximum number of Redis replicas, and of tools that speak like one, that are served at a time.
const REDIS_REPLICAS_MAX: usize = SESSIONS_MAX;

/// The Redis replicas of this server.
#[derive(Default)]
pub(crate) struct RedisReplicas {
    pub(crate) sessions: Mutex<Sessions>,
    connected: Mutex<Vec<Arc<RedisReplica>>>,
    /// The places that are taken.
    places: AtomicUsize,
    stopping: AtomicBool,
    /// The maximum bytes of log that are kept for one replica, and the milliseconds for which they are kept
    /// after the replica has left.
    retained_bytes_max: AtomicU64,
    away_ms_max: AtomicU64,
    /// The period of pings while nothing else is sent, in milliseconds.
    ping_ms: AtomicU64,
    /// The events of replicas that were logged lately.
    logged: Mutex<Repeated>,
}

/// The right of a connection to threads and to the work of a full sync.
pub(crate) struct Place(Arc<Node>);

impl Place {
    /// Takes a place, if one is free.
    pub(crate) fn take(node: &Arc<Node>) -> Option<Place> {
        let more = |taken| (taken < REDIS_REPLICAS_MAX).then_some(taken + 1);
        node.redis.places.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Place(node.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.redis.places.fetch_sub(1, SeqCst);
    }
}

/// A connected replica.
pub(crate) struct RedisReplica {
    pub(crate) address: Address,
    /// The user as whom the replica has logged in.
    pub(crate) user: Arc<[u8]>,
    pub(crate) socket: TcpStream,
    /// Whether the replica has its file, or needs none. From then on it must give signs of life.
    pub(crate) has_file: AtomicBool,
    /// Whether the replica gets the stream now, after its file or as a continuation of its earlier stream.
    pub(crate) is_online: AtomicBool,
    /// The part of the stream that the replica has, and whether it has acknowledged any of it.
    pub(crate) acks: Mutex<Acks>,
    pub(crate) has_acked: AtomicBool,
    /// The time at which the replica was last heard, in monotonic milliseconds.
    pub(crate) heard_ms: AtomicU64,
    /// Whether the connection has ended.
    pub(crate) is_closed: AtomicBool,
    /// The fault of the replica for which the connection was ended.
    pub(crate) fault: OnceLock<String>,
    /// The thread that serves the replica.
    pub(crate) thread: Thread,
}

impl RedisReplica {
    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread.unpark();
    }

    /// Ends the connection for a fault of the replica.
    pub(crate) fn close_for(&self, fault: &str) {
        let _ = self.fault.set(fault.into());
        self.close();
    }

    /// Notes that the replica has its file, or needs none, and was heard at `now_ms`. From then on it must
    /// give signs of life.
    pub(crate) fn set_has_file(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Relaxed);
        self.has_file.store(true, SeqCst);
    }

    /// The state of the replica, as INFO names it.
    pub(crate) fn state(&self) -> &'static str {
        if self.is_online.load(Relaxed) { "online" } else { "send_bulk" }
    }
}

impl RedisReplicas {
    /// Adds a replica that has a place; `false` if the server stops.
    pub(crate) fn add(&self, replica: Arc<RedisReplica>) -> bool {
        let mut connected = self.connected.lock();
        let is_served = !self.stopping.load(SeqCst);
        if is_served {
            connected.push(replica);
        }
        is_served
    }

    pub(crate) fn remove(&self, replica: &Arc<RedisReplica>) {
        self.connected.lock().retain(|other| !Arc::ptr_eq(other, replica));
    }

    /// The connected replicas.
    pub(crate) fn all(&self) -> Vec<Arc<RedisReplica>> {
        self.connected.lock().clone()
    }

    pub(super) fn set_limits(&self, retained_bytes_max: u64, away_ms_max: u64) {
        self.retained_bytes_max.store(retained_bytes_max, Relaxed);
        self.away_ms_max.store(away_ms_max, Relaxed);
    }

    pub(super) fn set_ping_ms(&self, ping_ms: u64) {
        self.ping_ms.store(ping_ms, Relaxed);
    }

    pub(crate) fn ping_ms(&self) -> u64 {
        self.ping_ms.load(Relaxed)
    }

    pub(crate) fn retained_bytes_max(&self) -> u64 {
        self.retained_bytes_max.load(Relaxed)
    }

    /// Forgets the streams of replicas that have been away for too long.
    pub(super) fn forget_left(&self, now_ms: u64) {
        self.sessions.lock().forget_left(now_ms, self.away_ms_max.load(Relaxed));
    }

    /// Closes the connections of replicas whose user may not have the data any more.
    pub(super) fn review(&self, may_replicate: impl Fn(&[u8]) -> bool) {
        for replica in self.all().iter().filter(|replica| !may_replicate(&replica.user)) {
            replica.close();
            tracing::warn!(
                target: "replication", replica = %replica.address,
                "disconnected a Redis replica: its user may not run PSYNC any more"
            );
        }
    }

    /// Takes no more replicas and ends the connections of the present ones.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.all().iter().for_each(|replica| replica.close());
    }

    /// The replicas as ROLE shows them.
    pub(super) fn for_role(&self) -> impl Iterator<Item = Replica> {
        let shown = |replica: Arc<RedisReplica>| Replica {
            address: replica.address.clone(),
            flushed: replica.acks.lock().lsn(),
        };
        self.all().into_iter().filter(|replica| replica.is_online.load(Relaxed)).map(shown)
    }
}

impl Node {
    /// Notes an event of a replica. If the event must be logged now, returns how often the event was left out
    /// since it was last logged.
    pub(crate) fn redis_news(&self, replica: &Address, what: &str) -> Option<u64> {
        self.redis.logged.lock().note(&format!("{replica} {what}"), self.now_ms())
    }
}

/// The methods that keep log for a stream.
impl Node {
    /// Keeps the log from `position` on for the stream, within the limits that hold for every replica.
    pub(crate) fn hold_log(&self, stream: SessionId, position: Lsn) {
        self.leader.leading.lock().hold(ReplicaId::new(stream.first_bytes()), position);
    }

    /// Pins the log that replicas need at once; otherwise this is done once a second.
    pub(crate) fn keep_log_now(&self) {
        if let Some(log) = self.log() {
            self.leader.keep_log(log, self.now_ms());
        }
    }

    /// Notes that the replica of the stream has left. The log is kept for this replica for a while.
    pub(crate) fn hold_log_for_a_while(&self, stream: SessionId) {
        self.leader.leading.lock().left(ReplicaId::new(stream.first_bytes()), self.now_ms());
    }

    /// Forgets a stream to which no replica will return, and keeps no log for it.
    pub(crate) fn forget_stream(&self, ticket: Ticket) {
        self.redis.sessions.lock().forget(ticket);
        self.leader.leading.lock().forget(ReplicaId::new(ticket.id.first_bytes()));
    }

    /// 20 random bytes for the replication ID of a stream.
    pub(crate) fn new_stream(&self) -> SessionId {
        let mut bytes = [0; 20];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.random_u64().to_le_bytes()[..part.len()]);
        }
        SessionId::new(bytes)
    }
}
