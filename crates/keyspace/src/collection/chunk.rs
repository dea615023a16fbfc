//! Chunks: elements packed one after the other, readable from either end.
//!
//! What it is: a view of such a byte string, and the edits of a byte string that is a whole small list. What
//! it is not: an owner. The bytes of a small list lie in the entry of its key, the bytes of a long list in
//! the buffers of `long_list`; these owners splice the bytes themselves. Decoding trusts the bytes: they were
//! written here, or verified when they were loaded from a snapshot (see `verify`).
//!
//! # Layout
//! Each element is its encoding (see `element`) and then the length of that encoding, so that a reader can
//! step backwards. The length is in groups of 7 bits, the most significant first. The top bit is clear in the
//! first group only, where a reader from the end stops.
//!
//! ```text
//! packed list:  number of elements, u16 little-endian | encoding | length | encoding | length | ...
//! chunk of a long list:                                 encoding | length | encoding | length | ...
//! length 300:   02 ac  =  0|0000010  1|0101100  =  2 * 128 + 44
//! ```
//!
//! Invariants
//! - `Chunk::len` is the number of elements in the bytes, so a walk may count elements instead of comparing
//!   positions.
//! - Finding an element by its index walks over half the chunk at most.

mod edit;
mod iter;

use std::ops::Range;

use super::element::{self, Element, Encoded};
pub(crate) use edit::Edit;
pub(crate) use iter::Iter;

/// Bytes in front of the elements of a packed list.
const HEADER_LEN: usize = 2;

/// The packed list without elements.
pub(crate) const EMPTY: [u8; HEADER_LEN] = [0; HEADER_LEN];

/// The maximum number of elements of a packed list.
pub(crate) const LEN_MAX: usize = u16::MAX as usize;

/// The maximum number of bytes that the length of an encoding takes.
pub(crate) const BACK_LEN_MAX: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Front,
    Back,
}

/// An element as it lies in a chunk, without a copy of its bytes.
pub(crate) struct Item<'a> {
    encoded: Encoded<'a>,
    back: [u8; BACK_LEN_MAX],
    back_len: u8,
}

impl<'a> Item<'a> {
    pub(crate) fn of(element: &'a [u8]) -> Self {
        let encoded = Encoded::of(element);
        let mut back = [0; BACK_LEN_MAX];
        let back_len = write_back(encoded.len(), &mut back).len() as u8;
        Item { encoded, back, back_len }
    }

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

/// The number of bytes that the length of an encoding takes.
#[inline]
fn back_len(encoded_len: usize) -> usize {
    (encoded_len | 1).ilog2() as usize / 7 + 1
}

/// The length of an encoding in the form in which it follows the encoding.
#[inline]
pub(crate) fn write_back(encoded_len: usize, back: &mut [u8; BACK_LEN_MAX]) -> &[u8] {
    let (back, mut rest) = (&mut back[..back_len(encoded_len)], encoded_len);
    for byte in back.iter_mut().rev() {
        *byte = 0x80 | (rest & 0x7f) as u8;
        rest >>= 7;
    }
    back[0] &= 0x7f;
    back
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
    /// The chunk whose body is `len` elements and nothing else.
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

    /// The number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    pub(crate) fn get(&self, index: usize) -> Option<Element<'a>> {
        (index < self.len).then(|| element::decode(&self.body[self.offset(index)..]).0)
    }

    pub(crate) fn iter(&self) -> Iter<'a> {
        Iter::new(*self, 0)
    }

    /// The elements in `range`, as far as they exist.
    pub(crate) fn range(&self, range: Range<usize>) -> Iter<'a> {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        let body = &self.body[self.offset(start)..];
        Iter::new(Chunk { body, len: self.len - start }, self.len - end)
    }

    /// The range of the body that holds the elements in `range`.
    pub(crate) fn span(&self, range: Range<usize>) -> Range<usize> {
        let start = self.offset(range.start);
        let rest = Chunk { body: &self.body[start..], len: self.len - range.start };
        start..start + rest.offset(range.len())
    }

    /// Splits the chunk: as many elements from the start as have at most `bytes_max` bytes, but at least one;
    /// and the rest.
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

    /// The body after the removal of the elements equal to `element` (all of them, or the first `limit` from
    /// an end), and the number of removed elements. `None` if no element is equal.
    pub(crate) fn without(&self, element: &Encoded<'_>, limit: usize, from: End) -> Option<(Vec<u8>, usize)> {
        let (mut found, mut iter) = (0, self.iter());
        while let Some(encoding) = iter.next_encoding() {
            found += usize::from(element.is_at(encoding));
        }
        let removed = found.min(limit);
        if removed == 0 {
            return None;
        }
        let mut passed_over = if from == End::Front { 0 } else { found - removed };
        let item_len = element.len() + back_len(element.len());
        let mut body = Vec::with_capacity(self.body.len() - removed * item_len);
        let (mut rest, mut kept_from, mut left) = (*self, 0, removed);
        while left > 0 {
            let at = self.body.len() - rest.body.len();
            let matches = element.is_at(rest.body);
            rest.skip_first();
            if matches && passed_over > 0 {
                passed_over -= 1;
            } else if matches {
                body.extend_from_slice(&self.body[kept_from..at]);
                kept_from = at + item_len;
                left -= 1;
            }
        }
        body.extend_from_slice(&self.body[kept_from..]);
        Some((body, removed))
    }

    /// The number of bytes in front of element `index`; all bytes if `index` is the number of elements.
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

#[cfg(test)]
pub(super) mod tests;
