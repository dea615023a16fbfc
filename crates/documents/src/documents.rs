//! `Documents`: all document databases of a server.
//!
//! What it is: which databases there are, under which names; where records of the log are applied.
//! What it is not: a thread; the server says when files are written.
//!
//! Invariants
//! - A name leads to one database. A database that was deleted takes no more changes, so that none stands behind the record of
//!   its end.
//! - Lock order: the catalog, then databases by id; the file of a database before its gate.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

use crate::DocError;
use crate::change::{Change, encode_create, encode_delete};
use crate::checkpoint::DatabaseFile;
use crate::database::{Database, Gate, Listener, Notice};
use crate::id::DbId;
use crate::names::check_database_name;
use crate::state::State;
use crate::store::Store;
use crate::store_error::StoreError;

/// How many databases there may be.
pub const DATABASES_MAX: usize = 65_536;

/// See the module documentation.
pub struct Documents {
    names: ArcSwap<Names>,
    catalog: Arc<Mutex<()>>,
    listener: Listener,
    /// `None` for those in memory.
    store: Option<Store>,
}

/// Which databases there are.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub(crate) by_name: imbl::OrdMap<Arc<str>, Arc<Database>>,
    pub(crate) by_id: imbl::OrdMap<DbId, Arc<Database>>,
    /// The position of the last creation or deletion.
    pub(crate) lsn: Lsn,
    /// The position of the last deletion.
    pub(crate) deleted_lsn: Lsn,
    /// The position before the first creation that was not known when the files were opened.
    pub(crate) first_lsn: Option<Lsn>,
}

/// The gates of the databases that a record changes, for whoever locks other things besides: gates come first.
#[derive(Default)]
pub struct Gates {
    held: Vec<(Arc<Database>, ArcMutexGuard<RawMutex, Gate>)>,
}

impl Names {
    pub(crate) fn insert(&mut self, database: Arc<Database>) {
        self.by_name.insert(database.name().clone(), database.clone());
        self.by_id.insert(database.id(), database);
    }

    /// Whether a record up to here may be about a database that was deleted since.
    fn covers(&self, lsn: Lsn) -> bool {
        lsn <= self.lsn.max(self.deleted_lsn)
    }
}

impl Documents {
    /// No databases, in memory only.
    pub fn in_memory(listener: Listener) -> Documents {
        Documents { names: ArcSwap::default(), catalog: Arc::default(), listener, store: None }
    }

    pub(crate) fn stored(names: Names, store: Store, listener: Listener) -> Documents {
        let names = ArcSwap::from_pointee(names);
        Documents { names, catalog: Arc::default(), listener, store: Some(store) }
    }

