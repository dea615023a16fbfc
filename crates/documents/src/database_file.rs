//! `DatabaseFile`: the file of one database, and how the frozen layer of a state is written to it.

use std::path::PathBuf;
use std::sync::Arc;

use env::{Disk, Entropy};
use tree::{
    Change as TreeChange, NodeCache, Op, Options, TreeError, TreeFile, TreeId, TreeSnapshot, Wanted, Written,
};

use crate::blob::Era;
use crate::catalog::{Vouched, tree_name};
use crate::id::DbId;
use crate::layer::Layer;
use crate::metadata::encode_metadata;
use crate::rows::{self, DOCUMENTS, FEED, LOCAL, TREES};
use crate::state::State;
use crate::unnamed::Unnamed;

/// The size above which a leaf is split, in bytes. If updates come in random order, even a large batch
/// changes few documents of one leaf, and small leaves mean fewer written bytes per update.
const LEAF_BYTES: usize = 1 << 10;

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

/// The file of a database. Whoever holds its lock may write it.
#[derive(Default)]
pub(crate) struct DatabaseFile {
    /// `None` if there is no file yet.
    pub(crate) tree: Option<TreeFile>,
    pub(crate) generation: u32,
    /// The last generation of which a file may exist, maybe of a compaction that has failed; the next
    /// compaction makes the generation after it.
    pub(crate) last_generation: u32,
    /// A state with a frozen layer that is not saved yet.
    pub(crate) frozen: Option<Arc<State>>,
    /// The number of failed writes to this file.
    pub(crate) failures: u32,
    /// Whether the file may have bytes of a failed save after its newest checkpoint.
    pub(crate) is_suspect: bool,
    /// The time from which the age of unsaved changes counts: see `DIRTY_AGE_MS_MAX`.
    pub(crate) dirty_since_ms: Option<u64>,
}

impl DatabaseFile {
    /// A file without a pending or failed save.
    pub(crate) fn new(tree: TreeFile, generation: u32) -> DatabaseFile {
        let last_generation = generation;
        DatabaseFile { tree: Some(tree), generation, last_generation, ..DatabaseFile::default() }
    }

    /// Whether a frozen layer still waits to be saved.
    pub(crate) fn has_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Returns to the checkpoint before a failed save.
    pub(crate) fn go_back(&mut self, shelf: &Shelf, db: DbId) -> Result<(), TreeError> {
        if let Some(tree) = &mut self.tree {
            let lsn = tree.snapshot().applied_lsn();
            let (path, wanted) = (shelf.path_of(db, self.generation), Wanted { at_least: lsn, at_most: lsn });
            let mut opened = TreeFile::open(&*shelf.disk, &path, shelf.options(), wanted)?;
            // Cuts off the bytes after the checkpoint.
            drop(opened.begin()?);
            *tree = opened;
        }
        self.is_suspect = false;
        Ok(())
    }

    /// Writes the frozen layer of a state to the file; creates the file if there is none.
    pub(crate) fn write(
        &mut self,
        shelf: &Shelf,
        unnamed: &Unnamed,
        frozen: &State,
    ) -> Result<TreeSnapshot, TreeError> {
        let tree = match &mut self.tree {
            Some(tree) => tree,
            none => {
                let path = shelf.path_of(frozen.db, self.generation);
                let metadata = encode_metadata(&State::new(frozen.db));
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

/// Rows to insert or, without a value, to remove.
pub(crate) type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Writes the frozen layer as one checkpoint.
fn save(file: &mut TreeFile, state: &State, era: Era) -> Result<TreeSnapshot, TreeError> {
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
    checkpoint.finish(&encode_metadata(state), state.last_lsn)
}

fn feed_rows(layer: &Layer) -> Rows {
    let hidden = layer.hidden_seqs.iter().map(|seq| (rows::feed_key(*seq).to_vec(), None));
    let shown = layer
        .by_seq
        .iter()
        .map(|(seq, info)| (rows::feed_key(*seq).to_vec(), Some(rows::encode_change(&info.change_row()))));
    hidden.chain(shown).collect()
}

/// Inserts and removes rows of a tree within a checkpoint.
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
