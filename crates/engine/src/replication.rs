//! The interface to replication that commands use.
//!
//! This module has the requests and answers, without sockets. The server implements [`Replication`]; where
//! nothing is replicated, [`Standalone`] does. The interface is not the protocol between leader and replica,
//! whose words are passed on unchanged.

use std::fmt;

use lsn::Lsn;

use crate::Responder;

/// The error for clients of a leader whose log no majority of its group takes.
pub const COMMITS_NOTHING: &str = "CLUSTERDOWN The group commits nothing: the leader is reached, but no majority of the members takes its log. Try again.";
/// The error of reads and writes on a server that no group has accepted yet.
pub const NOT_JOINED: &str = "CLUSTERDOWN This server is not in its group yet: it asks to be added, and its log says what keeps it out.";
/// The error of writes on a member of a group without a leader, and of reads, unless `stale-reads` permits
/// them.
pub const NO_LEADER: &str =
    "CLUSTERDOWN The group has no leader: a majority of its members must be reachable. Try again.";

/// The error of reads on a stale replica: some of its data may have to be discarded.
pub const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and what of the data here is committed is not known. Wait for the link (master_link_status in \
     INFO), or ask the leader; REPLICAOF NO ONE has this server lead with the data that it has.";

/// The error of reads on a server that has given up the lead: some of its data may have to be discarded.
pub const READ_DEPOSED: &str = "MASTERDOWN This server has given up the lead: another server leads, or is being told to. Ask that one, or see \
     replication_fenced_by_epoch in INFO; REPLICAOF has this one follow it, or lead.";

/// The error of reads on a member of a group that does not know yet which of its data is committed.
pub const NOT_KNOWN_COMMITTED: &str = "MASTERDOWN This member of the group does not know yet which of its data is committed: a leader must \
                                       tell it. Ask another member, or again later.";

/// The error of reads on a member of a group that for seconds has not applied all that the group has
/// committed.
pub const FAR_BEHIND: &str = "MASTERDOWN This member of the group has not caught up with its leader for more than 5 seconds, for a reason in its \
                              log. Ask another member, or again later.";

/// The error of reads on a server that its group has removed.
pub const READ_REMOVED: &str =
    "MASTERDOWN This server was removed from its group. Ask a member of the group.";

/// The error of reads on a witness, which has no data.
pub const READ_WITNESS: &str =
    "MASTERDOWN This server is a witness of its group: it keeps the log and has no data. Ask another member.";

/// The address of a server, as other servers and clients reach it.
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

/// The state of a replica's link to its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkState {
    /// There is no connection to the leader.
    #[default]
    Connect,
    /// The connection is being made.
    Connecting,
    /// A full sync is running.
    Copying,
    /// The replica follows the leader's log.
    Connected,
    /// The replica is connected, and nobody leads: servers follow each other in a ring.
    Leaderless,
}

impl LinkState {
    /// The name of the state in the reply of ROLE.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Connect | LinkState::Leaderless => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Copying => "sync",
            LinkState::Connected => "connected",
        }
    }
}

/// A replica, as its leader knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// The address at which clients reach the replica.
    pub address: Address,
    /// The end of the replica's durable log.
    pub flushed: Lsn,
}

/// A replica that is a Redis or Valkey server, as it has described itself (REPLCONF).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisReplica {
    /// The port on which the replica listens; 0 if it has named none.
    pub port: u16,
    /// The address that the replica announces; empty if it announces none.
    pub host: String,
    /// Whether the replica takes a file whose length is not known before its end.
    pub takes_eof: bool,
    /// Whether the replica takes a new id for its stream when it returns (`psync2`).
    pub takes_new_id: bool,
    /// Whether the replica wants the file alone, and no stream after it.
    pub wants_rdb_only: bool,
    /// Whether the replica wants keys in the file.
    pub wants_keys: bool,
    /// Whether the replica wants functions in the file.
    pub wants_functions: bool,
}

impl Default for RedisReplica {
    fn default() -> Self {
        RedisReplica {
            port: 0,
            host: String::new(),
            takes_eof: false,
            takes_new_id: false,
            wants_rdb_only: false,
            wants_keys: true,
            wants_functions: true,
        }
    }
}

/// The request of a replica that is a Redis server (PSYNC, SYNC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisClaim {
    /// The replica's description of itself.
    pub replica: RedisReplica,
    /// The stream of which the replica has the beginning; `None` if it has none.
    pub known: Option<KnownStream>,
    /// Whether the replica expects a line before the file (PSYNC, not SYNC).
    pub is_psync: bool,
}

/// The beginning of a stream of commands that a replica has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownStream {
    /// The replication ID of the stream.
    pub id: Box<[u8]>,
    /// The number of bytes of the stream that the replica has.
    pub has_bytes: u64,
}

