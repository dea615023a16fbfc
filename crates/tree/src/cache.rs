//! `NodeCache`: verified nodes in memory, of all files that share it, up to a number of bytes.
//!
//! What it is: the inner nodes that every walk begins with, and the leaves that are asked for one by one. A node never changes, so
//! nothing is ever invalidated; what is not used is displaced.
//! What it is not: needed. Everything works without it, only slower.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use quick_cache::{Weighter, sync::Cache};

use crate::{Pointer, node::Node};

/// What a node is expected to take, to size the tables.
const NODE_BYTES_EXPECTED: u64 = 2 << 10;

/// A bounded cache of nodes, to be shared by any number of files and threads. Clones are the same cache.
#[derive(Clone)]
pub struct NodeCache {
    nodes: Arc<Cache<Place, Arc<Node>, Bytes>>,
    files: Arc<AtomicU64>,
}

/// A file, by a number that no other file of this cache has had, and all of a pointer: where an abandoned checkpoint has left a node,
/// the next one puts another.
type Place = (u64, Pointer);

#[derive(Clone)]
struct Bytes;

impl Weighter<Place, Arc<Node>> for Bytes {
    fn weight(&self, _: &Place, node: &Arc<Node>) -> u64 {
        node.memory_bytes() as u64
    }
}

impl NodeCache {
    /// A cache of at most about so many bytes.
    pub fn new(bytes: u64) -> NodeCache {
        let nodes = usize::try_from(bytes / NODE_BYTES_EXPECTED).unwrap_or(usize::MAX);
        NodeCache {
            nodes: Arc::new(Cache::with_weighter(nodes, bytes, Bytes)),
            files: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Bytes that its nodes take.
    pub fn bytes(&self) -> u64 {
        self.nodes.weight()
    }

    pub(crate) fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, file: u64, pointer: &Pointer) -> Option<Arc<Node>> {
        self.nodes.get(&(file, *pointer))
    }

    pub(crate) fn insert(&self, file: u64, pointer: &Pointer, node: Arc<Node>) {
        self.nodes.insert((file, *pointer), node);
    }
}

impl std::fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeCache({} bytes)", self.bytes())
    }
}
