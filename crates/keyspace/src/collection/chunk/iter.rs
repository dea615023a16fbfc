//! Walking a chunk from either end.

use std::iter::FusedIterator;
use std::mem;

use super::{Chunk, back_len};
use crate::collection::element::{self, Element};

/// Elements of a chunk, from either end.
#[derive(Clone)]
pub(crate) struct Iter<'a> {
    rest: Chunk<'a>,
    /// Elements at the end of `rest` that do not belong to the range. They are skipped when the last element
    /// is requested.
    excess: usize,
}

impl<'a> Iter<'a> {
    pub(crate) const EMPTY: Iter<'static> = Iter::new(Chunk { body: &[], len: 0 }, 0);

    /// The elements of `rest` without the last `excess`.
    pub(super) const fn new(rest: Chunk<'a>, excess: usize) -> Self {
        Iter { rest, excess }
    }

    /// Takes the next element off the front. Returns the bytes of the chunk from the start of this element.
    #[inline]
    pub(in crate::collection) fn next_encoding(&mut self) -> Option<&'a [u8]> {
        if self.rest.len == self.excess {
            return None;
        }
        let body = self.rest.body;
        self.rest.skip_first();
        Some(body)
    }

    /// Takes the last element off the end. Returns its encoding.
    #[inline]
    pub(in crate::collection) fn next_back_encoding(&mut self) -> Option<&'a [u8]> {
        if self.rest.len == self.excess {
            return None;
        }
        for _ in 0..mem::take(&mut self.excess) {
            self.rest.take_last();
        }
        Some(self.rest.take_last())
    }
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
        self.next_back_encoding().map(|encoding| element::decode(encoding).0)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
