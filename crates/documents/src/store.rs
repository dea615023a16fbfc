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
//!   opened, and if it was made since, as soon as it is in nobody's way.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use env::{Access, File, crashsafe};
use lsn::Lsn;
use parking_lot::Mutex;
use tree::{TreeFile, Wanted, Written};

use crate::catalog::{CATALOG_NAME, Catalog, Entry, parse_tree_name, tree_name};
use crate::checkpoint::{DatabaseFile, Due, Shelf};
use crate::database::{Database, Listener};
use crate::documents::{Documents, Names};
use crate::id::DbId;
use crate::rows;
use crate::state::State;
use crate::store_error::StoreError;
use crate::unnamed::{Generation, Unnamed};

/// When so much of the log could be given up, the catalog is written although it says nothing else.
const CATALOG_LOG_BYTES: u64 = 16 << 20;

/// Where documents lie in a data directory.
pub fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("documents")
}

/// See the module documentation.
pub(crate) struct Store {
    shelf: Shelf,
    unnamed: Arc<Unnamed>,
    /// As it lies on disk; `None` before there was a database to save.
    written: Mutex<Option<Catalog>>,
    /// The last attempt to write the catalog has failed: the disk may have it, or the one before.
    catalog_unsure: AtomicBool,
    /// Where the log is to be applied from, after opening.
    replay_from: Option<Lsn>,
}

/// Files that are, together with the catalog, all that is saved; for whoever copies them.
pub struct CopyPlan {
    /// The files of databases.
    pub files: Vec<CopyFile>,
    /// What the catalog is called in the directory of documents.
    pub catalog_name: &'static str,
    /// Its bytes, to be written last.
    pub catalog: Vec<u8>,
}

/// A file to be copied.
pub struct CopyFile {
    /// What it is called in the directory of documents.
    pub name: String,
    /// How many bytes belong to the copy: they never change.
    pub bytes: u64,
    /// It stays readable when it is replaced or removed.
    pub file: Arc<dyn File>,
}

impl Documents {
    /// Opens all databases of a directory. The log behind [`Documents::replay_from`] is to be applied then.
    ///
    /// With a `limit`, the log ends there: what files have behind it is forgotten, as far as they go back to it.
    ///
    /// # Errors
    /// I/O errors and damage. [`StoreError::AheadOfLog`] if files do not go back to the limit.
    pub fn open(shelf: Shelf, limit: Option<Lsn>, listener: Listener) -> Result<Documents, StoreError> {
        let (disk, dir) = (&*shelf.disk, &*shelf.dir);
        disk.create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        crashsafe::remove_leftovers(disk, dir).map_err(StoreError::io("clean", dir))?;
        let files = disk.list(dir).map_err(StoreError::io("list", dir))?;
        let files: BTreeSet<(DbId, u32)> = files.iter().filter_map(|name| parse_tree_name(name)).collect();
        let Some(catalog) = Catalog::read(disk, dir)? else {
            if !files.is_empty() {
                return Err(StoreError::Damaged { path: dir.to_owned(), what: "the catalog is missing" });
            }
            let store = Store {
                shelf,
                unnamed: Arc::default(),
                written: Mutex::default(),
                catalog_unsure: AtomicBool::default(),
                replay_from: None,
            };
            return Ok(Documents::stored(Names::default(), store, listener));
        };
        let going_back = limit.is_some_and(|limit| catalog.reaches_behind(limit));
        let limit = limit.unwrap_or(Lsn::MAX);
        if catalog.deleted_lsn > limit {
            return Err(StoreError::AheadOfLog { files: catalog.deleted_lsn, log: limit });
        }
        let mut opened = Catalog {
            names_lsn: catalog.names_lsn.min(limit),
            deleted_lsn: catalog.deleted_lsn,
            saved_lsn: catalog.saved_lsn.min(limit),
            databases: Vec::new(),
        };
        let mut names = Names { lsn: opened.names_lsn, deleted_lsn: opened.deleted_lsn, ..Names::default() };
        for entry in catalog.databases.iter().filter(|entry| entry.db.lsn() <= limit) {
            let database = open_database(&shelf, entry, limit, &listener)?;
            let vouched = database.file.lock().vouched();
            if entry.vouched.is_some_and(|vouched| vouched.lsn > limit) {
                opened.saved_lsn = opened.saved_lsn.min(database.state().saved_lsn());
            }
            opened.databases.push(Entry { vouched, ..entry.clone() });
            names.insert(Arc::new(database));
        }
        if going_back {
            opened.write(disk, dir)?;
        }
        for (db, generation) in files.difference(&files_of(&opened)) {
            let path = shelf.path_of(*db, *generation);
            crashsafe::remove_durably(disk, &path).map_err(StoreError::io("remove", &path))?;
        }
        let replay_from = Some(opened.saved_lsn);
        let store = Store {
            shelf,
            unnamed: Arc::default(),
            written: Mutex::new(Some(opened)),
            catalog_unsure: AtomicBool::default(),
            replay_from,
        };
        Ok(Documents::stored(names, store, listener))
    }

