//! Serving replicas that are Redis or Valkey servers, and tools that speak like one (`redis-cli --rdb`).
//!
//! ```text
//! PSYNC, SYNC -> "redis-replica": FULLRESYNC, file of a snapshot (full_sync) | CONTINUE
//!                  -> log cursor -> propagation::Feed -> socket (stream)
//!                "redis-replica-acks": REPLCONF ACK -> figures (acks)
//! ```
//!
//! This module has sockets and threads; the crate `propagation` decides what is sent. The log serves as the
//! backlog of Redis: no sent bytes are kept in memory for a replica that may return.
//!
//! Invariants
//! - Only committed changes are sent.
//! - A slow replica takes little memory: the buffer of its socket, and a part of its file or of the log.
//!   When the log that it needs is no longer kept, it is disconnected, and gets a full sync when it returns.
//! - A connection gets threads only once it has a place. There are few places, so many replicas that ask for
//!   a file and vanish cost little.

mod acks;
mod full_sync;
mod sending;
mod stream;

use std::{
    cell::Cell,
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use engine::{
    clients::{Client, Clients, Connected},
    replication::{Address, RedisClaim},
};
use lsn::Lsn;
use parking_lot::Mutex;
use propagation::{Feed, Ticket};
use recovery::Loaded;
use storage::Log;

use crate::{
    replication::{
        Node,
        redis::{Place, RedisReplica},
    },
    snapshots::Snapshots,
};

/// A replica that takes no bytes for this long is disconnected. So is a replica that sends nothing for this
/// long, if it has its file or needs none. The value is the default of Redis' `repl-timeout`.
const SILENCE: Duration = Duration::from_secs(60);
/// The period at which, while a file is prepared, the replica gets a newline as a sign of life and is checked
/// for whether it may stay.
const PREPARING_PERIOD: Duration = Duration::from_secs(1);
/// About the number of bytes of log that are read, and of the stream that are written, at a time.
const PIECE_BYTES: usize = 256 << 10;

/// The parts of the server that are needed to serve Redis replicas.
#[derive(Clone)]
pub(crate) struct Feeding {
    pub(crate) node: Arc<Node>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) clients: Arc<Clients>,
}

/// One replica, and the parts of the server that serve it.
struct Serving<'a> {
    node: &'a Node,
    snapshots: &'a Snapshots,
    log: &'a Log,
    replica: &'a RedisReplica,
    claim: &'a RedisClaim,
    /// The entry of the replica in CLIENT LIST.
    client: &'a Client,
    /// The position from which the log is pinned for the replica's file.
    pinned_from: Cell<Option<Lsn>>,
}

/// A stream that has begun and continues with the log.
struct Begun {
    feed: Feed,
    ticket: Ticket,
    /// The contents of the file that was just sent; `None` after a partial sync.
    loaded: Option<Loaded>,
}

impl Feeding {
    /// Serves the replica on threads of its own, if its connection is still open and it finds a place.
    pub(crate) fn serve(self, (socket, peer): (TcpStream, SocketAddr), claim: RedisClaim, user: Vec<u8>) {
        let place = match self.admit(&socket) {
            Ok(place) => place,
            Err(reason) => return self.node.note_refused(peer, reason),
        };
        let run = move || {
            if let Err(error) = self.run((socket, peer), &claim, user) {
                self.node.note_refused(peer, &error.to_string());
            }
            drop(place);
        };
        if let Err(error) = thread::Builder::new().name("redis-replica".into()).spawn(run) {
            tracing::warn!(target: "replication", %error, "cannot serve a Redis replica");
        }
    }

