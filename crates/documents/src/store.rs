//! `Store`: the files of all databases as a whole: opening them, saving what is due, and how much of the log they make dispensable.
//!
//! ```text
//! save what is due -> catalog, durable -> files of deleted databases go -> the log before `saved_lsn` is not needed
//! ```
//!
//! What it is: the order of these steps. What it is not: a thread, or a clock.
//!
//! Invariants
//! - A file that the catalog names is there with the checkpoint that it is vouched to have, or the server does not start.
//! - A file that the catalog does not vouch for is not needed: the log has all that is in it. It is removed when the files are
//!   opened.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use env::crashsafe;
use lsn::Lsn;
use parking_lot::Mutex;
use tree::{TreeFile, Wanted};

use crate::catalog::{Catalog, Entry, db_of_file};
use crate::checkpoint::{DatabaseFile, Due, Shelf};
use crate::database::{Database, Listener};
use crate::documents::{Documents, Names};
use crate::id::DbId;
use crate::rows;
use crate::state::State;
use crate::store_error::StoreError;

/// When so much of the log could be given up, the catalog is written although it says nothing else.
const CATALOG_LOG_BYTES: u64 = 16 << 20;

/// See the module documentation.
pub(crate) struct Store {
    shelf: Shelf,
    /// As it lies on disk.
    written: Mutex<Catalog>,
    /// Databases that were deleted and whose files are still there.
    forgotten: Mutex<Vec<Arc<Database>>>,
}

/// Which part of the log there is.
#[derive(Clone, Copy, Debug)]
pub struct LogSpan {
    /// Where documents begin, if there were none before.
    pub begin: Lsn,
    /// Its end.
    pub end: Lsn,
}

impl Documents {
    /// Opens all databases of a directory. What the log has behind [`Documents::saved_lsn`] is to be applied then.
    ///
    /// # Errors
    /// I/O errors and damage. [`StoreError::AheadOfLog`] if files have what the log has not.
    pub fn open(shelf: Shelf, log: LogSpan, listener: Listener) -> Result<Documents, StoreError> {
        let (disk, dir) = (&*shelf.disk, &*shelf.dir);
        disk.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        crashsafe::remove_leftovers(disk, dir).map_err(StoreError::io("clean", dir))?;
        let files = disk.list(dir).map_err(StoreError::io("list", dir))?;
        let files: BTreeSet<DbId> = files.iter().filter_map(|name| db_of_file(name)).collect();
        let catalog = match Catalog::read(disk, dir)? {
            Some(catalog) => catalog,
            None if !files.is_empty() => {
                return Err(StoreError::Damaged { path: dir.to_owned(), what: "the catalog is missing" });
            }
            None => {
                let first = Catalog { names_lsn: log.begin, saved_lsn: log.begin, databases: Vec::new() };
                first.write(disk, dir)?;
                first
            }
        };
        let reached = catalog.names_lsn.max(catalog.saved_lsn);
        if reached > log.end {
            return Err(StoreError::AheadOfLog { files: reached, log: log.end });
        }
        let mut names = Names { lsn: catalog.names_lsn, ..Names::default() };
        for entry in &catalog.databases {
            names.insert(Arc::new(open_database(&shelf, entry, log.end, &listener)?));
        }
        let vouched: BTreeSet<DbId> = catalog
            .databases
            .iter()
            .filter(|entry| entry.vouched_lsn.is_some())
            .map(|entry| entry.db)
            .collect();
        for db in files.difference(&vouched) {
            let path = shelf.path_of(*db);
            crashsafe::remove_durably(disk, &path).map_err(StoreError::io("remove", &path))?;
        }
        let store = Store { shelf, written: Mutex::new(catalog), forgotten: Mutex::default() };
        Ok(Documents::stored(names, store, listener))
    }

    /// The log is needed behind this position only: the files have everything up to there. Durable.
    pub fn saved_lsn(&self) -> Lsn {
        self.store().map_or(Lsn::ZERO, |store| store.written.lock().saved_lsn)
    }

