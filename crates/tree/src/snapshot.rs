//! `TreeSnapshot`: all trees of a file as of one checkpoint, and the walks from a root to an entry.
//!
//! A snapshot is a few words, cheap to clone and to send to another thread. A snapshot stays valid during
//! writes, and even after a compaction has replaced the file, because it keeps the old file open. It is only
//! for reading, and not a transaction.

use std::{ops::Bound, path::Path, sync::Arc};

use env::{Access, Disk};
use lsn::Lsn;

use crate::{
    Difference, Options, PassedOver, Pointer, Sums, TreeError, TreeId, Wanted,
    header::{Header, Root},
    node::Node,
    range::{Direction, Range},
    reader::{FileReader, Leaves},
    search,
};

/// The state of all trees of a file at one checkpoint.
#[derive(Clone)]
pub struct TreeSnapshot {
    pub(crate) reader: Arc<FileReader>,
    pub(crate) header: Arc<Header>,
    pub(crate) options: Options,
}

impl TreeSnapshot {
    /// Opens a file read-only. The second value is a newer checkpoint that was skipped because it is damaged
    /// or incomplete.
    ///
    /// # Errors
    /// As [`TreeFile::open`](crate::TreeFile::open).
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        options: Options,
        wanted: Wanted,
    ) -> Result<(TreeSnapshot, Option<PassedOver>), TreeError> {
        let file = disk.open(path, Access::Read).map_err(TreeError::io("open", path))?;
        let reader = FileReader::new(file, path.to_owned(), &options.cache);
        TreeSnapshot::find(Arc::new(reader), options, wanted)
    }

    /// Finds the newest checkpoint that `wanted` accepts.
    pub(crate) fn find(
        reader: Arc<FileReader>,
        options: Options,
        wanted: Wanted,
    ) -> Result<(TreeSnapshot, Option<PassedOver>), TreeError> {
        let found = search::find(&*reader.file, &reader.path, wanted)?;
        if found.header.roots.len() != usize::from(options.trees) {
            let reason = "a header with another number of trees";
            return Err(TreeError::damaged(&reader.path, found.header.offset, reason));
        }
        Ok((TreeSnapshot { reader, header: Arc::new(found.header), options }, found.passed_over))
    }

    /// The log position up to which all changes are in this state.
    pub fn applied_lsn(&self) -> Lsn {
        self.header.applied_lsn
    }

    /// The metadata of the checkpoint.
    pub fn metadata(&self) -> &[u8] {
        &self.header.metadata
    }

    /// The end of the checkpoint's header in the file: the file up to here is a backup of this state.
    pub fn file_end(&self) -> u64 {
        self.header.end()
    }

    /// The random id of the file; compaction makes a file with a new id.
    pub fn file_id(&self) -> [u8; 16] {
        self.header.file_id
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.reader.path
    }

    /// Bytes of the nodes of a tree. The sum of these bytes and the bytes of live blobs, compared with
    /// [`TreeSnapshot::file_end`], shows how much of the file is in use.
    pub fn node_bytes(&self, tree: TreeId) -> u64 {
        self.root(tree).map_or(0, |root| root.child.node_bytes)
    }

    /// The sums over a whole tree; does no I/O.
    pub fn sums(&self, tree: TreeId) -> Sums {
        self.root(tree).map_or(Sums::default(), |root| root.child.sums)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// I/O errors, and damage in the nodes on the path.
    ///
    /// # Panics
    /// If the file has no such tree. All functions with a tree argument panic then.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
        let Some(root) = self.root(tree) else { return Ok(None) };
        let (mut level, mut pointer) = (root.level, root.child.pointer);
        while level > 0 {
            let node = self.reader.node(tree, level, &pointer, Leaves::Cached)?;
            pointer = node.child_pointer(node.child_for(key));
            level -= 1;
        }
        let leaf = self.reader.node(tree, 0, &pointer, Leaves::Cached)?;
        Ok(leaf.search(key).ok().map(|index| leaf.value(index).to_vec()))
    }

    /// The values of `keys`, which must ascend, in one walk: a node is visited once for all keys below it.
    ///
    /// # Errors
    /// As [`TreeSnapshot::get`].
    ///
    /// # Panics
    /// If the keys do not ascend.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        tree: TreeId,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, TreeError> {
        assert!(keys.is_sorted_by(|a, b| a.as_ref() <= b.as_ref()), "keys to be looked up must ascend");
        let mut values = Vec::with_capacity(keys.len());
        match self.root(tree) {
            Some(root) if !keys.is_empty() => {
                self.get_below(tree, root.level, &root.child.pointer, keys, &mut values)?;
            }
            _ => values.resize(keys.len(), None),
        }
        Ok(values)
    }

    fn get_below<K: AsRef<[u8]>>(
        &self,
        tree: TreeId,
        level: u8,
        pointer: &Pointer,
        mut keys: &[K],
        values: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<(), TreeError> {
        let node = self.reader.node(tree, level, pointer, Leaves::Cached)?;
        if level == 0 {
            let value = |key: &K| node.search(key.as_ref()).ok().map(|index| node.value(index).to_vec());
            values.extend(keys.iter().map(value));
            return Ok(());
        }
        while let Some(first) = keys.first() {
            let child = node.child_for(first.as_ref());
            let count = node.count_below(child, keys, AsRef::as_ref);
            let (here, behind) = keys.split_at(count);
            self.get_below(tree, level - 1, &node.child_pointer(child), here, values)?;
            keys = behind;
        }
        Ok(())
    }

    /// The entries between two keys, in either direction. Reads one leaf at a time.
    pub fn range(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>, direction: Direction) -> Range {
        Range::new(self.clone(), tree, from, to, direction)
    }

    /// The entries in which a tree differs from its earlier state `old`. The number of nodes read is in
    /// proportion to those that were written between the two states.
    ///
    /// # Panics
    /// If `old` is a state of another file.
    pub fn changes_since(&self, old: &TreeSnapshot, tree: TreeId) -> Difference {
        Difference::new(old.clone(), self.clone(), tree)
    }

    /// The sums over the entries between two keys; reads the nodes on at most two paths from the root to a
    /// leaf.
    ///
    /// # Errors
    /// As [`TreeSnapshot::get`].
    pub fn sums_of_range(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<Sums, TreeError> {
        let Some(root) = self.root(tree) else { return Ok(Sums::default()) };
        self.sums_below(tree, root.level, &root.child.pointer, from, to)
    }

    fn sums_below(
        &self,
        tree: TreeId,
        level: u8,
        pointer: &Pointer,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<Sums, TreeError> {
        let node = self.reader.node(tree, level, pointer, Leaves::Cached)?;
        if level == 0 {
            return Ok(self.sums_of_leaf(tree, &node, begin_of(&node, from), end_of(&node, to)));
        }
        let first = key_of(from).map_or(0, |key| node.child_for(key));
        let last = key_of(to).map_or(node.len() - 1, |key| node.child_for(key));
        let mut sums = Sums::default();
        for index in first..=last {
            let from = if index == first { from } else { Bound::Unbounded };
            let to = if index == last { to } else { Bound::Unbounded };
            let child = node.child(index);
            sums += match (from, to) {
                (Bound::Unbounded, Bound::Unbounded) => child.sums,
                _ => self.sums_below(tree, level - 1, &child.pointer, from, to)?,
            };
        }
        Ok(sums)
    }

    fn sums_of_leaf(&self, tree: TreeId, leaf: &Node, begin: usize, end: usize) -> Sums {
        let mut key = Vec::new();
        let mut sums = Sums::default();
        for index in begin..end {
            leaf.key(index).copy_into(&mut key);
            sums += (self.options.measure)(tree, &key, leaf.value(index));
        }
        sums
    }

    /// Reads a blob by the pointer that `put_blob` of [`Checkpoint`](crate::Checkpoint) or
    /// [`Builder`](crate::Builder) returned for this file.
    ///
    /// # Errors
    /// I/O errors, and damage if the bytes do not match the checksum in the pointer.
    pub fn read_blob(&self, pointer: Pointer) -> Result<Vec<u8>, TreeError> {
        self.reader.blob(&pointer)
    }

    pub(crate) fn root(&self, tree: TreeId) -> Option<&Root> {
        self.header.roots[usize::from(tree.0)].as_ref()
    }
}

impl std::fmt::Debug for TreeSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TreeSnapshot({} of lsn {})", self.path().display(), self.applied_lsn())
    }
}

pub(crate) fn key_of(bound: Bound<&[u8]>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The index of the first entry of a leaf that the lower bound `from` allows.
pub(crate) fn begin_of(leaf: &Node, from: Bound<&[u8]>) -> usize {
    match from {
        Bound::Unbounded => 0,
        Bound::Included(key) => leaf.search(key).unwrap_or_else(|index| index),
        Bound::Excluded(key) => leaf.search(key).map_or_else(|index| index, |index| index + 1),
    }
}

/// The index of the first entry of a leaf that is beyond the upper bound `to`.
pub(crate) fn end_of(leaf: &Node, to: Bound<&[u8]>) -> usize {
    match to {
        Bound::Unbounded => leaf.len(),
        Bound::Included(key) => leaf.search(key).map_or_else(|index| index, |index| index + 1),
        Bound::Excluded(key) => leaf.search(key).unwrap_or_else(|index| index),
    }
}
