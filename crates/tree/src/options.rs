//! The options of a tree file, and which of its checkpoints is opened.

use lsn::Lsn;

use crate::{Measure, NodeCache, TREES_MAX, TreeId, Written, encode::Shape};

/// The default size of leaves. Leaves are small, because a leaf is rewritten as a whole, often for one
/// changed entry.
const LEAF_BYTES: usize = 2 << 10;
/// The default size of inner nodes. Inner nodes are larger than leaves, because one rewrite serves many
/// changes below, and large inner nodes make the tree less deep.
const INNER_BYTES: usize = 4 << 10;

/// Options of a tree file. Only `trees` and the results of `measure` are part of the stored data.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of trees in the file: 1 to [`TREES_MAX`].
    pub trees: u8,
    /// Computes the sums of one entry.
    pub measure: Measure,
    /// The cache for nodes.
    pub cache: NodeCache,
    /// Counters of appended bytes and writes.
    pub written: Written,
    /// About the size in bytes above which a leaf of more than one entry is split. A beginning that all its
    /// keys share does not count if it takes half of this size or more.
    pub leaf_bytes: usize,
    /// About the size in bytes above which an inner node is split. The limit is larger for a node with long
    /// keys, so that a node has room for several children.
    pub inner_bytes: usize,
}

impl Options {
    /// Options with the default node sizes and counters of their own.
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

/// The acceptable checkpoints, by their applied LSN; the newest acceptable one is opened. The default accepts
/// any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Checkpoints with a lower applied LSN are not accepted: the caller knows that a checkpoint of this LSN
    /// was durable, so a file with only older checkpoints is damaged.
    pub at_least: Lsn,
    /// Checkpoints with a higher applied LSN are not accepted, so that an older state can be opened.
    pub at_most: Lsn,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { at_least: Lsn::ZERO, at_most: Lsn::MAX }
    }
}
