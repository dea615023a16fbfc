//! The replica's side: one thread receives the leader's log, another applies it.
//!
//! ```text
//! "replica-link":  connect -> claim -> RESUME -> frames -> Receiver -> Mirror -> ring -> (log thread) disk
//!                                 |---> PROBE  -> find the common position -> restart in-process, cut log
//!                                 '---> FULL   -> copy everything beside the data -> restart with the copy
//! "replica-apply": durable here and committed by the leader -> Replayer -> keyspace; acks
//! ```
//!
//! These are the sockets and threads around [`Receiver`], `storage::Mirror` and [`Replayer`]. Steps that need
//! an empty memory are only requested here; the next incarnation carries them out (see `serve`).
//!
//! Invariants
//! - Applied records are durable here (by this server's durability) and committed by the leader.
//! - Nothing is taken from the leader that the disk has no room for: a full disk ends the connection, and the
//!   next one is made when there is room.
//! - An epoch is on disk before anything in it is acknowledged.
//! - After `stop` nothing more is received; after `drain` everything received is applied.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::Duration,
};

use backup::fetch::Breaker;
use consensus::Link;
use documents::Documents;
use engine::{Executor, Host, ReplayObservers, replication::LinkState};
use env::thread::run_nice;
use keyspace::{Effect, Item, Keyspace};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use recovery::replay::{Observer, Replayer, decode};
use replication::{
    ACK_BUSY_MS, Backoff, Intake, LogHistory, Receiver, TakeError,
    join::{JoinError, Joiner, Joining, Step, Verdict},
};
use storage::{Chains, Chunk, CursorRead, Flush, Log, LogCursor, Mirror, Prepare, Record};

use super::{
    JOINING_NICE, Node, full_copy,
    line::{ask, connect, reason_of},
};
use crate::{log_threads::LogThreads, reaper::Reaper, repeated::Repeated};

/// The most bytes in one read from the leader.
const READ_BYTES: usize = 256 << 10;
/// The most bytes of the local log in one read of the applier.
const APPLY_BYTES: usize = 1 << 20;
/// The longest wait in a read, so that acknowledgements and deadlines are checked in time.
const READ_TIMEOUT: Duration = Duration::from_millis(ACK_BUSY_MS);
/// The longest sleep of the applier, so that acknowledgements are sent in time.
const APPLY_WAIT: Duration = Duration::from_millis(ACK_BUSY_MS);

/// The state that the link, the applier and the rest of the server share.
pub(crate) struct Following {
    /// Receive nothing more.
    stopping: AtomicBool,
    /// Apply everything received, committed or not, then end.
    draining: AtomicBool,
    /// The connection to the leader, so that other threads can break it.
    socket: Mutex<Option<TcpStream>>,
    /// Breaks the full copy in progress.
    copying: Mutex<Option<Breaker>>,
    link: AtomicU8,
    /// The receiver and the socket, while frames arrive.
    session: Mutex<Option<(Receiver, TcpStream)>>,
    committed: (Mutex<Lsn>, Condvar),
    applied: AtomicU64,
    needed_from: AtomicU64,
    /// Monotonic milliseconds: when the leader was last heard from, and when the link last went down.
    heard_ms: AtomicU64,
    down_since_ms: AtomicU64,
    as_of_ms: AtomicU64,
    /// Wakes the link from its pause between two attempts: how often it was woken.
    pause: (Mutex<u64>, Condvar),
}

/// How an attempt to follow ended.
enum LinkEnd {
    /// There is nobody to follow, until another role or a reconnection is commanded.
    Idle,
    /// Try again, for this reason.
    Retry(String),
    /// The server has to restart in-process.
    Restart,
}

/// The parts that the threads need, each time that this server begins to follow.
pub(crate) struct FollowingParts {
    pub(crate) host: Host,
    pub(crate) log: Log,
    pub(crate) threads: LogThreads,
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) reaper: Reaper,
    /// Makes the executor that serves waiting clients, on the thread that uses it.
    pub(crate) new_executor: NewExecutor,
}

