//! `AlignedBytes`: a growable byte buffer whose address and capacity fit direct I/O.
//!
//! An [`AlignedBytes`] is like a `Vec<u8>` that is aligned to [`BLOCK_BYTES`], for `write_durable_at` and for
//! reads. A buffer has one owner and is freed on drop; there is no pool.
//!
//! Invariants
//! - The address and the capacity are multiples of `BLOCK_BYTES` whenever the capacity is not 0.
//! - All `capacity` bytes are initialised; bytes in `len..capacity` are zeros or stale contents.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::BLOCK_BYTES;

/// A growable byte buffer aligned to [`BLOCK_BYTES`].
pub struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: owns its allocation like a Vec<u8>; bytes may be sent and shared.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above; writing needs `&mut self`.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// An empty buffer; allocates nothing.
    pub const fn new() -> Self {
        AlignedBytes { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// An empty buffer with room for at least `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Self::new();
        buffer.reserve(bytes);
        buffer
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::with_capacity(len);
        buffer.len = len; // fresh memory is zero
        buffer
    }

    /// Bytes that fit without another allocation; a multiple of [`BLOCK_BYTES`].
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `additional` more bytes. Grows at least by doubling.
    ///
    /// # Panics
    /// If the size would exceed the address space.
    pub fn reserve(&mut self, additional: usize) {
        let needed = self.len.checked_add(additional).expect("buffer size fits the address space");
        if needed <= self.capacity {
            return;
        }
        let capacity = needed.max(self.capacity.saturating_mul(2)).next_multiple_of(BLOCK_BYTES);
        let layout = layout_of(capacity);
        // SAFETY: `capacity >= needed > 0`, so the layout is not empty.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: `len` bytes are initialised in the old allocation and fit the new one; the two are
        // distinct.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), start.as_ptr(), self.len) };
        self.free();
        (self.start, self.capacity) = (start, capacity);
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let old_len = self.len;
        self.reserve(bytes.len());
        self.len += bytes.len();
        self[old_len..].copy_from_slice(bytes);
    }

    /// Truncates the buffer, or extends it with zeros, to `len` bytes.
    pub fn resize(&mut self, len: usize) {
        let old_len = self.len;
        self.reserve(len.saturating_sub(old_len));
        self.len = len;
        if len > old_len {
            self[old_len..].fill(0);
        }
    }

    /// Appends zeros up to the next multiple of [`BLOCK_BYTES`].
    pub fn pad_to_block(&mut self) {
        self.resize(self.len.next_multiple_of(BLOCK_BYTES));
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn free(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated in `reserve` with the same layout; the caller replaces or drops `start`.
            unsafe { dealloc(self.start.as_ptr(), layout_of(self.capacity)) };
        }
    }
}

fn layout_of(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, BLOCK_BYTES).expect("buffer size fits the address space")
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        self.free();
    }
}

impl Default for AlignedBytes {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` initialised bytes; dangling only when `len` is 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::new();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_buffer_stays_aligned() {
        let mut buffer = AlignedBytes::new();
        let mut expected = Vec::new();
        for round in 0..2_000u32 {
            buffer.extend_from_slice(&round.to_le_bytes());
            expected.extend_from_slice(&round.to_le_bytes());
            assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
        }
        assert_eq!(&buffer[..], &expected[..]);
        assert_eq!(buffer.capacity() % BLOCK_BYTES, 0);
    }

    #[test]
    fn padding_and_growth_are_zeros_even_over_old_contents() {
        let mut buffer = AlignedBytes::from(&[9u8; 5000][..]);
        buffer.clear();
        buffer.extend_from_slice(b"x");
        buffer.pad_to_block();
        assert_eq!(buffer.len(), BLOCK_BYTES);
        assert!(buffer[1..].iter().all(|&byte| byte == 0));
        buffer.pad_to_block();
        assert_eq!(buffer.len(), BLOCK_BYTES, "padding twice adds nothing");
    }

    #[test]
    fn empty_and_zeroed() {
        assert!(AlignedBytes::new().is_empty());
        assert_eq!(&AlignedBytes::zeroed(3)[..], [0, 0, 0]);
    }
}
