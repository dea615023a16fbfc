//! HTTP clients of a document database on a simulated disk, for one incarnation of a server.
//!
//! ```text
//! HttpClient -- bytes --> couch::serve_thread (its own event loop) -> write batches -> log -> SimDisk
//!            <-- bytes --                      <- commit gate <- a flush, which is a step of the world
//!
//! step = one of: a client sends a part of a request and takes a part of a reply | the event loop runs |
//!               a flush | a save of documents | time passes
//! ```
//!
//! What it is: the product's HTTP front from request bytes to disk blocks, with sockets that are memory. Each
//! client owns documents that no other client changes, and reads the documents of all clients. So [`Ledger`]
//! knows which versions a document may have after a power cut, whatever the order in which the front merged
//! the requests. These are the versions that its owner has sent, from the newest version that a reply has
//! shown or acknowledged.
//! What it is not: a simulation of timers. The event loop uses real time; waits and heartbeats are tested in
//! `couch`.
//!
//! Invariants
//! - One thread runs everything, in an order that the seed decides.
//! - A reply counts from its last byte on.

mod client;
mod host;
mod ledger;
mod reply;
mod request;

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use couch::{Front, HttpOrder};
use documents::{Documents, Due};
use env::{Clock, Disk, Prng, SimClock, SimDisk};
use lsn::Lsn;
use recovery::recover::{Mode, RecoverError};
use storage::{Flush, Log};
use tokio::{
    io::DuplexStream,
    runtime::{self, Runtime},
    sync::mpsc,
    task::{LocalSet, yield_now},
};

use self::{client::HttpClient, ledger::Ledger};
use crate::{
    DocumentContent, LyingDisk, Recovered, Sabotage, Violation, WorldOptions, start::recover_documents_with,
};

/// The database of all clients.
const DATABASE: &str = "db";
/// How often the event loop yields to all its tasks in one step.
const TURNS: usize = 8;
/// The bytes that a socket holds in each direction: larger than most requests, smaller than some.
const SOCKET_BYTES: usize = 8 << 10;

/// A socket of a simulated client.
struct Wire(DuplexStream);

impl couch::Socket for Wire {
    type Stream = DuplexStream;

    fn register(self) -> std::io::Result<DuplexStream> {
        Ok(self.0)
    }

    fn unacknowledged(_stream: &DuplexStream) -> Box<dyn Fn() -> u64> {
        Box::new(|| 0)
    }
}

/// A simulated server with HTTP clients.
pub struct HttpWorld {
    disk: Arc<SimDisk>,
    clock: Arc<SimClock>,
    log: Log,
    documents: Arc<Documents>,
    clients: Vec<HttpClient>,
    ledger: Ledger,
    prng: Prng,
    /// The thread of the front. Declared before the runtime, and so dropped first: the runtime must outlive
    /// its tasks.
    front: LocalSet,
    runtime: Rc<Runtime>,
}

impl HttpWorld {
    /// Starts a server on an empty disk, and connects the clients. [`HttpWorld::create_database`] comes next.
    ///
    /// # Errors
    /// As [`crate::recover_documents`].
    pub fn start(
        options: WorldOptions,
        disk: Arc<SimDisk>,
        clock: Arc<SimClock>,
    ) -> Result<HttpWorld, RecoverError> {
        let door: Arc<dyn Disk> = match options.sabotage {
            Some(Sabotage::LyingDisk) => Arc::new(LyingDisk::over(disk.clone())),
            _ => disk.clone(),
        };
        let feeds = Arc::new(couch::Feeds::default());
        let noticed = feeds.clone();
        let on_notice: documents::Listener = Arc::new(move |notice| noticed.notify(&notice));
        let (Recovered { log, .. }, documents) =
            recover_documents_with(on_notice, Mode::Newest, door, &options, &clock)?;
        let host = host::host(options.seed, &disk, &clock, &log, &documents, feeds);
        let runtime =
            runtime::Builder::new_current_thread().enable_time().build().expect("a thread may have timers");
        let mut world = HttpWorld {
            disk,
            clock,
            log,
            documents,
            clients: Vec::new(),
            ledger: Ledger::new(options.clients),
            prng: Prng::new(options.seed),
            front: LocalSet::new(),
            runtime: Rc::new(runtime),
        };
        world.connect(Arc::new(Front::new(host)), options.clients);
        Ok(world)
    }

