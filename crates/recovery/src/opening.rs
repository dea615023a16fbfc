//! Opens the files of document databases, before the log's later changes are applied to them, and refuses
//! files that do not belong to the log.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use documents::{Documents, Listener, Shelf, StoreError, directory};
use env::{Disk, Entropy};
use lsn::Lsn;
use storage::Recovery;
use tree::{NodeCache, Written};

use crate::error::RecoverError;

/// Memory for cached tree nodes of all databases together.
const CACHE_BYTES: u64 = 64 << 20;

/// The directory of Mango index files, which are built from the databases, and rebuilt if missing.
pub fn indexes_directory(dir: &Path) -> PathBuf {
    directory(dir).join("indexes")
}

/// Opens all databases of the data directory `dir` at their last checkpoints; with a `limit`, at their last
/// checkpoints up to that position.
///
/// # Errors
/// As [`Documents::open`]. Missing files are detected by recovery, which knows whether there were any.
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

/// Refuses to continue without the document files if they existed and the log from `begin` on does not hold
/// all documents.
///
/// # Errors
/// [`RecoverError::NoDocuments`].
pub(crate) fn require_documents(
    recovery: &Recovery,
    begin: Lsn,
    documents: Option<&Documents>,
) -> Result<(), RecoverError> {
    let is_saved = documents.is_none_or(Documents::is_saved);
    let are_missing = !is_saved && recovery.has_documents() && begin > Lsn::ZERO;
    if are_missing { Err(RecoverError::NoDocuments { begin }) } else { Ok(()) }
}

/// Refuses document files whose state does not lie within the log replayed from `begin` on.
pub(crate) fn require_together(
    recovery: &Recovery,
    begin: Lsn,
    documents: Option<&Documents>,
) -> Result<(), RecoverError> {
    let end = recovery.tail().map_or(begin, |tail| tail.end);
    match documents.and_then(Documents::replay_from) {
        Some(saved) if saved < begin || saved > end => Err(RecoverError::Apart { saved, begin, end }),
        _ => Ok(()),
    }
}
