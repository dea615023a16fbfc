//! `Builder`: builds a tree file from sorted entries; each node is written once and nearly full.
//!
//! A compaction copies a snapshot with a builder, lets the new file catch up by ordinary checkpoints, and
//! then puts it in place ([`TreeFile::put_in_place`]). A builder holds one path of nodes in memory, however
//! large the file is. The file cannot be opened before it is finished: a crash leaves a file without a state,
//! under a name that ends in `.tmp`.

use std::{path::Path, sync::Arc};

use env::{Disk, Entropy};
use lsn::Lsn;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    BLOB_BYTES_MAX, KEY_BYTES_MAX, METADATA_BYTES_MAX, Options, Pointer, TreeError, TreeFile, TreeId,
    TreeSnapshot, VALUE_BYTES_MAX,
    appender::Appender,
    encode::{Entry, Shape},
    file::first_header,
    format::{ENTRY_FIXED_BYTES, NODE_FIXED_BYTES},
    header::{Header, Root},
    node::Key,
    pointer::Child,
    reader::FileReader,
};

/// The fill level of the nodes. The rest of a node has room for a few later inserts without a split.
const FILL_PERCENT: usize = 90;

/// A tree file under construction.
pub struct Builder {
    options: Options,
    reader: FileReader,
    appender: Appender,
    first: Header,
    tree: TreeId,
    /// The nodes being filled, from the leaf up.
    levels: Vec<Filling>,
    last_key: Option<Vec<u8>>,
    roots: Vec<Option<Root>>,
}

/// A node being filled.
#[derive(Default)]
struct Filling {
    low: Vec<u8>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the entries, with their whole keys.
    bytes: usize,
    largest: usize,
}

