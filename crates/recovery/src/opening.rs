//! Opens the files of document databases, before the log's later changes are applied to them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use documents::{Documents, Listener, Shelf, StoreError, directory};
use env::{Disk, Entropy};
use lsn::Lsn;
use tree::{NodeCache, Written};

/// Memory for cached tree nodes of all databases together.
const CACHE_BYTES: u64 = 64 << 20;

/// The directory of Mango index files. They are built from the databases, and rebuilt if missing.
pub fn indexes_directory(dir: &Path) -> PathBuf {
    directory(dir).join("indexes")
}

/// Opens all databases of the data directory `dir`; with a `limit`, in their state at that position.
///
/// # Errors
/// I/O errors and damage. Missing files are detected by recovery, which knows whether there were any.
pub fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    entropy: Arc<dyn Entropy>,
    limit: Option<Lsn>,
    listener: Listener,
) -> Result<Documents, StoreError> {
    let cache = NodeCache::new(CACHE_BYTES);
    let shelf = Shelf { disk, dir: directory(dir), entropy, cache, written: Written::default() };
    Documents::open(shelf, limit, listener)
}
