//! `LongList`: a list that outgrew its packed form.
//!
//! What it is: a deque of chunks, each a buffer of packed elements (see `chunk` and `buffer`). Pushing and
//! popping at the ends is O(1) amortised and moves no elements; what needs an index looks through the lengths
//! of the chunks from the nearer end and then walks half a chunk at most.
//! What it is not: ever packed again; nor the place where a short list lives.
//!
//! Invariants
//! - No chunk is empty. One with more than one element is at most `BODY_BYTES_MAX` long.
//! - Chunks other than the first and the last have no more room than an edit in the middle left in them, and
//!   an edit merges neighbours that are both short.
//! - `len` and `buffer_bytes` are sums over the chunks.
//! - Removing elements frees less than `LAZY_BYTES_MIN` of whole chunks. More of them come back as a list of
//!   their own, which the caller drops where nobody waits.

mod buffer;
mod range;

use std::collections::VecDeque;
use std::ops;

use super::chunk::{self, Chunk, Item};
use super::element::Element;
use buffer::{BODY_BYTES_MAX, Buffer, CAPACITY_MIN};
pub(crate) use range::Range;

/// Neighbours become one chunk when that is at most this long. It leaves room for a quarter, so that splits
/// and merges do not alternate.
const MERGED_BYTES_MAX: usize = BODY_BYTES_MAX / 4 * 3;

/// Chunks of so many bytes are not freed on the spot.
const LAZY_BYTES_MIN: usize = 64 << 10;

/// Chunks for which the deque always keeps room.
const CHUNKS_ROOM_MIN: usize = 16;

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Front,
    Back,
}

/// A list of any length.
#[derive(Default)]
pub(crate) struct LongList {
    chunks: VecDeque<Buffer>,
    /// Elements.
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

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that the elements occupy.
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

    /// Removes the first `count` elements, or all if there are fewer. Returns what is too much to free here.
    pub(crate) fn pop_front(&mut self, count: usize) -> Option<LongList> {
        self.pop(End::Front, count)
    }

    /// Removes the last `count` elements, or all if there are fewer. Returns what is too much to free here.
    pub(crate) fn pop_back(&mut self, count: usize) -> Option<LongList> {
        self.pop(End::Back, count)
    }

