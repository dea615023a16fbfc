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
//! - A server never follows itself: it recognises its own addresses when a leader is named, and its own id in
//!   the handshake, however the connection was made.
//! - A server that learns of a higher epoch than its own takes no writes any more, and persists that, until
//!   an operator decides otherwise.
//! - Data that no leader may ever have committed are not shown: a leader that begins to follow, or is fenced,
//!   and with `ack-replicas` a replica that starts, show nothing until the leader has committed all their
//!   data, or the rest was cut.

mod failover;
mod figures;
mod follower;
pub(crate) mod full_copy;
mod leader;
mod line;
mod overdue;
mod own_addresses;
mod waits;

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use engine::{
    ReplayObservers, Responder,
    replication::{
        Address, Failover, Followed, Link, READ_ONLY, Replication, Role, TOO_FEW_REPLICAS, Wanted,
    },
};
use env::{Clock, Disk, Entropy, RealDisk};
use lsn::Lsn;
use parking_lot::{Mutex, RwLock};
use recovery::{replay::Replayer, replication_state::ReplicationState};
use replication::{
    Confirmed, Follow, Led, LogHistory, Promotion, RelayOptions, ReplicaId, Role as NodeRole, join, promote,
};
use settings::{Key, Settings};
use storage::{Log, Mirror};
use tokio::sync::Notify;

use self::{
    failover::Handover,
    follower::{ApplyParts, Following, LinkParts, Threads},
    leader::Leader,
    overdue::Overdue,
    own_addresses::OwnAddresses,
    waits::{Awaited, Found, Waits},
};
pub(crate) use self::{figures::Figures, leader::ReplicaFigures};
use crate::{host::ServerHost, log_threads::LogThreads, reaper::Reaper};

/// The niceness of the threads that copy and load everything from a leader. They serve no client yet, while
/// the leader and other processes on the machine do.
pub(crate) const JOINING_NICE: i32 = 10;

/// The settings that concern replication.
#[derive(Debug, Clone, Default)]
struct Options {
    ack_replicas: usize,
    ack_timeout_ms: u64,
    replicas_min: usize,
    lag_ms_max: u64,
    flush_bytes: u64,
    password: String,
}

/// Waits until every worker and every long unit has ended its current round, or until the argument returns
/// true. Returns whether all have ended.
type RoundsEnd = Box<dyn Fn(&dyn Fn() -> bool) -> bool + Send + Sync>;

/// The replication state of this server.
pub(crate) struct Node {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    /// `replication.json`: the part of the role that must survive a restart.
    standing: Mutex<ReplicationState>,
    role: Mutex<NodeRole<Address>>,
    /// Serialises promotions; a second caller sees the result of the first.
    promotion: Mutex<()>,
    /// Held while the acknowledged position is passed to the log, so that an older position never overwrites
    /// a newer one.
    acking: Mutex<()>,
    /// Copies of parts of `role`, for frequent readers.
    is_read_only: AtomicBool,
    unconfirmed: AtomicU64,
    lacks_replicas: AtomicBool,
    overdue: Mutex<Overdue>,
    options: RwLock<Options>,
    log: OnceLock<Log>,
    own: OnceLock<OwnAddresses>,
    leader: Leader,
    following: Mutex<Option<(Arc<Following>, Option<Threads>)>>,
    waits: Waits,
    handover: Mutex<Option<Arc<Handover>>>,
    runtime: OnceLock<tokio::runtime::Handle>,
    rounds_end: OnceLock<RoundsEnd>,
    before_leading: OnceLock<Box<dyn Fn() + Send + Sync>>,
    restart: Notify,
    is_restarting: AtomicBool,
    /// Where the log diverged from the leader's: it is cut there at the next in-process restart.
    diverged_at: Mutex<Option<Lsn>>,
    /// The log here has nothing in common with the leader's: a full sync is needed.
    copies_anew: AtomicBool,
    /// The copy in progress: bytes done and total.
    copied: (AtomicU64, AtomicU64),
}

