//! The replication of this server: its role, its leader, its replicas, and the commands for them.
//!
//! ```text
//!             recovery::replication_state: replication.json          commands (REPLICAOF, WAIT, ROLE, ...)
//!                   |                                                  |
//! leader's log --> follower --> log here --> keyspace       Node <-----'
//!                                 |                           |
//!                                 '--> leader --> replicas --acks--> commit --> replies (storage), waits
//! ```
//!
//! This module connects the state machines of the crate `replication` with sockets, threads, the log and the
//! keyspace. It makes none of their decisions. It can request an in-process restart, which `serve` carries
//! out.
//!
//! Invariants
//! - A replica appends nothing of its own, from its first record until its promotion.
//! - Before the epoch of a promotion begins, the server has stopped receiving and has applied everything
//!   received; the epoch is on disk before a client may write.
//! - A server never follows itself. It recognises its own addresses when a leader is named, and its own id in
//!   the handshake, however the connection was made.
//! - Outside of a group, a leader that learns of a higher epoch than its own persists that, and stops taking
//!   writes until an operator decides otherwise.
//! - Data that perhaps no leader has committed are not shown. A leader that is fenced, or that begins to
//!   follow, shows nothing until its new leader has committed all its data, or the rest was cut. With
//!   `ack-replicas` or in a group, this also holds for a replica that starts.

mod acks;
mod clocks;
mod failover;
pub(crate) mod figures;
mod follower;
pub(crate) mod full_copy;
pub(crate) mod handle;
mod leader;
pub(crate) mod line;
mod membership;
mod orders;
mod overdue;
mod own_addresses;
mod promoting;
pub(crate) mod redis;
mod reserve;
mod role;
pub(crate) mod stalled;
mod stepping_down;
mod waits;

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use ::membership::Votes;
use access::CommandId;
use engine::{Interests, replication::Address, users::UserSet};
use env::{Clock, Disk, Entropy, RealDisk};
use lsn::Lsn;
use parking_lot::{Mutex, RwLock};
use recovery::{
    group_state::{self, GroupState, Membership, Wanted},
    in_flight::InFlight,
    replication_state::ReplicationState,
};
use replication::{ProcessId, RelayOptions, ReplicaId, Role, Unanswered};
use settings::{Key, Settings};
use storage::{Chains, Log, Mirror};
use tls::ClientFiles;
use tokio::sync::Notify;

use self::{
    clocks::Clocks,
    failover::Running,
    follower::{Following, Threads},
    leader::{Joins, Leader},
    line::Introduction,
    orders::Orders,
    overdue::Overdue,
    own_addresses::OwnAddresses,
    redis::RedisReplicas,
    waits::Waits,
};
pub(crate) use self::{
    follower::{FollowingParts, holds_data},
    leader::ReplicaFigures,
    line::Credentials,
};

use crate::{encryption, traces::Traces, tunnels::Tunnels};

/// The niceness of the threads that copy and load everything from a leader. These threads serve no client
/// yet, while the leader and other processes on the machine do.
pub(crate) const JOINING_NICE: i32 = 10;

/// The reply to REPLICAOF during FAILOVER, as Redis gives it.
const NOT_WHILE_HANDING_OVER: &str = "ERR REPLICAOF not allowed while failing over.";

/// The settings that concern replication.
#[derive(Debug, Clone, Default)]
struct ReplicationSettings {
    ack_replicas: usize,
    ack_timeout_ms: u64,
    replicas_min: usize,
    lag_ms_max: u64,
    flush_bytes: u64,
    credentials: Credentials,
    /// The certificates for other servers.
    files: ClientFiles,
}

/// Waits for the end of the present work of the workers, the long units and the threads of HTTP. The wait for
/// long units ends when the argument returns true. Returns whether all work has ended.
type RoundsEnd = Box<dyn Fn(&dyn Fn() -> bool) -> bool + Send + Sync>;

