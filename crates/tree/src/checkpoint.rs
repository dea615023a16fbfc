//! `Checkpoint`: the blobs, nodes and header that are appended together.
//!
//! A checkpoint that is dropped before it is finished changes no state: its bytes are cut off before the next
//! checkpoint.

use lsn::Lsn;

use crate::{
    BLOB_BYTES_MAX, Change, KEY_BYTES_MAX, METADATA_BYTES_MAX, Op, Pointer, TreeError, TreeFile, TreeId,
    TreeSnapshot, VALUE_BYTES_MAX,
    appender::Appender,
    header::{Header, Root},
    modify::Batch,
};

/// A set of changes to a file that become durable together.
pub struct Checkpoint<'a> {
    file: &'a mut TreeFile,
    appender: Appender,
    roots: Vec<Option<Root>>,
    modified: Vec<bool>,
    finished: bool,
    /// True while a tree is being changed, and after a change that failed: `roots` then may not reflect the
    /// operations of the caller.
    unfinished_batch: bool,
    /// True while nodes are read and written, and after a failure there, which poisons the file. An operation
    /// that is rejected for its arguments leaves this flag unset.
    failed_batch: bool,
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn new(file: &'a mut TreeFile) -> Checkpoint<'a> {
        let snapshot = file.snapshot();
        Checkpoint {
            appender: Appender::new(&snapshot.reader, snapshot.file_end(), &snapshot.options.written),
            roots: snapshot.header.roots.clone(),
            modified: vec![false; snapshot.header.roots.len()],
            finished: false,
            unfinished_batch: false,
            failed_batch: false,
            file,
        }
    }

    /// Appends a blob. The blob can be read through the snapshot that [`Checkpoint::finish`] returns, and
    /// through all later snapshots.
    ///
    /// # Errors
    /// If the file cannot be written; [`TreeError::TooLarge`].
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Pointer, TreeError> {
        TreeError::require_fits("a blob", bytes.len(), BLOB_BYTES_MAX)?;
        self.appender.put(bytes)
    }

    /// Bytes appended so far.
    pub fn appended_bytes(&self) -> u64 {
        self.appender.end() - self.appender.begin()
    }

    /// Changes a tree. Sorts the operations; of several operations on one key only the last one counts.
    ///
    /// # Errors
    /// If the file cannot be written, or nodes cannot be read; [`TreeError::TooLarge`]. The checkpoint must
    /// then be dropped.
    ///
    /// # Panics
    /// If the tree was changed before in this checkpoint, or does not exist.
    pub fn modify(&mut self, tree: TreeId, ops: &mut Vec<Op<'_>>) -> Result<(), TreeError> {
        self.modify_seeing(tree, ops, |_, _| ())
    }

    /// Does the same as [`Checkpoint::modify`], and calls `seen` for each operation that counts, in the order
    /// of keys, with the value that the key had before.
    ///
    /// # Errors
    /// As [`Checkpoint::modify`].
    ///
    /// # Panics
    /// As [`Checkpoint::modify`].
    pub fn modify_seeing(
        &mut self,
        tree: TreeId,
        ops: &mut Vec<Op<'_>>,
        mut seen: impl FnMut(&Op<'_>, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        let index = usize::from(tree.0);
        assert!(
            !self.modified[index],
            "a tree is changed once in a checkpoint: its new nodes cannot be read yet"
        );
        self.modified[index] = true;
        self.unfinished_batch = true;
        sort(ops)?;
        self.failed_batch = true;
        if !ops.is_empty() {
            let snapshot = self.file.snapshot();
            let mut batch = Batch {
                tree,
                reader: &snapshot.reader,
                options: &snapshot.options,
                appender: &mut self.appender,
                seen: &mut seen,
            };
            self.roots[index] = batch.apply(self.roots[index], ops)?;
        }
        (self.unfinished_batch, self.failed_batch) = (false, false);
        Ok(())
    }

    /// Writes the header and makes the checkpoint durable with one sync. `metadata` is stored with this
    /// state, which contains all changes up to `applied_lsn`.
    ///
    /// # Errors
    /// If the file cannot be written. The file then takes no more checkpoints, and the next open may or may
    /// not find this checkpoint. [`TreeError::TooLarge`] for metadata.
    ///
    /// # Panics
    /// If an earlier change of a tree in this checkpoint has failed.
    pub fn finish(self, metadata: &[u8], applied_lsn: Lsn) -> Result<TreeSnapshot, TreeError> {
        self.end(metadata, applied_lsn, true)
    }

    /// Does the same as [`Checkpoint::finish`], but for an intermediate state, with which the file is never
    /// opened. Keeps the metadata and the applied LSN of the previous checkpoint.
    ///
    /// # Errors
    /// As [`Checkpoint::finish`].
    ///
    /// # Panics
    /// As [`Checkpoint::finish`].
    pub fn finish_in_between(self) -> Result<TreeSnapshot, TreeError> {
        let before = self.file.snapshot().header.clone();
        self.end(&before.metadata, before.applied_lsn, false)
    }

    fn end(mut self, metadata: &[u8], applied_lsn: Lsn, has_state: bool) -> Result<TreeSnapshot, TreeError> {
        assert!(!self.unfinished_batch, "a checkpoint in which a change has failed");
        TreeError::require_fits("metadata", metadata.len(), METADATA_BYTES_MAX)?;
        let range_hash = self.appender.end_range()?;
        let before = &self.file.snapshot().header;
        let header = Header {
            file_id: before.file_id,
            offset: self.appender.end(),
            previous: Some(before.offset),
            range_begin: self.appender.begin(),
            range_hash,
            applied_lsn,
            has_state,
            roots: std::mem::take(&mut self.roots),
            metadata: metadata.to_vec(),
        };
        self.appender.finish(&header)?;
        self.finished = true;
        Ok(self.file.advance(header))
    }
}

impl Drop for Checkpoint<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.appender.failure() {
            self.file.poison(reason);
        } else if self.failed_batch {
            // The caller may still hold pointers to blobs of this checkpoint: no other bytes may be written
            // at their offsets until the file is opened again.
            self.file.poison("a change of a tree has failed");
        }
        if !self.finished {
            self.file.leave_tail();
        }
    }
}

/// Sorts the operations by key, keeps the last one of each key, and rejects keys and values that are too
/// large.
fn sort(ops: &mut Vec<Op<'_>>) -> Result<(), TreeError> {
    for op in ops.iter() {
        TreeError::require_fits("a key", op.key.len(), KEY_BYTES_MAX)?;
        if let Change::Insert(value) = op.change {
            TreeError::require_fits("a value", value.len(), VALUE_BYTES_MAX)?;
        }
    }
    ops.sort_by_key(|op| op.key);
    ops.dedup_by(|later, kept| {
        let same = later.key == kept.key;
        if same {
            *kept = *later;
        }
        same
    });
    Ok(())
}