impl FollowingParts {
    /// Begins to follow at the end of the log, all of which is in memory but these chains.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub(super) fn begin(
        self: &Arc<Self>,
        node: &Arc<Node>,
        mirror: Mirror,
        chains: Chains,
    ) -> io::Result<(Arc<Following>, Option<Threads>)> {
        let (keyspace, applied) = (self.keyspace.clone(), mirror.position());
        let replayer = match node.is_witness() {
            true => Replayer::of_witness(keyspace, applied),
            false => Replayer::new(keyspace, chains, applied).with_documents(self.documents.clone()),
        };
        let following = Arc::new(Following::new(applied, node.now_ms()));
        let link = LinkParts {
            node: node.clone(),
            following: following.clone(),
            log: self.log.clone(),
            threads: self.threads.clone(),
            mirror,
            link: None,
            acked: Lsn::ZERO.into(),
            refused_bytes: 0,
        };
        let apply =
            ApplyParts { node: node.clone(), parts: self.clone(), following: following.clone(), replayer };
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let apply = named("replica-apply").spawn(move || apply.run())?;
        let link = named("replica-link").spawn(move || link.run())?;
        Ok((following, Some(Threads { link, apply })))
    }
}

/// The threads, for the promotion or the stop that joins them.
pub(super) struct Threads {
    pub(super) link: JoinHandle<Mirror>,
    pub(super) apply: JoinHandle<()>,
}

const LINKS: [LinkState; 4] =
    [LinkState::Connect, LinkState::Connecting, LinkState::Copying, LinkState::Connected];

impl Following {
    /// Continues at the end of the recovered log.
    pub(super) fn new(applied: Lsn, now_ms: u64) -> Following {
        Following {
            stopping: false.into(),
            draining: false.into(),
            socket: Mutex::default(),
            copying: Mutex::default(),
            link: 0.into(),
            session: Mutex::default(),
            committed: (Mutex::new(Lsn::ZERO), Condvar::new()),
            applied: applied.get().into(),
            needed_from: applied.get().into(),
            heard_ms: now_ms.into(),
            down_since_ms: now_ms.into(),
            as_of_ms: 0.into(),
            pause: Default::default(),
        }
    }

    pub(crate) fn link(&self) -> LinkState {
        LINKS[usize::from(self.link.load(SeqCst)) % LINKS.len()]
    }

    fn set_link(&self, link: LinkState, now_ms: u64) {
        let before = self.link.swap(link as u8, SeqCst);
        if before == LinkState::Connected as u8 {
            self.down_since_ms.store(now_ms, SeqCst);
        }
    }

    /// The position up to which the log is applied to memory.
    pub(crate) fn applied(&self) -> Lsn {
        Lsn::new(self.applied.load(SeqCst))
    }

    /// The position up to which the applier may apply.
    pub(super) fn applicable(&self, log: &Log) -> Lsn {
        let received = log.shippable_lsn();
        if self.draining.load(SeqCst) { received } else { self.committed().min(received) }
    }

    /// The position from which a snapshot taken now needs the log.
    pub(crate) fn needed_from(&self) -> Lsn {
        Lsn::new(self.needed_from.load(SeqCst))
    }

    /// The leader's commit position, as last received.
    pub(crate) fn committed(&self) -> Lsn {
        *self.committed.0.lock()
    }

    /// Milliseconds since the leader was last heard from.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(SeqCst))
    }

    /// Milliseconds since the link went down; `None` while it is up.
    pub(crate) fn down_ms(&self, now_ms: u64) -> Option<u64> {
        (self.link() != LinkState::Connected).then(|| now_ms.saturating_sub(self.down_since_ms.load(SeqCst)))
    }

    /// When all committed records were last applied, in monotonic milliseconds; `None` if never.
    pub(crate) fn caught_up_ms(&self) -> Option<u64> {
        Some(self.as_of_ms.load(SeqCst)).filter(|&at_ms| at_ms > 0)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Breaks the connection; the link tries again, perhaps with another leader.
    pub(super) fn reconnect(&self) {
        if let Some(socket) = &*self.socket.lock() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(breaker) = self.copying.lock().take() {
            breaker.break_off();
        }
        self.wake();
    }

    /// Registers the socket of an attempt, so that it can be broken. Fails if following is to stop.
    fn begins(&self, socket: TcpStream) -> Result<(), String> {
        *self.socket.lock() = Some(socket);
        if self.is_stopping() { Err("it is to end".into()) } else { Ok(()) }
    }

    /// Registers the handle that breaks the copy in progress.
    pub(super) fn set_copying(&self, breaker: Option<Breaker>) {
        *self.copying.lock() = breaker;
    }

    /// Stops receiving.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.reconnect();
    }

    /// After [`Following::stop`]: lets the applier apply everything received, and end.
    pub(super) fn drain(&self, log: &Log) {
        self.draining.store(true, SeqCst);
        self.wake();
        log.wake_cursors();
    }

    fn wake(&self) {
        *self.pause.0.lock() += 1;
        self.pause.1.notify_all();
        drop(self.committed.0.lock());
        self.committed.1.notify_all();
    }

    pub(super) fn note_committed(&self, committed: Lsn) {
        let mut known = self.committed.0.lock();
        if *known < committed {
            *known = committed;
            self.committed.1.notify_all();
        }
    }

    /// Sends an acknowledgement if one is due. Skipped while the session is locked: the holder sends its own.
    fn ack(&self, log: &Log, now_ms: u64) {
        if let Some(mut session) = self.session.try_lock()
            && let Some((receiver, socket)) = &mut *session
        {
            // If this fails, the next read fails too.
            let _ = send_ack(receiver, socket, log, self.applied(), now_ms);
        }
    }
}