/// Why a server takes no writes. Every report of the reason (errors of commands, answers over HTTP, INFO,
/// metrics, the log) reads this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRefusal {
    /// This server follows another server.
    Replica,
    /// This server has given up the lead: another server leads, or may lead.
    Deposed,
    /// This server hands over the lead, and leads on if that fails.
    HandingOver,
    /// This server is a witness of its group.
    Witness,
    /// The group has removed this server.
    Removed,
    /// This server asks to join a group, which has not accepted it yet.
    Joining,
    /// This server is a member of a group, and knows no leader or does not hear its leader; or it leads, and
    /// its group may have elected another leader.
    NoLeader,
    /// This server leads its group, and no majority takes its log.
    NotCommitted,
    /// Settings given at the start are not in the log yet: a write acknowledged now would follow settings
    /// that a new leader does not have.
    SettingsOwed,
    /// Fewer replicas than `min-replicas-to-write` were heard within `min-replicas-max-lag`.
    TooFewReplicas,
}

impl WriteRefusal {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [WriteRefusal; 10] = [
        WriteRefusal::Replica,
        WriteRefusal::Deposed,
        WriteRefusal::HandingOver,
        WriteRefusal::Witness,
        WriteRefusal::Removed,
        WriteRefusal::Joining,
        WriteRefusal::NoLeader,
        WriteRefusal::NotCommitted,
        WriteRefusal::SettingsOwed,
        WriteRefusal::TooFewReplicas,
    ];

    /// The whole error text for clients that write.
    pub fn error(self) -> &'static str {
        match self {
            WriteRefusal::Replica => "READONLY You can't write against a read only replica.",
            WriteRefusal::Deposed => {
                "READONLY This server has given up the lead: another server leads, or is being told to. Write to that one, or see replication_fenced_by_epoch in INFO."
            }
            WriteRefusal::HandingOver => {
                "READONLY This server is handing over the lead to a replica (master_failover_state in INFO). Try again, or write to that one."
            }
            WriteRefusal::Witness => {
                "READONLY This server is a witness of its group: it keeps the log and takes no writes. Ask another member."
            }
            WriteRefusal::Removed => {
                "CLUSTERDOWN This server was removed from its group. Ask a member of the group."
            }
            WriteRefusal::Joining => NOT_JOINED,
            WriteRefusal::NoLeader => NO_LEADER,
            WriteRefusal::NotCommitted => COMMITS_NOTHING,
            WriteRefusal::SettingsOwed => {
                "TRYAGAIN The settings that were given to this server are being written to the log. Try again."
            }
            WriteRefusal::TooFewReplicas => "NOREPLICAS Not enough good replicas to write.",
        }
    }
}

/// The role of a server, as ROLE and INFO show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleView {
    /// The server leads, or has given up the lead and follows nobody.
    Leader {
        /// The end of the server's durable log.
        end: Lsn,
        /// The replicas that follow the server.
        replicas: Vec<Replica>,
    },
    /// The server follows another server, is about to lead, or is a member of a group and knows no leader.
    Replica {
        /// The address of the leader; an empty name and port 0 if the server knows none.
        leader: Address,
        /// The state of the link to the leader.
        link: LinkState,
        /// The end of the log that is applied.
        applied: Lsn,
    },
}

/// The condition that WAIT and WAITAOF wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The position of the write that is waited for.
    pub lsn: Lsn,
    /// The number of replicas that must have the position on their disks.
    pub replicas: usize,
    /// Whether this server must have the position on its disk.
    pub local: bool,
    /// Whether the reply also says whether this server has the position on its disk, as the reply of WAITAOF
    /// does.
    pub tells_local: bool,
    /// The longest wait; `None`: unlimited.
    pub timeout_ms: Option<u64>,
}

/// A planned change of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The new leader; `None`: the replica with the most log.
    pub to: Option<Address>,
    /// Whether the replica is promoted after the timeout although it may not have the whole log.
    pub force: bool,
    /// How long writes may be held back; `None`: for a time of the server's choice.
    pub timeout_ms: Option<u64>,
}

/// Whether this server may be read and written now, and why not.
pub trait Availability: Send + Sync {
    /// Whether nothing may be appended to the log here, not even expiries: another server writes it, or may
    /// be about to.
    fn is_read_only(&self) -> bool;

    /// Why clients may not write; `None` if they may.
    fn refuses_writes(&self) -> Option<WriteRefusal>;

    /// Whether the data of this server must not be shown, because it is not known which part of the data is
    /// committed.
    fn is_stale(&self) -> bool;

