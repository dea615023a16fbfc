//! `Database`: one document database: its current state, the lock of its writers, and its listener.
//!
//! Readers get snapshots of the database, and writers take turns. A `Database` does not access the log: the
//! caller passes a change to the log and reports its position.
//!
//! Invariants
//! - Readers never wait for writers: a snapshot is one reference to an immutable state.
//! - The state is replaced only with `gate` held.
//! - A [`Writer`](crate::Writer) releases the gate before it calls the listener. When a record is applied, or
//!   a database created or deleted, the listener is called with the gate or the catalog locked.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

use crate::change::Operations;
use crate::database_file::DatabaseFile;
use crate::id::{DbId, UploadId};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::store_error::StoreError;

/// A change in memory, which must not become visible to clients before the log has committed the record of
/// the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A database was created.
    Created {
        /// Its id.
        db: DbId,
        /// Its name.
        name: Arc<str>,
        /// The end of the record.
        lsn: Lsn,
    },
    /// A database was deleted.
    Deleted {
        /// Its id.
        db: DbId,
        /// Its name.
        name: Arc<str>,
        /// The end of the record.
        lsn: Lsn,
    },
    /// The security object of a database has changed.
    Secured {
        /// The id of the database.
        db: DbId,
        /// The end of the record.
        lsn: Lsn,
    },
    /// The feed of a database has changed.
    Updated {
        /// The id of the database.
        db: DbId,
        /// Its update sequence.
        update_seq: u64,
        /// The end of the record.
        lsn: Lsn,
    },
}

/// Receives notices. The thread that made the change calls the listener, possibly with the gate or the
/// catalog locked, so the listener must not wait.
pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// A document database.
pub struct Database {
    id: DbId,
    name: Arc<str>,
    state: ArcSwap<State>,
    gate: Arc<Mutex<Gate>>,
    /// The file; locked while it is written.
    pub(crate) file: Mutex<DatabaseFile>,
    listener: Listener,
    /// Whether a compaction is in progress.
    pub(crate) compacting: AtomicBool,
}

/// The lock of writers, with the data that it protects.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether the database was deleted.
    pub(crate) is_deleted: bool,
    /// Whether an upload was begun since this database was opened or created, or [`Documents::end_reign`].
    ///
    /// [`Documents::end_reign`]: crate::Documents::end_reign
    pub(crate) has_uploaded: bool,
    /// Uploads that the present writer ends. If its change is not committed, they become `abandoned`.
    pub(crate) ending: Vec<UploadId>,
    /// Uploads that nobody continues, to be discarded.
    pub(crate) abandoned: Vec<UploadId>,
}

impl Database {
    pub(crate) fn new(name: Arc<str>, state: State, file: DatabaseFile, listener: Listener) -> Database {
        let id = state.db;
        let (state, file) = (ArcSwap::from_pointee(state), Mutex::new(file));
        Database { id, name, state, gate: Arc::default(), file, listener, compacting: AtomicBool::new(false) }
    }

    /// The id of the database, which never changes.
    pub fn id(&self) -> DbId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The current state. A reply that contains any of it must wait until the log has committed
    /// [`Snapshot::last_lsn`]; if it shows one document alone, [`Snapshot::document_lsn`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.state())
    }

    /// Applies one update of the record that ends at `lsn`; does nothing if the file already has the update.
    /// `_gate` must be the gate of this database.
    pub(crate) fn apply(
        &self,
        _gate: &mut ArcMutexGuard<RawMutex, Gate>,
        since_seq: u64,
        operations: Operations<'_>,
        lsn: Lsn,
    ) -> Result<(), StoreError> {
        let before = self.state();
        let mut next = State::clone(&before);
        if lsn <= next.saved_lsn() {
            return Ok(());
        }
        if next.update_seq != since_seq {
            return Err(next.misfit("a change is missing before it"));
        }
        for operation in operations {
            next.apply(operation?)?;
        }
        next.end_record(&before, lsn);
        let news = self.news(&next, since_seq);
        self.publish(next);
        self.notify(news);
        Ok(())
    }

    /// Whether its file is being compacted.
    pub fn is_compacting(&self) -> bool {
        self.compacting.load(Ordering::Acquire)
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    pub(crate) fn gate(&self) -> ArcMutexGuard<RawMutex, Gate> {
        self.gate.lock_arc()
    }

    /// See [`Documents::end_reign`](crate::Documents::end_reign).
    pub(crate) fn end_reign(&self) {
        let mut gate = self.gate();
        gate.has_uploaded = false;
        gate.ending.clear();
        gate.abandoned.clear();
    }

    /// Replaces the state. The caller must hold the gate.
    pub(crate) fn publish(&self, state: State) {
        self.state.store(Arc::new(state));
    }

    /// The notices of a change from the current state, whose update sequence is `since_seq`, to `next`.
    pub(crate) fn news(&self, next: &State, since_seq: u64) -> [Option<Notice>; 2] {
        let (db, update_seq, lsn) = (self.id, next.update_seq, next.last_lsn);
        let is_secured = next.security != self.state().security;
        [
            is_secured.then_some(Notice::Secured { db, lsn }),
            (update_seq != since_seq).then_some(Notice::Updated { db, update_seq, lsn }),
        ]
    }

    pub(crate) fn notify(&self, news: [Option<Notice>; 2]) {
        news.into_iter().flatten().for_each(|notice| (self.listener)(notice));
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
