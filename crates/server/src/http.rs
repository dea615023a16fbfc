//! The HTTP port: the protocol of CouchDB, `GET /_up` for probes, `GET /metrics` for Prometheus, `/_backup`
//! for `sheaf backup`.
//!
//! ```text
//! acceptor -> thread "http-n": connection -> route (by hand, on path segments) -> handler -> databases, log
//!                                         <- reply, whole or chunk by chunk <-
//! ```
//!
//! This module decides nothing about documents; `documents` does, and its errors become statuses in one
//! place, [`failure`].
//!
//! Invariants
//! - Redis clients are served by other threads: reading a document from a disk delays HTTP clients only.
//! - A connection takes bounded memory, however large a body or a result: bodies have limits, each and all
//!   together ([`body_memory`]); results are rendered in chunks, at the pace at which the client receives
//!   them.
//! - Pages of other origins cannot change anything: see [`cross_site`].
//! - Idle clients do not hold connections: see [`patience`].

mod access;
mod attachment;
mod body;
mod body_memory;
mod bulk;
mod changes;
mod config;
mod connection;
mod cors;
mod cross_site;
mod database;
mod databases;
mod document;
mod edit;
mod failure;
mod instance;
mod listing;
mod mango;
mod patience;
mod query;
mod reply;
mod request;
mod request_body;
mod route;
mod security;
mod session;
mod shared;
mod show;
mod thread;
mod unsupported;
mod upload;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use tokio::net::TcpListener;

use self::{
    shared::Shared,
    thread::{Handle, Message},
};
use crate::host::ServerHost;

/// Pause after a failed accept; the usual cause is a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Limit of the number of HTTP threads.
const THREADS_MAX: usize = 32;
/// Time for the threads to end, beyond the time granted to replies.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// The threads that serve HTTP.
pub(crate) struct Http {
    host: Arc<ServerHost>,
    shared: Arc<Shared>,
    threads: Vec<Handle>,
    next: AtomicUsize,
}

impl Http {
    /// Starts as many threads as there are workers, up to a limit: each takes one of the appenders of the
    /// log.
    ///
    /// # Errors
    /// If the OS refuses a thread.
    pub(crate) fn start(host: &Arc<ServerHost>) -> io::Result<Arc<Http>> {
        let shared = Arc::new(Shared::new(host));
        let threads = (0..host.facts.workers.min(THREADS_MAX))
            .map(|index| thread::start(index, host.clone(), shared.clone()))
            .collect::<io::Result<_>>()?;
        Ok(Arc::new(Http { host: host.clone(), shared, threads, next: AtomicUsize::new(0) }))
    }

    /// Accepts until the runtime ends, and hands connections to the threads in turn.
    pub(crate) async fn accept(self: Arc<Http>, listener: TcpListener) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(target: "server", %error, "cannot accept a connection for HTTP");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // In the order of arrival: a connection above the limit is closed without further work.
            let Some(place) = self.shared.place(&self.host) else { continue };
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = stream.into_std() {
                let turn = self.next.fetch_add(1, Relaxed) % self.threads.len();
                self.threads[turn].send(Message::Connect { stream, peer, place });
            }
        }
    }

    /// Returns when every thread has been between two tasks: writes permitted before this call are in the
    /// log.
    pub(crate) fn settle(&self) {
        let (done, finished) = mpsc::channel();
        self.threads.iter().for_each(|thread| thread.send(Message::Report(done.clone())));
        drop(done);
        // A thread that has ended drops its sender.
        while finished.recv().is_ok() {}
    }

    /// Lets running requests end, ends feeds, closes all connections, ends the threads. Blocks.
    pub(crate) fn stop(&self) {
        let (done, finished) = mpsc::channel();
        self.threads.iter().for_each(|thread| thread.send(Message::Stop(done.clone())));
        drop(done);
        let all_ended = self.threads.iter().all(|_| finished.recv_timeout(STOP_GRACE).is_ok());
        if !all_ended {
            tracing::warn!(target: "server", "some replies over HTTP did not leave in time");
        }
    }
}
