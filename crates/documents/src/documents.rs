//! `Documents`: all document databases of a server.
//!
//! `Documents` holds the list of databases with their names, and applies changes from the log to them. It has
//! no thread; the server decides when files are written.
//!
//! Invariants
//! - A name refers to one database at a time. A deleted database takes no more changes, so its deletion is
//!   its last record in the log.
//! - A [`CatalogWriter`] locks the catalog before a gate; a checkpoint locks the file of a database before
//!   its gate. The code that applies a record locks the gates, in the order of ids, before the catalog: it
//!   must not run beside a [`CatalogWriter`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

use crate::DocError;
use crate::change::{Change, encode_create, encode_delete};
use crate::database::{Database, Gate, Listener, Notice};
use crate::database_file::DatabaseFile;
use crate::id::DbId;
use crate::list::Names;
use crate::names::check_database_name;
use crate::state::State;
use crate::store::Store;
use crate::store_error::StoreError;

/// The maximum number of databases.
pub const DATABASES_MAX: usize = 65_536;

/// The document databases of a server.
pub struct Documents {
    names: ArcSwap<Names>,
    catalog: Arc<Mutex<()>>,
    listener: Listener,
    /// `None` if the databases are in memory only.
    store: Option<Store>,
}

/// The gates of the databases that a record changes. A caller that locks other things too must lock the gates
/// first.
#[derive(Default)]
pub struct Gates {
    held: Vec<(Arc<Database>, ArcMutexGuard<RawMutex, Gate>)>,
}

impl Documents {
    /// An empty list of databases that are kept in memory only.
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
    /// If no database has this name.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, DocError> {
        self.names.load().by_name.get(name).cloned().ok_or(DocError::NoDatabase)
    }

    /// The database with this id, if it exists.
    pub fn by_id(&self, db: DbId) -> Option<Arc<Database>> {
        self.names.load().by_id.get(&db).cloned()
    }

    /// The position of the last creation or deletion; after opening, a position up to which the catalog has
    /// every creation and deletion. The list of databases may be shown to clients once this position is
    /// committed.
    pub fn names_lsn(&self) -> Lsn {
        self.names.load().lsn
    }

    /// All databases, by name.
    pub fn all(&self) -> Vec<Arc<Database>> {
        self.names.load().by_name.values().cloned().collect()
    }

    /// Notes that this server leads no more, and that nobody continues an upload here. If it leads again, the
    /// first upload to a database discards all unfinished ones, which may be of other leaders.
    pub fn end_reign(&self) {
        self.all().iter().for_each(|database| database.end_reign());
    }

    /// Locks the list of databases for a creation or deletion.
    pub fn lock(self: &Arc<Self>) -> CatalogWriter {
        CatalogWriter { documents: self.clone(), catalog: self.catalog.lock_arc(), prepared: None }
    }

    /// Applies one change of the record that ends at `lsn`; does nothing if the files already have it.
    ///
    /// # Errors
    /// If the change cannot be applied to the current state. The data must then not be served.
    pub fn apply(&self, change: &[u8], lsn: Lsn) -> Result<(), StoreError> {
        let mut gates = self.gates(&[change])?;
        self.apply_within(&mut gates, change, lsn)
    }

    /// Locks all databases that the changes of a record refer to and that exist, in ascending order of their
    /// ids.
    ///
    /// # Errors
    /// If a change cannot be decoded.
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

    /// Does the same as [`Documents::apply`], for one of the changes that `gates` was locked for.
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
                    None => return Err(StoreError::UnknownDatabase(db)),
                }
            }
            Change::Update { db, since_seq, operations } => match self.by_id(db) {
                Some(database) => match gates.held.iter_mut().find(|(held, _)| held.id() == db) {
                    Some((_, gate)) => database.apply(gate, since_seq, operations, lsn)?,
                    None => database.apply(&mut database.gate(), since_seq, operations, lsn)?,
                },
                // The database was deleted by a later record.
                None if self.names.load().covers(lsn) => {}
                None => return Err(StoreError::UnknownDatabase(db)),
            },
        }
        Ok(())
    }

    /// Adds a new database to the list. The caller must hold the lock of the catalog.
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

    /// Removes a database from the list. The caller must hold the lock of the catalog.
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

    /// The list of databases, including all changes that already have a position in the log.
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

/// The lock of the list of databases, for one creation or deletion.
///
/// `create` or `delete` returns the bytes for the log; `commit` takes their position. A writer that is
/// dropped before `commit` has no effect.
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
    /// If a database has this name, the name is not allowed, or [`DATABASES_MAX`] is reached.
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

    /// Prepares the deletion of a database, and waits for its current writer.
    ///
    /// # Errors
    /// If no database has this name.
    pub fn delete(&mut self, name: &str) -> Result<Vec<u8>, DocError> {
        let database = self.documents.database(name)?;
        let gate = database.gate();
        let change = encode_delete(database.id());
        self.prepared = Some(Prepared::Delete(database, gate));
        Ok(change)
    }

    /// Makes the change visible. The record with the change ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        match self.prepared {
            Some(Prepared::Create(name)) => self.documents.create(name, lsn),
            Some(Prepared::Delete(database, gate)) => self.documents.delete(&database, gate, lsn),
            None => {}
        }
    }
}
