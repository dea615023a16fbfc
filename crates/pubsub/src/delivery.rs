//! The undelivered output of one subscriber: bytes, and blocks shared with other subscribers.
//!
//! ```text
//! bytes   [ small frames copied here ........................ ]
//! blocks        ^ block A goes in here       ^ block B
//! ```
//!
//! Small frames are copied, which costs less than one more piece in a write. A large frame is one
//! reference-counted block that all its subscribers on the worker share.

use std::{cell::Cell, ops::Deref, rc::Rc};

/// Immutable bytes that several subscribers can share. Cloning counts a reference.
#[derive(Debug, Clone)]
pub struct Block(Rc<SharedBytes>);

#[derive(Debug)]
struct SharedBytes {
    bytes: Box<[u8]>,
    /// The count to which the length of these bytes is added; see [`Block::new`].
    worker_bytes: Rc<Cell<usize>>,
}

impl Block {
    /// Adds the block's length to `worker_bytes`; dropping the last reference subtracts it again.
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>, worker_bytes: &Rc<Cell<usize>>) -> Block {
        let bytes = bytes.into();
        worker_bytes.set(worker_bytes.get() + bytes.len());
        Block(Rc::new(SharedBytes { bytes, worker_bytes: worker_bytes.clone() }))
    }

    /// The number of references to the block's bytes.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        Rc::strong_count(&self.0)
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        self.worker_bytes.set(self.worker_bytes.get() - self.bytes.len());
    }
}

/// Frames that together have at least this many bytes are shared instead of copied.
pub(crate) const SHARED_BYTES_MIN: usize = 2048;

/// Output for one subscriber, in order: copied bytes, with shared blocks in between.
#[derive(Debug, Default)]
pub struct Delivery {
    bytes: Vec<u8>,
    /// Blocks with their positions in `bytes`, ascending.
    blocks: Vec<(usize, Block)>,
}

impl Delivery {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    /// The copied bytes, without the blocks.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the blocks, each with its position in [`Delivery::bytes`].
    pub fn take_blocks(&mut self) -> std::vec::Drain<'_, (usize, Block)> {
        self.blocks.drain(..)
    }

    /// Takes the bytes by exchanging buffers: `buffer`, which must be empty, gets the bytes.
    pub fn swap_bytes(&mut self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty());
        std::mem::swap(&mut self.bytes, buffer);
    }

    /// Removes all output; frees a buffer larger than [`SHARED_BYTES_MIN`].
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.bytes.clear();
        // A large buffer is freed, because most subscribers are idle most of the time.
        if self.bytes.capacity() > SHARED_BYTES_MIN {
            self.bytes = Vec::new();
        }
    }

    /// Appends everything to `out`, in order.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let mut from = 0;
        for (position, block) in &self.blocks {
            out.extend_from_slice(&self.bytes[from..*position]);
            out.extend_from_slice(block);
            from = *position;
        }
        out.extend_from_slice(&self.bytes[from..]);
    }

    pub(crate) fn copy(&mut self, frames: &[u8]) {
        self.bytes.extend_from_slice(frames);
    }

    pub(crate) fn share(&mut self, block: &Block) {
        self.blocks.push((self.bytes.len(), block.clone()));
    }
}