fn send_ack(
    receiver: &mut Receiver,
    mut socket: &TcpStream,
    log: &Log,
    applied: Lsn,
    now_ms: u64,
) -> io::Result<()> {
    match receiver.ack(now_ms, log.shippable_lsn(), applied) {
        Some(ack) => socket.write_all(&ack),
        None => Ok(()),
    }
}

/// The state of the link thread.
struct LinkParts {
    node: Arc<Node>,
    following: Arc<Following>,
    log: Log,
    threads: LogThreads,
    mirror: Mirror,
    /// The leader and the term of the connection, in a group.
    link: Option<Link>,
    /// The position up to which the log was last shown.
    acked: Cell<Lsn>,
    /// The size of the batches that the disk last had no room for.
    refused_bytes: u64,
}

impl LinkParts {
    /// Follows until it is stopped or a restart is needed. Returns the mirror, which is the right to append.
    fn run(mut self) -> Mirror {
        let mut backoff = Backoff::default();
        let mut logged = Repeated::default();
        while !self.following.is_stopping() {
            self.following.set_link(LinkState::Connecting, self.node.now_ms());
            // Before it reads whom to follow: a change of that wakes this thread afterwards.
            let woken = *self.following.pause.0.lock();
            let ended = self.attempt(&mut backoff);
            *self.following.socket.lock() = None;
            self.following.set_link(LinkState::Connect, self.node.now_ms());
            match ended {
                _ if self.following.is_stopping() => break,
                Ok(LinkEnd::Retry(reason)) | Err(reason) => {
                    let wait = Duration::from_millis(backoff.wait_ms(self.node.random_u64()));
                    if let Some(unlogged) = logged.note(&reason, self.node.now_ms()) {
                        tracing::warn!(
                            target: "replication", reason, unlogged, "cannot follow the leader; trying again"
                        );
                    }
                    let mut pause = self.following.pause.0.lock();
                    if *pause == woken {
                        self.following.pause.1.wait_for(&mut pause, wait);
                    }
                }
                Ok(LinkEnd::Idle) => {
                    backoff.reset();
                    let mut pause = self.following.pause.0.lock();
                    if *pause == woken {
                        self.following.pause.1.wait(&mut pause);
                    }
                }
                Ok(LinkEnd::Restart) => {
                    self.node.request_restart();
                    self.following.stopping.store(true, SeqCst);
                }
            }
        }
        self.mirror
    }

