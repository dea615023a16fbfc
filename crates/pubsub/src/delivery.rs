//! What one subscriber has to be sent: bytes, and blocks that it shares with others.
//!
//! ```text
//! bytes   [ small frames copied here ........................ ]
//! blocks        ^ block A goes in here       ^ block B
//! ```
//!
//! What is small is copied: that is cheaper than one more piece in a write. What is large is one block for all of its
//! subscribers, counted by reference within the worker.

use std::{cell::Cell, ops::Deref, rc::Rc};

/// Bytes that several subscribers are sent as they are. Cloning counts a reference.
#[derive(Debug, Clone)]
pub struct Block(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    bytes: Box<[u8]>,
    /// Bytes of all blocks of the worker, each counted once.
    worker_bytes: Rc<Cell<usize>>,
}

impl Block {
    /// Counted among the bytes of all blocks of the worker.
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>, worker_bytes: &Rc<Cell<usize>>) -> Block {
        let bytes = bytes.into();
        worker_bytes.set(worker_bytes.get() + bytes.len());
        Block(Rc::new(Shared { bytes, worker_bytes: worker_bytes.clone() }))
    }

    /// How many hold it.
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

impl Drop for Shared {
    fn drop(&mut self) {
        self.worker_bytes.set(self.worker_bytes.get() - self.bytes.len());
    }
}

/// From this size on frames are shared instead of copied.
pub(crate) const SHARED_BYTES_MIN: usize = 2048;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Delivery {
    bytes: Vec<u8>,
    /// Blocks, and where in `bytes` each goes in: ascending.
    blocks: Vec<(usize, Block)>,
}

impl Delivery {
    /// Whether there are no postponed parts.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.blocks.is_empty()
    }

    /// The bytes between blocks.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the blocks, each with its position in [`Delivery::bytes`].
    pub fn take_blocks(&mut self) -> std::vec::Drain<'_, (usize, Block)> {
        self.blocks.drain(..)
    }

    /// Takes the bytes by exchanging buffers with one that is empty.
    pub fn swap_bytes(&mut self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty());
        std::mem::swap(&mut self.bytes, buffer);
    }

    /// Forgets everything; keeps no large buffer.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.bytes.clear();
        // Most subscribers are idle most of the time.
        if self.bytes.capacity() > SHARED_BYTES_MIN {
            self.bytes = Vec::new();
        }
    }

    /// Copies everything behind `out`, in order.
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