    /// Takes a place for a connection. Never waits, because a worker calls it.
    fn admit(&self, socket: &TcpStream) -> Result<Place, &'static str> {
        let is_here = socket.set_nonblocking(true).and_then(|()| sending::is_open(socket));
        if !matches!(is_here, Ok(true)) {
            return Err("it has closed the connection");
        }
        Place::take(&self.node).ok_or_else(|| {
            let _ = (&*socket).write(b"-ERR too many replicas are connected\r\n");
            "too many replicas are connected"
        })
    }

    fn run(
        &self,
        (mut socket, peer): (TcpStream, SocketAddr),
        claim: &RedisClaim,
        user: Vec<u8>,
    ) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        // The call fails for the plain end of a tunnel, which has no such delay.
        let _ = socket.set_nodelay(true);
        socket.set_write_timeout(Some(PREPARING_PERIOD))?;
        socket.set_read_timeout(Some(PREPARING_PERIOD))?;
        let host = match claim.replica.host.as_str() {
            "" => peer.ip().to_canonical().to_string(),
            host => host.into(),
        };
        let replica = Arc::new(RedisReplica {
            address: Address { host, port: claim.replica.port },
            user: user.into(),
            socket: socket.try_clone()?,
            has_file: false.into(),
            is_online: false.into(),
            acks: Mutex::default(),
            has_acked: false.into(),
            heard_ms: self.node.now_ms().into(),
            is_closed: false.into(),
            fault: OnceLock::new(),
            thread: thread::current(),
        });
        let Some(log) = self.node.log().filter(|log| !log.is_frozen()) else {
            return socket.write_all(b"-LOADING this server is starting\r\n");
        };
        if !self.node.redis.add(replica.clone()) {
            return Ok(());
        }
        let closing = replica.clone();
        let now_ms = self.snapshots.sources.clock.unix_ms();
        let client = self.clients.register(Connected {
            peer: peer.to_string(),
            peer_uid: None,
            local: socket.local_addr().map_or_else(|_| String::new(), |local| local.to_string()),
            fd: std::os::fd::AsRawFd::as_raw_fd(&socket),
            now_ms,
            // A kill is the only signal for such a client.
            signaller: Box::new(move |_, _| closing.close()),
        });
        client.set_user(&replica.user);
        client.set_replica();
        client.runs(row_of(if claim.is_psync { b"PSYNC" } else { b"SYNC" }), now_ms);
        let reason = self.converse(log, (&replica, &client), claim);
        self.clients.remove(client.id());
        self.node.redis.remove(&replica);
        if let Some(unlogged) = self.node.redis_news(&replica.address, &reason) {
            tracing::info!(target: "replication", replica = %replica.address, reason, unlogged, "a Redis replica has left");
        }
        Ok(())
    }

    /// Sends to a replica and receives from it until the connection ends. Returns the reason of the end.
    fn converse(&self, log: &Log, (replica, client): (&RedisReplica, &Client), claim: &RedisClaim) -> String {
        let (node, snapshots) = (&*self.node, &*self.snapshots);
        let pinned_from = Cell::default();
        let serving = Serving { node, snapshots, log, replica, claim, client, pinned_from };
        thread::scope(|scope| {
            let acks = thread::Builder::new().name("redis-replica-acks".into());
            let clock = &*snapshots.sources.clock;
            let hear = || acks::hear((node, clock), replica, client);
            if let Err(error) = acks.spawn_scoped(scope, hear) {
                return error.to_string();
            }
            let ended = serving.serve();
            replica.close();
            let fault = replica.fault.get().cloned();
            fault.or(ended.err()).unwrap_or_else(|| "it has got its file".into())
        })
    }
}

/// The row of a command without subcommands.
fn row_of(name: &[u8]) -> usize {
    let rows = commands::table().rows();
    rows.iter().position(|row| row.name.as_bytes().eq_ignore_ascii_case(name)).unwrap_or(usize::MAX)
}

impl Serving<'_> {
    fn serve(&self) -> Result<(), String> {
        let begun = match self.resumed()? {
            Some(begun) => begun,
            None => {
                let joins = self.node.joins();
                joins.copied.fetch_add(1, Relaxed);
                joins.not_resumed.fetch_add(self.claim.known.is_some().into(), Relaxed);
                let Some(begun) = self.full_sync()? else { return self.wait_for_close() };
                begun
            }
        };
        let ticket = begun.ticket;
        self.replica.is_online.store(true, Relaxed);
        let ended = self.stream(begun);
        self.leave(ticket);
        ended
    }

    /// Notes that the replica of a stream has left, and may return.
    fn leave(&self, ticket: Ticket) {
        self.node.redis.sessions.lock().leave(ticket, self.node.now_ms());
        self.node.hold_log_for_a_while(ticket.id);
    }

    /// Continues the stream that the replica knows, if the log for it is still kept.
    fn resumed(&self) -> Result<Option<Begun>, String> {
        let Some(known) = self.claim.known.as_ref().filter(|_| self.claim.is_psync) else { return Ok(None) };
        let own = self.claim.replica.takes_new_id.then(|| self.node.new_stream());
        let resumed = self.node.redis.sessions.lock().resume(&known.id, known.has_bytes, own);
        let Some((ticket, feed)) = resumed else { return Ok(None) };
        if feed.lsn() < self.log.start_lsn() {
            // If the replica does not know the stream's id, the stream was made for this connection, and no
            // replica has heard of it.
            match ticket.id.to_string().as_bytes() == &*known.id {
                true => self.node.redis.sessions.lock().leave(ticket, self.node.now_ms()),
                false => self.node.forget_stream(ticket),
            }
            return Ok(None);
        }
        self.node.joins().resumed.fetch_add(1, Relaxed);
        self.node.hold_log(ticket.id, feed.lsn());
        self.replica.acks.lock().acknowledged(known.has_bytes);
        self.replica.set_has_file(self.node.now_ms());
        let told = match self.claim.replica.takes_new_id {
            true => self.write(format!("+CONTINUE {}\r\n", ticket.id).as_bytes()),
            false => self.write(b"+CONTINUE\r\n"),
        };
        // The stream that the replica knows stays known here, because the replica may not have received the
        // id of the new stream.
        told.inspect_err(|_| self.leave(ticket))?;
        if let Some(unlogged) = self.node.redis_news(&self.replica.address, "goes on") {
            tracing::info!(target: "replication", replica = %self.replica.address, from = feed.lsn().get(), unlogged, "a Redis replica goes on");
        }
        Ok(Some(Begun { feed, ticket, loaded: None }))
    }

    /// Waits until a tool has closed the connection, or may not stay.
    fn wait_for_close(&self) -> Result<(), String> {
        let _ = self.replica.socket.shutdown(std::net::Shutdown::Write);
        while self.check().is_ok() {
            thread::park_timeout(PREPARING_PERIOD);
        }
        Ok(())
    }
}
