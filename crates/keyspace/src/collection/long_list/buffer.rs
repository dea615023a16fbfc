//! The memory of one chunk of a long list.
//!
//! What it is: a byte string that holds a body of packed elements, with free room on both sides. Also the
//! rules where the room is and how large the memory gets.
//! What it is not: aware of its neighbours. `long_list` decides about splitting and merging.
//!
//! ```text
//! memory: | room in front | element | element | ... | room at the back |
//!         0             start                      end              capacity
//! ```
//!
//! Invariants
//! - The body of more than one element is at most `BODY_BYTES_MAX` long.
//! - Memory and its reference count together fill a size class (see `entry::size_class`), so that all memory
//!   is accounted for.
//! - Memory that a capture shares is never written: the first change after the sharing is made to a copy.
//! - Pushing at either end copies each byte of the body a bounded number of times, whatever was pushed or
//!   removed at either end before.

use std::ops::Range;

use triomphe::Arc;

use crate::collection::chunk::{Chunk, End, Item};
use crate::collection::element::Encoded;
use crate::entry::size_class;

/// The bytes of the reference count, which lies in front of the memory of every buffer.
const COUNT_BYTES: usize = size_of::<usize>();

/// The maximum length of the body of a buffer with more than one element. Together with the reference count,
/// this makes 8 KiB, as much as a node of a list has in Redis by default.
pub(super) const BODY_BYTES_MAX: usize = (8 << 10) - COUNT_BYTES;

/// The minimum memory of a chunk that begins with one small element, so that more elements fit. `shrink` does
/// not go below this size.
pub(super) const CAPACITY_MIN: usize = 128 - COUNT_BYTES;

/// The memory of one chunk. A clone shares the memory, at the cost of a reference count.
#[derive(Clone)]
pub(super) struct Buffer {
    memory: Arc<[u8]>,
    /// The start of the body in the memory. A body is shorter than 4 GiB because an encoding is.
    start: u32,
    end: u32,
    /// The number of elements.
    len: u32,
}

impl Buffer {
    /// A buffer with one element. If `capacity` is more than the element needs, all room is at `end`.
    pub(super) fn of_item(item: &Item<'_>, end: End, capacity: usize) -> Self {
        let capacity = memory_class(item.len().max(capacity));
        let room_in_front = match end {
            End::Front => capacity - item.len(),
            End::Back => 0,
        };
        Buffer::new(&item.parts(), 1, capacity, room_in_front)
    }

    /// A buffer with these elements, and with no more room than the size class brings.
    pub(super) fn of_chunk(chunk: Chunk<'_>) -> Self {
        Buffer::new(&[chunk.body()], chunk.len(), memory_class(chunk.body().len()), 0)
    }

    /// The elements of both buffers.
    pub(super) fn merged(front: &Buffer, back: &Buffer) -> Self {
        let parts = [front.chunk().body(), back.chunk().body()];
        Buffer::new(&parts, front.len() + back.len(), memory_class(front.body_len() + back.body_len()), 0)
    }

    /// A buffer with these parts as the body.
    fn new(parts: &[&[u8]], len: usize, capacity: usize, room_in_front: usize) -> Self {
        let mut memory = vec![0; capacity];
        let end = write(&mut memory[room_in_front..], parts) + room_in_front;
        Buffer { memory: memory.into(), start: offset(room_in_front), end: offset(end), len: offset(len) }
    }

