//! Checkpoints: writing the pending changes of a database to its file, in one contiguous write with one sync.
//!
//! ```text
//! freeze the fresh layer (gate held, O(1)) -> the log commits its last change -> blobs, rows, header, sync
//!   -> the layer is dropped
//! ```
//!
//! This is the writing side of one database's file; [`crate::Documents::checkpoint`] decides when it runs.
//! Durability does not depend on it: the log keeps all changes until the file has them.
//!
//! Invariants
//! - A file holds only changes that the log has committed, so it never has changes that the log lost in a
//!   crash.
//! - Writers continue while a layer is written; readers see the layer until the file has it.
//! - After an error the layer stays in memory and in the log. Before the next write the file is opened again,
//!   bypassing the page cache, at its previous checkpoint, and all bytes behind that are cut off, which frees
//!   space on a full disk.

use std::path::PathBuf;
use std::sync::Arc;

use env::{Disk, Entropy};
use lsn::Lsn;
use tree::{Change as TreeChange, NodeCache, Op, Options, TreeError, TreeFile, TreeId, Wanted, Written};

use crate::blob::Era;
use crate::catalog::{Vouched, tree_name};
use crate::database::Database;
use crate::id::DbId;
use crate::layer::Layer;
use crate::rows::{self, DOCUMENTS, FEED, LOCAL, TREES};
use crate::state::State;
use crate::store_error::StoreError;
use crate::unnamed::Unnamed;

/// A database with this many bytes only in memory is saved.
pub const DIRTY_BYTES_MAX: u64 = 8 << 20;
/// Changes that have been only in memory for this long are saved.
pub const DIRTY_AGE_MS_MAX: u64 = 10_000;
/// A database that makes the log keep this many bytes is saved.
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// The size above which a leaf is split, in bytes. Updates hit documents in no particular order, so that even
/// a large batch changes few of them in one leaf: small leaves need fewer written bytes per update.
const LEAF_BYTES: usize = 1 << 10;

/// The conditions of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The time in milliseconds, of any monotonic clock.
    pub now_ms: u64,
    /// The position up to which all records had been applied, or were being applied, before the call.
    pub upto: Lsn,
    /// Whether all databases are saved, even if none of the thresholds is reached.
    pub everything: bool,
}

/// The environment of the files of all databases.
#[derive(Clone)]
pub struct Shelf {
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The directory of documents.
    pub dir: PathBuf,
    /// The source of random file ids.
    pub entropy: Arc<dyn Entropy>,
    /// The cache for nodes of all trees.
    pub cache: NodeCache,
    /// Counters of the bytes appended to all files.
    pub written: Written,
}

impl Shelf {
    pub(crate) fn options(&self) -> Options {
        Options {
            written: self.written.clone(),
            leaf_bytes: LEAF_BYTES,
            ..Options::new(TREES, rows::measure, self.cache.clone())
        }
    }

    pub(crate) fn path_of(&self, db: DbId, generation: u32) -> PathBuf {
        self.dir.join(tree_name(db, generation))
    }
}

/// The file of a database; locking it gives the right to write it.
#[derive(Default)]
pub(crate) struct DatabaseFile {
    /// `None` before the first checkpoint.
    pub(crate) tree: Option<TreeFile>,
    /// The generation of the file; compaction makes the next one.
    pub(crate) generation: u32,
    /// A state with a frozen layer that is not saved yet.
    frozen: Option<Arc<State>>,
    /// The number of failed saves.
    failures: u32,
    /// Whether the last save failed, so that the bytes behind the previous checkpoint are unknown.
    is_suspect: bool,
    /// Time at which unsaved changes were first seen.
    dirty_since_ms: Option<u64>,
}

impl DatabaseFile {
    /// A file that is up to date.
    pub(crate) fn new(tree: TreeFile, generation: u32) -> DatabaseFile {
        DatabaseFile { tree: Some(tree), generation, ..DatabaseFile::default() }
    }

    /// Whether a frozen layer still waits to be saved.
    pub(crate) fn has_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns to the checkpoint before a failed save.
    fn go_back(&mut self, shelf: &Shelf, db: DbId) -> Result<(), TreeError> {
        if let Some(tree) = &mut self.tree {
            let lsn = tree.snapshot().applied_lsn();
            let (path, wanted) = (shelf.path_of(db, self.generation), Wanted { at_least: lsn, at_most: lsn });
            let mut opened = TreeFile::open(&*shelf.disk, &path, shelf.options(), wanted)?;
            // Cuts off the bytes behind the checkpoint.
            drop(opened.begin()?);
            *tree = opened;
        }
        self.is_suspect = false;
        Ok(())
    }

    /// Writes the frozen layer of a state to the file; creates the file if there is none.
    fn write(
        &mut self,
        shelf: &Shelf,
        unnamed: &Unnamed,
        frozen: &State,
    ) -> Result<tree::Snapshot, TreeError> {
        let tree = match &mut self.tree {
            Some(tree) => tree,
            none => {
                let path = shelf.path_of(frozen.db, self.generation);
                let metadata = rows::encode_metadata(&State::new(frozen.db));
                let (disk, entropy, lsn) = (&*shelf.disk, &*shelf.entropy, frozen.db.lsn());
                let made = TreeFile::create(disk, &path, shelf.options(), entropy, &metadata, lsn);
                unnamed.add((frozen.db, self.generation));
                none.insert(made?)
            }
        };
        let era = Era { file: tree.snapshot().file_id(), failures: self.failures };
        save(tree, frozen, era)
    }

    /// The newest checkpoint of the file.
    pub(crate) fn vouched(&self) -> Option<Vouched> {
        let saved = self.tree.as_ref()?.snapshot();
        Some(Vouched { generation: self.generation, lsn: saved.applied_lsn(), file_end: saved.file_end() })
    }
}

