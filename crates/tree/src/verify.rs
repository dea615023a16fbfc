//! `verify`: a full walk over a snapshot, for `sheaf check`.
//!
//! The walk reads every node, bypassing the node cache, and checks what no single node can show: keys lie
//! within the bounds of their parents, and sums match the entries below. The walk reports damage, and
//! continues with the next node.

use crate::{Sums, TreeError, TreeId, TreeSnapshot, node::Node, pointer::Child};

/// The counts of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Readable nodes whose keys lie within their bounds.
    pub nodes: u64,
    /// Bytes of these nodes.
    pub node_bytes: u64,
    /// Entries of the leaves among these nodes.
    pub entries: u64,
    /// Number of errors that were reported.
    pub damaged: u64,
}

/// Walks over all trees of a snapshot. `entry` is called for every readable entry, in order, and may return
/// an error of its own, such as an error in a blob; `damage` is called for every error.
pub fn verify(
    snapshot: &TreeSnapshot,
    entry: impl FnMut(TreeId, &[u8], &[u8]) -> Result<(), TreeError>,
    damage: impl FnMut(TreeError),
) -> Report {
    let mut walk = Walk { snapshot, tree: TreeId(0), entry, damage, report: Report::default() };
    for tree in (0..snapshot.options.trees).map(TreeId) {
        walk.tree = tree;
        if let Some(root) = snapshot.root(tree) {
            walk.child(root.level, &root.child, &[], None);
        }
    }
    walk.report
}

struct Walk<'a, E, D> {
    snapshot: &'a TreeSnapshot,
    tree: TreeId,
    entry: E,
    damage: D,
    report: Report,
}

/// Totals over the readable part below a node.
#[derive(Default)]
struct Below {
    sums: Sums,
    node_bytes: u64,
    /// Whether a part below the node was unreadable, so that the totals cannot be compared.
    damaged: bool,
}

impl<E, D> Walk<'_, E, D>
where
    E: FnMut(TreeId, &[u8], &[u8]) -> Result<(), TreeError>,
    D: FnMut(TreeError),
{
    /// Walks over a node whose keys must lie between `low` and `high`.
    fn child(&mut self, level: u8, child: &Child, low: &[u8], high: Option<&[u8]>) -> Below {
        let node = match self.snapshot.reader.read_node(&child.pointer) {
            Ok(node) => node,
            Err(error) => return self.failed(error),
        };
        if node.level() != level || node.tree() != self.tree {
            return self.damaged(child, "a node of another tree or level");
        }
        let from = usize::from(level > 0);
        let first = (from < node.len()).then(|| node.key(from).to_vec());
        let last = node.key(node.len() - 1).to_vec();
        if first.is_some_and(|first| first.as_slice() < low)
            || high.is_some_and(|high| last.as_slice() >= high)
        {
            return self.damaged(child, "a node with keys that belong elsewhere");
        }
        self.report.nodes += 1;
        self.report.node_bytes += child.pointer.len() as u64;
        let mut below = if level == 0 { self.entries(&node) } else { self.children(&node, low, high) };
        below.node_bytes = below.node_bytes.wrapping_add(child.pointer.len() as u64);
        if !below.damaged && (below.sums != child.sums || below.node_bytes != child.node_bytes) {
            return self.damaged(child, "a node whose sums differ from those of the nodes below it");
        }
        below
    }

    fn children(&mut self, node: &Node, low: &[u8], high: Option<&[u8]>) -> Below {
        let mut all = Below::default();
        for index in 0..node.len() {
            let low = if index == 0 { low.to_vec() } else { node.key(index).to_vec() };
            let next = (index + 1 < node.len()).then(|| node.key(index + 1).to_vec());
            let below = self.child(node.level() - 1, &node.child(index), &low, next.as_deref().or(high));
            all.sums += below.sums;
            all.node_bytes = all.node_bytes.wrapping_add(below.node_bytes);
            all.damaged |= below.damaged;
        }
        all
    }

    fn entries(&mut self, leaf: &Node) -> Below {
        let mut all = Below::default();
        let mut key = Vec::new();
        for index in 0..leaf.len() {
            leaf.key(index).copy_into(&mut key);
            let value = leaf.value(index);
            all.sums += (self.snapshot.options.measure)(self.tree, &key, value);
            self.report.entries += 1;
            if let Err(error) = (self.entry)(self.tree, &key, value) {
                self.failed(error);
            }
        }
        all
    }

    fn damaged(&mut self, child: &Child, reason: &'static str) -> Below {
        self.failed(TreeError::damaged(self.snapshot.path(), child.pointer.offset(), reason))
    }

    fn failed(&mut self, error: TreeError) -> Below {
        self.report.damaged += 1;
        (self.damage)(error);
        Below { damaged: true, ..Below::default() }
    }
}
