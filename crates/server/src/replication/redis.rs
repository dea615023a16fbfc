//! The replicas that are Redis or Valkey servers: which are connected, and which streams may be continued.
//!
//! They are served by `redis_feed`. They count neither for `ack-replicas` nor for WAIT: what such a replica
//! acknowledges, it has in memory.
//!
//! Invariants
//! - At most [`REDIS_REPLICAS_MAX`] are connected.

use std::{
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
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

/// The most such replicas, and tools that speak like one, that are served at a time.
const REDIS_REPLICAS_MAX: usize = SESSIONS_MAX;

/// The replicas of this kind.
#[derive(Default)]
pub(crate) struct RedisReplicas {
    pub(crate) sessions: Mutex<Sessions>,
    connected: Mutex<Vec<Arc<RedisReplica>>>,
    stopping: AtomicBool,
    /// The log that is kept for one replica at most, and how long it is after the replica has left.
    retained_bytes_max: AtomicU64,
    away_ms_max: AtomicU64,
}

/// A connected replica.
pub(crate) struct RedisReplica {
    pub(crate) address: Address,
    /// The user as whom it has logged in.
    pub(crate) user: Arc<[u8]>,
    pub(crate) socket: TcpStream,
    /// Whether it has its file, or needs none: from then on it gives signs of life.
    pub(crate) has_file: AtomicBool,
    /// Whether the stream follows the file, or was continued.
    pub(crate) is_online: AtomicBool,
    /// What it has of the stream, and whether it has acknowledged any.
    pub(crate) acks: Mutex<Acks>,
    pub(crate) has_acked: AtomicBool,
    /// When it was heard last, monotonic milliseconds.
    pub(crate) heard_ms: AtomicU64,
    /// Its connection has ended.
    pub(crate) is_closed: AtomicBool,
    /// The thread that serves it.
    pub(crate) thread: Thread,
}

impl RedisReplica {
    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.thread.unpark();
    }

    /// Notes that it has its file.
    pub(crate) fn set_has_file(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Relaxed);
        self.has_file.store(true, SeqCst);
    }

    /// Its state as INFO names it.
    pub(crate) fn state(&self) -> &'static str {
        if self.is_online.load(Relaxed) { "online" } else { "send_bulk" }
    }
}

impl RedisReplicas {
    /// Adds a replica; returns whether there is a place for it.
    pub(crate) fn add(&self, replica: Arc<RedisReplica>) -> bool {
        let mut connected = self.connected.lock();
        let has_place = connected.len() < REDIS_REPLICAS_MAX && !self.stopping.load(SeqCst);
        if has_place {
            connected.push(replica);
        }
        has_place
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

/// The log for a stream.
impl Node {
    /// Keeps the log from `position` on for the stream, within the limits that hold for every replica.
    pub(crate) fn hold_log(&self, stream: SessionId, position: Lsn) {
        self.leader.leading.lock().hold(ReplicaId::new(stream.first_bytes()), position);
    }

    /// Has what is kept for replicas take effect at once.
    pub(crate) fn keep_log_now(&self) {
        if let Some(log) = self.log() {
            self.leader.keep_log(log, self.now_ms());
        }
    }

    /// The replica of the stream has left: the log is kept for it for a while.
    pub(crate) fn hold_log_for_a_while(&self, stream: SessionId) {
        self.leader.leading.lock().left(ReplicaId::new(stream.first_bytes()), self.now_ms());
    }

    /// Nobody will return to the stream: neither it nor log is kept.
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