impl Builder {
    /// Creates the file at `path`, which must come from [`crashsafe::tmp_path`](env::crashsafe::tmp_path). An
    /// existing file is replaced.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        options: Options,
        entropy: &dyn Entropy,
    ) -> Result<Builder, TreeError> {
        match disk.remove(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(TreeError::io("remove", path))?,
        }
        let file = disk.create_new(path).map_err(TreeError::io("create", path))?;
        let first = Header { has_state: false, ..first_header(options.trees, entropy) };
        file.write_all_at(&first.encode(), 0).map_err(TreeError::io("write", path))?;
        let reader = FileReader::new(file, path.to_owned(), &options.cache);
        let appender = Appender::new(&reader, first.end(), &options.written);
        let roots = vec![None; usize::from(options.trees)];
        Ok(Builder {
            options,
            reader,
            appender,
            first,
            tree: TreeId(0),
            levels: Vec::new(),
            last_key: None,
            roots,
        })
    }

    /// Appends a blob.
    ///
    /// # Errors
    /// If the file cannot be written; [`TreeError::TooLarge`].
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Pointer, TreeError> {
        TreeError::require_fits("a blob", bytes.len(), BLOB_BYTES_MAX)?;
        self.appender.put(bytes)
    }

    /// Size of the file so far, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.appender.end()
    }

    /// Appends an entry. Trees must come in ascending order, and so must the keys of each tree.
    ///
    /// # Errors
    /// If the file cannot be written; [`TreeError::TooLarge`].
    ///
    /// # Panics
    /// If trees or keys are out of order, or the file has no such tree.
    pub fn append(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        TreeError::require_fits("a key", key.len(), KEY_BYTES_MAX)?;
        TreeError::require_fits("a value", value.len(), VALUE_BYTES_MAX)?;
        assert!(tree >= self.tree && tree.0 < self.options.trees, "trees are built one after the other");
        if tree != self.tree {
            self.end_tree()?;
            self.tree = tree;
        }
        let last = self.last_key.get_or_insert_default();
        assert!(
            self.levels.is_empty() || last.as_slice() < key,
            "entries are appended in the order of their keys"
        );
        last.clear();
        last.extend_from_slice(key);
        self.push(0, key.to_vec(), value.to_vec())
    }

    /// Writes the header and makes the file durable. Further checkpoints may follow before the file is put in
    /// place.
    ///
    /// # Errors
    /// If the file cannot be written; [`TreeError::TooLarge`] for metadata.
    pub fn finish(mut self, metadata: &[u8], applied_lsn: Lsn) -> Result<TreeFile, TreeError> {
        TreeError::require_fits("metadata", metadata.len(), METADATA_BYTES_MAX)?;
        self.end_tree()?;
        self.appender.end_range()?;
        // The data is synced before the header is written. So the range of the header can be empty, and
        // opening a huge file does not read and hash all of it.
        self.appender.flush()?;
        let header = Header {
            file_id: self.first.file_id,
            offset: self.appender.end(),
            previous: Some(0),
            range_begin: self.appender.end(),
            range_hash: Xxh3::new().digest128(),
            applied_lsn,
            has_state: true,
            roots: self.roots,
            metadata: metadata.to_vec(),
        };
        self.appender.finish(&header)?;
        let reader = Arc::new(self.reader);
        Ok(TreeFile::at(
            TreeSnapshot { reader, header: Arc::new(header), options: self.options },
            None,
            false,
        ))
    }

    /// Adds an entry to the node that is being filled at a level. If that node is full, it is closed first.
    fn push(&mut self, level: usize, key: Vec<u8>, value: Vec<u8>) -> Result<(), TreeError> {
        if level == self.levels.len() {
            self.levels.push(Filling {
                low: if level == 0 { Vec::new() } else { key.clone() },
                ..Filling::default()
            });
        }
        let shape = self.options.shape(self.tree, level as u8);
        if self.levels[level].is_full_with(&shape, &key, &value) {
            let filled = std::mem::take(&mut self.levels[level]);
            if let Some((last, _)) = filled.entries.last() {
                self.levels[level].low = shape.lower_bound(&Key::whole(last), &Key::whole(&key));
            }
            self.close(level, &filled)?;
        }
        self.levels[level].push(key, value);
        Ok(())
    }

    /// Writes a node and adds it to the level above.
    fn close(&mut self, level: usize, filled: &Filling) -> Result<(), TreeError> {
        let mut entries: Vec<Entry<'_>> =
            filled.entries.iter().map(|(key, value)| Entry { key: Key::whole(key), value }).collect();
        let node = self.options.shape(self.tree, level as u8).node(filled.low.clone(), &mut entries);
        let pointer = self.appender.put(&node.bytes)?;
        let node_bytes = node.bytes_below.wrapping_add(node.bytes.len() as u64);
        self.push(level + 1, node.low, Child { pointer, sums: node.sums, node_bytes }.encode())
    }

    /// Closes all nodes of a tree, up to its root.
    fn end_tree(&mut self) -> Result<(), TreeError> {
        let mut level = 0;
        while level < self.levels.len() {
            let filled = std::mem::take(&mut self.levels[level]);
            let is_top = level + 1 == self.levels.len();
            match filled.entries.first() {
                Some((_, child)) if is_top && level > 0 && filled.entries.len() == 1 => {
                    let child = Child::decode(child).expect("just encoded");
                    self.roots[usize::from(self.tree.0)] = Some(Root { level: level as u8 - 1, child });
                }
                _ => self.close(level, &filled)?,
            }
            level += 1;
        }
        self.levels.clear();
        Ok(())
    }
}

impl Filling {
    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let size = ENTRY_FIXED_BYTES + key.len() + value.len();
        self.bytes += size;
        self.largest = self.largest.max(size);
        self.entries.push((key, value));
    }

    /// Whether the node has entries and would exceed [`FILL_PERCENT`] of its target size with one more.
    fn is_full_with(&self, shape: &Shape, key: &[u8], value: &[u8]) -> bool {
        let Some((first, _)) = self.entries.first() else { return false };
        let size = ENTRY_FIXED_BYTES + key.len() + value.len();
        let shared = Key::whole(first).common_len(&Key::whole(key));
        let saved = shared * self.entries.len();
        let target = shape.target(self.largest.max(size)) * FILL_PERCENT / 100;
        NODE_FIXED_BYTES + self.bytes + size - saved > target
    }
}
