//! Edits in the middle of a long list.
//!
//! What it is: splitting chunks that become too long, and merging chunks that have become short. What it is
//! not: pushing and popping at the ends, which needs neither splitting nor merging.

use std::ops::Range;

use super::LongList;
use super::buffer::{BODY_BYTES_MAX, Buffer, CAPACITY_MIN};
use crate::collection::chunk::{End, Item};
use crate::collection::element::Encoded;

/// Two neighbours are merged if the merged chunk is at most this long. A quarter of the merged chunk is then
/// free, so that splits and merges do not alternate.
const MERGED_BYTES_MAX: usize = BODY_BYTES_MAX / 4 * 3;

impl LongList {
    /// Replaces the element at `index`.
    ///
    /// # Panics
    /// If there is no element at `index`.
    pub(crate) fn set(&mut self, index: usize, element: &[u8]) {
        assert!(index < self.len, "no element {index} in a list of {}", self.len);
        let (chunk, index) = self.locate(index);
        self.replace(chunk, index..index + 1, &Item::of(element));
    }

    /// Adds an element in front of the element at `index`; if `index` is the number of elements, after the
    /// last one.
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

    /// Removes `count` elements from `index` on, or as many as there are. Returns removed chunks if their
    /// memory is too much to free at once.
    #[cfg(test)]
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
            self.compact(first..first + 1);
            return None;
        }
        if end > 0 {
            self.update(last, |buffer| buffer.pop(End::Front, end));
        }
        if start > 0 {
            self.update(first, |buffer| buffer.pop(End::Back, buffer.len() - start));
        }
        let taken = self.take_chunks(first + usize::from(start > 0)..last);
        self.compact(first..first + 2);
        taken
    }

    /// Removes the elements equal to `element`: all of them, or the first `limit` from an end. Returns the
    /// number of removed elements.
    pub(crate) fn remove_matches(&mut self, element: &[u8], limit: usize, from: End) -> usize {
        let element = Encoded::of(element);
        let (mut removed, mut changed) = (0, None);
        for step in 0..self.chunks.len() {
            if removed == limit {
                break;
            }
            let chunk = if from == End::Front { step } else { self.chunks.len() - 1 - step };
            let found = self.update(chunk, |buffer| buffer.remove_matches(&element, limit - removed, from));
            if found > 0 {
                removed += found;
                let (first, last) = changed.unwrap_or((chunk, chunk));
                changed = Some((chunk.min(first), chunk.max(last)));
            }
        }
        if let Some((first, last)) = changed {
            self.compact(first..last + 1);
        }
        removed
    }

    /// Replaces the element in `range` of a chunk by `item`. An empty range inserts the item.
    fn replace(&mut self, chunk: usize, range: Range<usize>, item: &Item<'_>) {
        let buffer = &self.chunks[chunk];
        let removed_len = buffer.chunk().span(range.clone()).len();
        if buffer.body_len() - removed_len + item.len() <= BODY_BYTES_MAX {
            return self.update(chunk, |buffer| buffer.splice(range, Some(item)));
        }
        // Splits the chunk at the range. The item goes to the shorter part if that has room, else into a
        // chunk between the parts.
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
        self.compact(chunk..chunk + 3);
    }

    /// Whether a chunk may become this many bytes longer.
    fn has_room(&self, chunk: usize, item_len: usize) -> bool {
        self.chunks[chunk].body_len() + item_len <= BODY_BYTES_MAX
    }

    /// Drops changed chunks that are empty, and merges short changed chunks with each other and with their
    /// neighbours.
    fn compact(&mut self, changed: Range<usize>) {
        let end = (changed.end + 1).min(self.chunks.len());
        let mut kept_end = changed.start;
        for chunk in changed.start..end {
            if self.chunks[chunk].len() == 0 {
                continue;
            }
            if kept_end > 0 && self.has_room_for(kept_end - 1, chunk) {
                let merged = Buffer::merged(&self.chunks[kept_end - 1], &self.chunks[chunk]);
                self.update(kept_end - 1, |buffer| *buffer = merged);
                self.update(chunk, |buffer| *buffer = Buffer::default());
            } else {
                self.chunks.swap(kept_end, chunk);
                kept_end += 1;
            }
        }
        self.take_chunks(kept_end..end);
    }

    /// Whether two chunks are short enough to be one.
    fn has_room_for(&self, front: usize, back: usize) -> bool {
        self.chunks[front].body_len() + self.chunks[back].body_len() <= MERGED_BYTES_MAX
    }
}