impl Node {
    /// Loads `replication.json` from the directory.
    ///
    /// # Errors
    /// I/O errors; a damaged file.
    pub(crate) fn open(
        settings: &Settings,
        dir: &Path,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy + Send + Sync>,
    ) -> io::Result<Node> {
        let standing = ReplicationState::load(&RealDisk, dir, settings.text(Key::ReplicaOf), &*entropy)?;
        let role = NodeRole::start(standing.remembered(), settings.integer(Key::AckReplicas) > 0);
        let node = Node {
            dir: dir.to_path_buf(),
            clock,
            entropy,
            standing: Mutex::new(standing),
            is_read_only: role.is_read_only().into(),
            unconfirmed: role.unconfirmed().get().into(),
            role: Mutex::new(role),
            promotion: Mutex::new(()),
            acking: Mutex::new(()),
            lacks_replicas: false.into(),
            overdue: Mutex::default(),
            options: RwLock::default(),
            log: OnceLock::new(),
            own: OnceLock::new(),
            leader: Leader::new(0, 0),
            following: Mutex::new(None),
            waits: Waits::default(),
            handover: Mutex::new(None),
            runtime: OnceLock::new(),
            rounds_end: OnceLock::new(),
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
        *self.options.write() = Options {
            ack_replicas: settings.integer(Key::AckReplicas) as usize,
            ack_timeout_ms: settings.integer(Key::AckTimeout) * 1000,
            replicas_min: settings.integer(Key::MinReplicasToWrite) as usize,
            lag_ms_max: settings.integer(Key::MinReplicasMaxLag) * 1000,
            flush_bytes: settings.integer(Key::RelayFlushSize),
            password: settings.text(Key::Masterauth).into(),
        };
        let retained_bytes_max = settings.integer(Key::ReplicaRetentionBytes);
        self.leader.set_limits(retained_bytes_max, settings.integer(Key::ReplicaRetentionSeconds) * 1000);
        if let Some(log) = self.log.get().filter(|log| !log.is_mirror()) {
            self.ask_for_acks(log, !log.awaits_acks());
        }
        self.look_for_replicas();
    }

    /// Where a snapshot of a replica may begin: the end of the applied log, which may lag behind the log.
    /// `None` for a leader.
    pub(crate) fn snapshot_begin(&self) -> Result<Option<Lsn>, storage::Error> {
        let (Some(following), Some(log)) = (self.following(), self.log()) else { return Ok(None) };
        let needed_from = following.needed_from();
        // A batch is applied record by record: inside a batch, the snapshot begins at its start.
        Ok(Some(match log.batch_at(needed_from)? {
            Some(batch) if batch.end > needed_from => batch.start,
            _ => needed_from,
        }))
    }

    /// The position up to which the log is in memory, or is being applied.
    pub(crate) fn applied(&self, log: &Log) -> Lsn {
        self.following().map_or_else(|| log.appended_lsn(), |following| following.applied())
    }

    /// Whether this incarnation runs as a replica.
    pub(crate) fn is_replica(&self) -> bool {
        self.role.lock().leader().is_some()
    }

    /// Changes the role; persists it if the second value that `change` returns is true.
    fn change_role<T>(
        &self,
        change: impl FnOnce(&mut NodeRole<Address>) -> (T, bool),
    ) -> (T, Result<(), String>) {
        let mut role = self.role.lock();
        let (outcome, is_news) = change(&mut role);
        self.is_read_only.store(role.is_read_only(), SeqCst);
        self.unconfirmed.store(role.unconfirmed().get(), SeqCst);
        let remembered = if is_news { self.remember(&role) } else { Ok(()) };
        (outcome, remembered)
    }

    fn set_read_only(&self, is_read_only: bool) {
        let _ = self.change_role(|role| (role.set_read_only(is_read_only), false));
    }

    fn unconfirmed(&self) -> Lsn {
        Lsn::new(self.unconfirmed.load(SeqCst))
    }

    fn is_stale(&self) -> bool {
        self.unconfirmed() > Lsn::ZERO
    }

    /// Processes the commit position of the leader. Returns whether all data may be shown.
    fn confirm(&self, committed: Lsn) -> Result<bool, String> {
        let (confirmed, remembered) = self.change_role(|role| role.confirm(committed));
        if confirmed == Confirmed::Now {
            tracing::info!(target: "replication", %committed, "the leader has committed all of the log here: its data is shown");
            self.settle_waits();
        }
        remembered.map(|()| confirmed != Confirmed::NotYet)
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

    /// Whether changes are refused because another server decides about the data.
    pub(crate) fn refuses_changes(&self) -> bool {
        self.is_read_only.load(SeqCst)
    }

    /// Sets the action to run in a promotion, after everything received was applied and before this server
    /// leads.
    pub(crate) fn before_leading(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.before_leading.set(Box::new(act));
    }

    /// Passes in the recovered log, before any command was executed on it. `rounds_end` waits until every
    /// worker has ended its current round; see [`RoundsEnd`].
    pub(crate) fn attach(
        &self,
        log: Log,
        rounds_end: impl Fn(&dyn Fn() -> bool) -> bool + Send + Sync + 'static,
    ) {
        let _ = self.rounds_end.set(Box::new(rounds_end));
        if log.is_mirror() {
            let awaits_acks = self.options.read().ack_replicas > 0;
            // After a divergence the log has been cut by now.
            let _ = self.change_role(|role| (role.recovered(log.appended_lsn(), awaits_acks), false));
            if self.is_stale() {
                let up_to = self.unconfirmed();
                tracing::info!(target: "replication", %up_to, "data is shown once the leader has committed all of the log here");
            }
        } else {
            self.ask_for_acks(&log, true);
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
        host: &Arc<ServerHost>,
        (log, threads): (&Log, &LogThreads),
        mirror: Mirror,
        replayer: Replayer,
        reaper: Reaper,
    ) -> io::Result<()> {
        let following = Arc::new(Following::new(replayer.applied(), self.now_ms()));
        let link = LinkParts {
            node: self.clone(),
            following: following.clone(),
            log: log.clone(),
            threads: threads.clone(),
            mirror,
        };
        let apply = ApplyParts {
            host: host.clone(),
            following: following.clone(),
            log: log.clone(),
            replayer,
            reaper,
            replay_observers: ReplayObservers::new(host.interests().clone()),
        };
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let apply = named("replica-apply").spawn(move || apply.run())?;
        let link = named("replica-link").spawn(move || link.run())?;
        *self.following.lock() = Some((following, Some(Threads { link, apply })));
        Ok(())
    }

    pub(crate) fn following(&self) -> Option<Arc<Following>> {
        self.following.lock().as_ref().map(|(following, _)| following.clone())
    }

    /// Stops all replication, before the log is closed. Blocks.
    pub(crate) fn stop(&self) {
        self.is_restarting.store(true, SeqCst);
        self.leader.stop();
        let Some((following, threads)) = self.following.lock().take() else { return };
        following.stop();
        if let Some(log) = self.log() {
            log.wake_followers();
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

    /// Where the log has to be cut before the restart; `None` if it need not be.
    pub(crate) fn diverged_at(&self) -> Option<Lsn> {
        *self.diverged_at.lock()
    }

    fn ask_for_cut(&self, at: Lsn) {
        *self.diverged_at.lock() = Some(at);
    }

    /// Discards the log of this replica: everything must be copied from the leader.
    pub(crate) fn copy_anew(&self) {
        self.copies_anew.store(true, SeqCst);
    }

    /// The periodic work, once a second.
    pub(crate) fn tick(&self) {
        if let Some(log) = self.log() {
            self.leader.keep_log(log, self.now_ms());
        }
        self.look_for_replicas();
        self.settle_waits();
    }

    /// The position up to which replies have waited for replicas longer than allowed. To be called once a
    /// second.
    pub(crate) fn overdue(&self) -> Option<Lsn> {
        let timeout_ms = self.ack_timeout_ms()?;
        let log = self.log()?;
        // Bytes that are not on this disk yet are not waiting for replicas.
        self.overdue.lock().look(self.now_ms(), log.shippable_lsn(), log.committed_lsn(), timeout_ms)
    }

    /// How long a reply waits for replicas; `None` if it does not, or if it waits without a limit.
    pub(crate) fn ack_timeout_ms(&self) -> Option<u64> {
        let asks = self.following().is_none() && self.log().is_some_and(Log::awaits_acks);
        let timeout_ms = self.options.read().ack_timeout_ms;
        (asks && timeout_ms > 0).then_some(timeout_ms)
    }

    /// Serves a replica on the connection of a client that sent REPLICATE.
    pub(crate) fn serve_replica(self: &Arc<Self>, socket: TcpStream, words: &[Vec<u8>]) {
        leader::serve(self, socket, words);
    }

    fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    fn dir(&self) -> &Path {
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

    fn leader_address(&self) -> Option<Address> {
        self.role.lock().leader().cloned()
    }

    fn master_password(&self) -> String {
        self.options.read().password.clone()
    }

    fn relay_options(&self) -> RelayOptions {
        leader::relay_options(self.options.read().flush_bytes)
    }

    /// The parts of a [`join::Claim`] besides the log: the highest epoch followed, and the id of this
    /// replica.
    fn claim(&self) -> (u32, ReplicaId) {
        let seen_epoch = self.role.lock().remembered().seen_epoch;
        (seen_epoch, self.standing.lock().replica_id())
    }

    /// Whether a replica with this id is this server itself.
    fn is_itself(&self, id: ReplicaId) -> bool {
        // A leader follows nobody: the same id then comes from a replica made by copying the leader's
        // directory.
        self.is_replica() && self.standing.lock().replica_id() == id
    }

    /// Persists an epoch before anything in it is acknowledged.
    fn saw_epoch(&self, log: &Log, epoch: u32) -> Result<(), String> {
        log.note_epoch(epoch).map_err(|error| error.to_string())?;
        self.change_role(|role| ((), role.saw_epoch(epoch))).1
    }

    fn remember(&self, role: &NodeRole<Address>) -> Result<(), String> {
        let mut standing = self.standing.lock();
        standing.remember(role.remembered());
        standing
            .store(&RealDisk, &self.dir)
            .map_err(|error| format!("cannot write replication.json: {error}"))
    }

    fn note_copied(&self, done: u64, total: u64) {
        self.copied.0.store(done, SeqCst);
        self.copied.1.store(total, SeqCst);
    }

    fn copied_bytes(&self) -> u64 {
        self.copied.0.load(SeqCst)
    }

    /// The commit position that this server sends to its replicas.
    fn commit_lsn(&self) -> Lsn {
        let Some(log) = self.log() else { return Lsn::ZERO };
        match self.following() {
            Some(following) => following.committed().min(log.shippable_lsn()),
            None => self.leader.commit(log.shippable_lsn(), self.options.read().ack_replicas),
        }
    }

    /// Re-evaluates commit and waits after replicas have connected, disconnected or acknowledged. On a
    /// replica, only its leader advances the commit position.
    fn acked(&self) {
        let acking = self.acking.lock();
        if let Some(log) = self.log()
            && self.following().is_none()
            && log.awaits_acks()
        {
            log.set_acked(self.commit_lsn());
        }
        drop(acking);
        self.look_for_replicas();
        self.settle_waits();
    }

    /// Makes replies of a leader wait for `ack-replicas` replicas. `begins`: the waiting starts, with a new
    /// epoch.
    fn ask_for_acks(&self, log: &Log, begins: bool) {
        let _acking = self.acking.lock();
        let count = self.options.read().ack_replicas;
        if count == 0 {
            return log.set_acked(Lsn::MAX);
        }
        if begins {
            // Nothing is committed until replicas have acknowledged.
            log.set_acked(Lsn::ZERO);
            match log.mark_epoch() {
                Ok(floor) => self.leader.begin_at(floor),
                // The log is poisoned; the server stops.
                Err(error) => tracing::error!(target: "replication", %error, "cannot begin an epoch"),
            }
        }
        log.set_acked(self.leader.commit(log.shippable_lsn(), count));
    }

    fn look_for_replicas(&self) {
        let (min, lag_ms_max) = {
            let options = self.options.read();
            (options.replicas_min, options.lag_ms_max)
        };
        let lacks = min > 0 && self.leader.count_heard(self.now_ms(), lag_ms_max) < min;
        self.lacks_replicas.store(lacks, SeqCst);
    }

    /// Fences this server: another leads in a higher epoch, so nothing more is written here.
    fn fence(&self, epoch: u32) {
        if self.is_restarting() {
            return;
        }
        let (led, remembered) = self.change_role(|role| {
            let led = role.fence(epoch);
            (led, led)
        });
        if !led {
            return;
        }
        tracing::error!(
            target: "replication", epoch,
            "another server leads in a higher epoch: this one refuses writes and reads from now on. Have it follow the \
             other (REPLICAOF host port), or lead after all (REPLICAOF NO ONE)"
        );
        if let Err(error) = remembered {
            tracing::error!(target: "replication", error, "a restart will have forgotten that");
        }
    }

    /// Waits until all rounds in progress have ended, or `gives_up` returns true. Returns whether they have
    /// ended.
    fn wait_for_rounds(&self, gives_up: &dyn Fn() -> bool) -> bool {
        self.rounds_end.get().is_none_or(|rounds_end| rounds_end(gives_up))
    }

    /// Answers the clients whose position has been reached.
    pub(crate) fn settle_waits(&self) {
        if !self.waits.is_empty() {
            self.waits.settle(|awaited| self.look(awaited));
        }
    }

    fn look(&self, awaited: &Awaited) -> Found {
        match *awaited {
            Awaited::Shown(lsn) => Found { replicas: 0, is_local: true, is_enough: lsn <= self.shown_lsn() },
            Awaited::Flushed(Wanted { lsn, replicas: wanted, local, .. }) => {
                let (replicas, is_local) = (self.count_flushed(lsn), lsn <= self.durable_lsn());
                Found { replicas, is_local, is_enough: replicas >= wanted && (is_local || !local) }
            }
        }
    }

    fn wait(self: &Arc<Self>, awaited: Awaited, timeout_ms: Option<u64>, responder: Responder) {
        let number = self.waits.add(awaited, responder);
        self.settle_waits();
        let (Some(timeout_ms), Some(runtime)) = (timeout_ms, self.runtime.get()) else { return };
        let node = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
            node.waits.expire(number, |awaited| node.look(awaited));
        });
    }

    /// Promotes this server: it stops following, if it did, and takes writes.
    fn promote(&self) -> Result<Led, String> {
        let _one_at_a_time = self.promotion.lock();
        let log = self.log().ok_or("ERR this server is starting")?;
        if !self.is_read_only.load(SeqCst) {
            return Ok(Led::Now);
        }
        let taken = {
            let mut following = self.following.lock();
            following.as_mut().and_then(|(following, threads)| Some((following.clone(), threads.take()?)))
        };
        if taken.is_none() && log.is_mirror() {
            return Err("ERR an earlier promotion of this server has failed: restart it and try again".into());
        }
        if promote(&mut Promoting { node: self, log, taken, applier: None, mirror: None })?
            == Led::AfterRestart
        {
            self.is_restarting.store(true, SeqCst);
            return Ok(Led::AfterRestart);
        }
        if let Some(act) = self.before_leading.get() {
            act();
        }
        self.ask_for_acks(log, true);
        // From here on, acknowledgements of replicas determine the commit position.
        *self.following.lock() = None;
        let _ = self.change_role(|role| (role.open(), false));
        if let Err(error) = full_copy::discard(&RealDisk as &dyn Disk, &self.dir) {
            tracing::warn!(target: "replication", %error, "cannot remove the copy of a leader's data");
        }
        Ok(Led::Now)
    }
}

/// The steps of a promotion, with the threads of a replica.
struct Promoting<'n> {
    node: &'n Node,
    log: &'n Log,
    /// The link and the applier; `None` for a server that was fenced.
    taken: Option<(Arc<Following>, Threads)>,
    /// The applier of received batches.
    applier: Option<(Arc<Following>, JoinHandle<()>)>,
    /// The right to append.
    mirror: Option<Mirror>,
}

impl Promoting<'_> {
    fn failed(error: storage::Error) -> String {
        format!("ERR cannot lead: {error}")
    }
}

impl Promotion for Promoting<'_> {
    type Error = String;

    fn end_link(&mut self) -> Result<Option<Lsn>, String> {
        let Some((following, Threads { link, apply })) = self.taken.take() else { return Ok(None) };
        following.stop();
        let mirror = link.join().map_err(|_| "ERR the link to the leader has failed")?;
        if self.node.is_restarting() {
            return Err("ERR this server is restarting, try again".into());
        }
        let end = mirror.position();
        (self.mirror, self.applier) = (Some(mirror), Some((following, apply)));
        Ok(Some(end))
    }

    fn make_durable(&mut self, end: Lsn) -> Result<(), String> {
        self.log.make_durable(end).map_err(Self::failed)
    }

    fn apply_all(&mut self, end: Lsn) -> Result<(), String> {
        let Some((following, apply)) = self.applier.take() else { return Ok(()) };
        following.drain(self.log);
        apply.join().map_err(|_| "ERR the received log cannot be applied")?;
        if following.applied() < end {
            return Err("ERR the received log cannot be applied, see the server's log".into());
        }
        Ok(())
    }

    fn begin_epoch(&mut self) -> Result<(), String> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let epoch = mirror.promote().map_err(Self::failed)?;
        tracing::info!(target: "replication", epoch, at = %mirror.position(), "this server leads now");
        Ok(())
    }

