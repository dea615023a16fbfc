//! A worker: one thread with a single-threaded runtime, its connections, its executor and its appender to the
//! log.
//!
//! ```text
//! tick: every ready connection reads and executes; replies without a pending gate are sent together with those of
//!       the next connections, gated ones are parked
//!       -> end of tick (a task behind the connections): flush the log, release durable replies, deliver messages
//! ```
//!
//! This is the place where gates meet sockets. It decides nothing about commands.
//!
//! Invariants
//! - Everything here belongs to one thread; `Rc` and `RefCell` suffice, and no borrow is held across an
//!   await.
//! - Parked connections are kept in the order of their rounds. The worker asks the log for one wake-up, at
//!   the gate of the first; a smaller gate behind it waits at most for one more flush.
//! - The log is woken at the end of a tick, not at the first append: one wake-up for all connections of the
//!   tick, and for the few further polls of the sockets that follow while they bring more writes.
//!   few looks at the sockets that follow it while they bring further writes.

mod held_back;
mod messages;
mod replies;
mod upkeep;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use commands::{CommandError, Executor, Host, LongUnit};
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
    conversation::Round,
    event_queue::EventQueue,
    host::ServerHost,
    log_threads::LogThreads,
    long_units::{Done, Job, LongUnits},
    mailbox::{Mailbox, Message},
    reaper::Reaper,
    timeouts::Timeouts,
};

/// Bytes of one read from a socket, into a buffer that all connections of the worker share.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// The interval at which active expiry looks for due slots.
const EXPIRY_PERIOD: Duration = Duration::from_millis(100);
/// The most keys that one run of active expiry removes, so that a tick stays short.
const EXPIRED_KEYS_MAX: usize = 2048;
/// The interval of retries to release a disconnected client's leases, if the log or a slot was not available.
const RELEASE_PERIOD: Duration = Duration::from_millis(10);
/// The most connections waiting for the disk for which a worker flushes itself instead of waking the log
/// thread.
const FLUSH_HERE_PARKED_MAX: usize = 1;
/// The most further polls of the sockets for writes before a batch is begun.
const WRITE_LOOKS_MAX: usize = 3;
/// How long clients may take to receive their last replies.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// How long replies may wait for the disk, or for replicas, before an in-process restart.
const RESTART_GRACE: Duration = Duration::from_secs(2);

/// The state of a worker thread.
pub(crate) struct Worker {
    pub(crate) host: Arc<ServerHost>,
    pub(crate) mailbox: Mailbox,
    executor: RefCell<Executor>,
    batch: RefCell<RequestBatch>,
    /// Shared by all connections; used by one read at a time.
    pub(crate) read_buffer: RefCell<Vec<u8>>,
    parked: RefCell<VecDeque<(Lsn, Rc<Connection>)>>,
    events: RefCell<EventQueue>,
    /// Connections whose replies are sent together.
    replied: Replied,
    /// Connections with bytes appended in this tick that no round of their own sends.
    pushed: RefCell<Vec<Rc<Connection>>>,
    /// The timeouts of blocked commands.
    pub(crate) timeouts: Timeouts,
    /// Connections whose next command waits for room in the log.
    awaiting_log: RefCell<Vec<Rc<Connection>>>,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    tick: Arc<Notify>,
    tick_due: Cell<bool>,
    /// Connections of held publishers.
    held_back: HeldBack,
    /// Rounds that have published messages since the last delivery.
    published_rounds: Cell<u32>,
    log: OnceCell<LogThreads>,
    reaper: Reaper,
    /// The unsent bytes of subscribers, without blocks that several of them share.
    pub(crate) untaken_bytes: Cell<usize>,
    /// When the limits on unsent bytes are checked next.
    limits_due_ms: Cell<u64>,
    /// The highest number of subscriptions since memory was last returned to the OS.
    subscriptions_most: Cell<usize>,
    stopping: Cell<bool>,
}

