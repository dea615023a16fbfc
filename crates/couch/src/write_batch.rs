//! Write batches: the changes that the requests of one tick make to one database become one record of the
//! log, or a few if they are many.
//!
//! ```text
//! request: submit(change).await -> queue of its database
//! end of the tick: lock -> changes -> reserve (LSN) -> commit -> unlock -> publish the record
//!    '--> each request: its outcome, and the position to wait for
//! ```
//!
//! Write batches merge transactions. No request waits for a batch to fill: a batch has the requests of one
//! wake-up of the event loop, and requests that come meanwhile are in the next batch. A batch is not durable
//! when it answers: the reply waits for the position ([`CommitGate`]).
//!
//! Invariants
//! - A database is locked from the first read to the reservation in the log, so its changes have the order of
//!   the log. Under the lock, a batch may wait for files of the database, for room in the log and, if it
//!   changes users, for the slot of the settings. It waits for no client: [`WriteBatches`] makes a batch
//!   without `await`.
//! - A change of `_users` is in one record with the change of the users who may log in. These users are
//!   settings of the data, in a slot that is locked after the database.
//! - A refused change changes no document and does not affect others of its batch. All changes of a batch
//!   fail together only if the batch cannot become a record (`BatchFailure`).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use documents::{
    CatalogWriter, Database, DocError, Documents, USERS_DATABASE, WRITE_BATCH_BYTES_MAX,
    WRITE_BATCH_DOCUMENTS_MAX, Writer,
};
use engine::replication::Availability;
use env::Entropy;
use keyspace::{AccessClock, Effect, Freed, Keyspace, LIBRARIES_SLOT, SlotGuard, encode_documents_into};
use lsn::Lsn;
use storage::Log;
use tokio::sync::oneshot;

use super::{
    commit_gate::CommitGate,
    refusal::Refusal,
    users::{self, SettingChange},
};
use crate::{Host, LogDriver, Store};

/// The buffer for changes is kept for the next batch if it is no larger than this.
const KEPT_BYTES_MAX: usize = 4 * WRITE_BATCH_BYTES_MAX;

/// How long a change of users or of settings waits for their slot, which a script may keep locked.
const SLOT_PATIENCE: Duration = Duration::from_millis(20);

/// The result of a change, and the position to wait for before it is reported.
pub(crate) type Settled<T> = (Result<T, DocError>, Lsn);

/// Makes the change of a request in a batch, or gets the reason why the batch was not made. Returns the
/// [`Report`] for the request.
type Step = Box<dyn FnOnce(Result<&mut Writer, BatchFailure>) -> Report>;
/// Reports the end of a batch to the request: its position, or the reason of its failure.
type Report = Box<dyn FnOnce(Result<Lsn, BatchFailure>)>;

/// Why a batch made no record.
#[derive(Clone)]
enum BatchFailure {
    /// The change was not begun, or not written: nothing was changed, unless the log has failed.
    Refused(Refusal),
    /// The database was deleted or cannot be read, or the users would be too many or too large. The reply
    /// waits for this position.
    Failed(DocError, Lsn),
}

/// The write batches of one thread that serves documents.
pub(crate) struct WriteBatches {
    server: Arc<dyn Availability>,
    log: Log,
    driver: Arc<dyn LogDriver>,
    keyspace: Arc<Keyspace>,
    entropy: Arc<dyn Entropy + Send + Sync>,
    gate: CommitGate,
    queues: RefCell<Vec<Queue>>,
    /// Whether a task is spawned that makes the queued batches.
    is_due: Cell<bool>,
    /// Buffers for changes and records, reused by each batch.
    change: RefCell<Vec<u8>>,
    record: RefCell<Vec<u8>>,
}

/// The submitted changes of one database.
struct Queue {
    database: Arc<Database>,
    submitted: Vec<Submitted>,
}

struct Submitted {
    documents: usize,
    bytes: usize,
    step: Step,
}

impl WriteBatches {
    /// Creates the write batches of the calling thread, which must spawn [`CommitGate::run`] of the gate.
    pub(crate) fn new(store: &Store, host: &Host) -> WriteBatches {
        let (server, entropy) = (host.replication.clone(), host.entropy.clone());
        let (log, driver, keyspace) = (store.log.clone(), store.driver.clone(), store.keyspace.clone());
        let gate = CommitGate::new(log.appender());
        let (queues, is_due) = (RefCell::default(), Cell::new(false));
        let (change, record) = (RefCell::default(), RefCell::default());
        WriteBatches { server, log, driver, keyspace, entropy, gate, queues, is_due, change, record }
    }

    /// The gate on which to wait for positions of the log.
    pub(crate) fn gate(&self) -> &CommitGate {
        &self.gate
    }

