//! `Node`: a verified node in its stored form, searched without decoding.
//!
//! A node holds the bytes described in [`format`](crate::format). Its keys share a beginning, so that a
//! search compares only the rests of the keys; values are slices of the bytes. A node is immutable;
//! [`encode`](crate::encode) makes new nodes.
//!
//! Invariants
//! - [`Node::parse`] accepts bytes only if entries lie within the node, keys ascend, and children of an inner
//!   node lie before the node in the file. All other functions rely on these checks.

use std::cmp::Ordering;

use crate::{
    KEY_BYTES_MAX, Pointer, TreeId, VALUE_BYTES_MAX,
    format::{LEVEL_MAX, NODE_BYTES_MAX, NODE_FIXED_BYTES, POINTER_BYTES},
    pointer::Child,
};

/// A verified node.
pub(crate) struct Node {
    bytes: Box<[u8]>,
    prefix_len: usize,
    entries: usize,
}

/// A key in two parts: the beginning that its node stores once, and the rest.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) tail: &'a [u8],
}

impl<'a> Key<'a> {
    pub(crate) fn whole(key: &'a [u8]) -> Key<'a> {
        Key { head: &[], tail: key }
    }

    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.head.iter().chain(self.tail).copied()
    }

    /// Length of the common beginning of both keys.
    pub(crate) fn common_len(&self, other: &Key<'_>) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
    }

    pub(crate) fn first(&self, len: usize) -> Key<'a> {
        let in_head = len.min(self.head.len());
        Key { head: &self.head[..in_head], tail: &self.tail[..len - in_head] }
    }

    /// Whether this key is greater than `key`.
    fn is_behind(&self, key: &[u8]) -> bool {
        let (head, tail) = key.split_at(self.head.len().min(key.len()));
        match head.cmp(self.head) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => tail < self.tail,
        }
    }

    /// Appends the key without its first `skip` bytes.
    pub(crate) fn write_from(&self, skip: usize, out: &mut Vec<u8>) {
        let in_head = skip.min(self.head.len());
        out.extend_from_slice(&self.head[in_head..]);
        out.extend_from_slice(&self.tail[skip - in_head..]);
    }

    /// Overwrites `out` with the key.
    pub(crate) fn copy_into(&self, out: &mut Vec<u8>) {
        out.clear();
        self.write_from(0, out);
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }
}

