//! A worker: one thread, one single-threaded runtime, its connections, its executor, its appender to the log.
//!
//! ```text
//! tick: every ready connection reads and executes; sendable replies leave together with those of the next
//!       connections, gated replies are parked
//!       -> end of tick (a task that runs after them): start a flush of the log, release durable replies,
//!          deliver messages
//! ```
//!
//! A worker connects gates with sockets. It decides nothing about commands.
//!
//! Invariants
//! - Everything here belongs to one thread; `Rc` and `RefCell` are enough, and no borrow lives across an
//!   await.
//! - Everything that waits for the log is in [`Tick`], which decides; the worker acts on the log and on
//!   sockets.
//! - The log is woken at the end of a tick, not at the first append: one wake-up for all connections of the
//!   tick, and for those served by the extra polls of the sockets that follow it (at most
//!   [`WRITE_LOOKS_MAX`]).

mod held_back;
mod messages;
mod replies;
mod upkeep;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    net::SocketAddr,
    os::fd::AsRawFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use engine::{
    CommandError, Executor, Host, LongUnit,
    clients::{Client, Connected},
    conversation::Round,
    tick::{Flusher, Tick},
};
use keyspace::{SLOT_COUNT, SlotId};
use lsn::Lsn;
use pubsub::Backpressure;
use storage::Durability;
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
};
use wire::{Limits, RequestBatch};

use self::{held_back::HeldBack, replies::Replied};
use crate::{
    connection::Connection,
    log_threads::LogThreads,
    long_units::{Done, Job},
    mailbox::{Mailbox, Message},
    parts::Parts,
    reaper::Reaper,
    timeouts::Timeouts,
};

/// Bytes read from a socket at once, into a buffer that all connections of the worker share.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Period of active expiry.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);
/// Keys removed per run of active expiry at most, so that a tick stays short.
const EXPIRED_KEYS_MAX: usize = 2048;
/// Delay before the release of an ended connection's leases is retried if the log or a slot was busy.
const RELEASE_PERIOD: Duration = Duration::from_millis(10);
/// Extra polls of the sockets for further writes before a batch is begun, at most.
const WRITE_LOOKS_MAX: usize = 3;
/// Time that clients have to receive their last replies.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// Time that replies may wait for the disk, or for replicas, before the server restarts within the process.
const RESTART_GRACE: Duration = Duration::from_secs(2);

/// State of one worker thread.
pub(crate) struct Worker {
    pub(crate) parts: Arc<Parts>,
    /// The interfaces that commands use.
    pub(crate) host: Host,
    pub(crate) mailbox: Mailbox,
    executor: RefCell<Executor>,
    batch: RefCell<RequestBatch>,
    /// One buffer for all connections; each borrows it while it reads.
    pub(crate) read_buffer: RefCell<Vec<u8>>,
    /// Replies, notices and commands that wait for the log.
    waiting: RefCell<Tick<Rc<Connection>>>,
    /// Connections whose replies are sent together.
    replied: Replied,
    /// Connections that got pushed bytes in this tick.
    pushed: RefCell<Vec<Rc<Connection>>>,
    /// Deadlines of blocked commands.
    pub(crate) timeouts: Timeouts,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    tick: Arc<Notify>,
    tick_due: Cell<bool>,
    /// Connections that publish faster than subscribers receive.
    held_back: HeldBack,
    /// Rounds that published something since messages were last delivered.
    published_rounds: Cell<u32>,
    log: OnceCell<LogThreads>,
    reaper: Reaper,
    /// Unsent bytes of subscribers that lag, without the blocks that several of them share.
    pub(crate) unsent_bytes: Cell<usize>,
    /// When the output limits are checked next.
    limits_due_ms: Cell<u64>,
    /// The highest number of subscriptions since memory was last given back.
    subscriptions_most: Cell<usize>,
    stopping: Cell<bool>,
}

