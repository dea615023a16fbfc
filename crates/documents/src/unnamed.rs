//! `Unnamed`: files of databases that are there, or may be, and that the catalog does not name: not yet, or not any more.
//!
//! What it is: what is to be removed while the server runs, unless it is in use and about to be named. What it is not: on disk;
//! whoever opens the directory removes what the catalog does not name.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::id::DbId;

/// A file: its database, and which one of it.
pub(crate) type Generation = (DbId, u32);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Unnamed(Mutex<BTreeSet<Generation>>);

impl Unnamed {
    /// Notes a file: once it may be there, or once it is not named any more.
    pub(crate) fn add(&self, file: Generation) {
        self.0.lock().insert(file);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Generation> {
        self.0.lock().iter().copied().collect()
    }

    /// Forgets a file that is gone, or that the catalog names.
    pub(crate) fn settle(&self, file: Generation) {
        self.0.lock().remove(&file);
    }
}
