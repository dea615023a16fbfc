//! Walking a long list from either end.

use std::collections::vec_deque;
use std::iter::FusedIterator;

use super::buffer::Buffer;
use crate::collection::chunk;
use crate::collection::element::Element;

/// Elements of a long list in order.
#[derive(Clone)]
pub(crate) struct Range<'a> {
    /// What is left of the chunk that the range starts in.
    pub(super) front: chunk::Iter<'a>,
    /// The chunks between.
    pub(super) chunks: vec_deque::Iter<'a, Buffer>,
    /// What is left of the chunk that the range ends in, if it is another.
    pub(super) back: chunk::Iter<'a>,
    /// Elements of all three.
    pub(super) len: usize,
}

impl<'a> Iterator for Range<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.len = self.len.checked_sub(1)?;
        loop {
            if let Some(element) = self.front.next() {
                return Some(element);
            }
            match self.chunks.next() {
                Some(chunk) => self.front = chunk.chunk().iter(),
                None => return self.back.next(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<'a> DoubleEndedIterator for Range<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        self.len = self.len.checked_sub(1)?;
        loop {
            if let Some(element) = self.back.next_back() {
                return Some(element);
            }
            match self.chunks.next_back() {
                Some(chunk) => self.back = chunk.chunk().iter(),
                None => return self.front.next_back(),
            }
        }
    }
}

impl ExactSizeIterator for Range<'_> {}
impl FusedIterator for Range<'_> {}