    #[inline]
    pub(super) fn chunk(&self) -> Chunk<'_> {
        Chunk::new(&self.memory[self.start as usize..self.end as usize], self.len())
    }

    /// The number of elements.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of the elements.
    #[inline]
    pub(super) fn body_len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Bytes that fit into the memory.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Bytes of memory.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.capacity() + COUNT_BYTES
    }

    /// The memory, to be written. If the memory is shared, the buffer gets a copy of its own first.
    #[inline]
    fn memory_mut(&mut self) -> &mut [u8] {
        if !self.memory.is_unique() {
            self.memory = Arc::from(&self.memory[..]);
        }
        Arc::get_mut(&mut self.memory).expect("nobody shares it")
    }

    /// Adds an element at `end`; `false` if the chunk is full.
    #[inline]
    pub(super) fn push(&mut self, end: End, item: &Item<'_>) -> bool {
        let body_len = self.body_len() + item.len();
        if body_len > BODY_BYTES_MAX || (self.room(end) < item.len() && !self.make_room(end, item.len())) {
            return false;
        }
        let at = match end {
            End::Front => {
                self.start -= offset(item.len());
                self.start as usize
            }
            End::Back => {
                let at = self.end as usize;
                self.end += offset(item.len());
                at
            }
        };
        write(&mut self.memory_mut()[at..], &item.parts());
        self.len += 1;
        true
    }

    /// Removes `count` elements at `end`.
    pub(super) fn pop(&mut self, end: End, count: usize) {
        match end {
            End::Front => self.start += offset(self.chunk().span(0..count).end),
            End::Back => {
                let kept = self.len() - count;
                self.end = self.start + offset(self.chunk().span(0..kept).end);
            }
        }
        self.len -= offset(count);
        self.shrink();
    }

    /// Moves the elements from `index` on into a new buffer.
    pub(super) fn split_off(&mut self, index: usize) -> Buffer {
        let span = self.chunk().span(index..self.len());
        let tail = Buffer::of_chunk(Chunk::new(&self.chunk().body()[span], self.len() - index));
        self.pop(End::Back, self.len() - index);
        tail
    }

    /// Replaces the elements in `range` by `item`, or removes them if there is no item. The caller has
    /// checked that the chunk does not become too long.
    pub(super) fn splice(&mut self, range: Range<usize>, item: Option<&Item<'_>>) {
        let span = self.chunk().span(range.clone());
        let (inserted_len, parts) = item.map_or((0, [&[][..]; 3]), |item| (item.len(), item.parts()));
        let len = self.len() - range.len() + usize::from(item.is_some());
        let (head_len, tail_len) = (span.start, self.body_len() - span.end);
        let (start, end) = (self.start as usize, self.end as usize);
        let tail_fits = start + head_len + inserted_len + tail_len <= self.capacity();
        let head_fits = head_len + inserted_len + tail_len <= end;
        if tail_fits && (tail_len <= head_len || !head_fits) {
            let at = start + head_len;
            let memory = self.memory_mut();
            memory.copy_within(end - tail_len..end, at + inserted_len);
            write(&mut memory[at..], &parts);
            self.end = offset(at + inserted_len + tail_len);
        } else if head_fits {
            let at = end - tail_len - inserted_len;
            let memory = self.memory_mut();
            memory.copy_within(start..start + head_len, at - head_len);
            write(&mut memory[at..], &parts);
            self.start = offset(at - head_len);
        } else {
            let body = self.chunk().body();
            let body_len = head_len + inserted_len + tail_len;
            let capacity =
                memory_class(body_len).max(memory_class(body_len + body_len / 4).min(BODY_BYTES_MAX));
            let [a, b, c] = parts;
            let parts = [&body[..span.start], a, b, c, &body[span.end..]];
            *self = Buffer::new(&parts, len, capacity, 0);
        }
        self.len = offset(len);
        self.shrink();
    }

    /// Removes the elements equal to `element`: all of them, or the first `limit` from an end. Returns the
    /// number of removed elements.
    pub(super) fn remove_matches(&mut self, element: &Encoded<'_>, limit: usize, from: End) -> usize {
        let Some((body, removed)) = self.chunk().without(element, limit, from) else { return 0 };
        *self = Buffer::of_chunk(Chunk::new(&body, self.len() - removed));
        removed
    }

    /// Frees the room at both ends, as far as that leads to a smaller size class.
    pub(super) fn fit(&mut self) {
        if memory_class(self.body_len()) < self.capacity() {
            *self = Buffer::of_chunk(self.chunk());
        }
    }

    /// Free bytes at `end`.
    #[inline]
    fn room(&self, end: End) -> usize {
        match end {
            End::Front => self.start as usize,
            End::Back => self.capacity() - self.end as usize,
        }
    }

    /// Makes room for `needed` bytes at `end`. If these bytes and the body fill at most half of the memory,
    /// the body is moved within the memory; otherwise the buffer gets more memory. `false` if the buffer
    /// already has the maximum of memory.
    #[cold]
    fn make_room(&mut self, end: End, needed: usize) -> bool {
        let body_len = self.body_len();
        let capacity = self.capacity();
        if body_len + needed <= capacity / 2 {
            // Both ends get half of the room, so that it lasts for many pushes at either end.
            let start = (capacity - body_len) / 2;
            let body = self.start as usize..self.end as usize;
            self.memory_mut().copy_within(body, start);
            (self.start, self.end) = (offset(start), offset(start + body_len));
            return true;
        }
        if capacity >= BODY_BYTES_MAX {
            return false;
        }
        let capacity = memory_class((2 * capacity).max(body_len + needed)).min(BODY_BYTES_MAX);
        let room_in_front = match end {
            End::Front => capacity - body_len,
            End::Back => 0,
        };
        *self = Buffer::new(&[self.chunk().body()], self.len(), capacity, room_in_front);
        true
    }

    /// Frees memory if little of it is used.
    fn shrink(&mut self) {
        let body_len = self.body_len();
        if self.len > 0 && self.capacity() > CAPACITY_MIN && body_len <= self.capacity() / 8 {
            let capacity = memory_class(2 * body_len).max(CAPACITY_MIN);
            let room_in_front = (capacity - body_len) / 2;
            *self = Buffer::new(&[self.chunk().body()], self.len(), capacity, room_in_front);
        }
    }
}

impl Default for Buffer {
    /// No elements and no room.
    fn default() -> Self {
        Buffer::new(&[], 0, 0, 0)
    }
}

/// The capacity of the memory that the allocator gives for this many bytes.
#[inline]
fn memory_class(bytes: usize) -> usize {
    size_class(bytes + COUNT_BYTES) - COUNT_BYTES
}

/// Writes the parts one after the other to the start of `memory`; returns their length.
#[inline]
fn write(memory: &mut [u8], parts: &[&[u8]]) -> usize {
    let mut at = 0;
    for part in parts {
        // Most parts are one byte, for which a call of `memcpy` would cost more than the copy.
        match part {
            [byte] => memory[at] = *byte,
            _ => memory[at..at + part.len()].copy_from_slice(part),
        }
        at += part.len();
    }
    at
}

#[inline]
fn offset(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("an element is shorter than 4 GiB")
}