    fn stop_following(&mut self) -> Result<u32, String> {
        let (fenced_by, remembered) = self.node.change_role(|role| (role.lead(), true));
        remembered.map(|()| fenced_by).map_err(|error| format!("ERR {error}"))
    }

    fn outbid(&mut self, epoch: u32) -> Result<(), String> {
        // Until the restart, the other leader fences nobody.
        self.log.outbid_epoch(epoch).map_err(Self::failed)
    }
}

/// The interface for commands. Holds an `Arc`, because some operations outlive the command.
pub(crate) struct ReplicationHandle(pub(crate) Arc<Node>);

impl Replication for ReplicationHandle {
    fn is_read_only(&self) -> bool {
        self.0.is_read_only.load(SeqCst)
    }

    fn refuses_writes(&self) -> Option<&'static str> {
        if self.is_read_only() {
            Some(READ_ONLY)
        } else if self.0.lacks_replicas.load(SeqCst) {
            Some(TOO_FEW_REPLICAS)
        } else {
            None
        }
    }

    fn is_stale(&self) -> bool {
        self.0.is_stale()
    }

    fn role(&self) -> Role {
        let node = &self.0;
        match node.leader_address() {
            None => Role::Leader {
                end: node.durable_lsn(),
                replicas: node.leader.replicas().into_iter().map(Into::into).collect(),
            },
            Some(leader) => {
                let following = node.following();
                Role::Replica {
                    leader,
                    link: following.as_ref().map_or(Link::Connect, |following| following.link()),
                    applied: following.map_or(Lsn::ZERO, |following| following.applied()),
                }
            }
        }
    }

    fn follow(&self, leader: Address) -> Result<Followed, String> {
        let node = &self.0;
        if node.own.get().is_some_and(|own| own.include(&leader)) {
            return Err(format!("ERR {leader} is this server itself"));
        }
        let (follow, remembered) = node.change_role(|role| {
            let follow = role.follow(leader.clone());
            (follow, follow != Follow::Already)
        });
        if follow == Follow::Already {
            return Ok(Followed::Already);
        }
        tracing::info!(target: "replication", %leader, "this server is to follow another");
        remembered.map_err(|error| format!("ERR {error}"))?;
        match node.following() {
            Some(following) if follow == Follow::Reconnect => following.reconnect(),
            _ => node.request_restart(),
        }
        Ok(Followed::Begun)
    }

    fn lead(&self, responder: Responder) {
        let node = self.0.clone();
        let run = move || {
            let led = node.promote();
            if let Err(reason) = &led {
                tracing::error!(target: "replication", reason, "this server cannot lead");
            }
            responder.keep(led.as_ref().map(drop).map_err(String::clone));
            // The client is answered before the restart closes connections.
            if led == Ok(Led::AfterRestart) {
                node.request_restart();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("promotion".into()).spawn(run) {
            tracing::error!(target: "replication", %error, "cannot start a thread");
        }
    }

    fn fail_over(&self, failover: Failover) -> Result<(), String> {
        failover::begin(&self.0, failover)
    }

    fn abort_failover(&self) -> Result<(), String> {
        failover::abort(&self.0)
    }

    fn disconnect_replicas(&self) -> usize {
        self.0.leader.disconnect()
    }

    fn durable_lsn(&self) -> Lsn {
        self.0.durable_lsn()
    }

    fn shown_lsn(&self) -> Lsn {
        self.0.shown_lsn()
    }

    fn count_flushed(&self, lsn: Lsn) -> usize {
        self.0.count_flushed(lsn)
    }

    fn wait_flushed(&self, wanted: Wanted, responder: Responder) {
        let node = &self.0;
        if wanted.local
            && wanted.lsn > node.durable_lsn()
            && let (Some(log), Some(runtime)) = (node.log(), node.runtime.get())
        {
            // With a durability that syncs on a timer, the sync is made now.
            let (log, node) = (log.clone(), node.clone());
            runtime.spawn_blocking(move || {
                let _ = log.make_durable(wanted.lsn);
                node.settle_waits();
            });
        }
        node.wait(Awaited::Flushed(wanted), wanted.timeout_ms, responder);
    }

    fn wait_applied(&self, lsn: Lsn, timeout_ms: Option<u64>, responder: Responder) {
        self.0.wait(Awaited::Shown(lsn), timeout_ms, responder);
    }

    fn newest_common(&self, marks: &[&[u8]]) -> Result<Option<Lsn>, String> {
        let marks = join::parse_marks(marks).ok_or("ERR no arguments of REPLICATE MARKS")?;
        let log = self.0.log().ok_or("LOADING this server is starting")?;
        join::newest_common(&marks, &LogHistory(log)).map_err(|error| format!("ERR {error}"))
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