    /// The whole error text for clients that read; `None` if they may.
    fn refuses_reads(&self) -> Option<&'static str> {
        self.is_stale().then_some(MASTER_DOWN)
    }

    /// Whether replies wait for replicas in vain: fewer are connected than a reply waits for, or they have
    /// not acknowledged within `ack-timeout`.
    fn lacks_acks(&self) -> bool {
        false
    }

    /// Whether the disk has not answered for seconds while a change of this server's role, or of its part in
    /// its group, is written. Writes of the log itself do not count.
    fn awaits_disk(&self) -> bool {
        false
    }

    /// Whether this server belongs to a group, and neither hears its leader nor leads a majority itself.
    fn lacks_majority(&self) -> bool {
        false
    }

    /// Whether this server is a replica that shows nothing: it refuses reads, or has copied nothing yet.
    fn shows_nothing(&self) -> bool {
        false
    }

    /// Whether this server is a replica in a ring of servers that follow each other, so that nobody leads, or
    /// follows a server of such a ring.
    fn is_in_ring(&self) -> bool {
        false
    }

    /// Whether this server belongs to a group, whose votes decide who leads.
    fn is_in_group(&self) -> bool {
        false
    }

    /// Whether a reply that shows data may leave now. A leader of a group whose lease has ended must not
    /// answer, unless old data may be shown: another leader may have been elected.
    fn may_answer(&self) -> bool {
        true
    }

    /// How often this server has led its group, and then gone on as a follower. A reply that was begun before
    /// the last such change may show data that another leader has changed since.
    fn times_stepped_down(&self) -> u64 {
        0
    }

    /// Whether replies that have not left are dropped, because this server has led its group and restarts.
    fn drops_replies(&self) -> bool {
        false
    }
}

/// The replication of this server; see the module documentation.
pub trait Replication: Availability {
    /// The role of this server now.
    fn role(&self) -> RoleView;

    /// Follows `leader` from now on. Answers `responder` once the new role is durable, or with an error.
    fn follow(&self, leader: Address, responder: Responder);

    /// Stops following. Answers `responder` with OK once this server takes writes, or once it restarts to do
    /// so. Otherwise answers with an error, within a bounded time. An order given earlier is carried out
    /// first.
    fn lead(&self, responder: Responder);

    /// Whether a change of the role that a client has ordered is not done yet.
    fn is_changing_role(&self) -> bool {
        false
    }

    /// Begins to hand over to a replica; returns at once. The error is the whole error text.
    ///
    /// # Errors
    /// If a hand-over is not possible.
    fn fail_over(&self, failover: Failover) -> Result<(), String>;

    /// Cancels a hand-over in progress.
    ///
    /// # Errors
    /// The whole error text, if there is no hand-over, or the replica may have been told to lead already.
    fn abort_failover(&self) -> Result<(), String>;

    /// Closes the connections of all replicas that are Sheaf servers; they will reconnect. Returns how many.
    fn disconnect_replicas(&self) -> usize;

    /// The end of the durable log here.
    fn durable_lsn(&self) -> Lsn;

    /// The position up to which clients see the changes in the log; zero while this server shows no data.
    /// Without replication [`Lsn::MAX`]: then clients see all that was appended.
    fn shown_lsn(&self) -> Lsn;

    /// How many replicas have this position on their disks.
    fn count_flushed(&self, lsn: Lsn) -> usize;

    /// Answers `responder` with the number of replicas that have the wanted position, once all that `wanted`
    /// requires holds or the time is over. With `wanted.tells_local`, the answer begins with whether this
    /// server has the position.
    fn wait_flushed(&self, wanted: Wanted, responder: Responder);

    /// Answers `responder` with 1 once this server shows the writes up to `lsn`, or with 0 at the timeout.
    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, responder: Responder);

    /// Ends the wait of a client in [`Replication::wait_flushed`] or [`Replication::wait_applied`], as if its
    /// time were over, or with an error. Returns whether the client waited.
    fn unblock(&self, client: u64, with_error: bool) -> bool;

    /// The newest of the positions in `marks`, sent by a replica, that is part of the log here. The error is
    /// the whole error text.
    ///
    /// # Errors
    /// If the arguments are not positions, or the log is not open yet or cannot be read.
    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String>;
}

/// A server without replication: it takes writes, and has no replicas.
pub struct Standalone;

impl Availability for Standalone {
    fn is_read_only(&self) -> bool {
        false
    }

    fn refuses_writes(&self) -> Option<WriteRefusal> {
        None
    }

    fn is_stale(&self) -> bool {
        false
    }
}

impl Replication for Standalone {
    fn role(&self) -> RoleView {
        RoleView::Leader { end: Lsn::ZERO, replicas: Vec::new() }
    }

    fn follow(&self, _: Address, responder: Responder) {
        responder.keep(Err("ERR this server cannot replicate".into()));
    }

    fn lead(&self, responder: Responder) {
        responder.keep(Ok(()));
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

    fn wait_flushed(&self, wanted: Wanted, responder: Responder) {
        responder.answer(|reply| match wanted.tells_local {
            false => reply.integer(0),
            true => {
                reply.array(2);
                reply.integer(1);
                reply.integer(0);
            }
        });
    }

    fn wait_applied(&self, _: Lsn, _: Option<u64>, responder: Responder) {
        responder.answer(|reply| reply.integer(1));
    }

    fn unblock(&self, _: u64, _: bool) -> bool {
        false
    }

    fn newest_common(&self, _: &[&[u8]]) -> Result<Option<Lsn>, String> {
        Ok(None)
    }
}