/// The replication state of this server.
pub(crate) struct Node {
    dir: PathBuf,
    /// Carries connections between servers, if those connections are encrypted.
    tunnels: Option<Arc<Tunnels>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    pub(crate) traces: Arc<Traces>,
    /// Tracks the writes in progress of the files that hold the role and the membership of this server.
    writes: Arc<InFlight>,
    /// `replication.json`: the part of the role that must survive a restart. The lock is held while the role
    /// changes and the file is written. Therefore a thread that serves clients must not wait for it.
    standing: Mutex<ReplicationState>,
    /// The role in force; locked for a moment only.
    role: RwLock<Arc<Role<Address>>>,
    /// The identity of this server towards leaders.
    replica_id: ReplicaId,
    /// The changes of the role that clients have ordered.
    orders: Orders,
    /// Serialises promotions; a second caller sees the result of the first.
    promotion: Mutex<()>,
    /// Held while the acknowledged position is passed to the log, so that an older position never overwrites
    /// a newer one.
    acking: Mutex<()>,
    /// A copy of a part of `role` for frequent readers, as are the next two fields.
    is_read_only: AtomicBool,
    /// Whether this server has given up its leadership; see `role::is_deposed`.
    is_deposed: AtomicBool,
    is_handing_over: AtomicBool,
    /// Whether the start of this incarnation has ended the membership of the directory in a group.
    has_left_group: bool,
    /// Whether settings given at the start are not in the log yet.
    owes_settings: AtomicBool,
    /// Whether fewer replicas are connected than `ack-replicas`.
    lacks_acks: AtomicBool,
    /// Whether replies have waited for replicas longer than `ack-timeout`, and still wait.
    acks_overdue: AtomicBool,
    unconfirmed: AtomicU64,
    lacks_replicas: AtomicBool,
    /// The votes of the group; `None` without a group.
    votes: Option<Arc<Votes>>,
    knows_leader: AtomicBool,
    /// The setting `stale-reads`.
    stale_reads: AtomicBool,
    /// The leader of the group: its link, as the votes know it, and its address.
    named: Mutex<Option<(Option<consensus::Link>, Address)>>,
    /// Whether this leader refuses writes, because no majority takes its log.
    lacks_commits: AtomicBool,
    /// Whether this server has led its group, and has not stepped down since.
    has_led: AtomicBool,
    overdue: Mutex<Overdue>,
    /// The number of replies that were errors because replicas had not acknowledged in time.
    ack_timeouts: AtomicU64,
    /// Whether the next reply that is such an error causes a line in the server's log.
    logs_ack_timeouts: AtomicBool,
    options: RwLock<ReplicationSettings>,
    log: OnceLock<Log>,
    own: OnceLock<OwnAddresses>,
    leader: Leader,
    /// The replicas that are Redis servers.
    pub(crate) redis: RedisReplicas,
    following: Mutex<Option<(Arc<Following>, Option<Threads>)>>,
    /// The parts that following needs; `None` for a server that has not followed in this incarnation, and for
    /// one that has stopped.
    following_parts: Mutex<Option<Arc<FollowingParts>>>,
    /// The mirror of the log from before the promotion, kept while this server leads its group, because it
    /// may follow again.
    mirror: Mutex<Option<Mirror>>,
    times_stepped_down: AtomicU64,
    clocks: Clocks,
    waits: Waits,
    /// Whether a thread is making the reserve of the disk.
    is_reserving: AtomicBool,
    /// The clients that wait for keys.
    interests: OnceLock<Arc<Interests>>,
    /// The FAILOVER in progress; none once it has ended or was given up. Locked for a moment only, after
    /// `standing`.
    handover: Mutex<Option<Arc<Running>>>,
    /// The replica that was told to lead and has not answered.
    unanswered: Mutex<Option<Unanswered>>,
    /// The id of the process in which this server runs.
    process: ProcessId,
    runtime: OnceLock<tokio::runtime::Handle>,
    rounds_end: OnceLock<RoundsEnd>,
    /// Closes the connections of all clients.
    hangs_up: OnceLock<Box<dyn Fn() + Send + Sync>>,
    before_leading: OnceLock<Box<dyn Fn() + Send + Sync>>,
    restart: Notify,
    is_restarting: AtomicBool,
    /// The position at which the log diverged from the leader's log. The next in-process restart cuts the log
    /// there.
    diverged_at: Mutex<Option<Lsn>>,
    /// Whether the log of this replica is of no use, so that a full sync is needed.
    copies_anew: AtomicBool,
    /// The present or the last copy: bytes done and total.
    copied: (AtomicU64, AtomicU64),
}

