//! `LongList`: a list that outgrew its packed form.
//!
//! What it is: a deque of chunks, each a buffer of packed elements (see `chunk` and `buffer`). Pushing and
//! popping an element at an end is O(1) amortised; access by index adds up the lengths of the chunks from the
//! nearer end and then walks half a chunk at most.
//! What it is not: ever packed again; nor the place where a short list lives.
//!
//! Invariants
//! - No chunk is empty. A chunk with more than one element is at most `BODY_BYTES_MAX` long.
//! - Chunks other than the first and the last have no room beyond their size class, except where an edit in
//!   the middle left room. A removal in the middle and a split merge neighbours that are short together.
//! - `len` and `buffer_bytes` are sums over the chunks.
//! - A removal at an end takes out whole chunks. If these have fewer than `LAZY_BYTES_MIN` bytes together,
//!   the removal frees them. Otherwise it returns them as a list of their own, for the caller to free later.
//!
//! Measured with 10 M elements of 8 bytes: 10.06 bytes an element, of which 10 are its encoding. An element
//! in the middle is found in 5 us. The slowest operation was an insertion that made the deque of 12 k chunks
//! grow (0.5 ms, once); removing 4 M elements took 0.15 ms, and freeing the removed chunks 0.4 ms.

mod buffer;
mod edit;
mod range;

use std::collections::VecDeque;
use std::ops;

use super::chunk::{Chunk, End, Item, Iter};
use super::element::Element;
use buffer::{BODY_BYTES_MAX, Buffer, CAPACITY_MIN};
pub(crate) use range::Range;

/// A removal at an end takes out whole chunks. If these have at least this many bytes together, the removal
/// does not free them, but returns them to the caller.
const LAZY_BYTES_MIN: usize = 64 << 10;

/// The minimum room of the deque, in chunks. The deque grows by at least this many chunks, and does not
/// shrink below this room.
const CHUNKS_ROOM_MIN: usize = 16;

/// A list of any length.
#[derive(Default)]
pub(crate) struct LongList {
    chunks: VecDeque<Buffer>,
    /// The number of elements.
    len: usize,
    /// Bytes of memory of all buffers.
    buffer_bytes: usize,
}

impl LongList {
    /// A list without elements.
    pub(crate) fn new() -> Self {
        LongList::default()
    }

    /// The list with the elements of a packed one.
    pub(crate) fn from_packed(packed: &[u8]) -> Self {
        let mut list = LongList::new();
        let mut rest = Chunk::of_packed(packed);
        while rest.len() > 0 {
            let first;
            (first, rest) = rest.split_at_bytes(BODY_BYTES_MAX);
            list.add_chunk(list.chunks.len(), Buffer::of_chunk(first));
        }
        list
    }

    /// A copy of the list that shares its chunks. A shared chunk is copied when either list changes it.
    pub(crate) fn share(&self) -> LongList {
        LongList { chunks: self.chunks.clone(), len: self.len, buffer_bytes: self.buffer_bytes }
    }

