//! Shakes hands with clients of TLS on threads of its own, because a handshake is a hundred times the work of
//! a command, and may never end.
//!
//! ```text
//! acceptor -> thread "tls-n": handshake -> `Then` of the door: a worker, or a thread of HTTP
//! ```
//!
//! Invariants
//! - A client is served by a worker only after its handshake; until then it has no place among the clients.
//! - A thread has at most [`UNFINISHED_MAX`] handshakes at a time. It has fewer if few places for clients are
//!   left, because each handshake occupies the descriptor of a future client.
//! - At this limit, new clients wait in the backlog of the listener. A handshake that has gone on for
//!   [`PATIENCE`] is ended for a new one, so that silent peers keep nobody out for long.
//! - A handshake takes at most [`HANDSHAKE_TIMEOUT`].

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use env::Clock;
use parking_lot::Mutex;
use tls::{Acceptor, Session};
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{encryption::Encryption, listen::RoundRobin, repeated::Repeated};

/// The maximum number of handshakes of one thread at a time.
const UNFINISHED_MAX: usize = 512;
/// The number of handshakes that one thread may have at a time even if no places for clients are left. A
/// client can be told that there is no place only after its handshake.
const UNFINISHED_MIN: usize = 4;
/// The maximum number of accepted connections in the queue of one thread.
const WAITING_MAX: usize = 4;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The age from which a handshake gives way if its thread has no room for another one.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum number of threads.
const THREADS_MAX: usize = 4;

/// Takes a connection over after its handshake.
pub(crate) type Then = Box<dyn FnOnce(std::net::TcpStream, Session) + Send>;

/// An accepted connection that waits for its handshake.
struct Newcomer {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    acceptor: Arc<Acceptor>,
    then: Then,
}

/// A door for TLS: the threads that shake hands, and how sessions begin there.
#[derive(Clone)]
pub(crate) struct TlsDoor {
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) acceptor: Arc<Acceptor>,
}

impl TlsDoor {
    /// Begins a handshake with a client that was accepted; waits for room.
    pub(crate) async fn begin(&self, stream: std::net::TcpStream, peer: SocketAddr, then: Then) {
        self.handshakes.begin(self.acceptor.clone(), stream, peer, then).await;
    }
}

/// The threads that shake hands.
pub(crate) struct Handshakes {
    threads: Vec<mpsc::Sender<Newcomer>>,
    next: RoundRobin,
}

/// The state that the threads share.
struct Shared {
    encryption: Arc<Encryption>,
    clock: Arc<dyn Clock>,
    /// Why handshakes failed lately.
    failures: Mutex<Repeated>,
    /// Returns how many more clients there may be.
    places_left: Box<dyn Fn() -> u64 + Send + Sync>,
    threads: usize,
}

impl Handshakes {
    /// Starts a thread for every two cores, but at least one and at most [`THREADS_MAX`].
    ///
    /// # Errors
    /// If the OS refuses a thread or its runtime.
    pub(crate) fn start(
        encryption: Arc<Encryption>,
        clock: Arc<dyn Clock>,
        places_left: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> io::Result<Handshakes> {
        let threads = (env::process::cores_available() / 2).clamp(1, THREADS_MAX);
        let (failures, places_left) = (Mutex::default(), Box::new(places_left));
        let shared = Arc::new(Shared { encryption, clock, failures, places_left, threads });
        let threads: io::Result<_> = (0..threads).map(|index| start_thread(index, shared.clone())).collect();
        Ok(Handshakes { threads: threads?, next: RoundRobin::default() })
    }

    async fn begin(
        &self,
        acceptor: Arc<Acceptor>,
        stream: std::net::TcpStream,
        peer: SocketAddr,
        then: Then,
    ) {
        let thread = &self.threads[self.next.take(self.threads.len())];
        // If the thread has ended, the connection is closed.
        let _ = thread.send(Newcomer { stream, peer, acceptor, then }).await;
    }
}

fn start_thread(index: usize, shared: Arc<Shared>) -> io::Result<mpsc::Sender<Newcomer>> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let run = move || {
        let thread = Rc::new(HandshakeThread {
            shared,
            unfinished: RefCell::default(),
            one_less: Notify::new(),
            last: Cell::new(0),
        });
        tokio::task::LocalSet::new().block_on(&runtime, thread.run(receiver));
    };
    std::thread::Builder::new().name(format!("tls-{index}")).spawn(run)?;
    Ok(sender)
}

