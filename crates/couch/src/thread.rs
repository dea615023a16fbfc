//! A thread that serves HTTP, as handlers see it: the databases, its write batches, its end.
//!
//! An `HttpThread` is used by one thread: `Rc` is enough to share it.

use std::{cell::OnceCell, rc::Rc, sync::Arc, time::Duration};

use documents::{CatalogWriter, Database, DocError, Documents, Writer, mango::Indexes};
use lsn::Lsn;
use tokio::sync::watch;

use super::{
    commit_gate::LogFailed,
    failure::Failure,
    front::Front,
    refusal::Refusal,
    request_body::Spare,
    traces,
    write_batch::{Settled, WriteBatches},
};
use crate::{Feeds, Host, Store};

pub(super) struct HttpThread {
    pub(super) front: Arc<Front>,
    /// Spare buffers for bodies of batch requests.
    pub(super) spare: Spare,
    stop: watch::Sender<bool>,
    /// The write batches of this thread, once [`HttpThread::require_documents`] has found open databases.
    batches: OnceCell<Rc<WriteBatches>>,
}

impl HttpThread {
    pub(super) fn new(front: Arc<Front>) -> HttpThread {
        let (stop, batches) = (watch::Sender::new(false), OnceCell::new());
        HttpThread { front, spare: Spare::default(), stop, batches }
    }

    /// Tells the thread to end: connections close once their replies are sent.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Completes when the thread is to end.
    pub(super) async fn stopping(&self) {
        // `self` owns the sender, so the channel stays open meanwhile.
        let _ = self.stop.subscribe().wait_for(|&stopping| stopping).await;
    }
}

/// Access to the databases, and waits for the log.
impl HttpThread {
    pub(super) fn host(&self) -> &Host {
        &self.front.host
    }

    /// Requires that the databases are open.
    ///
    /// # Errors
    /// While the server recovers.
    pub(super) fn require_documents(&self) -> Result<(), Failure> {
        if self.batches.get().is_some() {
            return Ok(());
        }
        let store = self.host().store.get().ok_or(Failure::from(Refusal::Loading))?;
        let batches = Rc::new(WriteBatches::new(store, self.host()));
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

    /// The database of this name.
    ///
    /// # Errors
    /// That the database does not exist; if this server shows no data and so cannot know that, the reason why
    /// it shows none.
    pub(super) async fn database(&self, name: &str) -> Result<Arc<Database>, Failure> {
        let documents = self.documents();
        match documents.database(name) {
            Ok(database) => Ok(database),
            // Its deletion may not be committed yet.
            Err(missing) => {
                self.read(|| Ok(((), documents.names_lsn()))).await?;
                Err(missing.into())
            }
        }
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

    /// Gives a setting of the data a value, unless it has one. Waits until replies may show the new value.
    pub(super) async fn put_if_missing(&self, name: &'static [u8], value: &[u8]) -> Result<(), Failure> {
        match self.batches().put_if_missing(name, value).await? {
            Some(lsn) => self.committed(lsn).await,
            None => Ok(()),
        }
    }

    /// Returns once replies may show `lsn`: when the log has committed it, or at once if replies wait neither
    /// for the disk nor for replicas.
    ///
    /// # Errors
    /// If the log has failed; or if this server has written `lsn`, and replicas have not acknowledged it
    /// within `ack-timeout`.
    pub(super) async fn committed(&self, lsn: Lsn) -> Result<(), Failure> {
        traces::waiting(lsn, self.until_committed(lsn)).await
    }

    async fn until_committed(&self, lsn: Lsn) -> Result<(), Failure> {
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

    /// Makes everything up to `lsn` durable now, with any durability.
    ///
    /// # Errors
    /// If the log has failed.
    pub(super) async fn make_durable(&self, lsn: Lsn) -> Result<(), Failure> {
        let log = self.store().log.clone();
        if log.durable_lsn() >= lsn {
            return Ok(());
        }
        let made = tokio::task::spawn_blocking(move || log.make_durable(lsn)).await;
        if matches!(made, Ok(Ok(()))) { Ok(()) } else { Err(LogFailed.into()) }
    }

    /// Reads the data of a reply, with the position in the log of the newest change in it, and waits until
    /// replies may show that position.
    ///
    /// # Errors
    /// If this server shows no data, or cannot be certain that it has the newest data; and the errors of
    /// `read` and of [`HttpThread::committed`].
    pub(super) async fn read<T>(
        &self,
        read: impl FnOnce() -> Result<(T, Lsn), Failure>,
    ) -> Result<T, Failure> {
        let replication = &*self.host().replication;
        if let Some(refusal) = Refusal::of_reads(replication) {
            return Err(refusal.into());
        }
        let before = replication.times_stepped_down();
        let (found, lsn) = read()?;
        self.committed(lsn).await?;
        // This is checked after the read: if both conditions are true, no other leader was elected before the
        // data was read.
        let may_answer = replication.may_answer() && replication.times_stepped_down() == before;
        if may_answer { Ok(found) } else { Err(Refusal::NoMajority.into()) }
    }

    /// The position in the log up to which the data in memory has all changes, durable or not. The log of a
    /// replica may hold more.
    pub(super) fn shown_lsn(&self) -> Result<Lsn, Failure> {
        Ok(self.store().log.appended_lsn().min(self.host().replication.shown_lsn()))
    }
}