    fn attempt(&mut self, backoff: &mut Backoff) -> Result<LinkEnd, String> {
        let text = |error: storage::Error| error.to_string();
        let Some((leader, link)) = self.node.to_follow() else { return Ok(LinkEnd::Idle) };
        // Not before there is room for the first batch that the leader will send.
        if !self.mirror.make_room_for(self.refused_bytes) {
            return Err(no_room(&self.log));
        }
        self.refused_bytes = 0;
        self.link = link;
        let password = self.node.master_password();
        let mut socket = connect(&leader, &password, |socket| self.following.begins(socket))?;
        // REPLICAOF may have named another leader before the socket could be broken.
        if self.following.is_stopping() || self.node.leader_address().as_ref() != Some(&leader) {
            return Err(format!("{leader} is no longer the leader to follow"));
        }
        let end = self.mirror.position();
        self.log.make_durable(end).map_err(text)?;
        let (seen_epoch, replica) = self.node.claim();
        let joiner = Joiner {
            log_id: self.log.id(),
            replica,
            process: Some(self.node.process),
            port: self.node.redis_port(),
            seen_epoch,
            log_epoch: self.log.epoch(),
            end,
            copies_anew: self.node.copies_anew(),
        };
        let log = self.log.clone();
        let history = LogHistory(&log);
        let (mut joining, mut step) = Joining::begin(joiner, &history).map_err(text)?;
        let mut asked = 0;
        let verdict = loop {
            let arguments = match step {
                Step::Ask(arguments) => arguments,
                Step::Settled(verdict) => break verdict,
            };
            if asked == 1 {
                // The connection on which the logs were found to differ is over.
                socket = connect(&leader, &password, |socket| self.following.begins(socket))?;
            }
            let words: Vec<String> = ["REPLICATE".to_string()].into_iter().chain(arguments).collect();
            let line = ask(&mut socket, &words)?;
            step = match joining.hear(&line, &history) {
                Ok(step) => step,
                // Without data here, no reason for a refusal matters: discard the log and copy everything.
                Err(JoinError::Refused(_))
                    if asked == 0
                        && !self.node.copies_anew()
                        && !self.log.holds_records(holds_data).map_err(text)? =>
                {
                    self.node.copy_anew();
                    return self.attempt(backoff);
                }
                Err(error) => return Err(format!("{leader} {error}")),
            };
            asked += 1;
        };
        match verdict {
            Verdict::Follow { epoch } => {
                self.node.saw_epoch(&self.log, epoch)?;
                self.node.found_equal(self.link)?;
                tracing::info!(target: "replication", %leader, from = %end, epoch, "following");
                backoff.reset();
                self.confirm(Lsn::ZERO)?;
                let reason = self.receive(socket, epoch);
                *self.following.session.lock() = None;
                Ok(LinkEnd::Retry(reason))
            }
            Verdict::Cut(at) => {
                if let Some(votes) = self.node.votes() {
                    votes.may_cut(self.link, at)?;
                }
                tracing::warn!(
                    target: "replication", %at, %end,
                    "this log has diverged from the leader's: its tail is cut and kept in a file"
                );
                self.node.ask_for_cut(at);
                Ok(LinkEnd::Restart)
            }
            Verdict::CopyAnew => {
                tracing::warn!(
                    target: "replication", "this log has nothing in common with the part of the leader's log that is kept"
                );
                self.node.copy_anew();
                Ok(LinkEnd::Retry("everything must be copied".into()))
            }
            Verdict::Copy { http_port } => {
                drop(socket);
                self.following.set_link(LinkState::Copying, self.node.now_ms());
                tracing::info!(target: "replication", %leader, "copying everything from the leader");
                let before = self.node.copied_bytes();
                let fetch = || full_copy::fetch(&self.node, &self.following, &leader, http_port, &password);
                let fetched =
                    run_nice("full-copy", JOINING_NICE, fetch).map_err(|error| error.to_string())?;
                // As after a connection that worked.
                if self.node.copied_bytes() > before {
                    backoff.reset();
                }
                fetched.map(|()| LinkEnd::Restart)
            }
        }
    }