/// Starts a worker's thread.
///
/// # Errors
/// If the OS refuses the thread.
pub(crate) fn start(
    index: usize,
    parts: Arc<Parts>,
    reaper: Reaper,
    workers: usize,
) -> std::io::Result<(Mailbox, std::thread::JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mailbox = Mailbox { sender };
    let own = mailbox.clone();
    let tick = Arc::new(Notify::new());
    let woken = tick.clone();
    parts.data.hub.listen(index, move || woken.notify_one());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let run = move || {
        let local = tokio::task::LocalSet::new();
        let mut executor = parts.data.executor(index, index);
        let clock = parts.clock.clone();
        executor.share_thread(Arc::new(move || clock.monotonic_us()));
        let worker = Rc::new(Worker {
            host: parts.engine_host(),
            parts,
            mailbox: own,
            executor: RefCell::new(executor),
            batch: RefCell::new(RequestBatch::new()),
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
            waiting: RefCell::default(),
            replied: Replied::default(),
            pushed: RefCell::default(),
            timeouts: Timeouts::default(),
            connections: RefCell::default(),
            tick,
            tick_due: Cell::new(false),
            held_back: HeldBack::default(),
            published_rounds: Cell::new(0),
            log: OnceCell::new(),
            reaper,
            unsent_bytes: Cell::new(0),
            limits_due_ms: Cell::new(0),
            subscriptions_most: Cell::new(0),
            stopping: Cell::new(false),
        });
        local.block_on(&runtime, worker.run(receiver, index, workers));
    };
    let thread = std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?;
    Ok((mailbox, thread))
}

impl Worker {
    /// Handles messages until [`Message::Stop`], then closes all connections.
    async fn run(
        self: Rc<Self>,
        mut messages: mpsc::UnboundedReceiver<Message>,
        index: usize,
        workers: usize,
    ) {
        tokio::task::spawn_local(self.clone().tick_loop());
        tokio::task::spawn_local(self.clone().expiry_loop(index, workers));
        tokio::task::spawn_local(self.clone().timeout_loop());
        let done = loop {
            match messages.recv().await {
                Some(Message::Stop(done)) => break done,
                Some(message) => self.handle(message),
                None => return,
            }
        };
        let stopping = self.stop();
        tokio::pin!(stopping);
        loop {
            tokio::select! {
                () = &mut stopping => break,
                // Long units that still run report their end by a message.
                Some(message) = messages.recv() => self.handle(message),
            }
        }
        let _ = done.send(());
    }

    fn handle(self: &Rc<Self>, message: Message) {
        match message {
            Message::Connect { .. } if self.stopping.get() => {}
            Message::Connect { stream, peer, local } => self.connect(stream, peer, local),
            Message::Attach(log) => self.attach(log),
            Message::Kill(id) => {
                let killed = self.connections.borrow().get(&id).cloned();
                if let Some(connection) = killed {
                    connection.kill();
                }
            }
            Message::Push { client_id, bytes, gate } => self.push(client_id, &bytes, gate),
            Message::Answer { client_id, bytes, gate } => self.answer(client_id, &bytes, gate),
            Message::LongUnit(done) => self.take_back(*done),
            Message::Feed(feed) => self.feed(&feed),
            Message::Report(done) => _ = done.send(()),
            Message::ReleaseMemory => env::allocator::release_unused(),
            Message::Overdue(up_to) => self.time_out_acks(up_to),
            Message::Fail(done) => {
                self.fail_all();
                let _ = done.send(());
            }
            Message::Stop(done) => _ = done.send(()),
        }
    }

