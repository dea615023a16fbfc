//! Messages to a worker from any thread.
//!
//! The queue is unbounded; its contents are bounded by `maxclients` (connections, kills, long units and
//! answers, of which a client waits for one), by [`commands::clients::PUSHED_BYTES_MAX`] per client (pushes),
//! by the window per follower of durable channels (feeds) and by the few events in a server's life.

use std::{net::SocketAddr, sync::Arc};

use commands::clients::Signal;
use lsn::Lsn;
use pubsub::durable::Feed;

use tokio::sync::mpsc;

use crate::{log_threads::LogThreads, long_units::Done};

/// A message to a worker.
pub(crate) enum Message {
    /// Serve this new connection.
    Connect { stream: std::net::TcpStream, peer: SocketAddr, local: SocketAddr },
    /// Recovery is done: all commands may run.
    Attach(LogThreads),
    /// Close the connection of this client (CLIENT KILL).
    Kill(u64),
    /// Append these bytes for the client, and send them once `gate` is durable.
    Push { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// As `Push`, for the reply to a blocked command; then let the client's next command run.
    Answer { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// A long unit of a client has ended.
    LongUnit(Box<Done>),
    /// Deliver these feeds of durable channels, in order.
    Feed(Feed),
    /// Report that the current round has ended.
    Report(std::sync::mpsc::Sender<()>),
    /// Return unused memory to the OS (MEMORY PURGE).
    ReleaseMemory,
    /// Fail the replies with a gate up to here: they have waited for replicas for too long.
    Overdue(Lsn),
    /// The log failed: fail waiting replies, close all connections, then report.
    Fail(std::sync::mpsc::Sender<()>),
    /// Close all connections after sending their replies, report, end the thread.
    Stop(std::sync::mpsc::Sender<()>),
}

/// The sending end of a worker's queue.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(crate) sender: mpsc::UnboundedSender<Message>,
}

impl Mailbox {
    /// Sends a message; ignored if the worker has ended.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }

    /// Forwards a signal of another thread to a connection of this worker.
    pub(crate) fn signal(&self, client_id: u64, signal: Signal) {
        self.send(match signal {
            Signal::Close => Message::Kill(client_id),
            Signal::Push { bytes, gate } => Message::Push { client_id, bytes, gate },
            Signal::Answer { bytes, gate } => Message::Answer { client_id, bytes, gate },
        });
    }
}