    /// The position of the log behind which records are to be applied after opening. `None` if nothing was ever saved: then all
    /// that the log has.
    pub fn replay_from(&self) -> Option<Lsn> {
        self.store()?.replay_from
    }

    /// The position of the log behind which records must be kept for documents: what is before, the files have, durably. `None`
    /// if there are no documents.
    pub fn saved_lsn(&self) -> Option<Lsn> {
        let written = self.store()?.written.lock();
        match &*written {
            Some(catalog) => Some(catalog.saved_lsn),
            None => self.first_lsn(),
        }
    }

    /// Whether anything was ever saved in files.
    pub fn is_saved(&self) -> bool {
        self.store().is_some_and(|store| store.written.lock().is_some())
    }

    /// Up to where the files, or what was applied to them, have anything at all.
    pub fn reached(&self) -> Lsn {
        let written = self.store().and_then(|store| {
            let written = store.written.lock();
            written.as_ref().map(|catalog| catalog.names_lsn.max(catalog.saved_lsn))
        });
        let written = written.unwrap_or(Lsn::ZERO);
        self.all().iter().map(|database| database.state().last_lsn).fold(written, Lsn::max)
    }

    /// Roughly how many bytes are in memory only.
    pub fn dirty_bytes(&self) -> u64 {
        let layers =
            |database: &Arc<Database>| database.state().layers().map(|layer| layer.bytes).sum::<u64>();
        self.all().iter().map(layers).sum()
    }

    /// What was appended to files of databases since they were opened, compaction included. `None` if there are none.
    pub fn written(&self) -> Option<&Written> {
        self.store().map(|store| &store.shelf.written)
    }

    /// Saves what is due, one database after the other. `committed` waits until the log has committed a position, or says that
    /// it will not. To be called by one thread, every second or so, and once when the server stops.
    ///
    /// # Errors
    /// I/O errors: what was not saved stays in memory and in the log, and is saved by a later call.
    pub fn checkpoint(&self, due: &Due, committed: &mut dyn FnMut(Lsn) -> bool) -> Result<(), StoreError> {
        let Some(store) = self.store() else { return Ok(()) };
        let names = self.settled_names();
        store.begin_catalog(&names, committed)?;
        let mut catalog = Catalog {
            names_lsn: names.lsn.max(due.upto),
            deleted_lsn: names.deleted_lsn,
            saved_lsn: due.upto,
            databases: Vec::new(),
        };
        let mut failed = None;
        for database in names.by_id.values() {
            // One that cannot be saved holds up the log, and no other database.
            let saved = database.save_if_due(&store.shelf, &store.unnamed, due, committed);
            let (vouched, saved_lsn) = saved.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                database.what_is_saved()
            });
            catalog.saved_lsn = catalog.saved_lsn.min(saved_lsn);
            catalog.databases.push(Entry { db: database.id(), name: database.name().clone(), vouched });
        }
        store.write(catalog, due, committed)?;
        if let Err(error) = store.remove_unnamed(&names) {
            failed.get_or_insert(error);
        }
        failed.map_or(Ok(()), Err)
    }

    /// What is saved now, for a copy. The log behind [`Documents::saved_lsn`], as it is before the call, belongs to it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn plan_copy(&self) -> Result<Option<CopyPlan>, StoreError> {
        let Some(store) = self.store() else { return Ok(None) };
        // While it is held, no file that the catalog names is removed.
        let written = store.written.lock();
        let Some(catalog) = &*written else { return Ok(None) };
        let copied = |entry: &Entry| {
            let vouched = entry.vouched?;
            let path = store.shelf.path_of(entry.db, vouched.generation);
            let file = store.shelf.disk.open(&path, Access::Read).map_err(StoreError::io("open", &path));
            let name = tree_name(entry.db, vouched.generation);
            Some(file.map(|file| CopyFile { name, bytes: vouched.file_end, file }))
        };
        let files = catalog.databases.iter().filter_map(copied).collect::<Result<_, _>>()?;
        Ok(Some(CopyPlan { files, catalog_name: CATALOG_NAME, catalog: catalog.encode() }))
    }

    /// The position before the first database.
    fn first_lsn(&self) -> Option<Lsn> {
        self.settled_names().first_lsn
    }
}

