//! The HTTP port: accepts connections, and runs the CouchDB front and the tools on threads.
//!
//! ```text
//! acceptor -> (TLS: handshake) -> thread "http-n": couch::serve_thread -> databases, log
//!                                                  -> tools: /metrics, /_backup
//!                                                  -> redis: /_redis, by connections to the workers
//! ```

pub(crate) mod access_log;
pub(crate) mod issuers;
mod redis;
mod socket;
mod surroundings;
mod tools;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use couch::{Feeds, Front, HttpOrder, Store};
use tokio::{net::TcpListener, sync::mpsc};

use self::socket::HttpSocket;
use crate::{
    handshakes::{Then, TlsDoor},
    parts::Parts,
};

/// Pause after a failed accept; the usual cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The maximum number of threads.
const THREADS_MAX: usize = 32;
/// The longest wait for the end of the next thread: longer than the time that a thread grants to replies.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The threads that serve HTTP.
pub(crate) struct Http {
    front: Arc<Front>,
    /// The databases; empty while the server recovers.
    pub(crate) store: Arc<OnceLock<Store>>,
    threads: Vec<mpsc::UnboundedSender<HttpOrder<HttpSocket>>>,
    next: AtomicUsize,
}

impl Http {
    /// Starts one thread for each worker, up to [`THREADS_MAX`]. Each thread takes one of the appenders of
    /// the log, whose number is limited.
    ///
    /// # Errors
    /// If the OS refuses a thread or its runtime.
    pub(crate) fn start(parts: &Arc<Parts>, feeds: Arc<Feeds>) -> io::Result<Http> {
        let store = Arc::<OnceLock<Store>>::default();
        let front = Arc::new(Front::new(surroundings::host(parts, store.clone(), feeds)));
        let threads = (0..parts.startup.workers.min(THREADS_MAX))
            .map(|index| start_thread(index, front.clone()))
            .collect::<io::Result<_>>()?;
        Ok(Http { front, store, threads, next: AtomicUsize::new(0) })
    }

    /// Accepts connections until the runtime ends, and hands them to the threads in turn. At a door for TLS,
    /// a connection is handed over after its handshake.
    pub(crate) async fn accept(self: Arc<Http>, listener: TcpListener, tls: Option<TlsDoor>) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(target: "server", %error, "cannot accept a connection for HTTP");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let Ok(stream) = stream.into_std() else { continue };
            match &tls {
                None => self.serve(HttpSocket { stream, session: None }, peer),
                Some(door) => {
                    let http = self.clone();
                    let then: Then = Box::new(move |stream, session| {
                        http.serve(HttpSocket { stream, session: Some(Box::new(session)) }, peer);
                    });
                    door.begin(stream, peer, then).await;
                }
            }
        }
    }

    fn serve(&self, stream: HttpSocket, peer: SocketAddr) {
        // A connection above the limit is closed at once.
        let Some(permit) = self.front.permit() else { return };
        let turn = self.next.fetch_add(1, Relaxed) % self.threads.len();
        // If the thread has ended, the connection is closed.
        let _ = self.threads[turn].send(HttpOrder::Connect { stream, peer, permit });
    }

    /// Waits until every thread has been between two tasks since the call, so that no write batch is half
    /// made. Changes that had passed their last check before the call are then in the log.
    pub(crate) fn settle(&self) {
        let finished = self.tell_all(HttpOrder::Report);
        // A thread that has ended drops its sender.
        while finished.recv().is_ok() {}
    }

    /// Closes all connections; new ones are served.
    pub(crate) fn hang_up(&self) {
        for thread in &self.threads {
            let _ = thread.send(HttpOrder::HangUp);
        }
    }

    /// Lets running requests end, ends feeds, closes all connections, ends the threads. Blocks.
    pub(crate) fn stop(&self) {
        let finished = self.tell_all(HttpOrder::Stop);
        let all_ended = self.threads.iter().all(|_| finished.recv_timeout(STOP_GRACE).is_ok());
        if !all_ended {
            tracing::warn!(target: "server", "some replies over HTTP did not leave in time");
        }
    }

    fn tell_all(
        &self,
        order: impl Fn(std::sync::mpsc::Sender<()>) -> HttpOrder<HttpSocket>,
    ) -> std::sync::mpsc::Receiver<()> {
        let (done, finished) = std::sync::mpsc::channel();
        for thread in &self.threads {
            let _ = thread.send(order(done.clone()));
        }
        finished
    }
}

fn start_thread(index: usize, front: Arc<Front>) -> io::Result<mpsc::UnboundedSender<HttpOrder<HttpSocket>>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let run = move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, couch::serve_thread(front, receiver));
    };
    std::thread::Builder::new().name(format!("http-{index}")).spawn(run)?;
    Ok(sender)
}
