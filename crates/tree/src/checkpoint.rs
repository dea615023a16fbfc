//! `Checkpoint`: what is appended between two headers.
//!
//! Dropped before it is finished, it never was: what it has appended is overwritten by the next one.

use lsn::Lsn;

use crate::{
    BLOB_BYTES_MAX, Change, KEY_BYTES_MAX, METADATA_BYTES_MAX, Op, Pointer, Snapshot, TreeError, TreeFile,
    TreeId, VALUE_BYTES_MAX,
    appender::Appender,
    header::{Header, Root},
    modify::Batch,
};

/// The changes of a file that become durable together.
pub struct Checkpoint<'a> {
    file: &'a mut TreeFile,
    appender: Appender,
    roots: Vec<Option<Root>>,
    modified: Vec<bool>,
    finished: bool,
    /// Set while a tree is being changed: if that fails, the roots do not say what the caller believes.
    unfinished_batch: bool,
    /// Not for what was asked, which was found to be sound.
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

    /// Appends a blob. It can be read through the snapshot that [`Checkpoint::finish`] returns, and all later ones.
    ///
    /// # Errors
    /// I/O errors; [`TreeError::TooLarge`].
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Pointer, TreeError> {
        TreeError::require_fits("a blob", bytes.len(), BLOB_BYTES_MAX)?;
        self.appender.put(bytes)
    }

    /// Bytes appended so far.
    pub fn appended_bytes(&self) -> u64 {
        self.appender.end() - self.appender.begin()
    }

    /// Changes a tree. Sorts the operations; of several on one key only the last one counts.
    ///
    /// # Errors
    /// I/O errors, damage in nodes that must be read, [`TreeError::TooLarge`]. The checkpoint must then be dropped.
    ///
    /// # Panics
    /// If the tree was changed before in this checkpoint, or does not exist.
    pub fn modify(&mut self, tree: TreeId, ops: &mut Vec<Op<'_>>) -> Result<(), TreeError> {
        self.modify_seeing(tree, ops, |_, _| ())
    }

    /// As [`Checkpoint::modify`]; `seen` is shown each operation, in the order of keys, with the value that its key had.
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

    /// Makes everything durable: the rest of the writes, the header, one sync. `metadata` is whatever belongs to this state;
    /// everything up to `applied_lsn` is in it.
    ///
    /// # Errors
    /// I/O errors: then the file takes no more checkpoints, and after it is opened again it has this one or does not.
    ///
    /// # Panics
    /// If a change of a tree has failed before.
    pub fn finish(self, metadata: &[u8], applied_lsn: Lsn) -> Result<Snapshot, TreeError> {
        self.end(metadata, applied_lsn, true)
    }

    /// As [`Checkpoint::finish`], for a state in between that is none to open the file with.
    ///
    /// # Errors
    /// As [`Checkpoint::finish`].
    ///
    /// # Panics
    /// As [`Checkpoint::finish`].
    pub fn finish_in_between(self) -> Result<Snapshot, TreeError> {
        let before = self.file.snapshot().header.clone();
        self.end(&before.metadata, before.applied_lsn, false)
    }

    fn end(mut self, metadata: &[u8], applied_lsn: Lsn, has_state: bool) -> Result<Snapshot, TreeError> {
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
            // Who has put blobs may remember where: nothing else may ever lie there.
            self.file.poison("a change of a tree has failed");
        }
        if !self.finished {
            self.file.leave_tail();
        }
    }
}

/// Sorts operations by key, keeps the last one of each key, and refuses what is too large.
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
