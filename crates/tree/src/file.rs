//! `TreeFile`: exclusive write access to a tree file.
//!
//! A `TreeFile` opens, creates and replaces the file, and only its owner can make checkpoints. Readers need
//! only snapshots, which may outlive the `TreeFile`.
//!
//! Invariants
//! - Opening writes nothing. Bytes after the opened checkpoint are cut off, durably, before a new checkpoint
//!   begins, so that they are never taken for a part of the new one.
//! - Opening reads from the disk, not from the page cache.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use env::{Access, Disk, Entropy, crashsafe};
use lsn::Lsn;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    Checkpoint, METADATA_BYTES_MAX, Options, PassedOver, TreeError, TreeSnapshot, Wanted,
    header::{FileId, Header},
    reader::FileReader,
};

/// A tree file, open for writing.
#[derive(Debug)]
pub struct TreeFile {
    snapshot: TreeSnapshot,
    passed_over: Option<PassedOver>,
    /// Whether the file may have bytes after the last checkpoint.
    has_tail: bool,
    poisoned: Option<String>,
}

impl TreeFile {
    /// Creates a file of empty trees, atomically and durably; replaces an existing file at `path`.
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
        Ok(TreeFile::at(TreeSnapshot { reader, header: Arc::new(header), options }, None, false))
    }

    /// Opens a file with the newest checkpoint that `wanted` accepts. A newer checkpoint may have been
    /// skipped: see [`TreeFile::passed_over`].
    ///
    /// # Errors
    /// I/O errors; [`TreeError::NoCheckpoint`] if no checkpoint is acceptable; [`TreeError::Damaged`] if this
    /// is not a tree file, or has another number of trees; [`TreeError::Version`].
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        options: Options,
        wanted: Wanted,
    ) -> Result<TreeFile, TreeError> {
        let file = disk.open(path, Access::ReadWrite).map_err(TreeError::io("open", path))?;
        // After a failed sync the page cache may hold bytes that never reached the disk.
        file.drop_cache().map_err(TreeError::io("sync", path))?;
        let len = file.len().map_err(TreeError::io("read", path))?;
        let reader = Arc::new(FileReader::new(file, path.to_owned(), &options.cache));
        let (snapshot, passed_over) = TreeSnapshot::find(reader, options, wanted)?;
        let has_tail = snapshot.file_end() != len;
        Ok(TreeFile::at(snapshot, passed_over, has_tail))
    }

    pub(crate) fn at(snapshot: TreeSnapshot, passed_over: Option<PassedOver>, has_tail: bool) -> TreeFile {
        TreeFile { snapshot, passed_over, has_tail, poisoned: None }
    }

    /// The newer checkpoint that was skipped when the file was opened, because it is damaged or incomplete,
    /// like one that was being written during a crash.
    pub fn passed_over(&self) -> Option<PassedOver> {
        self.passed_over
    }

    /// The state after the last checkpoint.
    pub fn snapshot(&self) -> &TreeSnapshot {
        &self.snapshot
    }

    /// Begins the next checkpoint.
    ///
    /// # Errors
    /// [`TreeError::Poisoned`] after a failed write, sync or change of a tree; I/O errors of cutting off the
    /// bytes after the last checkpoint.
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

    /// Moves this file to `path`, atomically and durably; a file there is replaced, and its snapshots stay
    /// valid.
    ///
    /// # Errors
    /// I/O errors; `path` then names either this file, complete, or the former file, if any.
    pub fn put_in_place(mut self, disk: &dyn Disk, path: &Path) -> Result<TreeFile, TreeError> {
        crashsafe::rename_durably(disk, self.path(), path).map_err(TreeError::io("rename", self.path()))?;
        self.snapshot.reader = Arc::new(self.snapshot.reader.renamed(path.to_owned()));
        Ok(self)
    }

    fn path(&self) -> &PathBuf {
        &self.snapshot.reader.path
    }

    /// Continues after `header`, which is durable.
    pub(crate) fn advance(&mut self, header: Header) -> TreeSnapshot {
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

/// Header 0 of a new file with empty trees.
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
