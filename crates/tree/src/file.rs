//! `TreeFile`: the one who may append to a file.
//!
//! What it is: opening, creating, replacing; who holds it has the only right to make checkpoints.
//! What it is not: needed to read. Snapshots live on without it.
//!
//! Invariants
//! - Nothing is written by opening. What lies behind the checkpoint that was found is cut off, durably, before the first new one:
//!   nothing of it can ever be taken for the continuation of something else.
//! - Opening reads what the disk holds, not what the page cache believes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, Entropy, crashsafe};
use lsn::Lsn;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    Checkpoint, METADATA_BYTES_MAX, Measure, NodeCache, PassedOver, Snapshot, TREES_MAX, TreeError, TreeId,
    Written,
    encode::Shape,
    header::{FileId, Header},
    reader::FileReader,
};

/// A leaf is rewritten for each entry that changes in it, unless a batch changes several: small ones cost fewer bytes.
const LEAF_BYTES: usize = 2 << 10;
/// An inner node is rewritten for many changes below it, and larger ones make a tree less deep.
const INNER_BYTES: usize = 4 << 10;

/// What is the same for every use of a file. Only `trees` and what `measure` computes are part of the data.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many trees it holds: 1 to [`TREES_MAX`].
    pub trees: u8,
    /// What their sums add up.
    pub measure: Measure,
    /// Where nodes are kept in memory.
    pub cache: NodeCache,
    /// Where it is counted what is appended.
    pub written: Written,
    /// The size of a leaf above which it is cut.
    pub leaf_bytes: usize,
    /// The size of an inner node above which it is cut.
    pub inner_bytes: usize,
}

impl Options {
    /// Nodes of the usual size, counters of its own.
    ///
    /// # Panics
    /// If there are no trees, or more than [`TREES_MAX`].
    pub fn new(trees: u8, measure: Measure, cache: NodeCache) -> Options {
        assert!((1..=TREES_MAX).contains(&trees), "{trees} trees");
        Options {
            trees,
            measure,
            cache,
            written: Written::default(),
            leaf_bytes: LEAF_BYTES,
            inner_bytes: INNER_BYTES,
        }
    }

    pub(crate) fn shape(&self, tree: TreeId, level: u8) -> Shape {
        let target_bytes = if level == 0 { self.leaf_bytes } else { self.inner_bytes };
        Shape { tree, level, target_bytes, measure: self.measure }
    }
}

/// Which checkpoints of a file will do. The default: any; the newest one is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// None before this position: what had been durable up to here must be there, else the file is damaged.
    pub at_least: Lsn,
    /// None after this position: to go back in time.
    pub at_most: Lsn,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { at_least: Lsn::ZERO, at_most: Lsn::MAX }
    }
}

/// A tree file, open to be written.
#[derive(Debug)]
pub struct TreeFile {
    snapshot: Snapshot,
    passed_over: Option<PassedOver>,
    /// Whether there may be bytes behind the last header.
    has_tail: bool,
    poisoned: Option<String>,
}