    /// Receives frames until the connection ends; returns the reason.
    fn receive(&mut self, mut socket: TcpStream, epoch: u32) -> String {
        let prepared = socket.set_read_timeout(Some(READ_TIMEOUT)).and_then(|()| socket.try_clone());
        let for_acks = match prepared {
            Ok(for_acks) => for_acks,
            Err(error) => return error.to_string(),
        };
        let receiver = Receiver::new(epoch, self.mirror.position(), self.node.now_ms());
        *self.following.session.lock() = Some((receiver, for_acks));
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let read = match socket.read(&mut bytes) {
                Ok(0) => return "the leader has closed the connection".into(),
                Ok(read) => read,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    0
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error) => return error.to_string(),
            };
            if self.following.is_stopping() {
                return "stopping".into();
            }
            if let Err(reason) = self.take_in(&bytes[..read]) {
                return reason;
            }
        }
    }

    /// Appends received batches to the log, and sends an acknowledgement if one is due.
    fn take_in(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut session = self.following.session.lock();
        let Some((receiver, socket)) = &mut *session else { return Err("the connection has ended".into()) };
        let now_ms = self.node.now_ms();
        receiver.inbox().extend_from_slice(bytes);
        let mut intake = LinkIntake {
            mirror: &mut self.mirror,
            log: &self.log,
            node: &self.node,
            link: self.link,
            accepted: Lsn::ZERO,
            refused_bytes: &mut self.refused_bytes,
        };
        let taken = receiver.take_in(now_ms, &mut intake);
        if intake.lacks_accepted() {
            // The votes count on batches that are not in the log here: after a restart they begin with the
            // batches that are.
            self.node.request_restart();
        }
        match taken {
            Ok(()) => {}
            Err(TakeError::Close(close)) => {
                let _ = socket.write_all(&receiver.farewell());
                return Err(close.to_string());
            }
            Err(TakeError::Intake(reason)) => return Err(reason),
        }
        if !bytes.is_empty() {
            self.following.heard_ms.store(now_ms, SeqCst);
        }
        self.threads.wake_if_needed();
        let committed = receiver.committed();
        self.following.note_committed(committed);
        self.confirm(committed)?;
        receiver.check(now_ms).map_err(|close| close.to_string())?;
        send_ack(receiver, socket, &self.log, self.following.applied(), now_ms)
            .map_err(|error| reason_of(&error))
    }

    /// Marks the link as up once all data here may be shown. From then on, records that the leader has not
    /// committed stay hidden: as keys, because they are not applied, and as messages, because those are read
    /// from the committed log.
    fn confirm(&self, committed: Lsn) -> Result<(), String> {
        let was_connected = self.following.link() == LinkState::Connected;
        if !was_connected {
            if !self.node.confirm(committed)? {
                return Ok(());
            }
            self.following.set_link(LinkState::Connected, self.node.now_ms());
        }
        // Records applied earlier are visible already. In a group, the votes may have told the position.
        let acked = self.following.committed().max(self.following.applied());
        if acked > self.acked.get() || !was_connected {
            self.acked.set(acked);
            self.log.set_acked(acked);
        }
        Ok(())
    }
}

/// The local log, which receives the leader's batches.
struct LinkIntake<'l> {
    mirror: &'l mut Mirror,
    log: &'l Log,
    node: &'l Node,
    link: Option<Link>,
    /// The end of the batches that the votes have accepted.
    accepted: Lsn,
    /// The size of batches that the disk has no room for.
    refused_bytes: &'l mut u64,
}

impl LinkIntake<'_> {
    fn lacks_accepted(&self) -> bool {
        self.mirror.position() < self.accepted
    }
}

impl Intake for LinkIntake<'_> {
    type Error = String;

    fn accept(&mut self, start: Lsn, batches: &[u8], commit: Lsn) -> Result<(), String> {
        let bytes = batches.len() as u64;
        // Before the votes accept the batches: they count on accepted ones, so the log must be able to take
        // them.
        if !self.mirror.make_room_for(bytes) {
            *self.refused_bytes = bytes;
            return Err(no_room(self.log));
        }
        self.node.accept(self.link, start, batches, commit)?;
        if self.link.is_some() {
            self.accepted = start.advance(bytes);
        }
        Ok(())
    }

    fn append(&mut self, batches: &[u8], epoch_max: u32) -> Result<usize, String> {
        self.mirror.append(batches, epoch_max).map_err(|error| error.to_string())
    }

    fn make_room(&mut self) -> Result<(), String> {
        let text = |error: storage::Error| error.to_string();
        if self.log.flush().map_err(text)? == Flush::NeedSegment
            && self.log.prepare_segment().map_err(text)? == Prepare::NoRoom
        {
            return Err(no_room(self.log));
        }
        Ok(())
    }

    fn saw_epoch(&mut self, epoch: u32) -> Result<(), String> {
        self.node.saw_epoch(self.log, epoch)
    }
}

fn no_room(log: &Log) -> String {
    format!("the disk has no room for the log: {}", log.no_room_reason())
}

/// Makes an executor on the thread that will use it.
pub(crate) type NewExecutor = Box<dyn Fn() -> Executor + Send + Sync>;

