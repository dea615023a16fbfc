//! Chunks: elements packed one after the other, readable from either end.
//!
//! What it is: a view of such a byte string, and the edits of the one that is a whole small list.
//! What it is not: an owner. The bytes of a small list lie in the entry of its key, those of a long one in the
//! buffers of `long_list`; both splice them themselves. Memory only: what is read is trusted.
//!
//! # Layout
//! Each element is its encoding (see `element`) and then the length of that encoding, so that the previous
//! element can be found: groups of 7 bits, the most significant first, with the top bit set in all but the
//! first, because they are read backwards. A **packed list** has the number of its elements in front, in
//! `HEADER_LEN` bytes, little-endian.
//!
//! Invariants
//! - `Chunk::len` is the number of elements in the bytes, so a walk needs no other end.
//! - Nothing here takes longer than a walk over half the chunk.

use std::iter::FusedIterator;
use std::mem;
use std::ops::Range;

use smallvec::SmallVec;

use super::element::{self, Element, Encoded};

/// Bytes in front of the elements of a packed list.
const HEADER_LEN: usize = 2;

/// The packed list without elements.
pub(crate) const EMPTY: [u8; HEADER_LEN] = [0; HEADER_LEN];

/// Most elements of a packed list.
pub(crate) const LEN_MAX: usize = u16::MAX as usize;

/// Bytes of the longest length of an encoding.
const BACK_LEN_MAX: usize = 5;

/// An element as it lies in a chunk, without a copy of its bytes.
pub(crate) struct Item<'a> {
    encoded: Encoded<'a>,
    back: [u8; BACK_LEN_MAX],
    back_len: u8,
}

impl<'a> Item<'a> {
    /// The item of the element with these bytes.
    pub(crate) fn of(element: &'a [u8]) -> Self {
        let encoded = Encoded::of(element);
        let mut rest = encoded.len();
        let back_len = back_len(rest);
        let mut back = [0; BACK_LEN_MAX];
        for byte in back[..back_len].iter_mut().rev() {
            *byte = 0x80 | (rest & 0x7f) as u8;
            rest >>= 7;
        }
        back[0] &= 0x7f;
        Item { encoded, back, back_len: back_len as u8 }
    }

    /// Bytes of the item.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.encoded.len() + self.back_len as usize
    }

    /// The item in parts, to be written one after the other.
    #[inline]
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        let [head, tail] = self.encoded.parts();
        [head, tail, &self.back[..self.back_len as usize]]
    }
}

/// Bytes in which the length of an encoding is written.
#[inline]
fn back_len(encoded_len: usize) -> usize {
    (encoded_len | 1).ilog2() as usize / 7 + 1
}

/// The length of the last encoding of `body` and the bytes that this length takes.
#[inline]
fn read_back(body: &[u8]) -> (usize, usize) {
    let (mut encoded_len, mut shift) = (0, 0);
    for &byte in body.iter().rev() {
        encoded_len |= ((byte & 0x7f) as usize) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (encoded_len, shift / 7)
}

/// The elements of a chunk, for reading.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    body: &'a [u8],
    len: usize,
}

impl<'a> Chunk<'a> {
    /// `len` elements and nothing else.
    #[inline]
    pub(crate) fn new(body: &'a [u8], len: usize) -> Self {
        Chunk { body, len }
    }

    /// The elements of a packed list.
    #[inline]
    pub(crate) fn of_packed(packed: &'a [u8]) -> Self {
        let (header, body) = packed.split_at(HEADER_LEN);
        Chunk { body, len: u16::from_le_bytes([header[0], header[1]]).into() }
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of the elements.
    #[inline]
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The element at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Element<'a>> {
        (index < self.len).then(|| element::decode(&self.body[self.offset(index)..]).0)
    }

