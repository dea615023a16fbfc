//! `Pointer`: offset, length and checksum of bytes in the file; `Child`: a pointer to a node with the sums
//! over it.

use xxhash_rust::xxh3::xxh3_64;

use crate::{Sums, format::POINTER_BYTES};

const OFFSET_MAX: u64 = (1 << 48) - 1;
const CHECKSUM_MASK: u64 = (1 << 48) - 1;

/// The place of bytes in a tree file, and their checksum, by which a reader verifies them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pointer {
    offset: u64,
    len: u32,
    checksum: u64,
}

impl Pointer {
    /// Bytes of an encoded pointer.
    pub const ENCODED_BYTES: usize = POINTER_BYTES;

    pub(crate) fn new(offset: u64, bytes: &[u8]) -> Pointer {
        assert!(offset <= OFFSET_MAX, "a tree file of 256 TiB");
        let len = u32::try_from(bytes.len()).expect("nodes and blobs are less than 4 GiB");
        Pointer { offset, len, checksum: xxh3_64(bytes) & CHECKSUM_MASK }
    }

    /// Offset of the first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the pointer refers to no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Whether `bytes` have the length and checksum of this pointer.
    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.len() && xxh3_64(bytes) & CHECKSUM_MASK == self.checksum
    }

    /// The stored form.
    pub fn encode(&self) -> [u8; POINTER_BYTES] {
        let mut out = [0; POINTER_BYTES];
        out[0..6].copy_from_slice(&self.offset.to_le_bytes()[..6]);
        out[6..10].copy_from_slice(&self.len.to_le_bytes());
        out[10..16].copy_from_slice(&self.checksum.to_le_bytes()[..6]);
        out
    }

    /// Decodes a pointer. Any 16 bytes decode; an invalid pointer is detected when it is followed.
    pub fn decode(bytes: &[u8; POINTER_BYTES]) -> Pointer {
        let u48 = |at: usize| bytes[at..at + 6].iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let len = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
        Pointer { offset: u48(0), len, checksum: u48(10) }
    }
}

/// A pointer to a node with its sums, as its parent stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub(crate) pointer: Pointer,
    /// Sums over all entries below the node.
    pub(crate) sums: Sums,
    /// Bytes of the node and all nodes below it.
    pub(crate) node_bytes: u64,
}

impl Child {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(POINTER_BYTES + 16);
        out.extend_from_slice(&self.pointer.encode());
        self.sums.0.iter().for_each(|&sum| varint::put(&mut out, sum));
        varint::put(&mut out, self.node_bytes);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Child> {
        let (pointer, mut rest) = bytes.split_first_chunk()?;
        let pointer = Pointer::decode(pointer);
        let mut sums = Sums::default();
        for sum in &mut sums.0 {
            *sum = varint::take(&mut rest)?;
        }
        let node_bytes = varint::take(&mut rest)?;
        rest.is_empty().then_some(Child { pointer, sums, node_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_pointers_and_children_are_decoded() {
        let pointer = Pointer::new(0x1234_5678_9abc, b"some bytes");
        assert_eq!(Pointer::decode(&pointer.encode()), pointer);
        assert_eq!((pointer.len(), pointer.end()), (10, 0x1234_5678_9abc + 10));
        assert!(pointer.matches(b"some bytes") && !pointer.matches(b"some bytez") && !pointer.matches(b""));
        let child = Child { pointer, sums: Sums([0, 1, 1 << 40, u64::MAX]), node_bytes: 12345 };
        let mut bytes = child.encode();
        assert_eq!(Child::decode(&bytes), Some(child));
        assert_eq!(Child::decode(&bytes[..bytes.len() - 1]), None);
        bytes.push(0);
        assert_eq!(Child::decode(&bytes), None, "nothing may follow");
    }

    #[test]
    fn any_change_is_seen() {
        let bytes: Vec<u8> = (0..200).collect();
        let pointer = Pointer::new(4096, &bytes);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!pointer.matches(&changed));
        }
    }
}