    fn connect(&mut self, front: Arc<Front>, clients: usize) {
        let (orders, received) = mpsc::unbounded_channel();
        for owner in 0..clients {
            let (near, far) = tokio::io::duplex(SOCKET_BYTES);
            let permit = front.permit().expect("there is no limit");
            let peer = SocketAddr::from(([127, 0, 0, 1], owner as u16));
            let sent = orders.send(HttpOrder::Connect { stream: Wire(far), peer, permit });
            assert!(sent.is_ok(), "the receiver is in this function");
            self.clients.push(HttpClient::new(owner, near));
        }
        self.front.spawn_local(async move {
            // The thread ends when no sender of orders is left: this one keeps it running.
            let _orders = orders;
            couch::serve_thread(front, received).await;
        });
    }

    /// Runs until the database exists.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn create_database(&mut self) -> Result<(), Violation> {
        self.clients[0].create_database();
        while !self.clients[0].has_database() {
            self.exchange(0)?;
            self.turn();
            self.flush();
        }
        Ok(())
    }

    /// Runs `steps` steps, or fewer if the machine stops.
    ///
    /// # Errors
    /// The first wrong reply.
    pub fn run(&mut self, steps: usize) -> Result<(), Violation> {
        for _ in 0..steps {
            if self.disk.has_stopped() {
                return Ok(());
            }
            match self.prng.below(100) {
                0..45 => {
                    let index = self.prng.below(self.clients.len() as u64) as usize;
                    self.exchange(index)?;
                }
                45..75 => self.turn(),
                75..92 => self.flush(),
                92..97 => self.save(),
                _ => self.clock.advance_us(self.prng.below(90_000_000)),
            }
        }
        Ok(())
    }

    /// The numbers of acknowledged changes, of documents that replies have shown, and of log-ins.
    pub fn done(&self) -> (u64, u64, u64) {
        let log_ins = self.clients.iter().map(HttpClient::log_ins).sum();
        (self.ledger.acknowledged, self.ledger.shown, log_ins)
    }

    /// Checks the content of a server that was started on the remaining disk.
    ///
    /// # Errors
    /// If a document has a version that it cannot have.
    pub fn judge(&self, held: &DocumentContent) -> Result<(), Violation> {
        let in_flight: Vec<_> = self.clients.iter().filter_map(HttpClient::in_flight).collect();
        self.ledger.judge(held.get(DATABASE), &in_flight)
    }

    /// A client sends a part of its request, and takes a part of a reply if one has arrived.
    fn exchange(&mut self, index: usize) -> Result<(), Violation> {
        let HttpWorld { clients, ledger, prng, front, runtime, .. } = self;
        front.block_on(runtime, clients[index].exchange(ledger, prng))
    }

    /// The event loop runs its ready tasks.
    fn turn(&self) {
        self.front.block_on(&self.runtime, async {
            for _ in 0..TURNS {
                yield_now().await;
            }
        });
    }

    /// One step of the log thread, and of the thread that prepares segments.
    fn flush(&self) {
        // A failure shows as replies that are never sent.
        if matches!(self.log.flush(), Ok(Flush::NeedSegment)) || self.log.needs_segment() {
            drop(self.log.prepare_segment());
        }
    }

    /// One pass of the thread that saves documents.
    fn save(&mut self) {
        let (now_ms, upto) = (self.clock.monotonic_us() / 1000, self.log.appended_lsn());
        let due = Due { now_ms, upto, everything: self.prng.chance(60) };
        let log = self.log.clone();
        let mut committed = |lsn: Lsn| lsn <= log.durable_lsn() || log.make_durable(lsn).is_ok();
        // If it fails, the next pass tries again.
        drop(self.documents.checkpoint(&due, &mut committed));
    }
}
