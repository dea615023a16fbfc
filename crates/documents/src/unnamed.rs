//! `Unnamed`: files of databases that exist, or may exist, but are not yet in the catalog, or no longer in
//! it.
//!
//! Such files are removed while the server runs, unless they are in use and about to enter the catalog. The
//! set is not stored: opening a directory with a catalog removes all database files that are not in it.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::id::DbId;

/// A file: the id of its database, and its generation.
pub(crate) type Generation = (DbId, u32);

/// The set of files that are not in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Unnamed(Mutex<BTreeSet<Generation>>);

impl Unnamed {
    /// Notes a file that may have been created, or that has left the catalog.
    pub(crate) fn add(&self, file: Generation) {
        self.0.lock().insert(file);
    }

    /// All noted files.
    pub(crate) fn all(&self) -> Vec<Generation> {
        self.0.lock().iter().copied().collect()
    }

    /// Forgets a file that was removed, or that is in the catalog.
    pub(crate) fn settle(&self, file: Generation) {
        self.0.lock().remove(&file);
    }
}
