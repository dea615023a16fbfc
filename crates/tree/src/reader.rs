//! `FileReader`: an open file that turns pointers into verified bytes.

use std::{path::PathBuf, sync::Arc};

use env::File;

use crate::{BLOB_BYTES_MAX, NodeCache, Pointer, TreeError, TreeId, format::NODE_BYTES_MAX, node::Node};

/// Whether a leaf that is read goes into the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaves {
    /// The leaf is likely to be read again, so it is cached.
    Cached,
    /// The leaf is read by a scan or is about to be replaced, so it is not cached.
    Passing,
}

pub(crate) struct FileReader {
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    cache: NodeCache,
    number: u64,
}

impl FileReader {
    pub(crate) fn new(file: Arc<dyn File>, path: PathBuf, cache: &NodeCache) -> FileReader {
        FileReader { file, path, cache: cache.clone(), number: cache.next_file() }
    }

    /// The same open file, with its new path.
    pub(crate) fn renamed(&self, path: PathBuf) -> FileReader {
        FileReader { file: self.file.clone(), path, cache: self.cache.clone(), number: self.number }
    }

    /// The node at `pointer`, which must be of this tree and level.
    pub(crate) fn node(
        &self,
        tree: TreeId,
        level: u8,
        pointer: &Pointer,
        leaves: Leaves,
    ) -> Result<Arc<Node>, TreeError> {
        let node = match self.cache.get(self.number, pointer) {
            Some(node) => node,
            None => {
                let node = Arc::new(self.read_node(pointer)?);
                if level > 0 || leaves == Leaves::Cached {
                    self.cache.insert(self.number, pointer, node.clone());
                }
                node
            }
        };
        if node.level() != level || node.tree() != tree {
            return Err(self.damaged(pointer, "a node of another tree or level"));
        }
        Ok(node)
    }

    /// Reads and verifies a node, bypassing the cache.
    pub(crate) fn read_node(&self, pointer: &Pointer) -> Result<Node, TreeError> {
        let bytes = self.read(pointer, NODE_BYTES_MAX)?;
        Node::parse(bytes.into(), pointer.offset()).map_err(|reason| self.damaged(pointer, reason))
    }

    /// Puts an inner node into the cache after it was appended, for the next walk.
    pub(crate) fn remember(&self, pointer: &Pointer, bytes: &[u8]) {
        if let Ok(node) = Node::parse(bytes.into(), pointer.offset()) {
            self.cache.insert(self.number, pointer, Arc::new(node));
        }
    }

    pub(crate) fn blob(&self, pointer: &Pointer) -> Result<Vec<u8>, TreeError> {
        self.read(pointer, BLOB_BYTES_MAX)
    }

    fn read(&self, pointer: &Pointer, max: usize) -> Result<Vec<u8>, TreeError> {
        if pointer.len() > max {
            return Err(self.damaged(pointer, "a pointer to more bytes than possible"));
        }
        let mut bytes = vec![0; pointer.len()];
        match self.file.read_exact_at(&mut bytes, pointer.offset()) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged(pointer, "a pointer leads beyond the end of the file"));
            }
            read => read.map_err(TreeError::io("read", &self.path))?,
        }
        if pointer.matches(&bytes) {
            Ok(bytes)
        } else {
            Err(self.damaged(pointer, "its bytes do not have the checksum that they were written with"))
        }
    }

    fn damaged(&self, pointer: &Pointer, reason: &'static str) -> TreeError {
        TreeError::damaged(&self.path, pointer.offset(), reason)
    }
}