/// Starts the thread of a worker.
///
/// # Errors
/// If the OS refuses the thread.
pub(crate) fn start(
    index: usize,
    host: Arc<ServerHost>,
    reaper: Reaper,
    workers: usize,
) -> std::io::Result<(Mailbox, std::thread::JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mailbox = Mailbox { sender };
    let own = mailbox.clone();
    let tick = Arc::new(Notify::new());
    let woken = tick.clone();
    host.channels.listen(index, move || woken.notify_one());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let run = move || {
        let local = tokio::task::LocalSet::new();
        let seed = host.random_u64() as u32;
        let mut executor =
            Executor::new(host.keyspace().clone(), host.interests().clone(), host.worker_stats(index), seed);
        executor.share_channels(host.channels.local(index));
        executor.share_thread(host.clock_us());
        let worker = Rc::new(Worker {
            host,
            mailbox: own,
            executor: RefCell::new(executor),
            batch: RefCell::new(RequestBatch::new()),
            read_buffer: RefCell::new(vec![0; READ_BYTES]),
            parked: RefCell::default(),
            events: RefCell::default(),
            replied: Replied::default(),
            pushed: RefCell::default(),
            timeouts: Timeouts::default(),
            awaiting_log: RefCell::default(),
            connections: RefCell::default(),
            tick,
            tick_due: Cell::new(false),
            held_back: HeldBack::default(),
            published_rounds: Cell::new(0),
            log: OnceCell::new(),
            reaper,
            untaken_bytes: Cell::new(0),
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
    /// Handles messages until [`Message::Stop`], then stops.
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
                // Long units and blocked commands may still end.
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
        let client = self.host.register_client(&stream, peer, local, self.mailbox.clone());
        let (id, worker) = (client.id(), self.clone());
        let (connection, serving) = Connection::new(stream, client, worker.clone());
        self.connections.borrow_mut().insert(id, connection);
        tokio::task::spawn_local(async move {
            serving.await;
            let ended = worker.connections.borrow_mut().remove(&id);
            if let Some(connection) = ended {
                if let Some((socket, claim)) = connection.take_over() {
                    worker.host.node.serve_replica(socket, &claim);
                }
                connection.end();
                while !worker.end_subscriptions(&connection) {
                    tokio::task::yield_now().await;
                }
                while !worker.release_leases(&connection) {
                    tokio::time::sleep(RELEASE_PERIOD).await;
                }
            }
            worker.host.clients().remove(id);
        });
    }

    /// Appends bytes for a client; they are sent at the end of the tick, together with others appended until
    /// then.
    fn push(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.push(bytes, gate, durable);
        self.send_later(connection, appended);
    }

    /// Appends the reply to a blocked command of a client.
    fn answer(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.answer(bytes, gate, durable);
        self.send_later(connection, appended);
    }

    /// Runs a long unit on another thread.
    pub(crate) fn take_elsewhere(&self, client_id: u64, unit: Box<LongUnit>) {
        let (mailbox, reaper) = (self.mailbox.clone(), self.reaper.clone());
        let refused = LongUnits::take_on(&self.host, Job { client_id, unit, mailbox, reaper });
        refused.into_iter().for_each(|job| self.refuse(job));
    }

    /// Handles the end of a long unit.
    fn take_back(&self, Done { client_id, reply, notices, wrote }: Done) {
        let backpressure = self.backpressure_of(&notices);
        let told = self.events.borrow_mut().hold(notices);
        if told || wrote {
            self.end_tick_later();
        }
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let durable = self.executor.borrow().committed_lsn();
        let appended = connection.come_back(reply, durable, backpressure);
        self.send_later(connection, appended);
    }

    /// Replies BUSY to units that have waited too long for a thread.
    fn refuse_overdue(&self) {
        self.host.long_units.take_overdue(&self.host).into_iter().for_each(|job| self.refuse(job));
    }

    fn refuse(&self, Job { client_id, unit, mailbox, .. }: Job) {
        let reply = self.executor.borrow_mut().refuse_long(*unit, &*self.host);
        mailbox.send(Message::LongUnit(Box::new(Done {
            client_id,
            reply,
            notices: Vec::new(),
            wrote: false,
        })));
    }

    /// Schedules the sending of bytes appended to a connection. `held`: the gate of the bytes, if they have
    /// one; `first`: the connection is not scheduled yet.
    fn send_later(&self, connection: Rc<Connection>, (held, first): (Option<Lsn>, bool)) {
        if let Some(gate) = held {
            self.parked.borrow_mut().push_back((gate, connection.clone()));
        }
        if first {
            self.pushed.borrow_mut().push(connection);
        }
        self.end_tick_later();
    }

    /// Times blocked commands out.
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

    /// Lends the worker's executor and buffers to one round of a connection's commands.
    pub(crate) fn with_round<R>(&self, run: impl FnOnce(&mut Round<'_>) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        let is_congested = self.events.borrow().is_full();
        let flush_alone = || self.flush_alone();
        let merging = self.host.merges() || self.log.get().is_none();
        let limits = Limits {
            bulk_bytes_max: self.host.bulk_bytes_max(),
            request_bytes_max: self.host.request_bytes_max(),
            ..Limits::DEFAULT
        };
        let mut round = Round {
            executor: &mut executor,
            batch: &mut self.batch.borrow_mut(),
            host: &*self.host,
            now_ms: self.host.unix_ms(),
            limits,
            is_congested,
            flush_alone: if merging { None } else { Some(&flush_alone) },
        };
        run(&mut round)
    }

    /// With merging off, flushes the write just executed before anything else happens.
    fn flush_alone(&self) {
        if let Some(threads) = self.log.get() {
            // A failure shows as replies that are never sent; the log thread stops the server.
            while threads.log().unwritten_bytes() > 0 && threads.log().flush().is_ok() {}
        }
    }

    /// Called by a connection after a round: `held` is the gate that it waits for, `awaits_log` that its next
    /// command needs room in the log. Returns the reason to hold the connection as a publisher, if there is
    /// one.
    pub(crate) fn after_round(
        &self,
        connection: &Rc<Connection>,
        held: Option<Lsn>,
        awaits_log: bool,
    ) -> Option<Backpressure> {
        if let Some(gate) = held {
            self.parked.borrow_mut().push_back((gate, connection.clone()));
        }
        if awaits_log {
            self.awaiting_log.borrow_mut().push(connection.clone());
        }
        let notices = self.executor.borrow_mut().take_notices();
        let backpressure = self.backpressure_of(&notices);
        let told = self.events.borrow_mut().hold(notices);
        let wrote = self.executor.borrow_mut().take_wrote();
        let published = self.hand_over();
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

    /// Runs after the connections that are ready in the same tick, and whenever the log has advanced.
    async fn tick_loop(self: Rc<Self>) {
        loop {
            self.tick.notified().await;
            self.tick_due.set(false);
            self.send_replies();
            self.gather_writes().await;
            self.see_to_log();
            self.gather().await;
            self.deliver();
            self.resume_held_back();
        }
    }

    /// While several connections wait for a batch that is not begun yet, polls the sockets a few times more,
    /// as long as that brings more waiting connections: writing a batch, and waking its writer, costs more
    /// than many records. A lone writer is not delayed.
    async fn gather_writes(&self) {
        let Some(log) = self.log.get().map(LogThreads::log) else { return };
        for _ in 0..WRITE_LOOKS_MAX {
            if log.durability() < Durability::Commit || !log.needs_flusher() {
                return;
            }
            self.release();
            let before = self.parked.borrow().len();
            if before <= FLUSH_HERE_PARKED_MAX {
                return;
            }
            tokio::task::yield_now().await;
            if self.parked.borrow().len() <= before {
                return;
            }
        }
    }

    /// Flushes or wakes the log thread, so that no reply waits longer than the few polls of the sockets.
    fn see_to_log(&self) {
        let Some(threads) = self.log.get() else { return };
        let parked = self.parked.borrow().len();
        let syncs = threads.log().durability() >= Durability::Commit;
        if syncs && (1..=FLUSH_HERE_PARKED_MAX).contains(&parked) && threads.log().needs_flusher() {
            threads.flush_here();
        } else {
            threads.wake_if_needed();
        }
        self.release();
        self.resume_awaiting();
    }

    /// Releases replies and notices that have become durable; requests a wake-up for the rest.
    fn release(&self) {
        loop {
            let durable = self.executor.borrow().committed_lsn();
            self.tell(durable);
            loop {
                let mut parked = self.parked.borrow_mut();
                if parked.front().is_none_or(|(gate, _)| *gate > durable) {
                    break;
                }
                let connection = parked.pop_front().map(|(_, connection)| connection);
                drop(parked);
                if let Some(connection) = connection {
                    connection.release(durable);
                }
            }
            let parked_gate = self.parked.borrow().front().map(|(gate, _)| *gate);
            let Some(gate) = parked_gate.into_iter().chain(self.events.borrow().gate()).min() else { return };
            let executor = self.executor.borrow();
            if executor.appender().is_none_or(|appender| appender.wait_for(gate)) {
                return;
            }
        }
    }

    /// Retries the commands that wait for room in the log.
    fn resume_awaiting(&self) {
        let waiting = std::mem::take(&mut *self.awaiting_log.borrow_mut());
        if waiting.is_empty() {
            return;
        }
        let must_wait = self.executor.borrow().appender().is_some_and(|appender| appender.wait_for_room());
        if must_wait {
            self.awaiting_log.borrow_mut().extend(waiting);
            // The log thread sleeps while nothing is appended.
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
                self.run_own(|executor| executor.expire_due(from, to, EXPIRED_KEYS_MAX, &*self.host));
            }
            if index == 0 {
                self.evict_excess().await;
            }
            self.close_idle();
            self.enforce_limits();
            self.lose_patience();
            self.refuse_overdue();
        }
    }

    /// Evicts keys above a lowered `maxmemory`, in steps; connections are served between the steps.
    async fn evict_excess(&self) {
        while self.log.get().is_some() && self.run_own(|executor| executor.evict_excess(&*self.host)) {
            tokio::task::yield_now().await;
        }
    }

    /// Releases the leases of a disconnected client. Returns whether this is done; if not, the caller must
    /// retry.
    fn release_leases(&self, connection: &Connection) -> bool {
        connection.with_session(|session| {
            !session.holds_leases() || self.run_own(|executor| executor.release_leases(session, &*self.host))
        })
    }

    /// A round of changes that no client requested.
    fn run_own<R>(&self, run: impl FnOnce(&mut Executor) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        executor.begin_round(self.host.unix_ms(), &*self.host, self.host.bulk_bytes_max());
        let outcome = run(&mut executor);
        executor.end_round(&*self.host);
        // Freed values must be passed on here, because no connection's round does it.
        self.reap(&mut executor);
        let wrote = executor.take_wrote();
        let told = self.events.borrow_mut().hold(executor.take_notices());
        drop(executor);
        if told {
            self.end_tick_later();
        } else if wrote && let Some(threads) = self.log.get() {
            threads.wake_if_needed();
        }
        outcome
    }

    /// Fails the replies with a gate up to `up_to`: replicas have not acknowledged in time.
    fn time_out_acks(&self, up_to: Lsn) {
        let mut overdue = Vec::new();
        self.parked.borrow_mut().retain(|(gate, connection)| {
            if *gate <= up_to {
                overdue.push(connection.clone());
            }
            *gate > up_to
        });
        let failed = overdue.iter().map(|connection| connection.time_out_acks(up_to)).sum();
        self.host.ack_timed_out(failed);
        self.end_tick_later();
    }

    /// Handles a failed log: waiting clients get an error that the outcome is unknown, all are disconnected.
    fn fail_all(&self) {
        self.parked.borrow_mut().clear();
        self.events.borrow_mut().clear();
        self.awaiting_log.borrow_mut().clear();
        self.held_back.clear();
        let connections: Vec<_> = self.connections.borrow().values().cloned().collect();
        connections.iter().for_each(|connection| connection.fail(&CommandError::LogFailed));
    }

    /// Stops reading, waits for gated replies, sends them as far as clients receive them, and closes.
    async fn stop(&self) {
        self.stopping.set(true);
        for connection in self.connections.borrow().values() {
            connection.close_after_replies();
        }
        let give_up_at = tokio::time::Instant::now() + RESTART_GRACE;
        let waits = |connection: &Rc<Connection>| connection.is_holding() || connection.is_away();
        while self.connections.borrow().values().any(waits) {
            // On a leader that steps down, acknowledgements of replicas may never arrive.
            if self.host.node.is_restarting() && tokio::time::Instant::now() >= give_up_at {
                break;
            }
            self.tick.notify_one();
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Connections and worker reference each other. If the process goes on with an in-process restart, a
        // socket kept here would never be closed, and its client would wait for ever.
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
        self.parked.borrow_mut().clear();
        self.awaiting_log.borrow_mut().clear();
        self.held_back.clear();
        self.pushed.borrow_mut().clear();
        self.send_replies();
    }
}