    /// Makes a change to a database, in one batch with other changes submitted on this thread. `documents`
    /// and `bytes` are the approximate size. A change in the queue stays there even if its request is
    /// cancelled.
    ///
    /// # Errors
    /// If no write is possible: nothing was changed, unless the log has failed.
    pub(crate) async fn submit<T: 'static>(
        self: &Rc<Self>,
        database: &Arc<Database>,
        (documents, bytes): (usize, usize),
        change: impl FnOnce(&mut Writer) -> Result<T, DocError> + 'static,
    ) -> Result<Settled<T>, Refusal> {
        self.admitted(bytes).await?;
        let (done, settled) = oneshot::channel();
        let step = move |writer: Result<&mut Writer, BatchFailure>| -> Report {
            let outcome = writer.map(change);
            let tell = move |ended: Result<Lsn, BatchFailure>| {
                let settled = match outcome.and_then(|outcome| Ok((outcome, ended?))) {
                    Ok(settled) => Ok(settled),
                    Err(BatchFailure::Failed(error, lsn)) => Ok((Err(error), lsn)),
                    Err(BatchFailure::Refused(refusal)) => Err(refusal),
                };
                // The request may be cancelled; then the result is dropped.
                let _ = done.send(settled);
            };
            Box::new(tell)
        };
        self.enqueue(database, Submitted { documents, bytes, step: Box::new(step) });
        settled.await.unwrap_or(Err(Refusal::LogFailed))
    }

    /// Creates or deletes a database: `prepare` gives the change.
    ///
    /// # Errors
    /// As [`WriteBatches::submit`].
    pub(crate) async fn change_catalog(
        &self,
        documents: &Arc<Documents>,
        prepare: impl FnOnce(&mut CatalogWriter) -> Result<Vec<u8>, DocError>,
    ) -> Result<Settled<()>, Refusal> {
        self.admitted(0).await?;
        self.permitted()?;
        let mut writer = documents.lock();
        let change = match prepare(&mut writer) {
            Ok(change) => change,
            // The error tells whether the database exists, so it waits for the record that has created or
            // deleted the database.
            Err(error) => return Ok((Err(error), self.log.appended_lsn())),
        };
        let lsn = self.append_documents(&change, None, |lsn| writer.commit(lsn))?;
        self.driver.wake_if_needed();
        Ok((Ok(()), lsn))
    }

    /// Gives a setting of the data a value, unless it has one. Returns the position of the record; `None` if
    /// it has a value.
    ///
    /// # Errors
    /// As [`WriteBatches::submit`].
    pub(crate) async fn put_if_missing(&self, name: &[u8], value: &[u8]) -> Result<Option<Lsn>, Refusal> {
        self.admitted(value.len()).await?;
        self.permitted()?;
        let slot = self.lock_settings()?;
        if slot.data_settings().get(name).is_some() {
            return Ok(None);
        }
        let change = SettingChange { name: name.into(), value: Some(value.into()) };
        let lsn = self.append(Some((slot, &[change])), |_| (), |_| ())?;
        self.driver.wake_if_needed();
        Ok(Some(lsn))
    }

    /// Locks the slot of the settings of the data, or gives up after [`SLOT_PATIENCE`].
    fn lock_settings(&self) -> Result<SlotGuard<'_>, Refusal> {
        self.keyspace.try_lock_for(LIBRARIES_SLOT, SLOT_PATIENCE).ok_or(Refusal::UsersLocked)
    }

    /// Waits until the log takes a write of this size, or says why none is taken. The role of the server
    /// comes before the state of its log, as for commands: a follower names its leader although its own disk
    /// is full.
    async fn admitted(&self, bytes: usize) -> Result<(), Refusal> {
        self.permitted()?;
        let admission = self.gate.admitted(bytes as u64).await;
        Refusal::of(admission, &self.log).map_or(Ok(()), Err)
    }

    /// Refuses a write for reasons that do not depend on the log. Must be checked again in the tick in which
    /// the record is appended.
    fn permitted(&self) -> Result<(), Refusal> {
        Refusal::of_writes(&*self.server).map_or(Ok(()), Err)
    }

    fn enqueue(self: &Rc<Self>, database: &Arc<Database>, submitted: Submitted) {
        let mut queues = self.queues.borrow_mut();
        match queues.iter_mut().find(|queue| queue.database.id() == database.id()) {
            Some(queue) => queue.submitted.push(submitted),
            None => queues.push(Queue { database: database.clone(), submitted: vec![submitted] }),
        }
        if self.is_due.replace(true) {
            return;
        }
        let batches = self.clone();
        tokio::task::spawn_local(async move {
            // Yield to all ready tasks first, so that their changes join this batch.
            tokio::task::yield_now().await;
            batches.is_due.set(false);
            batches.run();
        });
    }

    /// Makes the batches of all queues.
    fn run(&self) {
        let queues = std::mem::take(&mut *self.queues.borrow_mut());
        for Queue { database, submitted } in queues {
            let mut submitted = submitted.into_iter().peekable();
            while submitted.peek().is_some() {
                let (mut documents, mut bytes) = (0, 0);
                let batch = std::iter::from_fn(|| {
                    let is_full = documents >= WRITE_BATCH_DOCUMENTS_MAX || bytes >= WRITE_BATCH_BYTES_MAX;
                    let next = if is_full { None } else { submitted.next() }?;
                    (documents, bytes) = (documents + next.documents, bytes + next.bytes);
                    Some(next.step)
                });
                self.make(&database, batch);
            }
        }
        self.driver.wake_if_needed();
    }

    /// Makes one batch of one database.
    fn make(&self, database: &Arc<Database>, steps: impl Iterator<Item = Step>) {
        let writer = self.permitted().map_err(BatchFailure::Refused).and_then(|()| {
            database.lock().map_err(|error| BatchFailure::Failed(error, self.log.appended_lsn()))
        });
        let mut writer = match writer {
            Ok(writer) => writer,
            Err(ended) => {
                let told = steps.map(|step| step(Err(ended.clone())));
                return told.for_each(|tell| tell(Err(ended.clone())));
            }
        };
        writer.encode_in(self.change.take());
        let is_of_users = **database.name() == *USERS_DATABASE;
        if is_of_users {
            writer.note_changes();
        }
        let told: Vec<Report> = steps.map(|step| step(Ok(&mut writer))).collect();
        let ended = match writer.change() {
            Ok(Some(change)) => {
                let appended = if is_of_users {
                    self.append_users(&change, writer)
                } else {
                    self.append_documents(&change, None, |lsn| writer.commit(lsn))
                        .map_err(BatchFailure::Refused)
                };
                if change.capacity() <= KEPT_BYTES_MAX {
                    self.change.replace(change);
                }
                appended
            }
            Ok(None) => Ok(writer.snapshot().last_lsn()),
            Err(error) => Err(BatchFailure::Failed(error.into(), self.log.appended_lsn())),
        };
        told.into_iter().for_each(|tell| tell(ended.clone()));
    }

    /// Appends a change of `_users`, with the change of the users who may log in.
    fn append_users(&self, change: &[u8], writer: Writer) -> Result<Lsn, BatchFailure> {
        let slot = self.lock_settings().map_err(BatchFailure::Refused)?;
        let settings = users::setting_changes(&writer, &slot.data_settings(), self.entropy.random_u64())
            .map_err(|error| BatchFailure::Failed(error, self.log.appended_lsn()))?;
        self.append_documents(change, Some((slot, &settings)), |lsn| writer.commit(lsn))
            .map_err(BatchFailure::Refused)
    }

    /// Appends a change of documents, and of settings, as one record.
    fn append_documents(
        &self,
        change: &[u8],
        settings: Option<(SlotGuard<'_>, &[SettingChange])>,
        commit: impl FnOnce(Lsn),
    ) -> Result<Lsn, Refusal> {
        self.append(settings, |record| encode_documents_into(change, record), commit)
    }

    /// Appends a record; calls `commit` with its position before the record is published.
    fn append(
        &self,
        settings: Option<(SlotGuard<'_>, &[SettingChange])>,
        encode: impl FnOnce(&mut Vec<u8>),
        commit: impl FnOnce(Lsn),
    ) -> Result<Lsn, Refusal> {
        let mut record = self.record.take();
        record.clear();
        encode(&mut record);
        let mut slot = settings.map(|(mut slot, changes)| {
            let mut freed = Freed::new();
            for SettingChange { name, value } in changes {
                let effect = Effect::Setting { name, value: value.as_deref() };
                if slot.apply(&effect, AccessClock::default(), &mut freed).changed {
                    effect.encode_into(&mut record);
                }
            }
            slot
        });
        let appended = self.gate.append(|appender| {
            let reserved = appender.reserve(&record).map_err(|_| Refusal::LogFailed);
            // Without a reservation the log is poisoned and the server stops: the slot gets a position that
            // is never reached.
            let lsn = reserved.as_ref().map_or(Lsn::MAX, |pending| pending.lsn());
            if let Some(slot) = &mut slot {
                slot.set_last_lsn(lsn);
            }
            let pending = reserved?;
            commit(lsn);
            drop(slot);
            pending.publish();
            Ok(lsn)
        });
        if record.capacity() <= KEPT_BYTES_MAX {
            self.record.replace(record);
        }
        appended
    }
}
