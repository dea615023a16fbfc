//! Walking a list of either form from either end.

use std::collections::vec_deque;
use std::iter::FusedIterator;

use super::buffer::Buffer;
use crate::collection::chunk::Iter;
use crate::collection::element::{Element, Encoded};

/// Elements of a list in order. A packed list is a range that starts and ends in one chunk.
#[derive(Clone)]
pub(crate) struct Range<'a> {
    /// The rest of the chunk in which the range starts.
    pub(super) front: Iter<'a>,
    /// The chunks between.
    pub(super) chunks: vec_deque::Iter<'a, Buffer>,
    /// The rest of the chunk in which the range ends, if the range does not end in the chunk of `front`.
    pub(super) back: Iter<'a>,
    /// The number of elements in all three.
    pub(super) len: usize,
}

impl<'a> From<Iter<'a>> for Range<'a> {
    fn from(front: Iter<'a>) -> Self {
        let len = front.len();
        Range { front, chunks: vec_deque::Iter::default(), back: Iter::EMPTY, len }
    }
}

impl<'a> Range<'a> {
    /// For each element, whether it equals `element`. This is faster than comparing the elements.
    pub(crate) fn matches<'e>(self, element: &'e [u8]) -> Matches<'a, 'e> {
        Matches { range: self, element: Encoded::of(element) }
    }

    /// Applies `take` to the front of the first chunk that has elements left.
    #[inline]
    fn take_first<T>(&mut self, take: impl Fn(&mut Iter<'a>) -> Option<T>) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        loop {
            if let Some(taken) = take(&mut self.front) {
                return Some(taken);
            }
            match self.chunks.next() {
                Some(buffer) => self.front = buffer.chunk().iter(),
                None => return take(&mut self.back),
            }
        }
    }

    /// Applies `take` to the back of the last chunk that has elements left.
    #[inline]
    fn take_last<T>(&mut self, take: impl Fn(&mut Iter<'a>) -> Option<T>) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        loop {
            if let Some(taken) = take(&mut self.back) {
                return Some(taken);
            }
            match self.chunks.next_back() {
                Some(buffer) => self.back = buffer.chunk().iter(),
                None => return take(&mut self.front),
            }
        }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.take_first(Iter::next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<'a> DoubleEndedIterator for Range<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        self.take_last(Iter::next_back)
    }
}

impl ExactSizeIterator for Range<'_> {}
impl FusedIterator for Range<'_> {}

/// For each element of a range, whether it equals the wanted one.
pub(crate) struct Matches<'a, 'e> {
    range: Range<'a>,
    element: Encoded<'e>,
}

impl Iterator for Matches<'_, '_> {
    type Item = bool;

    #[inline]
    fn next(&mut self) -> Option<bool> {
        self.range.take_first(Iter::next_encoding).map(|encoding| self.element.is_at(encoding))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Matches<'_, '_> {
    #[inline]
    fn next_back(&mut self) -> Option<bool> {
        self.range.take_last(Iter::next_back_encoding).map(|encoding| self.element.is_at(encoding))
    }
}

impl ExactSizeIterator for Matches<'_, '_> {}
impl FusedIterator for Matches<'_, '_> {}
