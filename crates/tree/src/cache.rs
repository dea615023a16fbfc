//! `NodeCache`: verified nodes in memory, bounded in bytes and shared by any number of files.
//!
//! The cache holds inner nodes, and leaves that are likely to be read again. A node never changes, so nothing
//! is ever invalidated; unused nodes are evicted. The cache only saves time: everything works without it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use quick_cache::{Weighter, sync::Cache};

use crate::{Pointer, node::Node};

/// The expected size of a node in memory, which determines the size of the hash table.
const NODE_BYTES_EXPECTED: u64 = 2 << 10;

/// A bounded cache of nodes for any number of files and threads. Clones share one cache.
#[derive(Clone)]
pub struct NodeCache {
    nodes: Arc<Cache<NodeKey, Arc<Node>, Bytes>>,
    files: Arc<AtomicU64>,
}

/// The number of a file, unique within this cache, and the whole pointer. The offset alone is not enough:
/// after an abandoned checkpoint, the next checkpoint puts another node at the same offset.
type NodeKey = (u64, Pointer);

#[derive(Clone)]
struct Bytes;

impl Weighter<NodeKey, Arc<Node>> for Bytes {
    fn weight(&self, _: &NodeKey, node: &Arc<Node>) -> u64 {
        node.memory_bytes() as u64
    }
}

impl NodeCache {
    /// A cache of at most about `bytes` bytes.
    pub fn new(bytes: u64) -> NodeCache {
        let nodes = usize::try_from(bytes / NODE_BYTES_EXPECTED).unwrap_or(usize::MAX);
        NodeCache {
            nodes: Arc::new(Cache::with_weighter(nodes, bytes, Bytes)),
            files: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Bytes that the cached nodes take.
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