struct Unfinished {
    begun: Instant,
    task: AbortHandle,
}

/// A thread that shakes hands.
struct HandshakeThread {
    shared: Arc<Shared>,
    /// The handshakes of this thread, in the order in which they began.
    unfinished: RefCell<BTreeMap<u64, Unfinished>>,
    /// Notified when a handshake has ended.
    one_less: Notify,
    last: Cell<u64>,
}

impl HandshakeThread {
    async fn run(self: Rc<Self>, mut newcomers: mpsc::Receiver<Newcomer>) {
        while let Some(newcomer) = newcomers.recv().await {
            self.make_room().await;
            let id = self.last.get() + 1;
            self.last.set(id);
            let thread = self.clone();
            let task = tokio::task::spawn_local(async move {
                thread.shake_hands(newcomer).await;
                thread.forget(id);
            });
            // The task does not run before this function awaits, so the task is listed here before it can
            // end.
            let unfinished = Unfinished { begun: Instant::now(), task: task.abort_handle() };
            self.unfinished.borrow_mut().insert(id, unfinished);
            self.shared.encryption.figures.unfinished.fetch_add(1, Relaxed);
        }
        // Unfinished handshakes end with the thread.
        let left = std::mem::take(&mut *self.unfinished.borrow_mut()).len() as u64;
        self.shared.encryption.figures.unfinished.fetch_sub(left, Relaxed);
    }

    fn forget(&self, id: u64) {
        if self.unfinished.borrow_mut().remove(&id).is_some() {
            self.shared.encryption.figures.unfinished.fetch_sub(1, Relaxed);
            self.one_less.notify_one();
        }
    }

    /// Waits until there is room for another handshake, or ends the oldest one if it is older than
    /// [`PATIENCE`].
    async fn make_room(&self) {
        loop {
            let oldest = {
                let unfinished = self.unfinished.borrow();
                if unfinished.len() < self.shared.unfinished_max() {
                    return;
                }
                unfinished.first_key_value().map(|(id, it)| (*id, it.begun.elapsed(), it.task.clone()))
            };
            let Some((id, age, task)) = oldest else { return };
            if age >= PATIENCE {
                task.abort();
                self.forget(id);
                self.shared.note_failure(None, "it gave way to others");
                return;
            }
            tokio::select! {
                () = self.one_less.notified() => {}
                () = sleep(PATIENCE - age) => {}
            }
        }
    }

    async fn shake_hands(&self, newcomer: Newcomer) {
        let Newcomer { stream, peer, acceptor, then } = newcomer;
        let begun = TcpStream::from_std(stream).map_err(|error| error.to_string()).and_then(|socket| {
            let session = acceptor.accept();
            Ok((socket, session.map_err(|error| error.to_string())?))
        });
        let (socket, mut session) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.shared.note_failure(Some(peer), &error),
        };
        match timeout(HANDSHAKE_TIMEOUT, tls::handshake(&socket, &mut session)).await {
            Ok(Ok(())) => {
                self.shared.encryption.figures.handshakes.fetch_add(1, Relaxed);
                if let Ok(stream) = socket.into_std() {
                    then(stream, session);
                }
            }
            Ok(Err(error)) => self.shared.note_failure(Some(peer), &tls::reason_of(&error)),
            Err(_) => self.shared.note_failure(Some(peer), "it took too long"),
        }
    }
}

impl Shared {
    /// The handshakes that one thread may have now.
    fn unfinished_max(&self) -> usize {
        let share = (self.places_left)() / self.threads as u64;
        share.clamp(UNFINISHED_MIN as u64, UNFINISHED_MAX as u64) as usize
    }

    fn note_failure(&self, peer: Option<SocketAddr>, reason: &str) {
        self.encryption.figures.failed.fetch_add(1, Relaxed);
        let now_ms = self.clock.monotonic_us() / 1000;
        if let Some(unlogged) = self.failures.lock().note(reason, now_ms) {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            tracing::warn!(target: "server", peer, reason, unlogged, "TLS: a handshake failed");
        }
    }
}