    fn connect(self: &Rc<Self>, stream: std::net::TcpStream, peer: SocketAddr, local: SocketAddr) {
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(target: "server", %error, %peer, "cannot serve a connection");
                return;
            }
        };
        let client = self.register_client(&stream, peer, local);
        let (id, worker) = (client.id(), self.clone());
        let (connection, serving) = Connection::new(stream, client, worker.clone());
        self.connections.borrow_mut().insert(id, connection);
        tokio::task::spawn_local(async move {
            serving.await;
            let ended = worker.connections.borrow_mut().remove(&id);
            if let Some(connection) = ended {
                if let Some((socket, claim)) = connection.take_over() {
                    worker.parts.node.serve_replica(socket, &claim);
                }
                connection.end();
                while !worker.end_subscriptions(&connection) {
                    tokio::task::yield_now().await;
                }
                while !worker.release_leases(&connection) {
                    tokio::time::sleep(RELEASE_PERIOD).await;
                }
            }
            worker.host.clients.remove(id);
        });
    }

    fn register_client(&self, stream: &TcpStream, peer: SocketAddr, local: SocketAddr) -> Arc<Client> {
        let mailbox = self.mailbox.clone();
        self.host.clients.register(Connected {
            peer: peer.to_string(),
            local: local.to_string(),
            fd: stream.as_raw_fd(),
            now_ms: self.parts.clock.unix_ms(),
            signaller: Box::new(move |id, signal| mailbox.signal(id, signal)),
        })
    }

    /// Appends bytes for a client; they are sent at the end of the tick, together with its other pushed
    /// bytes.
    fn push(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.push(bytes, gate, durable);
        self.send_later(connection, appended);
    }

    /// Appends the reply to a blocked command.
    fn answer(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.answer(bytes, gate, durable);
        self.send_later(connection, appended);
    }

    /// Runs a long unit on another thread, or refuses it.
    pub(crate) fn run_on_own_thread(&self, client_id: u64, unit: Box<LongUnit>) {
        let (mailbox, reaper, host) = (self.mailbox.clone(), self.reaper.clone(), self.host.clone());
        let refused = self.parts.long_units.take_on(Job { client_id, unit, mailbox, reaper, host });
        refused.into_iter().for_each(|job| self.refuse(job));
    }

    /// A long unit has ended: passes its reply and its notices on.
    fn take_back(&self, Done { client_id, reply, notices, wrote }: Done) {
        let backpressure = self.backpressure_of(&notices);
        let told = self.waiting.borrow_mut().hold(notices);
        if told || wrote {
            self.end_tick_later();
        }
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.return_from_thread(reply, durable, backpressure);
        self.send_later(connection, appended);
    }

    /// Refuses the long units that have waited too long for a thread; their clients get a BUSY error.
    fn refuse_overdue(&self) {
        let overdue = self.parts.long_units.take_overdue(&self.host.scripts);
        overdue.into_iter().for_each(|job| self.refuse(job));
    }

    fn refuse(&self, Job { client_id, unit, mailbox, .. }: Job) {
        let reply = self.executor.borrow_mut().refuse_long(*unit, &self.host);
        mailbox.send(Message::LongUnit(Box::new(Done {
            client_id,
            reply,
            notices: Vec::new(),
            wrote: false,
        })));
    }

    /// Bytes were appended to a connection's outbox: parks the connection at the gate `held`, if any, and, if
    /// `first`, adds it to those that are sent at the end of the tick.
    fn send_later(&self, connection: Rc<Connection>, (held, first): (Option<Lsn>, bool)) {
        if let Some(gate) = held {
            self.waiting.borrow_mut().park(gate, connection.clone());
        }
        if first {
            self.pushed.borrow_mut().push(connection);
        }
        self.end_tick_later();
    }

    /// Ends blocked commands at their deadlines.
    async fn timeout_loop(self: Rc<Self>) {
        loop {
            let client_id = self.timeouts.next().await;
            let connection = self.connections.borrow().get(&client_id).cloned();
            if let Some(connection) = connection {
                connection.time_out();
            }
        }
    }

    fn end_tick_later(&self) {
        if !self.tick_due.replace(true) {
            self.tick.notify_one();
        }
    }

    fn attach(&self, log: LogThreads) {
        let appender = log.log().appender();
        let tick = self.tick.clone();
        appender.listen(move || tick.notify_one());
        self.executor.borrow_mut().attach(appender);
        let _ = self.log.set(log);
    }

    /// Lends the worker's executor and parse buffer for one round of a connection's commands.
    pub(crate) fn with_round<R>(&self, run: impl FnOnce(&mut Round<'_>) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        let is_congested = self.waiting.borrow().is_congested();
        let flush_alone = || self.flush_alone();
        let merging = self.parts.startup.merges || self.log.get().is_none();
        let hot = self.parts.config.hot();
        let limits = Limits {
            bulk_bytes_max: hot.bulk_bytes_max(),
            request_bytes_max: hot.request_bytes_max(),
            ..Limits::DEFAULT
        };
        let mut round = Round {
            executor: &mut executor,
            batch: &mut self.batch.borrow_mut(),
            host: &self.host,
            now_ms: self.parts.clock.unix_ms(),
            limits,
            is_congested,
            flush_alone: if merging { None } else { Some(&flush_alone) },
        };
        run(&mut round)
    }

    /// With merging off: flushes the write just executed before the next command runs.
    fn flush_alone(&self) {
        if let Some(threads) = self.log.get() {
            // After a failure the replies are never released, and the log thread ends the server.
            while threads.log().unwritten_bytes() > 0 && threads.log().flush().is_ok() {}
        }
    }

    /// Called by a connection after a round: parks it at the gate `held` or until the log has room, and ends
    /// the tick if it has work. Returns the reason for its next command to wait, if its messages exceed the
    /// receivers' pace.
    pub(crate) fn after_round(
        &self,
        connection: &Rc<Connection>,
        held: Option<Lsn>,
        awaits_log: bool,
    ) -> Option<Backpressure> {
        if let Some(gate) = held {
            self.waiting.borrow_mut().park(gate, connection.clone());
        }
        if awaits_log {
            self.waiting.borrow_mut().await_log(connection.clone());
        }
        let notices = self.executor.borrow_mut().take_notices();
        let backpressure = self.backpressure_of(&notices);
        let told = self.waiting.borrow_mut().hold(notices);
        let wrote = self.executor.borrow_mut().take_wrote();
        let published = self.flush_mailboxes();
        if published {
            self.published_rounds.set(self.published_rounds.get() + 1);
        }
        if wrote || told || published || held.is_some() || awaits_log {
            self.end_tick_later();
        }
        self.reap(&mut self.executor.borrow_mut());
        backpressure
    }

    /// Passes detached values to the reaper, which frees them on its own thread.
    fn reap(&self, executor: &mut Executor) {
        if let Some(freed) = executor.take_freed() {
            self.reaper.free(freed);
        }
    }

    /// Runs after the connections that are ready in the same tick, and whenever the log's durable end has
    /// moved.
    async fn tick_loop(self: Rc<Self>) {
        loop {
            self.tick.notified().await;
            self.tick_due.set(false);
            self.send_replies();
            self.coalesce_writes().await;
            self.kick_flush();
            self.coalesce_messages().await;
            self.deliver();
            self.resume_held_back();
        }
    }

    /// While several connections wait for a batch that is not begun, polls the sockets a few times more, as
    /// long as each poll brings further writes: writing a batch, and waking the thread that does it, costs
    /// more than many records. A single writer is never delayed.
    async fn coalesce_writes(&self) {
        let Some(log) = self.log.get().map(LogThreads::log) else { return };
        for _ in 0..WRITE_LOOKS_MAX {
            if log.durability() < Durability::Commit || !log.needs_flusher() {
                return;
            }
            self.release();
            let before = self.waiting.borrow().parked();
            if !self.waiting.borrow().coalesces() {
                return;
            }
            tokio::task::yield_now().await;
            if self.waiting.borrow().parked() <= before {
                return;
            }
        }
    }

    /// Sees that pending records are flushed: by this thread if it is the only one that waits, else by the
    /// log thread.
    fn kick_flush(&self) {
        let Some(threads) = self.log.get() else { return };
        let syncs = threads.log().durability() >= Durability::Commit;
        match self.waiting.borrow().flusher(syncs, || threads.log().needs_flusher()) {
            Flusher::Worker => threads.flush_here(),
            Flusher::LogThread => threads.wake_if_needed(),
        }
        self.release();
        self.resume_awaiting();
    }

    /// Sends replies and publishes notices that are durable; registers a wake-up for the rest.
    fn release(&self) {
        loop {
            let durable = self.executor.borrow().committed_lsn();
            self.tell(durable);
            loop {
                let released = self.waiting.borrow_mut().release(durable);
                let Some(connection) = released else { break };
                connection.release(durable);
            }
            let Some(gate) = self.waiting.borrow().gate() else { return };
            let executor = self.executor.borrow();
            if executor.appender().is_none_or(|appender| appender.wait_for(gate)) {
                return;
            }
        }
    }

    /// Retries the commands that waited for room in the log.
    fn resume_awaiting(&self) {
        let waiting = self.waiting.borrow_mut().take_awaiting_log();
        if waiting.is_empty() {
            return;
        }
        let must_wait = self.executor.borrow().appender().is_some_and(|appender| appender.wait_for_room());
        if must_wait {
            let mut tick = self.waiting.borrow_mut();
            waiting.into_iter().for_each(|connection| tick.await_log(connection));
            // The log thread sleeps while nothing is appended; it must make the segment that the commands
            // wait for.
            if let Some(threads) = self.log.get() {
                threads.make_segment_if_needed();
            }
            return;
        }
        for connection in waiting {
            connection.resume();
        }
    }

    async fn expiry_loop(self: Rc<Self>, index: usize, workers: usize) {
        let share = |worker: usize| SlotId::new((SLOT_COUNT * worker / workers) as u16);
        let from = share(index).unwrap_or(SlotId::FIRST);
        let to = SlotId::new((SLOT_COUNT * (index + 1) / workers - 1) as u16).unwrap_or(SlotId::LAST);
        let mut timer = tokio::time::interval(EXPIRY_PERIOD);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            if self.log.get().is_some() {
                self.run_own(|executor| executor.expire_due(from, to, EXPIRED_KEYS_MAX, &self.host));
            }
            if index == 0 {
                self.evict_excess().await;
            }
            self.close_idle();
            self.enforce_limits();
            self.end_overlong_waits();
            self.refuse_overdue();
        }
    }

    /// Evicts the excess after `maxmemory` was lowered, in steps between which connections are served.
    async fn evict_excess(&self) {
        while self.log.get().is_some() && self.run_own(|executor| executor.evict_excess(&self.host)) {
            tokio::task::yield_now().await;
        }
    }

    /// Releases the leases of an ended connection. Returns whether this is done; if not, the caller must try
    /// again.
    fn release_leases(&self, connection: &Connection) -> bool {
        connection.with_session(|session| {
            !session.holds_leases() || self.run_own(|executor| executor.release_leases(session, &self.host))
        })
    }

    /// Runs the server's own changes (expiry, eviction, leases) as one round.
    fn run_own<R>(&self, run: impl FnOnce(&mut Executor) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        executor.begin_round(
            self.parts.clock.unix_ms(),
            &self.host,
            self.parts.config.hot().bulk_bytes_max(),
        );
        let outcome = run(&mut executor);
        executor.end_round(&self.host);
        // If no connection runs a round, no other code would free these values.
        self.reap(&mut executor);
        let wrote = executor.take_wrote();
        let told = self.waiting.borrow_mut().hold(executor.take_notices());
        drop(executor);
        if told {
            self.end_tick_later();
        } else if wrote && let Some(threads) = self.log.get() {
            threads.wake_if_needed();
        }
        outcome
    }

    /// Fails the replies up to this position that replicas have not acknowledged in time.
    fn time_out_acks(&self, up_to: Lsn) {
        let overdue = self.waiting.borrow_mut().take_overdue(up_to);
        let failed = overdue.iter().map(|connection| connection.time_out_acks(up_to)).sum();
        self.parts.node.acks_timed_out(failed);
        self.end_tick_later();
    }

    /// The log failed: waiting clients get the error that the outcome is unknown, and all connections are
    /// closed.
    fn fail_all(&self) {
        self.waiting.borrow_mut().clear();
        self.held_back.clear();
        let connections: Vec<_> = self.connections.borrow().values().cloned().collect();
        connections.iter().for_each(|connection| connection.fail(&CommandError::LogFailed));
    }

    /// Stops reading, waits until no reply waits for the disk, sends the last replies, closes.
    async fn stop(&self) {
        self.stopping.set(true);
        for connection in self.connections.borrow().values() {
            connection.close_after_replies();
        }
        let give_up_at = tokio::time::Instant::now() + RESTART_GRACE;
        let waits = |connection: &Rc<Connection>| connection.is_holding() || connection.is_away();
        while self.connections.borrow().values().any(waits) {
            // A leader that steps down may wait for ever for acknowledgements of its replicas.
            if self.parts.node.is_restarting() && tokio::time::Instant::now() >= give_up_at {
                break;
            }
            self.tick.notify_one();
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Connections and worker hold each other. If the server restarts within this process, a socket kept
        // here would never be closed, and its client would wait for ever.
        let give_up_at = tokio::time::Instant::now() + CLOSE_GRACE;
        while !self.connections.borrow().is_empty() && tokio::time::Instant::now() < give_up_at {
            self.tick.notify_one();
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for connection in self.connections.borrow().values() {
            connection.kill();
        }
        while !self.connections.borrow().is_empty() {
            tokio::task::yield_now().await;
        }
        self.waiting.borrow_mut().clear();
        self.held_back.clear();
        self.pushed.borrow_mut().clear();
        self.send_replies();
    }
}