    /// The database with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, DocError> {
        self.names.load().by_name.get(name).cloned().ok_or(DocError::NoDatabase)
    }

    /// The database that is called so inside, if it is still there.
    pub fn by_id(&self, db: DbId) -> Option<Arc<Database>> {
        self.names.load().by_id.get(&db).cloned()
    }

    /// The position of the last creation or deletion: what is said of which databases there are may be told when it is committed.
    pub fn names_lsn(&self) -> Lsn {
        self.names.load().lsn
    }

    /// All databases, by name.
    pub fn all(&self) -> Vec<Arc<Database>> {
        self.names.load().by_name.values().cloned().collect()
    }

    /// The turn to create or delete databases.
    pub fn lock(self: &Arc<Self>) -> CatalogWriter {
        CatalogWriter { documents: self.clone(), catalog: self.catalog.lock_arc(), prepared: None }
    }

    /// Does what a record says that ends at `lsn`: in recovery. What the files have already is passed over.
    ///
    /// # Errors
    /// If the record does not fit what is there, which then must not be served.
    pub fn apply(&self, change: &[u8], lsn: Lsn) -> Result<(), StoreError> {
        let mut gates = self.gates(&[change])?;
        self.apply_within(&mut gates, change, lsn)
    }

    /// The gates of all databases that the changes of a record are about, locked in ascending order of their ids.
    ///
    /// # Errors
    /// If one is no change.
    pub fn gates(&self, changes: &[&[u8]]) -> Result<Gates, StoreError> {
        let mut changed = Vec::new();
        for change in changes {
            match Change::decode(change)? {
                Change::Create { .. } => {}
                Change::Delete { db } | Change::Update { db, .. } => changed.extend(self.by_id(db)),
            }
        }
        changed.sort_unstable_by_key(|database| database.id());
        changed.dedup_by_key(|database| database.id());
        let hold = |database: Arc<Database>| {
            let gate = database.gate();
            (database, gate)
        };
        Ok(Gates { held: changed.into_iter().map(hold).collect() })
    }

    /// As [`Documents::apply`], for one of the changes that the gates were locked for.
    ///
    /// # Errors
    /// As [`Documents::apply`].
    pub fn apply_within(&self, gates: &mut Gates, change: &[u8], lsn: Lsn) -> Result<(), StoreError> {
        match Change::decode(change)? {
            Change::Create { name } => {
                let _catalog = self.catalog.lock();
                if lsn > self.names.load().lsn {
                    self.create(name.into(), lsn);
                }
            }
            Change::Delete { db } => {
                let _catalog = self.catalog.lock();
                let names = self.names.load_full();
                match self.by_id(db) {
                    _ if lsn <= names.lsn => {}
                    Some(database) => {
                        let held = gates.held.iter().position(|(held, _)| held.id() == db);
                        let gate = held.map_or_else(|| database.gate(), |at| gates.held.swap_remove(at).1);
                        self.delete(&database, gate, lsn);
                    }
                    // Of a database whose creation was passed over.
                    None if lsn <= names.deleted_lsn => {}
                    None => return Err(StoreError::UnknownDatabase(db)),
                }
            }
            Change::Update { db, since_seq, operations } => match self.by_id(db) {
                Some(database) => match gates.held.iter_mut().find(|(held, _)| held.id() == db) {
                    Some((_, gate)) => database.apply(gate, since_seq, operations, lsn)?,
                    None => database.apply(&mut database.gate(), since_seq, operations, lsn)?,
                },
                // It was deleted later.
                None if self.names.load().covers(lsn) => {}
                None => return Err(StoreError::UnknownDatabase(db)),
            },
        }
        Ok(())
    }

    /// To be called with the catalog locked.
    fn create(&self, name: Arc<str>, lsn: Lsn) {
        let db = DbId::new(lsn);
        let state = State::new(db);
        let database = Database::new(name.clone(), state, DatabaseFile::default(), self.listener.clone());
        let before = self.names.load_full();
        let first_lsn = before.first_lsn.or(Some(Lsn::new(lsn.get().saturating_sub(1))));
        let mut names = Names { lsn, first_lsn, ..Names::clone(&before) };
        names.insert(Arc::new(database));
        self.names.store(Arc::new(names));
        (self.listener)(Notice::Created { db, name, lsn });
    }

    /// To be called with the catalog locked.
    fn delete(&self, database: &Arc<Database>, mut gate: ArcMutexGuard<RawMutex, Gate>, lsn: Lsn) {
        gate.is_deleted = true;
        let before = self.names.load_full();
        let mut names = Names { lsn, deleted_lsn: before.deleted_lsn.max(lsn), ..Names::clone(&before) };
        names.by_name.remove(database.name());
        names.by_id.remove(&database.id());
        self.names.store(Arc::new(names));
        drop(gate);
        (self.listener)(Notice::Deleted { db: database.id(), name: database.name().clone(), lsn });
    }

    /// Which databases there are, with everything in it that has a position already.
    pub(crate) fn settled_names(&self) -> Arc<Names> {
        let _catalog = self.catalog.lock();
        self.names.load_full()
    }

    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: BTreeMap<_, _> =
            self.names.load().by_name.iter().map(|(name, database)| (name.clone(), database.id())).collect();
        f.debug_struct("Documents").field("databases", &names).finish_non_exhaustive()
    }
}

/// Who creates and deletes databases: one at a time.
///
/// `create` or `delete` gives the bytes for the log; `commit` says where they stand. Dropped before, nothing has happened.
pub struct CatalogWriter {
    documents: Arc<Documents>,
    #[expect(dead_code, reason = "held until the change is committed")]
    catalog: ArcMutexGuard<RawMutex, ()>,
    prepared: Option<Prepared>,
}

enum Prepared {
    Create(Arc<str>),
    Delete(Arc<Database>, ArcMutexGuard<RawMutex, Gate>),
}

impl CatalogWriter {
    /// Prepares the creation of a database.
    ///
    /// # Errors
    /// If there is one with this name, or the name is none.
    pub fn create(&mut self, name: &str) -> Result<Vec<u8>, DocError> {
        check_database_name(name)?;
        if self.documents.database(name).is_ok() {
            return Err(DocError::DatabaseExists);
        }
        if self.documents.names.load().by_id.len() >= DATABASES_MAX {
            return Err(DocError::TooLarge);
        }
        self.prepared = Some(Prepared::Create(name.into()));
        Ok(encode_create(name))
    }

    /// Prepares the end of a database, and waits for its last writer.
    ///
    /// # Errors
    /// If there is none with this name.
    pub fn delete(&mut self, name: &str) -> Result<Vec<u8>, DocError> {
        let database = self.documents.database(name)?;
        let gate = database.gate();
        let change = encode_delete(database.id());
        self.prepared = Some(Prepared::Delete(database, gate));
        Ok(change)
    }

    /// Shows what has changed to all: the record with the change ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        match self.prepared {
            Some(Prepared::Create(name)) => self.documents.create(name, lsn),
            Some(Prepared::Delete(database, gate)) => self.documents.delete(&database, gate, lsn),
            None => {}
        }
    }
}
