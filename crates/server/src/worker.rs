//! A worker: one thread, one single-threaded runtime, its connections, its executor, its appender to the log.
//!
//! ```text
//! tick: every ready connection reads and executes; sendable replies leave together with the replies to
//!       the next connections, gated replies are parked
//!       -> end of tick (a task that runs after them): carries out the actions of `engine::tick`
//! ```
//!
//! A worker connects gates with sockets. It decides neither about commands nor about the order in which a
//! tick ends; [`Tick`] decides that order. The worker's jobs have files of their own:
//! - `clients`: the lives of its clients; `mail`: messages of other threads; `tick`: rounds and ticks;
//! - `replies`: replies sent together; `delivery`: channel messages; `held_back`: publishers that wait;
//! - `long_units`, `own_changes`, `upkeep`, and `stopping`, the end.
//!
//! Invariants
//! - All state of a worker belongs to one thread, so `Rc` and `RefCell` are enough. No borrow lives across an
//!   await.
//! - Replies, notices and commands that wait for the log are in [`Tick`]. No borrow of the tick lives while
//!   an action is carried out.

mod clients;
mod delivery;
mod held_back;
mod long_units;
mod mail;
mod own_changes;
mod replies;
mod stopping;
mod tick;
mod upkeep;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use engine::{Executor, Host, tick::Tick};
use tokio::sync::{Notify, mpsc};
use wire::RequestBatch;

use self::{held_back::HeldBack, replies::Replied};
use crate::{
    connection::Connection,
    log_threads::LogThreads,
    mailbox::{Mailbox, WorkerOrder},
    parts::Parts,
    reaper::Reaper,
    timeouts::Timeouts,
};

/// The maximum bytes of one read from a socket, into a buffer that all connections of the worker share.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// State of one worker thread.
pub(crate) struct Worker {
    pub(crate) parts: Arc<Parts>,
    /// The interfaces that commands use.
    pub(crate) host: Host,
    pub(crate) mailbox: Mailbox,
    executor: RefCell<Executor>,
    batch: RefCell<RequestBatch>,
    /// A buffer that all connections share; each connection borrows it while reading.
    pub(crate) read_buffer: RefCell<Vec<u8>>,
    /// A second buffer, for the encrypted bytes of TLS; empty until the first encrypted connection is read.
    pub(crate) encrypted_buffer: RefCell<Vec<u8>>,
    /// The replies, notices and commands that wait for the log, and the end of the tick.
    tick: RefCell<Tick<Rc<Connection>>>,
    /// Wakes the task that ends the tick.
    wake_up: Arc<Notify>,
    /// Connections whose replies are sent together.
    replied: Replied,
    /// Connections that got pushed bytes in this tick.
    pushed: RefCell<Vec<Rc<Connection>>>,
    /// Deadlines of blocked and held commands.
    pub(crate) timeouts: Timeouts,
    connections: RefCell<HashMap<u64, Rc<Connection>>>,
    /// Publishers whose next command waits for slow subscribers, or for room in a mailbox.
    held_back: HeldBack,
    /// Connections whose commands wait until the client reads, or whose limit of unsent bytes is raised.
    unread: RefCell<Vec<Rc<Connection>>>,
    log: OnceCell<LogThreads>,
    reaper: Reaper,
    /// The approximate memory of the unsent bytes of subscribers whose sockets refuse more, without the
    /// blocks that several of them share.
    pub(crate) unsent_bytes: Cell<usize>,
    /// The monotonic time of the next check of the output limits.
    limits_due_ms: Cell<u64>,
    /// The highest number of subscriptions that a check has found since memory was last given back.
    subscriptions_most: Cell<usize>,
    stopping: Cell<bool>,
}

/// Starts a worker's thread.
///
/// # Errors
/// If the OS refuses the thread or its runtime.
pub(crate) fn start(
    index: usize,
    parts: Arc<Parts>,
    reaper: Reaper,
    workers: usize,
) -> std::io::Result<(Mailbox, std::thread::JoinHandle<()>)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mailbox = Mailbox::new(sender);
    let own = mailbox.clone();
    let wake_up = Arc::new(Notify::new());
    let woken = wake_up.clone();
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
            encrypted_buffer: RefCell::default(),
            tick: RefCell::default(),
            wake_up,
            replied: Replied::default(),
            pushed: RefCell::default(),
            timeouts: Timeouts::default(),
            connections: RefCell::default(),
            held_back: HeldBack::default(),
            unread: RefCell::default(),
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
    /// Carries out orders until [`WorkerOrder::Stop`], then closes all connections.
    async fn run(
        self: Rc<Self>,
        mut orders: mpsc::UnboundedReceiver<WorkerOrder>,
        index: usize,
        workers: usize,
    ) {
        tokio::task::spawn_local(self.clone().tick_loop());
        tokio::task::spawn_local(self.clone().upkeep_loop(index, workers));
        tokio::task::spawn_local(self.clone().timeout_loop());
        let done = loop {
            match orders.recv().await {
                Some(WorkerOrder::Stop(done)) => break done,
                Some(order) => self.handle(order),
                None => return,
            }
        };
        let stopping = self.stop();
        tokio::pin!(stopping);
        loop {
            tokio::select! {
                () = &mut stopping => break,
                // Long units that still run report their end by an order.
                Some(order) = orders.recv() => self.handle(order),
            }
        }
        let _ = done.send(());
    }
}