/// The state of the applier thread.
struct ApplyParts {
    node: Arc<Node>,
    parts: Arc<FollowingParts>,
    following: Arc<Following>,
    replayer: Replayer,
}

impl ApplyParts {
    /// Applies until it has drained, or the server restarts.
    fn run(mut self) {
        let mut observers = ReplayObservers::new((self.parts.new_executor)());
        if let Err(reason) = self.apply(&mut observers) {
            tracing::error!(
                target: "replication", reason,
                "the replica cannot apply its log and goes on showing old data. Check its disk with `sheaf check`"
            );
        }
    }

    fn apply(&mut self, observers: &mut ReplayObservers) -> Result<(), String> {
        let mut cursor = self.parts.log.cursor(self.replayer.applied());
        let mut held: Option<Chunk> = None;
        loop {
            let is_draining = self.following.draining.load(SeqCst);
            if self.following.is_stopping() && !is_draining && self.node.is_restarting() {
                return Ok(());
            }
            let committed = if is_draining { Lsn::MAX } else { self.following.committed() };
            let chunk = match held.take() {
                Some(chunk) => Some(chunk),
                None => read(&mut cursor)?,
            };
            if let Some(chunk) = &chunk
                && committed.min(chunk.end) > self.replayer.applied()
            {
                self.apply_chunk(chunk, committed, observers)?;
            }
            self.following.ack(&self.parts.log, self.node.now_ms());
            held = chunk.filter(|chunk| chunk.end > self.replayer.applied());
            if held.is_some() {
                let mut known = self.following.committed.0.lock();
                let is_waiting = *known <= self.replayer.applied() && !self.following.draining.load(SeqCst);
                if is_waiting {
                    self.following.committed.1.wait_for(&mut known, APPLY_WAIT);
                }
            } else if self.parts.log.shippable_lsn() <= cursor.position() {
                if is_draining {
                    return Ok(());
                }
                self.note_caught_up(committed);
                cursor.wait(APPLY_WAIT);
            }
        }
    }

    fn apply_chunk(
        &mut self,
        chunk: &Chunk,
        until: Lsn,
        observers: &mut ReplayObservers,
    ) -> Result<(), String> {
        let host = &self.parts.host;
        let now = keyspace::AccessClock { now_ms: host.clock.unix_ms(), ..Default::default() };
        let mut observed = Observed { observers: &mut *observers, host };
        let applied =
            self.replayer.apply(chunk, until, now, &mut observed).map_err(|error| error.to_string())?;
        observers.tell(host);
        self.parts.reaper.free(self.replayer.take_freed());
        self.following.applied.store(applied.get(), SeqCst);
        self.following.needed_from.store(self.replayer.needed_from().get(), SeqCst);
        self.node.settle_waits();
        Ok(())
    }

    fn note_caught_up(&self, committed: Lsn) {
        if self.following.link() == LinkState::Connected && self.replayer.applied() >= committed {
            self.following.as_of_ms.store(self.node.now_ms(), SeqCst);
        }
    }
}

/// The clients of this server that are told of applied effects.
struct Observed<'a> {
    observers: &'a mut ReplayObservers,
    host: &'a Host,
}

impl Observer for Observed<'_> {
    #[inline]
    fn saw(&mut self, effect: &Effect<'_>) {
        self.observers.saw(effect);
    }

    #[inline]
    fn after_record(&mut self, lsn: Lsn) {
        self.observers.after_record(lsn, self.host);
    }
}

/// Whether a record holds anything but settings of the data.
pub(crate) fn holds_data(record: &Record<'_>) -> bool {
    let mut rest = record.payload;
    loop {
        match decode(&mut rest, record.lsn) {
            Ok(None) => return false,
            Ok(Some(Item::Effect(Effect::Setting { .. }))) => {}
            _ => return true,
        }
    }
}

fn read(cursor: &mut LogCursor) -> Result<Option<Chunk>, String> {
    match cursor.read(APPLY_BYTES) {
        Ok(CursorRead::Chunk(chunk)) => Ok(Some(chunk)),
        Ok(CursorRead::UpToDate) => Ok(None),
        Ok(CursorRead::Forgotten(start)) => Err(format!("the log here starts at lsn {start} already")),
        Err(error) => Err(error.to_string()),
    }
}
