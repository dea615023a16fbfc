//! The files of all databases as a whole: opening, saving and copying them, and which part of the log they
//! make redundant.
//!
//! ```text
//! save the databases that are due -> catalog, durable -> remove files that are not in it
//!   -> the log before `saved_lsn` is not needed
//! ```
//!
//! This module defines the order of these steps; it has no thread and no clock.

use std::collections::BTreeSet;
use std::sync::{Arc, atomic::AtomicBool};

use env::{Access, File, crashsafe};
use lsn::Lsn;
use parking_lot::Mutex;
use tree::{TreeFile, Wanted, Written};

use crate::catalog::{CATALOG_NAME, Catalog, Entry, parse_tree_name, tree_name};
use crate::checkpoint::Due;
use crate::database::{Database, Listener};
use crate::database_file::{DatabaseFile, Shelf};
use crate::documents::Documents;
use crate::id::DbId;
use crate::list::Names;
use crate::metadata::decode_metadata;
use crate::state::State;
use crate::store::{Store, files_of};
use crate::store_error::StoreError;

/// A consistent set of files for a backup or a full sync. The files and the catalog together have all saved
/// data.
pub struct CopyPlan {
    /// The files of databases.
    pub files: Vec<CopyFile>,
    /// The file name of the catalog in the directory of documents.
    pub catalog_name: &'static str,
    /// The contents of the catalog; it must be written last.
    pub catalog: Vec<u8>,
}

/// A file to be copied.
pub struct CopyFile {
    /// Its name in the directory of documents.
    pub name: String,
    /// The size in bytes of the part to copy, which never changes.
    pub bytes: u64,
    /// The open file: it stays readable when the file is replaced or removed.
    pub file: Arc<dyn File>,
}

impl Documents {
    /// Opens all databases of a directory. The caller must then apply the log after
    /// [`Documents::replay_from`].
    ///
    /// With a `limit`, the log ends there: changes in the files after the limit are discarded, if the files
    /// have a checkpoint at or before the limit.
    ///
    /// # Errors
    /// I/O errors, damage, and files of another version. [`StoreError::AheadOfLog`] if a database was deleted
    /// after the limit, [`StoreError::Tree`] if a file has no checkpoint at or before the limit.
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

    /// The position after which records must be applied after opening. `None` if the directory had no catalog
    /// (then the whole log must be applied), or the databases are in memory only.
    pub fn replay_from(&self) -> Option<Lsn> {
        self.store()?.replay_from
    }

    /// The position after which the log must be kept for documents; all changes up to it are durable in the
    /// files. `None` if there has never been a database, or the databases are in memory only.
    pub fn saved_lsn(&self) -> Option<Lsn> {
        let written = self.store()?.written.lock();
        match &*written {
            Some(catalog) => Some(catalog.saved_lsn),
            None => self.first_lsn(),
        }
    }

    /// Whether the directory has a catalog, which is written before the first file.
    pub fn is_saved(&self) -> bool {
        self.store().is_some_and(|store| store.written.lock().is_some())
    }

    /// The newest position that is in the files or was applied to a database that still exists.
    pub fn reached(&self) -> Lsn {
        let written = self.store().and_then(|store| {
            let written = store.written.lock();
            written.as_ref().map(|catalog| catalog.names_lsn.max(catalog.saved_lsn))
        });
        let written = written.unwrap_or(Lsn::ZERO);
        self.all().iter().map(|database| database.state().last_lsn).fold(written, Lsn::max)
    }

    /// An estimate of the memory taken by changes that are not in the files yet, in bytes.
    pub fn dirty_bytes(&self) -> u64 {
        let layers =
            |database: &Arc<Database>| database.state().layers().map(|layer| layer.bytes).sum::<u64>();
        self.all().iter().map(layers).sum()
    }

    /// Counters of the bytes appended to files since they were opened, including compaction. `None` if the
    /// databases are in memory only.
    pub fn written(&self) -> Option<&Written> {
        self.store().map(|store| &store.shelf.written)
    }

    /// Saves the databases that are due, one after the other, then the catalog. `committed` waits until the
    /// log has committed a position, and returns false if the wait has ended without that. Calls must not
    /// overlap.
    ///
    /// # Errors
    /// If a file cannot be read or written, or the log has not committed a change
    /// ([`StoreError::NotCommitted`]). Unsaved changes stay in memory and in the log, for a later call.
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
            // If a database cannot be saved, the log after its last checkpoint is kept. The others are saved.
            let saved = database.save_if_due(&store.shelf, &store.unnamed, due, committed);
            let (vouched, saved_lsn) = saved.unwrap_or_else(|error| {
                failed.get_or_insert(error);
                database.saved_state()
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

    /// The files to copy for the current saved state; `None` if nothing is saved. The log after
    /// [`Documents::saved_lsn`] belongs to the copy; the caller must read that position before this call.
    ///
    /// # Errors
    /// I/O errors.
    pub fn plan_copy(&self) -> Result<Option<CopyPlan>, StoreError> {
        let Some(store) = self.store() else { return Ok(None) };
        // While this lock is held, no file in the catalog is removed.
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

    /// The position before the first creation of a database since the files were opened; `None` if there was
    /// none.
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
            // Cuts off the changes after the limit, durably, because the log will reach their positions again
            // with other records.
            drop(tree.begin()?);
        }
        let snapshot = tree.snapshot().clone();
        let decoded = decode_metadata(snapshot.metadata(), snapshot.applied_lsn());
        state = decoded
            .filter(|state| state.db == entry.db)
            .ok_or(StoreError::Damaged { path, what: "it is not the file of this database" })?;
        state.tree = Some(snapshot);
        file = DatabaseFile::new(tree, vouched.generation);
    }
    Ok(Database::new(entry.name.clone(), state, file, listener.clone()))
}
