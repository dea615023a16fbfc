//! A thread that serves HTTP: one single-threaded runtime and its connections.
//!
//! Everything here belongs to one thread; `Rc` and `RefCell` are enough, and no borrow lives across an await.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use axum::{Router, routing::get};
use documents::{CatalogWriter, Database, DocError, Documents, Writer, mango::Indexes};
use engine::Host;
use lsn::Lsn;
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc, watch},
};

use super::{
    connection,
    failure::Failure,
    instance,
    patience::IdleTimer,
    request_body::Spare,
    shared::{Place, Shared},
};
use crate::{
    documents::{Feeds, Refusal, Rounds, Settled},
    host::ServerHost,
};

/// How often connections are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How long replies may take to leave when the thread stops.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// What a thread is told.
pub(super) enum Message {
    /// Serve this connection.
    Connect { stream: std::net::TcpStream, peer: SocketAddr, place: Place },
    /// Report, once what was begun before is in the log.
    Report(std::sync::mpsc::Sender<()>),
    /// Close everything once replies are sent, report, end.
    Stop(std::sync::mpsc::Sender<()>),
}

/// How to reach a thread.
pub(super) struct Handle(mpsc::UnboundedSender<Message>);

impl Handle {
    /// Sends; a thread that has ended takes nothing more.
    pub(super) fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }
}

/// See the module documentation.
pub(super) struct HttpThread {
    pub(super) host: Arc<ServerHost>,
    pub(super) shared: Arc<Shared>,
    /// What is routed by names alone: metrics and backups.
    pub(super) tools: Router,
    /// For bodies of batches.
    pub(super) spare: Spare,
    connections: RefCell<HashMap<u64, Rc<IdleTimer>>>,
    /// A connection has ended.
    one_less: Notify,
    last_connection: Cell<u64>,
    /// Whole seconds since the thread began.
    now_s: Rc<Cell<u32>>,
    stop: watch::Sender<bool>,
    /// Set once the server has recovered.
    store: OnceCell<Store>,
}

/// The databases, and this thread's way to change them.
struct Store {
    documents: Arc<Documents>,
    indexes: Arc<Indexes>,
    rounds: Rc<Rounds>,
}

/// Starts a thread.
///
/// # Errors
/// If the OS refuses it.
pub(super) fn start(index: usize, host: Arc<ServerHost>, shared: Arc<Shared>) -> io::Result<Handle> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let run = move || {
        let tools = Router::new().route("/metrics", get(instance::metrics_text));
        let tools = tools.merge(crate::backup::routes::routes()).with_state(host.clone());
        let thread = Rc::new(HttpThread {
            host,
            shared,
            tools,
            spare: Spare::default(),
            connections: RefCell::default(),
            one_less: Notify::new(),
            last_connection: Cell::new(0),
            now_s: Rc::default(),
            stop: watch::Sender::new(false),
            store: OnceCell::new(),
        });
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, thread.run(receiver));
    };
    std::thread::Builder::new().name(format!("http-{index}")).spawn(run)?;
    Ok(Handle(sender))
}

