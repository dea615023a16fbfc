//! Edits of packed lists: an `Edit` only describes the change; the owner of the bytes makes it.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Chunk, End, HEADER_LEN, Item, LEN_MAX};
use crate::collection::element::Encoded;

/// The edit of the bytes of a packed list: `removed_len` bytes at `offset` give way to `inserted`, and the
/// number of elements becomes `len`. The owner of the bytes replaces them, and then calls `write_len`.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The offset in the packed list, counted from the start of its header.
    pub(crate) offset: usize,
    pub(crate) removed_len: usize,
    pub(crate) inserted: SmallVec<[u8; 64]>,
    /// The number of elements after the edit; above `LEN_MAX`, the list must become a long one instead.
    pub(crate) len: usize,
}

impl Edit {
    /// The edit of `packed` that replaces the elements in `range` by `elements`.
    pub(crate) fn replace<'e>(
        packed: &[u8],
        range: Range<usize>,
        elements: impl IntoIterator<Item = &'e [u8]>,
    ) -> Self {
        let chunk = Chunk::of_packed(packed);
        let span = chunk.span(range.clone());
        let (mut inserted, mut len) = (SmallVec::new(), chunk.len - range.len());
        for element in elements {
            Item::of(element).parts().iter().for_each(|part| inserted.extend_from_slice(part));
            len += 1;
        }
        Edit { offset: HEADER_LEN + span.start, removed_len: span.len(), inserted, len }
    }

    /// The edit that puts elements in front of the element at `index`, or at the end if `index` is the number
    /// of elements.
    pub(crate) fn insert<'e>(
        packed: &[u8],
        index: usize,
        elements: impl IntoIterator<Item = &'e [u8]>,
    ) -> Self {
        Edit::replace(packed, index..index, elements)
    }

    /// The edit that replaces one element.
    pub(crate) fn set(packed: &[u8], index: usize, element: &[u8]) -> Self {
        Edit::replace(packed, index..index + 1, [element])
    }

    /// The edit that removes the elements in `range`.
    pub(crate) fn remove(packed: &[u8], range: Range<usize>) -> Self {
        Edit::replace(packed, range, [])
    }

    /// The edit that removes the elements equal to `element`: all of them, or the first `limit` from an end;
    /// `None` if no element is equal.
    pub(crate) fn remove_matches(packed: &[u8], element: &[u8], limit: usize, from: End) -> Option<Self> {
        let chunk = Chunk::of_packed(packed);
        let (body, removed) = chunk.without(&Encoded::of(element), limit, from)?;
        let (removed_len, len) = (chunk.body.len(), chunk.len - removed);
        Some(Edit { offset: HEADER_LEN, removed_len, inserted: SmallVec::from_vec(body), len })
    }

    /// Bytes that a packed list of `packed_len` bytes has after the edit.
    pub(crate) fn packed_len_after(&self, packed_len: usize) -> usize {
        packed_len - self.removed_len + self.inserted.len()
    }

    /// Does the edit to a packed list in a vector.
    #[cfg(test)]
    pub(crate) fn apply_to(&self, packed: &mut Vec<u8>) {
        packed.splice(self.offset..self.offset + self.removed_len, self.inserted.iter().copied());
        self.write_len(packed);
    }
    /// The second step of the edit: writes the number of elements into the packed list.
    ///
    /// # Panics
    /// If the list then has more than `LEN_MAX` elements.
    pub(crate) fn write_len(&self, packed: &mut [u8]) {
        assert!(self.len <= LEN_MAX, "a list of {} elements is not packed", self.len);
        packed[..HEADER_LEN].copy_from_slice(&(self.len as u16).to_le_bytes());
    }
}
