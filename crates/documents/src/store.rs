//! `Store`: the catalog on disk, and the removal of files that it does not name.
//!
//! Invariants
//! - Every file in the catalog exists and has the checkpoint that the catalog vouches for; otherwise the
//!   server does not start.
//! - A file that is not in the catalog is not needed. Either its database does not exist any more, or all
//!   changes of the database are in the log after `saved_lsn`, together with the file that the catalog names
//!   for the database. (For a new database it names none: then the log alone has all changes.) An unneeded
//!   file is removed when the files are opened, or by a checkpoint once no database uses it.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use env::crashsafe;
use lsn::Lsn;
use parking_lot::Mutex;

use crate::catalog::{Catalog, Entry};
use crate::checkpoint::Due;
use crate::database_file::Shelf;
use crate::list::Names;
use crate::store_error::StoreError;
use crate::unnamed::{Generation, Unnamed};

/// When this many bytes of the log have become redundant, the catalog is written even if nothing in it but
/// the saved position has changed.
const CATALOG_LOG_BYTES: u64 = 16 << 20;

/// The directory of documents in a data directory.
pub fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("documents")
}

/// The files of all databases, with their catalog.
pub(crate) struct Store {
    pub(crate) shelf: Shelf,
    pub(crate) unnamed: Arc<Unnamed>,
    /// The last catalog that was read or written; `None` before the first one is written.
    pub(crate) written: Mutex<Option<Catalog>>,
    /// Whether the last attempt to write the catalog failed, so that the disk may have the new catalog or the
    /// previous one.
    pub(crate) catalog_unsure: AtomicBool,
    /// The position after which the log must be applied after opening.
    pub(crate) replay_from: Option<Lsn>,
}

impl Store {
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    pub(crate) fn unnamed(&self) -> &Arc<Unnamed> {
        &self.unnamed
    }

    /// Writes a catalog without databases before the first file is created, because files without a catalog
    /// would be an error at the next start.
    pub(crate) fn begin_catalog(
        &self,
        names: &Names,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        let Some(first) = names.first_lsn.filter(|_| self.written.lock().is_none()) else { return Ok(()) };
        if !committed(first) {
            return Err(StoreError::NotCommitted);
        }
        let catalog =
            Catalog { names_lsn: first, deleted_lsn: Lsn::ZERO, saved_lsn: first, databases: Vec::new() };
        let mut written = self.written.lock();
        catalog.write(&*self.shelf.disk, &self.shelf.dir)?;
        *written = Some(catalog);
        Ok(())
    }

    /// Writes the catalog if its databases have changed, its saved position has risen by
    /// [`CATALOG_LOG_BYTES`] (by anything, if everything is due), or the last attempt failed. Notes the files
    /// that are no longer in it. Does nothing before there is a catalog.
    pub(crate) fn write(
        &self,
        catalog: Catalog,
        due: &Due,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        // The lock is released until the log has committed the positions: other threads lock it briefly, and
        // must not wait for replicas. The catalog does not change meanwhile, because only the saving thread
        // writes it.
        let Some(before) = self.written.lock().clone() else { return Ok(()) };
        // A database with changes after the saved position reports its last checkpoint, which may be older
        // than that position. All its changes up to the position are saved, so the position does not move
        // back.
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
        // A failed write may have reached the disk: no file that this catalog names is removed before a later
        // write has succeeded.
        self.catalog_unsure.store(true, SeqCst);
        catalog.write(&*self.shelf.disk, &self.shelf.dir)?;
        self.catalog_unsure.store(false, SeqCst);
        let (before, now) = (files_of(&before), files_of(&catalog));
        before.difference(&now).for_each(|file| self.unnamed.add(*file));
        *written = Some(catalog);
        Ok(())
    }

    /// Removes files that are neither in the catalog nor in use. A file that cannot be removed stays noted
    /// for the next call.
    pub(crate) fn remove_unnamed(&self, names: &Names) -> Result<(), StoreError> {
        let unnamed = self.unnamed.all();
        if unnamed.is_empty() {
            return Ok(());
        }
        let named = self.written.lock().as_ref().map(files_of).unwrap_or_default();
        for file @ (db, generation) in unnamed {
            if !named.contains(&file) {
                // While this lock is held, the database cannot switch to the file.
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
            // The file was never created.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(StoreError::io("remove", &path)),
        }
    }
}

pub(crate) fn files_of(catalog: &Catalog) -> BTreeSet<Generation> {
    let file = |entry: &Entry| Some((entry.db, entry.vouched?.generation));
    catalog.databases.iter().filter_map(file).collect()
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shelf.dir).finish_non_exhaustive()
    }
}