impl HttpThread {
    /// Handles messages until told to stop.
    async fn run(self: Rc<Self>, mut messages: mpsc::UnboundedReceiver<Message>) {
        tokio::task::spawn_local(self.clone().look_after_connections());
        while let Some(message) = messages.recv().await {
            match message {
                Message::Connect { stream, peer, place } => self.connect(stream, peer, place),
                // Nothing that was begun waits between the look at who may write and the log.
                Message::Report(done) => drop(done),
                Message::Stop(done) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn connect(self: &Rc<Self>, stream: std::net::TcpStream, peer: SocketAddr, place: Place) {
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(target: "server", %error, %peer, "cannot serve a connection for HTTP");
                return;
            }
        };
        let id = self.last_connection.get() + 1;
        self.last_connection.set(id);
        let patience = Rc::new(IdleTimer::new(self.now_s.clone()));
        self.connections.borrow_mut().insert(id, patience.clone());
        let thread = self.clone();
        tokio::task::spawn_local(async move {
            connection::serve(thread.clone(), stream, peer, patience).await;
            thread.connections.borrow_mut().remove(&id);
            thread.one_less.notify_one();
            drop(place);
        });
    }

    /// Once a second: whose time is over is disconnected.
    async fn look_after_connections(self: Rc<Self>) {
        let begun = tokio::time::Instant::now();
        let mut look = tokio::time::interval(LOOK_PERIOD);
        loop {
            let now = look.tick().await;
            self.now_s.set(now.duration_since(begun).as_secs() as u32);
            let connections = self.connections.borrow();
            let over = connections.values().filter(|patience| patience.is_over());
            over.for_each(|patience| patience.ended.notify_one());
        }
    }

    /// Completes when the thread is to end.
    pub(super) async fn stopping(&self) {
        // The sender is the thread's own: it is there as long as anybody asks.
        let _ = self.stop.subscribe().wait_for(|&stopping| stopping).await;
    }

    async fn close(&self) {
        self.stop.send_replace(true);
        let gone = async {
            while !self.connections.borrow().is_empty() {
                self.one_less.notified().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_GRACE, gone).await;
    }
}

/// The databases.
impl HttpThread {
    /// Makes sure that there are databases.
    ///
    /// # Errors
    /// While the server recovers.
    pub(super) fn require_documents(&self) -> Result<(), Failure> {
        if self.store.get().is_some() {
            return Ok(());
        }
        let served = self.host.served().ok_or(Failure::from(Refusal::Loading))?;
        let rounds = Rc::new(Rounds::new(self.host.clone(), served.threads.clone()));
        let releasing = rounds.clone();
        tokio::task::spawn_local(async move { releasing.gate().run().await });
        let (documents, indexes) = (served.documents.clone(), served.indexes.clone());
        let _ = self.store.set(Store { documents, indexes, rounds });
        Ok(())
    }

    fn store(&self) -> &Store {
        self.store.get().expect("requests are routed only once there are databases")
    }

    pub(super) fn documents(&self) -> &Arc<Documents> {
        &self.store().documents
    }

    pub(super) fn indexes(&self) -> &Indexes {
        &self.store().indexes
    }

    pub(super) fn feeds(&self) -> &Feeds {
        &self.host.feeds
    }

    /// Changes a database, together with what others on this thread want of it. The outcome may be told once its position is
    /// committed. `size` is how many documents and bytes it is about.
    pub(super) async fn submit<T: 'static>(
        &self,
        database: &Arc<Database>,
        size: (usize, usize),
        change: impl FnOnce(&mut Writer) -> Result<T, DocError> + 'static,
    ) -> Result<Settled<T>, Failure> {
        Ok(self.store().rounds.submit(database, size, change).await?)
    }

    /// As [`HttpThread::submit`], and waits until the outcome may be told.
    pub(super) async fn change<T: 'static>(
        &self,
        database: &Arc<Database>,
        size: (usize, usize),
        change: impl FnOnce(&mut Writer) -> Result<T, DocError> + 'static,
    ) -> Result<T, Failure> {
        let (outcome, lsn) = self.submit(database, size, change).await?;
        self.committed(lsn).await?;
        Ok(outcome?)
    }

    /// Creates or deletes a database.
    pub(super) async fn change_catalog(
        &self,
        prepare: impl FnOnce(&mut CatalogWriter) -> Result<Vec<u8>, DocError>,
    ) -> Result<(), Failure> {
        let Store { documents, rounds, .. } = self.store();
        let (outcome, lsn) = rounds.change_catalog(documents, prepare).await?;
        self.committed(lsn).await?;
        Ok(outcome?)
    }

    /// Returns once the log has committed `lsn`: what stands there may be told.
    ///
    /// # Errors
    /// If the log has failed, or only replicas have been waited for, and for `ack-timeout`.
    pub(super) async fn committed(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut waits = std::pin::pin!(self.store().rounds.gate().committed(lsn));
        while let (Some(timeout_ms), Some(log)) = (self.host.node.ack_timeout_ms(), self.host.log()) {
            match tokio::time::timeout(Duration::from_millis(timeout_ms), &mut waits).await {
                Ok(done) => return Ok(done?),
                Err(_) if log.shippable_lsn() >= lsn => {
                    self.host.ack_timed_out(1);
                    return Err(Failure::NotReplicated);
                }
                Err(_) => {}
            }
        }
        Ok(waits.await?)
    }

    /// The end of what is in memory now, durable or not. The log of a replica may hold more.
    pub(super) fn shown_lsn(&self) -> Result<Lsn, Failure> {
        let appended = self.host.log().ok_or(Failure::from(Refusal::Loading))?.appended_lsn();
        Ok(appended.min(self.host.replication().shown_lsn()))
    }
}