    /// All elements.
    pub(crate) fn iter(&self) -> Iter<'a> {
        Iter { rest: *self, excess: 0 }
    }

    /// The elements in `range`, which lies within the chunk.
    pub(crate) fn range(&self, range: Range<usize>) -> Iter<'a> {
        let body = &self.body[self.offset(range.start)..];
        Iter { rest: Chunk { body, len: self.len - range.start }, excess: self.len - range.end }
    }

    /// Where the bytes of the elements in `range` are in the body.
    pub(crate) fn span(&self, range: Range<usize>) -> Range<usize> {
        let start = self.offset(range.start);
        let rest = Chunk { body: &self.body[start..], len: self.len - range.start };
        start..start + rest.offset(range.len())
    }

    /// As many elements from the start as have at most `bytes_max` bytes, but one at least, and the rest.
    pub(crate) fn split_at_bytes(&self, bytes_max: usize) -> (Chunk<'a>, Chunk<'a>) {
        let mut rest = *self;
        rest.skip_first();
        while rest.len > 0 {
            let mut next = rest;
            next.skip_first();
            if self.body.len() - next.body.len() > bytes_max {
                break;
            }
            rest = next;
        }
        let first = Chunk { body: &self.body[..self.body.len() - rest.body.len()], len: self.len - rest.len };
        (first, rest)
    }

    /// The bytes in front of element `index`, which may be the one after the last.
    fn offset(&self, index: usize) -> usize {
        debug_assert!(index <= self.len);
        let mut rest = *self;
        if index <= self.len / 2 {
            for _ in 0..index {
                rest.skip_first();
            }
            self.body.len() - rest.body.len()
        } else {
            for _ in index..self.len {
                rest.take_last();
            }
            rest.body.len()
        }
    }

    #[inline]
    fn skip_first(&mut self) {
        let encoded_len = element::encoded_len(self.body);
        self.body = &self.body[encoded_len + back_len(encoded_len)..];
        self.len -= 1;
    }

    /// Removes the last element from the view and returns its encoding.
    #[inline]
    fn take_last(&mut self) -> &'a [u8] {
        let (encoded_len, back_len) = read_back(self.body);
        let end = self.body.len() - back_len;
        let (body, encoding) = self.body[..end].split_at(end - encoded_len);
        self.body = body;
        self.len -= 1;
        encoding
    }
}

/// Elements of a chunk, from either end.
#[derive(Clone)]
pub(crate) struct Iter<'a> {
    rest: Chunk<'a>,
    /// Elements at the end of `rest` that do not belong to the range. They are skipped when somebody asks for
    /// the last element, which most never do.
    excess: usize,
}

impl Iter<'_> {
    /// No elements.
    pub(crate) const EMPTY: Iter<'static> = Iter { rest: Chunk { body: &[], len: 0 }, excess: 0 };
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.rest.len == self.excess {
            return None;
        }
        let (element, encoded_len) = element::decode(self.rest.body);
        self.rest.body = &self.rest.body[encoded_len + back_len(encoded_len)..];
        self.rest.len -= 1;
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.rest.len - self.excess;
        (len, Some(len))
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        if self.rest.len == self.excess {
            return None;
        }
        for _ in 0..mem::take(&mut self.excess) {
            self.rest.take_last();
        }
        Some(element::decode(self.rest.take_last()).0)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

/// What has to happen to the bytes of a packed list: `removed_len` bytes at `offset` give way to `inserted`,
/// and the number of elements becomes `len`. The owner of the bytes does that, see `write_len`.
#[derive(Debug)]
pub(crate) struct Edit {
    /// Where in the packed list, its header included.
    pub(crate) offset: usize,
    pub(crate) removed_len: usize,
    pub(crate) inserted: SmallVec<[u8; 64]>,
    /// At most `LEN_MAX`, or the list must become a long one instead.
    pub(crate) len: usize,
}

impl Edit {
    /// The edit of `packed` that puts `elements` in the place of those in `range`.
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

    /// The edit that puts elements in front of the one at `index`, which may be the one after the last.
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

    /// Bytes that a packed list of `packed_len` bytes has after the edit.
    pub(crate) fn packed_len_after(&self, packed_len: usize) -> usize {
        packed_len - self.removed_len + self.inserted.len()
    }

    /// Does the edit to a packed list in a vector.
    pub(crate) fn apply_to(&self, packed: &mut Vec<u8>) {
        packed.splice(self.offset..self.offset + self.removed_len, self.inserted.iter().copied());
        write_len(packed, self.len);
    }
}

/// Writes the number of elements into a packed list.
///
/// # Panics
/// If there are more than `LEN_MAX`.
pub(crate) fn write_len(packed: &mut [u8], len: usize) {
    assert!(len <= LEN_MAX, "a list of {len} elements is not packed");
    packed[..HEADER_LEN].copy_from_slice(&(len as u16).to_le_bytes());
}

#[cfg(test)]
mod tests;