impl Database {
    /// Saves the pending changes, if a threshold is reached. Returns the newest checkpoint of the file, and
    /// the position up to which this database does not need the log: `due.upto`, unless changes remain
    /// unsaved.
    pub(crate) fn save_if_due(
        &self,
        shelf: &Shelf,
        unnamed: &Unnamed,
        due: &Due,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(Option<Vouched>, Lsn), StoreError> {
        let mut file = self.file.lock();
        // A writer with a position up to `due.upto` holds the gate until its change is visible: wait for it.
        drop(self.gate());
        let state = self.state();
        if !state.is_dirty() {
            file.dirty_since_ms = None;
            return Ok((file.vouched(), due.upto));
        }
        let since_ms = *file.dirty_since_ms.get_or_insert(due.now_ms);
        let is_due = due.everything
            || state.fresh.bytes >= DIRTY_BYTES_MAX
            || due.now_ms.saturating_sub(since_ms) >= DIRTY_AGE_MS_MAX
            || due.upto.get().saturating_sub(state.saved_lsn().get()) >= LOG_BYTES_MAX;
        if !is_due {
            return Ok((file.vouched(), state.saved_lsn()));
        }
        let is_retried = file.frozen.is_some();
        self.save(&mut file, shelf, unnamed, committed)?;
        file.dirty_since_ms = None;
        let saved_lsn = if is_retried { self.state().saved_lsn() } else { due.upto };
        Ok((file.vouched(), saved_lsn))
    }

    /// The newest checkpoint of the file, and the position up to which this database does not need the log.
    pub(crate) fn what_is_saved(&self) -> (Option<Vouched>, Lsn) {
        let file = self.file.lock();
        (file.vouched(), self.state().saved_lsn())
    }

    fn save(
        &self,
        file: &mut DatabaseFile,
        shelf: &Shelf,
        unnamed: &Unnamed,
        committed: &mut dyn FnMut(Lsn) -> bool,
    ) -> Result<(), StoreError> {
        // A layer whose save failed comes first.
        let frozen = file.frozen.get_or_insert_with(|| self.freeze()).clone();
        if !committed(frozen.last_lsn) {
            return Err(StoreError::NotCommitted);
        }
        if file.is_suspect {
            file.go_back(shelf, self.id())?;
        }
        let saved = file.write(shelf, unnamed, &frozen).inspect_err(|_| {
            file.failures = file.failures.wrapping_add(1);
            file.is_suspect = true;
            // At once, to free disk space; if this fails too, it is repeated before the next save.
            let _ = file.go_back(shelf, self.id());
        })?;
        let gate = self.gate();
        self.publish(State { frozen: None, tree: Some(saved), ..State::clone(&self.state()) });
        drop(gate);
        file.frozen = None;
        Ok(())
    }

    /// Begins a new fresh layer. Returns the state with the frozen layer that is to be saved.
    fn freeze(&self) -> Arc<State> {
        let gate = self.gate();
        let mut next = State::clone(&self.state());
        let fresh = std::mem::replace(&mut next.fresh, Layer::new(next.update_seq));
        next.frozen = Some(Arc::new(fresh));
        let frozen = Arc::new(next.clone());
        self.publish(next);
        drop(gate);
        frozen
    }
}

/// Rows to insert or, without a value, to remove.
pub(crate) type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Writes the frozen layer as one checkpoint.
fn save(file: &mut TreeFile, state: &State, era: Era) -> Result<tree::Snapshot, TreeError> {
    let mut checkpoint = file.begin()?;
    if let Some(layer) = &state.frozen {
        let mut put = |bytes: &[u8]| checkpoint.put_blob(bytes);
        let mut documents = Rows::new();
        for (id, info) in layer.by_id.iter() {
            let value = match info {
                Some(info) => Some(rows::encode_document(&info.saved(era, &mut put)?)),
                None => None,
            };
            documents.push((id.as_bytes().to_vec(), value));
        }
        let mut local = Rows::new();
        for (key, chunk) in layer.chunks.iter() {
            let value = match chunk {
                Some(chunk) => Some(chunk.saved(era, &mut put)?.encode().to_vec()),
                None => None,
            };
            local.push((rows::chunk_key(*key), value));
        }
        for (id, document) in layer.local.iter() {
            let value = match document {
                Some(document) => Some(rows::encode_local(document, &mut put)?),
                None => None,
            };
            local.push((rows::local_key(id), value));
        }
        modify(&mut checkpoint, DOCUMENTS, &documents)?;
        modify(&mut checkpoint, FEED, &feed_rows(layer))?;
        modify(&mut checkpoint, LOCAL, &local)?;
    }
    checkpoint.finish(&rows::encode_metadata(state), state.last_lsn)
}

fn feed_rows(layer: &Layer) -> Rows {
    let hidden = layer.hidden_seqs.iter().map(|seq| (rows::feed_key(*seq).to_vec(), None));
    let shown = layer
        .by_seq
        .iter()
        .map(|(seq, info)| (rows::feed_key(*seq).to_vec(), Some(rows::encode_change(&info.change_row()))));
    hidden.chain(shown).collect()
}

/// Applies rows to a tree.
pub(crate) fn modify(
    checkpoint: &mut tree::Checkpoint<'_>,
    tree: TreeId,
    rows: &Rows,
) -> Result<(), TreeError> {
    let mut ops: Vec<Op<'_>> = rows.iter().map(|(key, value)| op(key, value.as_deref())).collect();
    checkpoint.modify(tree, &mut ops)
}

fn op<'a>(key: &'a [u8], value: Option<&'a [u8]>) -> Op<'a> {
    Op { key, change: value.map_or(TreeChange::Remove, TreeChange::Insert) }
}