impl TreeFile {
    /// Makes a file of empty trees, durably and at once; replaces what is at `path`.
    ///
    /// # Errors
    /// I/O errors; [`TreeError::TooLarge`] for metadata.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        options: Options,
        entropy: &dyn Entropy,
        metadata: &[u8],
        applied_lsn: Lsn,
    ) -> Result<TreeFile, TreeError> {
        TreeError::require_fits("metadata", metadata.len(), METADATA_BYTES_MAX)?;
        let header =
            Header { metadata: metadata.to_vec(), applied_lsn, ..first_header(options.trees, entropy) };
        crashsafe::write_atomically(disk, path, &header.encode()).map_err(TreeError::io("create", path))?;
        let file = disk.open(path, Access::ReadWrite).map_err(TreeError::io("open", path))?;
        let reader = Arc::new(FileReader::new(file, path.to_owned(), &options.cache));
        Ok(TreeFile::at(Snapshot { reader, header: Arc::new(header), options }, None, false))
    }

    /// Opens a file with the newest checkpoint that is wanted. See [`TreeFile::passed_over`].
    ///
    /// # Errors
    /// I/O errors; [`TreeError::NoCheckpoint`] if there is none; [`TreeError::Damaged`] if this is no tree file, or has another number of
    /// trees; [`TreeError::Version`].
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        options: Options,
        wanted: Wanted,
    ) -> Result<TreeFile, TreeError> {
        let file = disk.open(path, Access::ReadWrite).map_err(TreeError::io("open", path))?;
        // If a sync failed before, the cache shows bytes that never arrived.
        file.drop_cache().map_err(TreeError::io("sync", path))?;
        let len = file.len().map_err(TreeError::io("read", path))?;
        let reader = Arc::new(FileReader::new(file, path.to_owned(), &options.cache));
        let (snapshot, passed_over) = Snapshot::find(reader, options, wanted)?;
        let has_tail = snapshot.file_end() != len;
        Ok(TreeFile::at(snapshot, passed_over, has_tail))
    }

    pub(crate) fn at(snapshot: Snapshot, passed_over: Option<PassedOver>, has_tail: bool) -> TreeFile {
        TreeFile { snapshot, passed_over, has_tail, poisoned: None }
    }

    /// The newer checkpoint that was not whole when the file was opened: after a crash, the one that was being written.
    pub fn passed_over(&self) -> Option<PassedOver> {
        self.passed_over
    }

    /// The state after the last checkpoint.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Begins the next checkpoint.
    ///
    /// # Errors
    /// [`TreeError::Poisoned`] after a failed write or sync; I/O errors of cutting off what lies behind the last checkpoint.
    pub fn begin(&mut self) -> Result<Checkpoint<'_>, TreeError> {
        if let Some(reason) = &self.poisoned {
            return Err(TreeError::Poisoned { path: self.path().to_owned(), reason: reason.clone() });
        }
        if self.has_tail {
            self.cut_tail().inspect_err(|error| self.poisoned = Some(error.to_string()))?;
            self.has_tail = false;
        }
        Ok(Checkpoint::new(self))
    }

    fn cut_tail(&self) -> Result<(), TreeError> {
        let file = &self.snapshot.reader.file;
        file.set_len(self.snapshot.file_end()).map_err(TreeError::io("cut", self.path()))?;
        file.sync_data().map_err(TreeError::io("sync", self.path()))
    }

    /// Puts this file in the place of the one at `path`, durably and at once: the end of a compaction. Snapshots of the old file keep it.
    ///
    /// # Errors
    /// I/O errors; one of the two files is at `path` then, whole.
    pub fn put_in_place(mut self, disk: &dyn Disk, path: &Path) -> Result<TreeFile, TreeError> {
        crashsafe::rename_durably(disk, self.path(), path).map_err(TreeError::io("rename", self.path()))?;
        self.snapshot.reader = Arc::new(self.snapshot.reader.renamed(path.to_owned()));
        Ok(self)
    }

    fn path(&self) -> &PathBuf {
        &self.snapshot.reader.path
    }

    /// Goes on behind `header`, which is durable.
    pub(crate) fn advance(&mut self, header: Header) -> Snapshot {
        self.snapshot.header = Arc::new(header);
        self.snapshot.clone()
    }

    pub(crate) fn poison(&mut self, reason: &str) {
        self.poisoned.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn leave_tail(&mut self) {
        self.has_tail = true;
    }
}

/// Header 0 of a new file, of empty trees.
pub(crate) fn first_header(trees: u8, entropy: &dyn Entropy) -> Header {
    let mut file_id = FileId::default();
    file_id[..8].copy_from_slice(&entropy.random_u64().to_le_bytes());
    file_id[8..].copy_from_slice(&entropy.random_u64().to_le_bytes());
    Header {
        file_id,
        offset: 0,
        previous: None,
        range_begin: 0,
        range_hash: Xxh3::new().digest128(),
        applied_lsn: Lsn::ZERO,
        has_state: true,
        roots: vec![None; usize::from(trees)],
        metadata: Vec::new(),
    }
}