fn open_database(
    shelf: &Shelf,
    entry: &Entry,
    limit: Lsn,
    listener: &Listener,
) -> Result<Database, StoreError> {
    let (mut state, mut file) = (State::new(entry.db), DatabaseFile::default());
    if let Some(vouched) = entry.vouched {
        let path = shelf.path_of(entry.db, vouched.generation);
        let at_least = if vouched.lsn <= limit { vouched.lsn } else { Lsn::ZERO };
        let wanted = Wanted { at_least, at_most: limit };
        let mut tree = TreeFile::open(&*shelf.disk, &path, shelf.options(), wanted)?;
        if limit < Lsn::MAX {
            // What lies behind the limit is cut off, durably: the log will get there again, with something else.
            drop(tree.begin()?);
        }
        let snapshot = tree.snapshot().clone();
        let decoded = rows::decode_metadata(snapshot.metadata(), snapshot.applied_lsn());
        state = decoded
            .filter(|state| state.db == entry.db)
            .ok_or(StoreError::Damaged { path, what: "it is not the file of this database" })?;
        state.tree = Some(snapshot);
        file = DatabaseFile::new(tree, vouched.generation);
    }
    Ok(Database::new(entry.name.clone(), state, file, listener.clone()))
}

impl Store {
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub(crate) fn unnamed(&self) -> &Arc<Unnamed> {
        &self.unnamed
    }

    /// Makes a catalog without files, before the first file is made: without a catalog there are no files.
    fn begin_catalog(&self, names: &Names, committed: &mut dyn FnMut(Lsn) -> bool) -> Result<(), StoreError> {
        let Some(first) = names.first_lsn.filter(|_| self.written.lock().is_none()) else { return Ok(()) };
        if !committed(first) {
            return Err(StoreError::NotCommitted);
        }
        let catalog =
            Catalog { names_lsn: first, deleted_lsn: Lsn::ZERO, saved_lsn: first, databases: Vec::new() };
        let mut written = self.written.lock();
        // One that fails may be on the disk all the same: no file that it names goes before one is surely there.
        self.catalog_unsure.store(true, SeqCst);
        catalog.write(&*self.shelf.disk, &self.shelf.dir)?;
        self.catalog_unsure.store(false, SeqCst);
        *written = Some(catalog);
        Ok(())
    }

    /// Writes the catalog, if it says something new, and notes the files that it does not name any more.
    fn write(
        &self,
        catalog: Catalog,
        due: &Due,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        // There is one saver: nobody else writes it. Others look at it, and must not wait for replicas.
        let Some(before) = self.written.lock().clone() else { return Ok(()) };
        // What was saved up to there stays so, whatever was edited since and is not saved yet.
        let catalog = Catalog { saved_lsn: catalog.saved_lsn.max(before.saved_lsn), ..catalog };
        let gained = catalog.saved_lsn.get().saturating_sub(before.saved_lsn.get());
        let has_gained = gained >= CATALOG_LOG_BYTES || due.everything && gained > 0;
        if catalog.databases == before.databases && !has_gained && !self.catalog_unsure.load(SeqCst) {
            return Ok(());
        }
        if !committed(catalog.names_lsn.max(catalog.saved_lsn)) {
            return Err(StoreError::NotCommitted);
        }
        let mut written = self.written.lock();
        catalog.write(&*self.shelf.disk, &self.shelf.dir)?;
        let (before, now) = (files_of(&before), files_of(&catalog));
        before.difference(&now).for_each(|file| self.unnamed.add(*file));
        *written = Some(catalog);
        Ok(())
    }

    /// Removes files that the catalog does not name and that are in nobody's use. One that cannot be removed is tried again.
    fn remove_unnamed(&self, names: &Names) -> Result<(), StoreError> {
        let unnamed = self.unnamed.all();
        if unnamed.is_empty() {
            return Ok(());
        }
        let named = self.written.lock().as_ref().map(files_of).unwrap_or_default();
        for file @ (db, generation) in unnamed {
            if !named.contains(&file) {
                // While it is held, the database does not begin to use it.
                let held = names.by_id.get(&db).map(|database| database.file.lock());
                if held.as_ref().is_some_and(|held| held.tree.is_some() && held.generation == generation) {
                    continue;
                }
                self.remove(file)?;
            }
            self.unnamed.settle(file);
        }
        Ok(())
    }

    fn remove(&self, (db, generation): Generation) -> Result<(), StoreError> {
        let path = self.shelf.path_of(db, generation);
        match crashsafe::remove_durably(&*self.shelf.disk, &path) {
            // It was to be made, and was not.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(StoreError::io("remove", &path)),
        }
    }
}

/// The files that a catalog names.
fn files_of(catalog: &Catalog) -> BTreeSet<Generation> {
    let file = |entry: &Entry| Some((entry.db, entry.vouched?.generation));
    catalog.databases.iter().filter_map(file).collect()
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shelf.dir).finish_non_exhaustive()
    }
}
