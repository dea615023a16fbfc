//! Opening the files of document databases, before what the log has more is applied to them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use documents::{Documents, Listener, Shelf, StoreError, directory};
use env::{Disk, Entropy};
use lsn::Lsn;
use tree::{NodeCache, Written};

/// Memory for nodes of trees that were read from files, of all databases together.
const CACHE_BYTES: u64 = 64 << 20;

/// Where the files of Mango's indexes are: made of the databases, and made again when they are not there.
pub fn indexes_directory(dir: &Path) -> PathBuf {
    directory(dir).join("indexes")
}

/// Opens all databases of the data directory `dir`; with a `limit`, as they were there.
///
/// # Errors
/// I/O errors and damage. That all files are missing is found by the recovery, which knows whether there were any.
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
