//! A thread that serves HTTP: one single-threaded runtime and its connections.
//!
//! Everything here belongs to one thread; `Rc` and `RefCell` are enough, and no borrow lives across an await.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    net::SocketAddr,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use documents::{CatalogWriter, Database, DocError, Documents, Writer, mango::Indexes};
use lsn::Lsn;
use tokio::{
    net::TcpStream,
    sync::{Notify, mpsc, watch},
};

use super::{
    connection,
    failure::Failure,
    front::{ConnectionPermit, Front},
    patience::IdleTimer,
    refusal::Refusal,
    request_body::Spare,
    write_batch::{Settled, WriteBatches},
};
use crate::{Feeds, Host, Store};

/// How often connections are checked.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How long replies may take to leave when the thread stops.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// A message to a thread.
pub enum Message {
    /// Serve this connection.
    Connect {
        /// The socket.
        stream: std::net::TcpStream,
        /// The address of the client.
        peer: SocketAddr,
        /// Its permit among the connections that are allowed.
        permit: ConnectionPermit,
    },
    /// Report, once everything begun before is in the log.
    Report(std::sync::mpsc::Sender<()>),
    /// Close everything once replies are sent, report, end.
    Stop(std::sync::mpsc::Sender<()>),
}

pub(super) struct HttpThread {
    pub(super) front: Arc<Front>,
    /// For bodies of batches.
    pub(super) spare: Spare,
    connections: RefCell<HashMap<u64, Rc<IdleTimer>>>,
    /// Notified when a connection has ended.
    one_less: Notify,
    last_connection: Cell<u64>,
    /// Whole seconds since the thread began.
    now_s: Rc<Cell<u32>>,
    stop: watch::Sender<bool>,
    /// This thread's way to change databases; set once the server has recovered.
    batches: OnceCell<Rc<WriteBatches>>,
}

/// Serves connections on the calling thread until a message ends it. Within a [`tokio::task::LocalSet`].
pub async fn serve_thread(front: Arc<Front>, messages: mpsc::UnboundedReceiver<Message>) {
    let thread = Rc::new(HttpThread {
        front,
        spare: Spare::default(),
        connections: RefCell::default(),
        one_less: Notify::new(),
        last_connection: Cell::new(0),
        now_s: Rc::default(),
        stop: watch::Sender::new(false),
        batches: OnceCell::new(),
    });
    thread.run(messages).await;
}

impl HttpThread {
    /// Handles messages until [`Message::Stop`], then closes all connections.
    async fn run(self: Rc<Self>, mut messages: mpsc::UnboundedReceiver<Message>) {
        tokio::task::spawn_local(self.clone().look_after_connections());
        while let Some(message) = messages.recv().await {
            match message {
                Message::Connect { stream, peer, permit } => self.connect(stream, peer, permit),
                // No write waits between its permission and the log.
                Message::Report(done) => drop(done),
                Message::Stop(done) => {
                    self.close().await;
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn connect(self: &Rc<Self>, stream: std::net::TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
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
            drop(permit);
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
    pub(super) fn host(&self) -> &Host {
        &self.front.host
    }

    /// Makes sure that there are databases.
    ///
    /// # Errors
    /// While the server recovers.
    pub(super) fn require_documents(&self) -> Result<(), Failure> {
        if self.batches.get().is_some() {
            return Ok(());
        }
        let store = self.host().store.get().ok_or(Failure::from(Refusal::Loading))?;
        let batches = Rc::new(WriteBatches::new(store, self.host().replication.clone()));
        let releasing = batches.clone();
        tokio::task::spawn_local(async move { releasing.gate().run().await });
        let _ = self.batches.set(batches);
        Ok(())
    }

    fn batches(&self) -> &Rc<WriteBatches> {
        self.batches.get().expect("requests are routed only once there are databases")
    }

    fn store(&self) -> &Store {
        self.host().store.get().expect("requests are routed only once there are databases")
    }

    pub(super) fn documents(&self) -> &Arc<Documents> {
        &self.store().documents
    }

    pub(super) fn indexes(&self) -> &Indexes {
        &self.store().indexes
    }

    pub(super) fn feeds(&self) -> &Feeds {
        &self.host().feeds
    }

    /// Changes a database, together with other changes of this thread. The outcome may be sent once its
    /// position is committed. `size`: the number of documents and bytes.
    pub(super) async fn submit<T: 'static>(
        &self,
        database: &Arc<Database>,
        size: (usize, usize),
        change: impl FnOnce(&mut Writer) -> Result<T, DocError> + 'static,
    ) -> Result<Settled<T>, Failure> {
        Ok(self.batches().submit(database, size, change).await?)
    }

    /// As [`HttpThread::submit`], and waits until the outcome may be sent.
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
        let (outcome, lsn) = self.batches().change_catalog(self.documents(), prepare).await?;
        self.committed(lsn).await?;
        Ok(outcome?)
    }

    /// Returns once the log has committed `lsn`: replies may show it.
    ///
    /// # Errors
    /// If the log has failed, or only replicas have been waited for, and for `ack-timeout`.
    pub(super) async fn committed(&self, lsn: Lsn) -> Result<(), Failure> {
        let mut waits = std::pin::pin!(self.batches().gate().committed(lsn));
        while let Some(timeout_ms) = self.host().acks.timeout_ms() {
            match tokio::time::timeout(Duration::from_millis(timeout_ms), &mut waits).await {
                Ok(done) => return Ok(done?),
                Err(_) if self.store().log.shippable_lsn() >= lsn => {
                    self.host().acks.timed_out();
                    return Err(Failure::NotReplicated);
                }
                Err(_) => {}
            }
        }
        Ok(waits.await?)
    }

    /// The end of the log that is in memory now, durable or not. The log of a replica may hold more.
    pub(super) fn shown_lsn(&self) -> Result<Lsn, Failure> {
        Ok(self.store().log.appended_lsn().min(self.host().replication.shown_lsn()))
    }
}
