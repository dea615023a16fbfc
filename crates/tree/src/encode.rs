//! Node encoding: from sorted entries to the bytes of one or more nodes.
//!
//! This module implements the node layout of [`format`](crate::format) and chooses split points: it makes
//! nodes of about equal size or, where new entries come after all others, full nodes and a remainder. It does
//! not place nodes in the file; a node gets its pointer when it is appended.
//!
//! Invariants
//! - An inner node has room for several children, however long their keys are (see [`FANOUT_MIN`]), so every
//!   level has fewer nodes than the one below it.
//! - An entry may be larger than the target size of a node; its node then holds few other entries or none.

use std::ops::Range;

use crate::{
    Measure, Sums, TreeId,
    format::{ENTRY_FIXED_BYTES, NODE_FIXED_BYTES},
    node::Key,
    pointer::Child,
};

/// The target size of an inner node is at least this many times the size of its largest entry. (The common
/// beginning of the keys may take up to half of the target.)
const FANOUT_MIN: usize = 8;

/// An entry to be written.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) value: &'a [u8],
}

impl Entry<'_> {
    /// The size of the entry in a node that stores the whole key.
    pub(crate) fn size(&self) -> usize {
        ENTRY_FIXED_BYTES + self.key.len() + self.value.len()
    }
}

/// How entries are spread over nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// Nodes of about equal size, with room in each.
    Even,
    /// Full nodes and a remainder, because more entries are expected after them.
    Full,
}

/// The parameters for building nodes: tree, level, target size and the measure for sums.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) tree: TreeId,
    pub(crate) level: u8,
    pub(crate) target_bytes: usize,
    pub(crate) measure: Measure,
}

/// A node that is not in the file yet.
pub(crate) struct NewNode {
    /// The lower bound under which its parent refers to it.
    pub(crate) low: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sums: Sums,
    /// Total size of all nodes below it.
    pub(crate) bytes_below: u64,
    /// Whether more entries are expected at the end of the node, so that it is not joined with a neighbour
    /// even if it is small.
    pub(crate) grows: bool,
}

impl Shape {
    /// Encodes `entries` as nodes, none if there are no entries; the lower bound of the first node is `low`.
    pub(crate) fn build(&self, low: &[u8], entries: &mut [Entry<'_>], packing: Packing) -> Vec<NewNode> {
        let mut nodes = Vec::new();
        for piece in self.cut(entries, packing) {
            let low = match piece.start.checked_sub(1) {
                None => low.to_vec(),
                Some(before) => self.lower_bound(&entries[before].key, &entries[piece.start].key),
            };
            nodes.push(self.node(low, &mut entries[piece]));
        }
        if let Some(last) = nodes.last_mut() {
            last.grows = packing == Packing::Full;
        }
        nodes
    }

    /// The lower bound for a node that begins with `first`, after a node that ends with `before`. For a leaf
    /// it is the shortest key above `before` and not above `first`. For an inner node it is `first` itself,
    /// which is the lower bound of its first child.
    pub(crate) fn lower_bound(&self, before: &Key<'_>, first: &Key<'_>) -> Vec<u8> {
        if self.level > 0 {
            return first.to_vec();
        }
        first.bytes().take(before.common_len(first) + 1).collect()
    }

    /// Splits the entries into one range per node.
    fn cut(&self, entries: &[Entry<'_>], packing: Packing) -> Vec<Range<usize>> {
        if entries.is_empty() {
            return Vec::new();
        }
        let shared = self.shared_len(entries);
        let size = |entry: &Entry<'_>| entry.size().saturating_sub(shared);
        let target = self.target(entries.iter().map(size).max().unwrap_or(0));
        // The shared beginning does not count against the target if it takes half of the target or more.
        // Otherwise nodes would have few entries.
        let room = if shared < self.target_bytes / 2 { target - NODE_FIXED_BYTES - shared } else { target };
        let total: usize = entries.iter().map(size).sum();
        let piece_bytes = match packing {
            Packing::Even => total.div_ceil(total.div_ceil(room)).max(1),
            Packing::Full => room,
        };
        let mut pieces = Vec::new();
        let (mut begin, mut piece, mut bytes) = (0, 0, 0);
        for (index, entry) in entries.iter().enumerate() {
            // An entry belongs to the piece that contains its middle, so each piece but the last differs from
            // `piece_bytes` by at most one entry.
            let middle = (bytes + size(entry) / 2) / piece_bytes;
            if middle != piece && index > begin {
                pieces.push(begin..index);
                begin = index;
            }
            piece = middle;
            bytes += size(entry);
        }
        pieces.push(begin..entries.len());
        pieces
    }

    /// The target size of a node whose largest entry has `largest` bytes.
    pub(crate) fn target(&self, largest: usize) -> usize {
        if self.level == 0 { self.target_bytes } else { self.target_bytes.max(FANOUT_MIN * largest) }
    }

    /// Length of the common beginning of the keys of one node. The first key of an inner node does not count,
    /// because it is not used as a bound.
    fn shared_len(&self, entries: &[Entry<'_>]) -> usize {
        match entries {
            [first, .., last] if self.level == 0 => first.key.common_len(&last.key),
            // The last byte of the second key is never shared. So the first key, of which only the shared
            // bytes are stored, is smaller than the second.
            [_, second, .., last] => second.key.common_len(&last.key).min(second.key.len() - 1),
            [_, second] => second.key.len() - 1,
            _ => 0,
        }
    }

    /// Encodes all `entries` as one node.
    pub(crate) fn node(&self, low: Vec<u8>, entries: &mut [Entry<'_>]) -> NewNode {
        let shared = self.shared_len(entries);
        if self.level > 0 {
            entries[0].key = entries.get(1).map_or(Key::whole(&[]), |second| second.key.first(shared));
        }
        let (mut sums, mut bytes_below) = (Sums::default(), 0u64);
        let mut key = Vec::new();
        for entry in &*entries {
            if self.level == 0 {
                entry.key.copy_into(&mut key);
                sums += (self.measure)(self.tree, &key, entry.value);
            } else {
                let child = Child::decode(entry.value).expect("verified, or just encoded");
                sums += child.sums;
                bytes_below = bytes_below.wrapping_add(child.node_bytes);
            }
        }
        NewNode { low, bytes: self.encode(entries, shared), sums, bytes_below, grows: false }
    }

    /// Encodes a node whose keys all begin with the same `shared` bytes.
    fn encode(&self, entries: &[Entry<'_>], shared: usize) -> Vec<u8> {
        let size: usize = entries.iter().map(|entry| entry.size() - shared).sum();
        let mut out = Vec::with_capacity(NODE_FIXED_BYTES + shared + size);
        out.extend_from_slice(&[self.level, self.tree.0]);
        out.extend_from_slice(&u16::try_from(shared).expect("keys are shorter than 64 KiB").to_le_bytes());
        out.extend_from_slice(
            &u32::try_from(entries.len()).expect("a node is less than 4 GiB").to_le_bytes(),
        );
        if let Some(first) = entries.first() {
            out.extend(first.key.bytes().take(shared));
        }
        let mut end = 0;
        for entry in entries {
            end += (entry.size() - shared - 4) as u32;
            out.extend_from_slice(&end.to_le_bytes());
        }
        for entry in entries {
            let rest = u16::try_from(entry.key.len() - shared).expect("keys are shorter than 64 KiB");
            out.extend_from_slice(&rest.to_le_bytes());
            entry.key.write_from(shared, &mut out);
            out.extend_from_slice(entry.value);
        }
        out
    }
}
