//! What commands may ask of the process about replication.
//!
//! What it is: the questions and their answers, in words without sockets. The server answers them; where nothing is replicated,
//! [`Standalone`] does.
//! What it is not: the protocol between leader and replica, whose words are handed on as they come.

use std::fmt;

use lsn::Lsn;

use crate::Promise;

/// What a server that follows another, or is handing over, says to who writes.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// What a server says to who reads while what it holds may have to be taken back.
pub const MASTER_DOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

/// A server as others reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The port of the Redis protocol.
    pub port: u16,
}

impl fmt::Display for Address {
    /// As `HOST:PORT`, an IPv6 address in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// How a replica stands with its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// It has no connection.
    #[default]
    Connect,
    /// It is being made.
    Connecting,
    /// Everything is being copied.
    Copying,
    /// It follows the leader's log.
    Connected,
}

impl Link {
    /// The word for it in the reply of ROLE.
    pub fn name(self) -> &'static str {
        match self {
            Link::Connect => "connect",
            Link::Connecting => "connecting",
            Link::Copying => "sync",
            Link::Connected => "connected",
        }
    }
}

/// A replica, as its leader knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// How clients reach it.
    pub address: Address,
    /// What it has on its disk.
    pub flushed: Lsn,
}

/// Too few replicas are there.
pub const TOO_FEW_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";

/// What a server is to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Leader {
        /// Where its durable log ends.
        end: Lsn,
        /// Who follows it.
        replicas: Vec<Replica>,
    },
    /// It shows what another has written.
    Replica {
        /// The other.
        leader: Address,
        /// How it stands with it.
        link: Link,
        /// Where what it shows ends.
        applied: Lsn,
    },
}

/// What WAIT and WAITAOF wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// What was written.
    pub lsn: Lsn,
    /// So many replicas have it on their disks.
    pub replicas: usize,
    /// It is on the disk of this server.
    pub local: bool,
    /// For how long; `None` for ever.
    pub timeout_ms: Option<u64>,
}

/// A planned change of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Who is to lead; `None` for whoever has most.
    pub to: Option<Address>,
    /// Whether it is promoted when the time is over although it may not have everything.
    pub force: bool,
    /// For how long writes may be held back; `None` for as long as it takes.
    pub timeout_ms: Option<u64>,
}

/// See the module documentation.
pub trait Replication: Send + Sync {
    /// Whether nothing may be appended to the log here, not even that a key has expired: another server writes it.
    fn is_read_only(&self) -> bool;

    /// Why clients may not write, as the whole error text.
    fn refuses_writes(&self) -> Option<&'static str>;

    /// Whether nothing that is here may be shown: some of it may never have been promised to anybody.
    fn is_stale(&self) -> bool;

    /// What it is to others.
    fn role(&self) -> Role;

    /// Follows `leader` from now on. Returns at once. The error is the whole error text.
    ///
    /// # Errors
    /// If that is not possible.
    fn follow(&self, leader: Address) -> Result<Followed, String>;

    /// Follows nobody any more, and takes writes: then the promise is kept.
    fn lead(&self, promise: Promise);

    /// Hands over to a replica; returns at once. The error is the whole error text.
    ///
    /// # Errors
    /// If that is not possible.
    fn fail_over(&self, failover: Failover) -> Result<(), String>;

    /// Gives up a hand-over that is on its way.
    ///
    /// # Errors
    /// The whole error text, if there is none.
    fn abort_failover(&self) -> Result<(), String>;

    /// Ends the connections of all replicas, which will come back; how many.
    fn disconnect_replicas(&self) -> usize;

    /// Where the log ends that is durable here.
    fn durable_lsn(&self) -> Lsn;

    /// Where what this server shows ends.
    fn shown_lsn(&self) -> Lsn;

    /// How many replicas have this on their disks.
    fn count_flushed(&self, lsn: Lsn) -> usize;

    /// Keeps the promise with the number of replicas that have what is wanted once there are enough or the time is over;
    /// preceded by whether this server has it, if that is wanted.
    fn wait_flushed(&self, wanted: Wanted, promise: Promise);

    /// Keeps the promise with 1 once this server shows what is written up to `lsn`, with 0 if the time is over before.
    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, promise: Promise);

    /// The newest of the positions that a replica has named that is one of the log here. The error is the whole error text.
    ///
    /// # Errors
    /// If they are no positions, or the log cannot be read.
    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String>;
}

/// What came of [`Replication::follow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It will.
    Begun,
    /// It does so already.
    Already,
}

/// Neither leads nor follows.
pub struct Standalone;

impl Replication for Standalone {
    fn is_read_only(&self) -> bool {
        false
    }

    fn refuses_writes(&self) -> Option<&'static str> {
        None
    }

    fn is_stale(&self) -> bool {
        false
    }

    fn role(&self) -> Role {
        Role::Leader { end: Lsn::ZERO, replicas: Vec::new() }
    }

    fn follow(&self, _: Address) -> Result<Followed, String> {
        Err("ERR this server cannot replicate".into())
    }

    fn lead(&self, promise: Promise) {
        promise.keep(Ok(()));
    }

    fn fail_over(&self, _: Failover) -> Result<(), String> {
        Err("ERR FAILOVER requires connected replicas.".into())
    }

    fn abort_failover(&self) -> Result<(), String> {
        Err("ERR No failover in progress.".into())
    }

    fn disconnect_replicas(&self) -> usize {
        0
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn::ZERO
    }

    fn shown_lsn(&self) -> Lsn {
        Lsn::MAX
    }

    fn count_flushed(&self, _: Lsn) -> usize {
        0
    }

    fn wait_flushed(&self, wanted: Wanted, promise: Promise) {
        promise.answer(|reply| match wanted.local {
            false => reply.integer(0),
            true => {
                reply.array(2);
                reply.integer(1);
                reply.integer(0);
            }
        });
    }

    fn wait_applied(&self, _: Lsn, _: Option<u64>, promise: Promise) {
        promise.answer(|reply| reply.integer(1));
    }

    fn newest_common(&self, _: &[&[u8]]) -> Result<Option<Lsn>, String> {
        Ok(None)
    }
}