    /// The element at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len {
            return None;
        }
        let (chunk, index) = self.locate(index);
        self.chunks[chunk].chunk().get(index)
    }

    /// Replaces the element at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn set(&mut self, index: usize, element: &[u8]) {
        assert!(index < self.len, "no element {index} in a list of {}", self.len);
        let (chunk, index) = self.locate(index);
        self.replace(chunk, index..index + 1, &Item::of(element));
    }

    /// Adds an element in front of the one at `index`, or after the last.
    ///
    /// # Panics
    /// If `index` is more than the number of elements.
    pub(crate) fn insert(&mut self, index: usize, element: &[u8]) {
        assert!(index <= self.len, "no index {index} in a list of {}", self.len);
        let item = Item::of(element);
        if index == 0 {
            return self.push(End::Front, &item);
        }
        if index == self.len {
            return self.push(End::Back, &item);
        }
        let (chunk, index) = self.locate(index);
        if index > 0 {
            return self.replace(chunk, index..index, &item);
        }
        if self.has_room(chunk - 1, item.len()) {
            let end = self.chunks[chunk - 1].len();
            self.update(chunk - 1, |buffer| buffer.splice(end..end, Some(&item)));
        } else if self.has_room(chunk, item.len()) {
            self.update(chunk, |buffer| buffer.splice(0..0, Some(&item)));
        } else {
            self.add_chunk(chunk, Buffer::of_item(&item, End::Back, CAPACITY_MIN));
        }
    }

    /// Removes `count` elements from `index` on, or as many as there are. Returns what is too much to free
    /// here.
    pub(crate) fn remove(&mut self, index: usize, count: usize) -> Option<LongList> {
        let count = count.min(self.len.saturating_sub(index));
        if count == 0 {
            return None;
        }
        if index == 0 {
            return self.pop(End::Front, count);
        }
        if index + count == self.len {
            return self.pop(End::Back, count);
        }
        let (first, start) = self.locate(index);
        let (last, end) = self.locate(index + count);
        if first == last {
            self.update(first, |buffer| buffer.splice(start..end, None));
        } else {
            self.update(last, |buffer| buffer.pop(End::Front, end));
            self.update(first, |buffer| buffer.pop(End::Back, buffer.len() - start));
        }
        let first_kept = usize::from(self.chunks[first].len() > 0);
        let taken = self.take_chunks(first + first_kept..last.max(first + 1));
        self.merge_around(first);
        taken
    }

    /// All elements.
    pub(crate) fn iter(&self) -> Range<'_> {
        self.range(0..self.len)
    }

    /// The elements in `range`, as far as they exist.
    pub(crate) fn range(&self, range: ops::Range<usize>) -> Range<'_> {
        let end = range.end.min(self.len);
        if range.start >= end {
            let (front, back) = (chunk::Iter::EMPTY, chunk::Iter::EMPTY);
            return Range { front, chunks: self.chunks.range(0..0), back, len: 0 };
        }
        let (first, start) = self.locate(range.start);
        // The last element, not the one after it: the last chunk is then one of the range.
        let (last, last_index) = self.locate(end - 1);
        let first_end = if first == last { last_index + 1 } else { self.chunks[first].len() };
        let back = if first == last {
            chunk::Iter::EMPTY
        } else {
            self.chunks[last].chunk().range(0..last_index + 1)
        };
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
            let capacity = buffer.capacity();
            if buffer.push(end, item) {
                let grown = buffer.capacity() - capacity;
                self.buffer_bytes += grown;
                self.len += 1;
                return;
            }
        }
        self.push_chunk(end, item);
    }

    /// Adds a chunk with one element. An eighth of the list is room enough for those that will follow.
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

    /// Replaces the elements of one chunk that are in `range`, at most one, by `item`.
    fn replace(&mut self, chunk: usize, range: ops::Range<usize>, item: &Item<'_>) {
        let buffer = &self.chunks[chunk];
        let removed_len = buffer.chunk().span(range.clone()).len();
        if buffer.body_len() - removed_len + item.len() <= BODY_BYTES_MAX {
            return self.update(chunk, |buffer| buffer.splice(range, Some(item)));
        }
        // Split there. The item goes to the shorter part if it has room, or between the parts.
        let (start, end) = (range.start, range.end);
        let tail = self.update(chunk, |buffer| buffer.split_off(end));
        self.update(chunk, |buffer| buffer.pop(End::Back, buffer.len() - start));
        let (front_len, back_len) = (self.chunks[chunk].body_len(), tail.body_len());
        self.add_chunk(chunk + 1, tail);
        if front_len.min(back_len) + item.len() > BODY_BYTES_MAX {
            self.add_chunk(chunk + 1, Buffer::of_item(item, End::Back, 0));
        } else if front_len < back_len {
            self.update(chunk, |buffer| buffer.splice(start..start, Some(item)));
        } else {
            self.update(chunk + 1, |buffer| buffer.splice(0..0, Some(item)));
        }
        self.drop_if_empty(chunk + 2);
        self.drop_if_empty(chunk + 1);
        self.drop_if_empty(chunk);
        self.merge_around(chunk);
    }

    /// The chunk in which the element at `index` is, and where in it; one past the last has index 0.
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

    /// Whether a chunk may become so many bytes longer.
    fn has_room(&self, chunk: usize, item_len: usize) -> bool {
        self.chunks[chunk].body_len() + item_len <= BODY_BYTES_MAX
    }

    /// Changes a chunk and keeps the sums right.
    fn update<R>(&mut self, chunk: usize, change: impl FnOnce(&mut Buffer) -> R) -> R {
        let buffer = &mut self.chunks[chunk];
        let (len, capacity) = (buffer.len(), buffer.capacity());
        let result = change(buffer);
        self.len = self.len - len + buffer.len();
        self.buffer_bytes = self.buffer_bytes - capacity + buffer.capacity();
        result
    }

    fn add_chunk(&mut self, at: usize, buffer: Buffer) {
        self.len += buffer.len();
        self.buffer_bytes += buffer.capacity();
        self.chunks.insert(at, buffer);
    }

    /// Removes whole chunks, and returns them if they are too much to free here.
    fn take_chunks(&mut self, chunks: ops::Range<usize>) -> Option<LongList> {
        if chunks.is_empty() {
            return None;
        }
        let chunks: VecDeque<Buffer> = self.chunks.drain(chunks).collect();
        let len = chunks.iter().map(Buffer::len).sum();
        let buffer_bytes = chunks.iter().map(Buffer::capacity).sum();
        self.len -= len;
        self.buffer_bytes -= buffer_bytes;
        if self.chunks.len() < self.chunks.capacity() / 8 {
            self.chunks.shrink_to(CHUNKS_ROOM_MIN.max(2 * self.chunks.len()));
        }
        (buffer_bytes >= LAZY_BYTES_MIN).then_some(LongList { chunks, len, buffer_bytes })
    }

    fn drop_if_empty(&mut self, chunk: usize) {
        if self.chunks.get(chunk).is_some_and(|buffer| buffer.len() == 0) {
            self.take_chunks(chunk..chunk + 1);
        }
    }

    /// Merges a chunk that was changed, or was put where another one was, with those beside it.
    fn merge_around(&mut self, chunk: usize) {
        self.merge_with_next(chunk + 1);
        self.merge_with_next(chunk);
        if chunk > 0 {
            self.merge_with_next(chunk - 1);
        }
    }

    fn merge_with_next(&mut self, chunk: usize) {
        let (Some(front), Some(back)) = (self.chunks.get(chunk), self.chunks.get(chunk + 1)) else { return };
        if front.body_len() + back.body_len() > MERGED_BYTES_MAX {
            return;
        }
        let merged = Buffer::merged(front, back);
        self.take_chunks(chunk + 1..chunk + 2);
        self.update(chunk, |buffer| *buffer = merged);
    }
}

#[cfg(test)]
mod tests;