impl Node {
    /// Loads `replication.json` from the directory.
    ///
    /// # Errors
    /// I/O errors; a damaged file; settings about replication and the group that do not go together.
    pub(crate) fn open(
        settings: &Settings,
        dir: &Path,
        (process, traces): (ProcessId, Arc<Traces>),
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> io::Result<Node> {
        let mut standing = ReplicationState::load(&RealDisk, dir, settings.text(Key::ReplicaOf), &*entropy)?;
        let was_member = standing.is_member();
        let member = membership(settings, dir, &mut standing, &*entropy)?;
        let has_left_group = was_member && member.is_none();
        if member.is_some() && !matches!(settings.text(Key::ReplicaOf), "" | "none") {
            let text = "replica-of and group exclude each other: the votes of the group decide whom its members follow";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let role = match &member {
            Some(_) => Role::start_member(standing.remembered()),
            None => Role::start(standing.remembered(), settings.integer(Key::AckReplicas) > 0),
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let writes = Arc::new(InFlight::new(clock.clone()));
        let votes = member
            .map(|member| Votes::new(member, dir.to_path_buf(), disk, clock.clone(), writes.clone()))
            .map(Arc::new);
        let tunnels = match settings.switch(Key::TlsReplication) {
            true => Some(Arc::new(Tunnels::start()?)),
            false => None,
        };
        let node = Node {
            dir: dir.to_path_buf(),
            tunnels,
            clock,
            entropy,
            traces,
            writes,
            replica_id: standing.replica_id(),
            standing: Mutex::new(standing),
            is_read_only: role.is_read_only().into(),
            is_deposed: role::is_deposed(&role).into(),
            is_handing_over: role.is_handing_over().into(),
            has_left_group,
            owes_settings: false.into(),
            lacks_acks: false.into(),
            acks_overdue: false.into(),
            unconfirmed: role.unconfirmed().get().into(),
            role: RwLock::new(Arc::new(role)),
            orders: Orders::default(),
            promotion: Mutex::new(()),
            acking: Mutex::new(()),
            lacks_replicas: false.into(),
            votes,
            knows_leader: false.into(),
            stale_reads: false.into(),
            named: Mutex::default(),
            lacks_commits: false.into(),
            has_led: false.into(),
            overdue: Mutex::default(),
            ack_timeouts: 0.into(),
            logs_ack_timeouts: true.into(),
            options: RwLock::default(),
            log: OnceLock::new(),
            own: OnceLock::new(),
            leader: Leader::new(0, 0),
            redis: RedisReplicas::default(),
            following: Mutex::new(None),
            following_parts: Mutex::default(),
            mirror: Mutex::default(),
            times_stepped_down: 0.into(),
            clocks: Clocks::default(),
            waits: Waits::default(),
            is_reserving: false.into(),
            interests: OnceLock::new(),
            handover: Mutex::new(None),
            unanswered: Mutex::new(None),
            process,
            runtime: OnceLock::new(),
            rounds_end: OnceLock::new(),
            hangs_up: OnceLock::new(),
            before_leading: OnceLock::new(),
            restart: Notify::new(),
            is_restarting: false.into(),
            diverged_at: Mutex::default(),
            copies_anew: false.into(),
            copied: Default::default(),
        };
        node.configure(settings);
        Ok(node)
    }

    pub(crate) fn configure(&self, settings: &Settings) {
        *self.options.write() = ReplicationSettings {
            ack_replicas: settings.integer(Key::AckReplicas) as usize,
            ack_timeout_ms: settings.integer(Key::AckTimeout) * 1000,
            replicas_min: settings.integer(Key::MinReplicasToWrite) as usize,
            lag_ms_max: settings.integer(Key::MinReplicasMaxLag) * 1000,
            flush_bytes: settings.integer(Key::RelayFlushSize),
            credentials: Credentials::of(settings),
            files: encryption::files_for_servers(settings),
        };
        self.stale_reads.store(settings.switch(Key::StaleReads), SeqCst);
        let retained_bytes_max = settings.integer(Key::ReplicaRetentionBytes);
        let away_ms_max = settings.integer(Key::ReplicaRetentionSeconds) * 1000;
        self.leader.set_limits(retained_bytes_max, away_ms_max);
        self.redis.set_limits(retained_bytes_max, away_ms_max);
        self.redis.set_ping_ms(settings.integer(Key::ReplPingReplicaPeriod) * 1000);
        if let Some(log) = self.log.get().filter(|log| !log.is_mirror()) {
            self.count_acks(log);
        }
        self.look_for_replicas();
    }

    /// The position at which a snapshot of a replica may begin: the end of the applied log, which may lag
    /// behind the log. `None` for a leader.
    pub(crate) fn snapshot_begin(&self) -> Result<Option<Lsn>, storage::Error> {
        let (Some(following), Some(log)) = (self.following(), self.log()) else { return Ok(None) };
        let needed_from = following.needed_from();
        // A batch is applied record by record. If the position is inside a batch, the snapshot begins at the
        // start of that batch.
        Ok(Some(match log.batch_at(needed_from)? {
            Some(batch) if batch.end > needed_from => batch.start,
            _ => needed_from,
        }))
    }

    /// The position up to which the log is in memory, or is being applied.
    pub(crate) fn applied(&self, log: &Log) -> Lsn {
        self.following().map_or_else(|| log.appended_lsn(), |following| following.applied())
    }

    /// The position up to which the log is known to be committed. Log after this position may be cut,
    /// although it is durable here, because no leader has confirmed it yet.
    pub(crate) fn committed(&self, log: &Log) -> Lsn {
        if self.is_stale() { self.commit_lsn() } else { log.committed_lsn() }
    }

    /// Stores the addresses on which this server listens.
    ///
    /// # Errors
    /// If the configured leader is one of them.
    pub(crate) fn set_addresses(&self, redis: &[SocketAddr], http_port: u16) -> io::Result<()> {
        let own = OwnAddresses { redis: redis.to_vec(), http_port };
        let own = self.own.get_or_init(|| own);
        match self.leader_address() {
            Some(leader) if own.include(&leader) => {
                let text = format!("replica-of: {leader} is this server itself");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            _ => Ok(()),
        }
    }

    /// Whether a connection to this address reaches this server.
    pub(crate) fn is_reached_at(&self, address: &Address) -> bool {
        self.own.get().is_some_and(|own| own.include(address))
    }

    /// Whether this server takes no writes because of its role: it does not lead, or it hands its leadership
    /// over.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.is_read_only.load(SeqCst)
    }

    /// Notes whether settings that belong to the data were given and are not recorded yet. While there are
    /// such settings, no write is taken.
    pub(crate) fn owe_settings(&self, owes: bool) {
        self.owes_settings.store(owes, SeqCst);
    }

    /// Passes in the clients that wait for keys, so that a demotion can end their waits.
    pub(crate) fn set_interests(&self, interests: Arc<Interests>) {
        let _ = self.interests.set(interests);
    }

    /// Sets the action to run in a promotion, after everything received was applied and before this server
    /// leads.
    pub(crate) fn before_leading(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.before_leading.set(Box::new(act));
    }

    /// Passes in the recovered log, before any command was executed on it. `rounds_end` waits until every
    /// worker has ended its current round; see [`RoundsEnd`]. `hangs_up` closes the connections of clients.
    pub(crate) fn attach(
        &self,
        log: Log,
        rounds_end: impl Fn(&dyn Fn() -> bool) -> bool + Send + Sync + 'static,
        hangs_up: impl Fn() + Send + Sync + 'static,
    ) {
        let _ = (self.rounds_end.set(Box::new(rounds_end)), self.hangs_up.set(Box::new(hangs_up)));
        if log.is_mirror() {
            let awaits_acks = self.options.read().ack_replicas > 0 || self.votes.is_some();
            // After a divergence the log has been cut by now.
            self.change_role_here(|role| role.recovered(log.appended_lsn(), awaits_acks));
            if self.is_stale() && !self.is_witness() {
                let up_to = self.unconfirmed();
                tracing::info!(target: "replication", up_to = up_to.get(), "data is shown once the leader has committed all of the log here");
            }
        } else {
            self.begin_to_count_acks(&log);
        }
        let _ = self.log.set(log);
        let _ = self.runtime.set(tokio::runtime::Handle::current());
    }

    /// Starts the threads that follow the leader, after recovery.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub(crate) fn start_following(
        self: &Arc<Self>,
        parts: FollowingParts,
        mirror: Mirror,
        chains: Chains,
    ) -> io::Result<()> {
        let parts = Arc::new(parts);
        *self.following_parts.lock() = Some(parts.clone());
        *self.following.lock() = Some(parts.begin(self, mirror, chains)?);
        Ok(())
    }

    pub(crate) fn following(&self) -> Option<Arc<Following>> {
        self.following.lock().as_ref().map(|(following, _)| following.clone())
    }

    /// Stops all replication, before the log is closed. Blocks.
    pub(crate) fn stop(&self) {
        self.is_restarting.store(true, SeqCst);
        self.leader.stop();
        self.redis.stop();
        // The parts hold this node; they are dropped, so that the node can be freed.
        *self.following_parts.lock() = None;
        let Some((following, threads)) = self.following.lock().take() else { return };
        following.stop();
        if let Some(log) = self.log() {
            log.wake_cursors();
        }
        if let Some(Threads { link, apply }) = threads {
            let _ = (link.join().map(drop), apply.join());
        }
    }

    /// Completes when an in-process restart is requested.
    pub(crate) async fn restart_requested(&self) {
        self.restart.notified().await;
    }

    pub(crate) fn request_restart(&self) {
        self.is_restarting.store(true, SeqCst);
        self.restart.notify_one();
    }

    pub(crate) fn is_restarting(&self) -> bool {
        self.is_restarting.load(SeqCst)
    }

    /// The position at which the next incarnation must cut the log before it opens the log; `None` if no cut
    /// is needed.
    pub(crate) fn diverged_at(&self) -> Option<Lsn> {
        *self.diverged_at.lock()
    }

    fn ask_for_cut(&self, at: Lsn) {
        *self.diverged_at.lock() = Some(at);
    }

    /// Notes that the log of this replica is of no use: everything must be copied from the leader.
    pub(crate) fn copy_anew(&self) {
        self.copies_anew.store(true, SeqCst);
    }

    /// The periodic work, once a second.
    pub(crate) fn tick(self: &Arc<Self>) {
        self.orders.answer_overdue(self.now_ms());
        if let Some(log) = self.log() {
            self.leader.keep_log(log, self.now_ms());
        }
        self.redis.forget_left(self.now_ms());
        self.keep_reserve_of_pair();
        self.look_for_replicas();
        self.settle_waits();
    }

    /// Serves a replica on the connection of a client that sent REPLICATE.
    pub(crate) fn serve_replica(
        self: &Arc<Self>,
        socket: TcpStream,
        from: IpAddr,
        words: &[Vec<u8>],
        user: Vec<u8>,
    ) {
        leader::serve(self, (socket, from), words, user);
    }

    /// Disconnects replicas whose user may not replicate any more. Members of a group stay connected: without
    /// them, no majority could take the record that gives the right back.
    pub(crate) fn review_replicas(&self, users: &UserSet, [replicate, psync]: [CommandId; 2]) {
        let may = |user: &[u8], command| users.get(user).is_some_and(|user| user.rights.allow(command));
        if self.votes().is_none() {
            self.leader.review(|user| may(user, replicate));
        }
        self.redis.review(|user| may(user, psync));
    }

    /// How often replicas have joined.
    pub(crate) fn joins(&self) -> &Joins {
        &self.leader.joins
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The monotonic clock in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.monotonic_us() / 1000
    }

    fn random_u64(&self) -> u64 {
        self.entropy.random_u64()
    }

    fn redis_port(&self) -> u16 {
        self.own.get().map_or(0, OwnAddresses::redis_port)
    }

    fn http_port(&self) -> u16 {
        self.own.get().map_or(0, |own| own.http_port)
    }

    fn peer_host(&self, ip: IpAddr) -> String {
        leader::shown_host(ip)
    }

    fn copies_anew(&self) -> bool {
        self.copies_anew.load(SeqCst)
    }

    /// How this server introduces itself to others.
    pub(crate) fn introduction(&self) -> Introduction {
        let options = self.options.read();
        let tls = self.tunnels.clone().map(|tunnels| (tunnels, options.files.clone()));
        Introduction { credentials: options.credentials.clone(), tls }
    }

    /// Logs, once in a while, that a connection of another server was refused.
    pub(crate) fn note_refused(&self, peer: SocketAddr, reason: &str) {
        let host = leader::shown_host(peer.ip());
        if let Some(unlogged) = self.leader.news(self, &host, reason) {
            tracing::warn!(target: "replication", peer = host, reason, unlogged, "refused the connection of a server");
        }
    }

    /// Returns the plain end of the connection of another server. `session` is given if that connection is
    /// encrypted.
    ///
    /// # Errors
    /// The reason in words: the connection is encrypted and servers talk without TLS here, or the other way
    /// round; or the OS refuses the plain end.
    pub(crate) fn plain_end(
        &self,
        socket: TcpStream,
        session: Option<Box<tls::Session>>,
    ) -> Result<TcpStream, String> {
        match (session, &self.tunnels) {
            (None, None) => Ok(socket),
            (Some(session), Some(tunnels)) => {
                tunnels.carry(socket, session).map_err(|error| error.to_string())
            }
            (None, Some(_)) => {
                let _ =
                    (&socket).write(b"-ERR servers talk to this one over TLS alone (tls-replication)\r\n");
                Err("it does not come over TLS, as tls-replication wants".into())
            }
            (Some(mut session), None) => {
                let line =
                    b"-ERR replicas and servers connect to this one without TLS (tls-replication is off)\r\n";
                session.dismiss(&mut &socket, line);
                Err("it comes over TLS, and tls-replication is off here".into())
            }
        }
    }

    fn relay_options(&self) -> RelayOptions {
        leader::relay_options(self.options.read().flush_bytes)
    }

    /// The parts of a [`replication::join::Claim`] besides the log: the highest epoch followed, and the id of
    /// this replica.
    fn claim(&self) -> (u32, ReplicaId) {
        (self.role().remembered().seen_epoch, self.replica_id)
    }

    /// Whether a replica with this id is this server itself.
    fn is_itself(&self, id: ReplicaId) -> bool {
        // A leader follows no server. If a leader gets its own id, a replica was made by copying its
        // directory.
        self.is_replica() && self.replica_id == id
    }

    fn note_copied(&self, done: u64, total: u64) {
        self.copied.0.store(done, SeqCst);
        self.copied.1.store(total, SeqCst);
    }

    fn copied_bytes(&self) -> u64 {
        self.copied.0.load(SeqCst)
    }

    /// Waits until all rounds and long units in progress have ended. The wait for long units ends when
    /// `gives_up` returns true. Returns whether all have ended.
    pub(crate) fn wait_for_rounds(&self, gives_up: &dyn Fn() -> bool) -> bool {
        self.rounds_end.get().is_none_or(|rounds_end| rounds_end(gives_up))
    }
}

/// The membership of the directory in a group. If the settings end the membership, this server follows nobody
/// any more, unless the settings name a leader.
fn membership(
    settings: &Settings,
    dir: &Path,
    standing: &mut ReplicationState,
    entropy: &dyn Entropy,
) -> io::Result<Option<GroupState>> {
    let wanted = Wanted {
        group: settings.text(Key::Group),
        join: settings.text(Key::Join),
        is_witness: settings.switch(Key::Witness),
        durability: settings.text(Key::Durability),
    };
    group_state::refuse_lost(&RealDisk, dir, wanted.group, standing)?;
    match GroupState::load(&RealDisk, dir, wanted, entropy)? {
        Membership::None if !standing.is_member() => Ok(None),
        Membership::Of(member) => {
            if member.founded && !wanted.join.is_empty() && member.voters.len() <= 1 {
                tracing::warn!(
                    target: "group", join = wanted.join,
                    "join has no effect: this directory founded a group '{}' of its own. To join the other one, start the server on \
                     an empty directory", member.name
                );
            }
            if member.has_joined() && !standing.is_member() {
                standing.set_member(true);
                standing.store(&RealDisk, dir)?;
            }
            Ok(Some(*member))
        }
        Membership::None | Membership::Leaves => {
            if matches!(settings.text(Key::ReplicaOf), "" | "none") {
                let mut remembered = standing.remembered();
                remembered.set_leader(None);
                standing.remember(&remembered);
            }
            // The order matters: after a crash between these steps, the server starts as a member, whose
            // leader the votes choose.
            standing.set_member(false);
            standing.store(&RealDisk, dir)?;
            group_state::leave(&RealDisk, dir)?;
            tracing::warn!(
                target: "server",
                "this server has left its group (--group none) and has nothing to do with it any more. If the group still lists it, remove it \
                 there: GROUP REMOVE"
            );
            Ok(None)
        }
    }
}

impl Node {
    fn durable_lsn(&self) -> Lsn {
        self.log().map_or(Lsn::ZERO, Log::durable_lsn)
    }

    fn shown_lsn(&self) -> Lsn {
        match self.following() {
            _ if self.is_stale() => Lsn::ZERO,
            Some(following) => following.applied(),
            None => self.log().map_or(Lsn::ZERO, Log::appended_lsn),
        }
    }

    fn count_flushed(&self, lsn: Lsn) -> usize {
        self.leader.count_flushed(lsn)
    }
}