impl Node {
    /// Verifies the bytes of a node at `offset`. The error describes the damage.
    pub(crate) fn parse(bytes: Box<[u8]>, offset: u64) -> Result<Node, &'static str> {
        let fixed: &[u8; NODE_FIXED_BYTES] = bytes.first_chunk().ok_or("a node is cut off")?;
        let prefix_len = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let entries = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]) as usize;
        if fixed[0] > LEVEL_MAX {
            return Err("a node of an impossible level");
        }
        // Each entry has an end in the table, so this bounds the loops below by the size of the node.
        if entries == 0 || (NODE_FIXED_BYTES + prefix_len).saturating_add(entries * 4) > bytes.len() {
            return Err("a node with an impossible number of entries");
        }
        let node = Node { bytes, prefix_len, entries };
        node.check_entries()?;
        if node.level() > 0 {
            node.check_children(offset)?
        }
        Ok(node)
    }

    fn check_entries(&self) -> Result<(), &'static str> {
        const OUTSIDE: &str = "an entry that is not within its node";
        let data = &self.bytes[self.data_at()..];
        let (mut begin, mut before) = (0, None);
        for index in 0..self.entries {
            let end = self.end(index);
            let entry = data.get(begin..end).ok_or(OUTSIDE)?;
            let (&suffix_len, entry) = entry.split_first_chunk().ok_or(OUTSIDE)?;
            let suffix_len = usize::from(u16::from_le_bytes(suffix_len));
            let (suffix, value) =
                entry.split_at_checked(suffix_len).ok_or("a key that is not within its node")?;
            if self.prefix_len + suffix_len > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                return Err("an entry longer than possible");
            }
            if before.is_some_and(|before| before >= suffix) {
                return Err("a node whose keys are not in order");
            }
            (begin, before) = (end, Some(suffix));
        }
        if begin == data.len() { Ok(()) } else { Err("a node with bytes behind its entries") }
    }

    fn check_children(&self, offset: u64) -> Result<(), &'static str> {
        for index in 0..self.entries {
            let child = Child::decode(self.value(index)).ok_or("an inner entry that is no pointer")?;
            if child.pointer.end() > offset || child.pointer.len() > NODE_BYTES_MAX {
                return Err("a pointer that leads to no node");
            }
        }
        Ok(())
    }

    /// The level of the node: 0 for a leaf.
    pub(crate) fn level(&self) -> u8 {
        self.bytes[0]
    }

    pub(crate) fn tree(&self) -> TreeId {
        TreeId(self.bytes[1])
    }

    /// Number of entries, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Memory that the node takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Node>()
    }

    fn prefix(&self) -> &[u8] {
        &self.bytes[NODE_FIXED_BYTES..NODE_FIXED_BYTES + self.prefix_len]
    }

    fn data_at(&self) -> usize {
        NODE_FIXED_BYTES + self.prefix_len + self.entries * 4
    }

    /// The end of an entry, counted from `data_at`.
    fn end(&self, index: usize) -> usize {
        let at = NODE_FIXED_BYTES + self.prefix_len + index * 4;
        let bytes = &self.bytes[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    }

    fn suffix_len(&self, begin: usize) -> usize {
        let at = self.data_at() + begin;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// The rest of the key, and the value.
    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let begin = if index == 0 { 0 } else { self.end(index - 1) };
        let data = self.data_at();
        self.bytes[data + begin + 2..data + self.end(index)].split_at(self.suffix_len(begin))
    }

    fn suffix(&self, index: usize) -> &[u8] {
        self.entry(index).0
    }

    pub(crate) fn value(&self, index: usize) -> &[u8] {
        self.entry(index).1
    }

    pub(crate) fn key(&self, index: usize) -> Key<'_> {
        Key { head: self.prefix(), tail: self.suffix(index) }
    }

    /// The index of `key`, or as an error the index at which it would be inserted.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (head, tail) = key.split_at(self.prefix_len.min(key.len()));
        match head.cmp(self.prefix()) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.entries),
            Ordering::Equal => self.search_suffix(tail),
        }
    }

    fn search_suffix(&self, tail: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle).cmp(tail) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The only child below which `key` can be.
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// The number of keys from the start of `keys` that belong below this child. The keys ascend, and none
    /// belongs to an earlier child.
    pub(crate) fn count_below<K>(&self, child: usize, keys: &[K], key: impl Fn(&K) -> &[u8]) -> usize {
        if child + 1 == self.entries {
            return keys.len();
        }
        let end = self.key(child + 1);
        keys.partition_point(|one| end.is_behind(key(one)))
    }

    /// The decoded child of an inner node.
    pub(crate) fn child(&self, index: usize) -> Child {
        Child::decode(self.value(index)).expect("verified by `parse`")
    }

    /// The pointer to a child; cheaper than [`Node::child`].
    pub(crate) fn child_pointer(&self, index: usize) -> Pointer {
        let bytes: &[u8; POINTER_BYTES] = self.value(index).first_chunk().expect("verified by `parse`");
        Pointer::decode(bytes)
    }
}

/// For fuzzing: arbitrary bytes are rejected, or can be walked as a node. Returns the entries of the node.
pub fn decode_any(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let node = Node::parse(bytes.into(), u64::MAX >> 16).ok()?;
    let entry = |index: usize| {
        let key = node.key(index).to_vec();
        assert_eq!(node.search(&key), Ok(index));
        if node.level() > 0 {
            assert_eq!(node.child(index).pointer, node.child_pointer(index));
        }
        (key, node.value(index).to_vec())
    };
    Some((0..node.len()).map(entry).collect())
}