    /// The number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory behind this structure: all buffers and the deque.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.buffer_bytes + self.chunks.capacity() * size_of::<Buffer>()
    }

    /// Adds an element in front of the first.
    #[inline]
    pub(crate) fn push_front(&mut self, element: &[u8]) {
        self.push(End::Front, &Item::of(element));
    }

    /// Adds an element after the last.
    #[inline]
    pub(crate) fn push_back(&mut self, element: &[u8]) {
        self.push(End::Back, &Item::of(element));
    }

    /// Removes the first `count` elements, or all if there are fewer. Returns removed chunks if their memory
    /// is too much to free at once.
    pub(crate) fn pop_front(&mut self, count: usize) -> Option<LongList> {
        self.pop(End::Front, count)
    }

    /// Removes the last `count` elements, or all if there are fewer. Returns removed chunks if their memory
    /// is too much to free at once.
    pub(crate) fn pop_back(&mut self, count: usize) -> Option<LongList> {
        self.pop(End::Back, count)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len {
            return None;
        }
        let (chunk, index) = self.locate(index);
        self.chunks[chunk].chunk().get(index)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> Range<'_> {
        self.range(0..self.len)
    }

    /// The elements in `range`, as far as they exist.
    pub(crate) fn range(&self, range: ops::Range<usize>) -> Range<'_> {
        let end = range.end.min(self.len);
        if range.start >= end {
            return Range::from(Iter::EMPTY);
        }
        let (first, start) = self.locate(range.start);
        // The index of the last element is used, not the end, so that the chunk found is the last one of the
        // range.
        let (last, last_index) = self.locate(end - 1);
        let first_end = if first == last { last_index + 1 } else { self.chunks[first].len() };
        let back =
            if first == last { Iter::EMPTY } else { self.chunks[last].chunk().range(0..last_index + 1) };
        Range {
            front: self.chunks[first].chunk().range(start..first_end),
            chunks: self.chunks.range(first + 1..last.max(first + 1)),
            back,
            len: end - range.start,
        }
    }

    #[inline]
    fn push(&mut self, end: End, item: &Item<'_>) {
        if let Some(buffer) = self.end_mut(end) {
            let bytes = buffer.bytes();
            if buffer.push(end, item) {
                let grown = buffer.bytes() - bytes;
                self.buffer_bytes += grown;
                self.len += 1;
                return;
            }
        }
        self.push_chunk(end, item);
    }

    /// Adds a chunk with one element. Its memory is an eighth of the bytes of the list, but at least
    /// `CAPACITY_MIN`, at most `BODY_BYTES_MAX`, and always enough for the element.
    #[cold]
    fn push_chunk(&mut self, end: End, item: &Item<'_>) {
        let at = match end {
            End::Front => 0,
            End::Back => self.chunks.len(),
        };
        if let Some(inner) = self.chunks.len().checked_sub(1).map(|last| at.min(last)) {
            self.update(inner, Buffer::fit);
        }
        let capacity = (self.buffer_bytes / 8).clamp(CAPACITY_MIN, BODY_BYTES_MAX);
        self.add_chunk(at, Buffer::of_item(item, end, capacity));
    }

    fn pop(&mut self, end: End, count: usize) -> Option<LongList> {
        let kept = self.len.saturating_sub(count);
        match end {
            End::Front => {
                let (first, index) = self.locate(self.len - kept);
                if index > 0 {
                    self.update(first, |buffer| buffer.pop(end, index));
                }
                self.take_chunks(0..first)
            }
            End::Back => {
                let (last, index) = self.locate(kept);
                if index > 0 {
                    self.update(last, |buffer| buffer.pop(end, buffer.len() - index));
                }
                self.take_chunks(last + usize::from(index > 0)..self.chunks.len())
            }
        }
    }

    /// The chunk in which the element at `index` is, and the element's index in the chunk. `index` may be the
    /// number of elements: the result is then the number of chunks, and 0.
    #[inline]
    fn locate(&self, index: usize) -> (usize, usize) {
        if index <= self.len / 2 {
            let mut rest = index;
            for (chunk, buffer) in self.chunks.iter().enumerate() {
                if rest < buffer.len() {
                    return (chunk, rest);
                }
                rest -= buffer.len();
            }
        } else {
            let mut rest = self.len - index;
            for (chunk, buffer) in self.chunks.iter().enumerate().rev() {
                if rest == 0 {
                    return (chunk + 1, 0);
                }
                if rest <= buffer.len() {
                    return (chunk, buffer.len() - rest);
                }
                rest -= buffer.len();
            }
        }
        (self.chunks.len(), 0)
    }

    fn end_mut(&mut self, end: End) -> Option<&mut Buffer> {
        match end {
            End::Front => self.chunks.front_mut(),
            End::Back => self.chunks.back_mut(),
        }
    }

    /// Changes a chunk, and updates `len` and `buffer_bytes`.
    fn update<R>(&mut self, chunk: usize, change: impl FnOnce(&mut Buffer) -> R) -> R {
        let buffer = &mut self.chunks[chunk];
        let (len, bytes) = (buffer.len(), buffer.bytes());
        let result = change(buffer);
        self.len = self.len - len + buffer.len();
        self.buffer_bytes = self.buffer_bytes - bytes + buffer.bytes();
        result
    }

    fn add_chunk(&mut self, at: usize, buffer: Buffer) {
        self.len += buffer.len();
        self.buffer_bytes += buffer.bytes();
        if self.chunks.len() == self.chunks.capacity() {
            // The deque grows by an eighth, where `VecDeque` would double it: in a list of millions of
            // elements, the deque itself takes memory worth saving.
            self.chunks.reserve_exact(CHUNKS_ROOM_MIN.max(self.chunks.len() / 8));
        }
        self.chunks.insert(at, buffer);
    }

    /// Removes whole chunks, and returns them if they are too much to free at once.
    fn take_chunks(&mut self, chunks: ops::Range<usize>) -> Option<LongList> {
        if chunks.is_empty() {
            return None;
        }
        let chunks: VecDeque<Buffer> = self.chunks.drain(chunks).collect();
        let len = chunks.iter().map(Buffer::len).sum();
        let buffer_bytes = chunks.iter().map(Buffer::bytes).sum();
        self.len -= len;
        self.buffer_bytes -= buffer_bytes;
        if self.chunks.len() < self.chunks.capacity() / 8 {
            self.chunks.shrink_to(CHUNKS_ROOM_MIN.max(2 * self.chunks.len()));
        }
        (buffer_bytes >= LAZY_BYTES_MIN).then_some(LongList { chunks, len, buffer_bytes })
    }
}

#[cfg(test)]
mod tests;