    /// Roughly how many bytes are in memory only.
    pub fn dirty_bytes(&self) -> u64 {
        let layers =
            |database: &Arc<Database>| database.state().layers().map(|layer| layer.bytes).sum::<u64>();
        self.all().iter().map(layers).sum()
    }

    /// Saves what is due, one database after the other. `committed` waits until the log has committed a position, or says that
    /// it will not. To be called by one thread, every second or so, and once when the server stops.
    ///
    /// # Errors
    /// I/O errors: what was not saved stays in memory and in the log. The file that failed takes nothing any more.
    pub fn checkpoint(&self, due: &Due, committed: &mut dyn FnMut(Lsn) -> bool) -> Result<(), StoreError> {
        let Some(store) = self.store() else { return Ok(()) };
        let forgotten = std::mem::take(&mut *store.forgotten.lock());
        let names = self.settled_names();
        let mut catalog =
            Catalog { names_lsn: names.lsn.max(due.upto), saved_lsn: due.upto, databases: Vec::new() };
        for database in names.by_id.values() {
            let saved = database.save_if_due(&store.shelf, due, committed);
            let saved_lsn =
                saved.inspect_err(|_| store.forgotten.lock().extend(forgotten.iter().cloned()))?;
            catalog.saved_lsn = catalog.saved_lsn.min(saved_lsn);
            let state = database.state();
            let vouched_lsn = state.tree.as_ref().map(tree::Snapshot::applied_lsn);
            catalog.databases.push(Entry { db: database.id(), name: database.name().clone(), vouched_lsn });
        }
        store.write(catalog, due, committed).inspect_err(|_| {
            store.forgotten.lock().extend(forgotten.iter().cloned());
        })?;
        forgotten.iter().try_for_each(|database| store.remove(database))
    }
}

fn open_database(
    shelf: &Shelf,
    entry: &Entry,
    end: Lsn,
    listener: &Listener,
) -> Result<Database, StoreError> {
    let (mut state, mut file) = (State::new(entry.db), None);
    if let Some(at_least) = entry.vouched_lsn {
        let path = shelf.path_of(entry.db);
        let wanted = Wanted { at_least, at_most: end };
        let tree = TreeFile::open(&*shelf.disk, &path, shelf.options(), wanted)?;
        let snapshot = tree.snapshot().clone();
        let decoded = rows::decode_metadata(snapshot.metadata(), snapshot.applied_lsn());
        state = decoded
            .filter(|state| state.db == entry.db)
            .ok_or(StoreError::Damaged { path, what: "it is not the file of this database" })?;
        state.tree = Some(snapshot);
        file = Some(tree);
    }
    Ok(Database::new(entry.name.clone(), state, DatabaseFile::new(file), listener.clone()))
}

impl Store {
    /// The file of a database is not needed when the catalog does not name it any more.
    pub(crate) fn forget(&self, database: Arc<Database>) {
        self.forgotten.lock().push(database);
    }

    /// Writes the catalog, if it says something new.
    fn write(
        &self,
        catalog: Catalog,
        due: &Due,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        let mut written = self.written.lock();
        let gained = catalog.saved_lsn.get().saturating_sub(written.saved_lsn.get());
        let has_gained = gained >= CATALOG_LOG_BYTES || due.everything && gained > 0;
        if catalog.databases == written.databases && !has_gained {
            return Ok(());
        }
        if !committed(catalog.names_lsn.max(catalog.saved_lsn)) {
            return Err(StoreError::NotCommitted);
        }
        catalog.write(&*self.shelf.disk, &self.shelf.dir)?;
        *written = catalog;
        Ok(())
    }

    fn remove(&self, database: &Arc<Database>) -> Result<(), StoreError> {
        // Nobody writes it meanwhile, and nobody will later.
        let _file = database.file.lock();
        let path = self.shelf.path_of(database.id());
        match crashsafe::remove_durably(&*self.shelf.disk, &path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(StoreError::io("remove", &path)),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shelf.dir).finish_non_exhaustive()
    }
}
