//! `Database`: one document database: its current state, who may change it, and who is told.
//!
//! What it is: the place where readers get snapshots and writers take turns.
//! What it is not: aware of the log: whoever writes hands changes over and says where they stand.
//!
//! Invariants
//! - Readers never wait for writers: a snapshot is one reference to an immutable state.
//! - `gate` is held wherever the state is replaced.
//! - Nobody is told of anything under a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

use crate::DocError;
use crate::change::Operations;
use crate::checkpoint::DatabaseFile;
use crate::id::DbId;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::store_error::StoreError;
use crate::writer::Writer;

/// What has happened, in memory: nobody outside may learn of it before the log has committed its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// There is a new database.
    Created {
        /// Which.
        db: DbId,
        /// Its name.
        name: Arc<str>,
        /// The end of its record.
        lsn: Lsn,
    },
    /// A database is no more.
    Deleted {
        /// Which.
        db: DbId,
        /// Its name.
        name: Arc<str>,
        /// The end of the record.
        lsn: Lsn,
    },
    /// The feed of a database has gone on.
    Updated {
        /// Which.
        db: DbId,
        /// Its update sequence.
        update_seq: u64,
        /// The end of the record.
        lsn: Lsn,
    },
}

/// Who is told of notices: called by whoever writes, under no lock; it must not wait.
pub type Listener = Arc<dyn Fn(Notice) + Send + Sync>;

/// See the module documentation.
pub struct Database {
    id: DbId,
    name: Arc<str>,
    state: ArcSwap<State>,
    gate: Arc<Mutex<Gate>>,
    /// Held while its file is written.
    pub(crate) file: Mutex<DatabaseFile>,
    listener: Listener,
    /// Whether somebody compacts it.
    pub(crate) compacting: AtomicBool,
}

/// What writers take turns for.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Whether the database is no more.
    pub(crate) is_deleted: bool,
    /// Whether uploads were begun in this life of the server.
    pub(crate) has_uploaded: bool,
}

impl Database {
    pub(crate) fn new(name: Arc<str>, state: State, file: DatabaseFile, listener: Listener) -> Database {
        let id = state.db;
        let (state, file) = (ArcSwap::from_pointee(state), Mutex::new(file));
        Database { id, name, state, gate: Arc::default(), file, listener, compacting: AtomicBool::new(false) }
    }

    /// What it is called inside.
    pub fn id(&self) -> DbId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The database as it is now. A reply with anything of it waits until the log has committed [`Snapshot::last_lsn`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.state())
    }

    /// The turn to change it.
    ///
    /// # Errors
    /// If it was deleted.
    pub fn lock(self: &Arc<Self>) -> Result<Writer, DocError> {
        let gate = self.gate.lock_arc();
        if gate.is_deleted {
            return Err(DocError::NoDatabase);
        }
        Ok(Writer::new(self.clone(), gate))
    }

    /// Does what a record says that ends at `lsn`; nothing if the file has it. The gate is its own.
    pub(crate) fn apply(
        &self,
        _gate: &mut ArcMutexGuard<RawMutex, Gate>,
        since_seq: u64,
        operations: Operations<'_>,
        lsn: Lsn,
    ) -> Result<(), StoreError> {
        let mut next = State::clone(&self.state());
        if lsn <= next.saved_lsn() {
            return Ok(());
        }
        if next.update_seq != since_seq {
            return Err(next.misfit("a change is missing before it"));
        }
        for operation in operations {
            next.apply(operation?)?;
        }
        next.last_lsn = lsn;
        let update_seq = next.update_seq;
        self.publish(next);
        if update_seq != since_seq {
            self.tell(Notice::Updated { db: self.id, update_seq, lsn });
        }
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

    /// To be called with the gate held.
    pub(crate) fn publish(&self, state: State) {
        self.state.store(Arc::new(state));
    }

    pub(crate) fn tell(&self, notice: Notice) {
        (self.listener)(notice);
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
