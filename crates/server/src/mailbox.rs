//! How to reach a worker from any thread: messages into its queue.
//!
//! The queue is unbounded; what goes into it is bounded by `maxclients` (connections, kills, long units and answers, of which a
//! client waits for one), by [`engine::clients::PUSHED_BYTES_MAX`] per client (pushes), by the window per follower of durable channels
//! (feeds) and by the few events in a server's life.

use std::{net::SocketAddr, sync::Arc};

use engine::clients::Signal;
use lsn::Lsn;
use pubsub::durable::Feed;

use tokio::sync::mpsc;

use crate::{log_threads::LogThreads, long_units::Done};

/// What a worker is told.
pub(crate) enum Message {
    /// Serve this connection.
    Connect { stream: std::net::TcpStream, peer: SocketAddr, local: SocketAddr },
    /// Recovery is done: all commands may run.
    Attach(LogThreads),
    /// CLIENT KILL.
    Kill(u64),
    /// Append these bytes to what the client is sent, and send them once `gate` is durable.
    Push { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// The client was blocked and is no more: append these bytes in the same way, and let its next command run.
    Answer { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// A long unit of a client has ended.
    LongUnit(Box<Done>),
    /// What followers of durable channels get, in order.
    Feed(Feed),
    /// Report: the round that was being executed is over.
    Report(std::sync::mpsc::Sender<()>),
    /// MEMORY PURGE.
    ReleaseMemory,
    /// Replies whose gate is up to here have waited for replicas for too long.
    Overdue(Lsn),
    /// The log failed: answer who waits, close everything, report.
    Fail(std::sync::mpsc::Sender<()>),
    /// Close everything once replies are sent, report, end.
    Stop(std::sync::mpsc::Sender<()>),
}

/// How to reach a worker from any thread.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(crate) sender: mpsc::UnboundedSender<Message>,
}

impl Mailbox {
    /// Sends; a worker that has ended takes nothing more.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }

    /// Passes on what others ask of a connection of this worker.
    pub(crate) fn signal(&self, client_id: u64, signal: Signal) {
        self.send(match signal {
            Signal::Close => Message::Kill(client_id),
            Signal::Push { bytes, gate } => Message::Push { client_id, bytes, gate },
            Signal::Answer { bytes, gate } => Message::Answer { client_id, bytes, gate },
        });
    }
}
