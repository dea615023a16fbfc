//! The queue of orders to a worker, which any thread can send to.
//!
//! The queue is unbounded, but the number of its orders is limited:
//! - new connections by `maxclients`, because [`Access::admit`](crate::access::Access::admit) counts them;
//! - kills, reviews, long units, answers and ends of pauses by the number of connections (a client waits for
//!   one answer);
//! - pushes by [`engine::clients::PUSHED_BYTES_MAX`] for each client;
//! - feeds by the window of each reader of durable channels;
//! - published changes of a group by the number of its members.
//!
//! There are few other orders.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use engine::{LongReply, Notice, PendingServes, Place, clients::Signal, observe::TracedCommand};
use lsn::Lsn;
use pubsub::durable::Feed;
use tokio::sync::mpsc;

use crate::{access::Arrival, log_threads::LogThreads};

/// A connection that is to be served.
pub(crate) struct Admitted {
    pub(crate) stream: std::net::TcpStream,
    /// The session after its handshake, for a connection over TLS.
    pub(crate) session: Option<Box<tls::Session>>,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The Unix socket through which the connection came, if any. If so, `peer` and `local` are addresses of
    /// this machine.
    pub(crate) unix: Option<UnixPeer>,
    pub(crate) place: Place,
    /// Counts the connection until its client is registered.
    pub(crate) arrival: Arrival,
    /// The user over HTTP whose commands the connection carries.
    pub(crate) on_behalf_of: Option<Box<[u8]>>,
}

/// The other side of a connection through a Unix socket.
pub(crate) struct UnixPeer {
    /// The path of the socket.
    pub(crate) path: Arc<str>,
    /// The user of the operating system as whom the other side runs.
    pub(crate) uid: u32,
}

/// An order to a worker.
pub(crate) enum WorkerOrder {
    /// Serve this connection.
    Connect(Admitted),
    /// Recovery is done: all commands may run.
    Attach(LogThreads),
    /// Close the connection of this client (for example CLIENT KILL).
    Kill(u64),
    /// Close the connection of this client if its user may no longer use MONITOR, or a channel to which it
    /// listens.
    Review(u64),
    /// Append these bytes to the client's outbox, to be sent once `gate` is committed.
    Push { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// Append the reply to the blocked command of this client to its outbox, to be sent once `gate` is
    /// committed, and run the client's next command.
    Answer { client_id: u64, bytes: Arc<[u8]>, gate: Lsn },
    /// The pause that holds a command of this client was ended.
    GoOn(u64),
    /// A long unit of a client has ended.
    LongUnit(Box<LongUnitDone>),
    /// Messages and events for readers of durable channels, in order.
    Feed(Feed),
    /// Publish these messages to the subscribers of this server, outside the log.
    Publish(Vec<commands::SentinelEvent>),
    /// Report back at once, which shows that the current round is over.
    Report(std::sync::mpsc::Sender<()>),
    /// Give unused memory back to the OS (MEMORY PURGE).
    ReleaseMemory,
    /// Send withheld replies: the lease of this leader was renewed.
    LeaseRenewed,
    /// Fail the replies whose gates are at or before this position, because replicas have not acknowledged
    /// the log up to there in time.
    Overdue(Lsn),
    /// Fail all replies that wait for their gates, with this error, because this server refuses reads now.
    RefuseHeld(&'static str),
    /// Close all connections, and drop the replies that have not left.
    HangUp,
    /// The log failed: fail the waiting clients, close everything, report.
    Fail(std::sync::mpsc::Sender<()>),
    /// Close everything once replies are sent, report, end.
    Stop(std::sync::mpsc::Sender<()>),
}

/// The result of a long unit.
pub(crate) struct LongUnitDone {
    pub(crate) client_id: u64,
    pub(crate) reply: LongReply,
    /// Notices for the worker to publish.
    pub(crate) notices: Vec<Notice>,
    /// Whether the unit has appended to the log.
    pub(crate) wrote: bool,
    /// Keys whose waiters could not be served yet.
    pub(crate) serves: PendingServes,
    /// The traced commands of the unit that wait for the log.
    pub(crate) traced: Vec<TracedCommand>,
}

/// The sending end of a worker's queue.
#[derive(Clone)]
pub(crate) struct Mailbox {
    sender: mpsc::UnboundedSender<WorkerOrder>,
    /// Whether the worker writes a batch of the log itself, and so serves nobody until the disk answers.
    is_writing: Arc<AtomicBool>,
}

impl Mailbox {
    /// The sending end of the queue with this sender.
    pub(crate) fn new(sender: mpsc::UnboundedSender<WorkerOrder>) -> Mailbox {
        Mailbox { sender, is_writing: Arc::default() }
    }

    /// Calls `write`, which writes a batch of the log. [`Mailbox::is_writing`] is true meanwhile.
    #[inline]
    pub(crate) fn while_writing(&self, write: impl FnOnce()) {
        self.is_writing.store(true, Relaxed);
        write();
        self.is_writing.store(false, Relaxed);
    }

    /// Whether the worker writes a batch of the log itself.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing.load(Relaxed)
    }

    /// Sends an order; an order to a worker that has ended is dropped.
    pub(crate) fn send(&self, order: WorkerOrder) {
        let _ = self.sender.send(order);
    }

    /// Passes a signal for a connection of this worker on, as an order.
    pub(crate) fn signal(&self, client_id: u64, signal: Signal) {
        self.send(match signal {
            Signal::Close => WorkerOrder::Kill(client_id),
            Signal::Review => WorkerOrder::Review(client_id),
            Signal::Push { bytes, gate } => WorkerOrder::Push { client_id, bytes, gate },
            Signal::Answer { bytes, gate } => WorkerOrder::Answer { client_id, bytes, gate },
            Signal::GoOn => WorkerOrder::GoOn(client_id),
        });
    }
}
