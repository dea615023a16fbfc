//! `Written`: how much was appended to files, in how many writes.
//!
//! What it is: counters that any number of files share, for whoever shows them. What it is not: needed, or kept on disk.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// See the module documentation. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    bytes: AtomicU64,
}

impl Written {
    /// Writes that were handed to the operating system and taken by it.
    pub fn writes(&self) -> u64 {
        self.0.writes.load(Relaxed)
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.0.writes.fetch_add(1, Relaxed);
        self.0.bytes.fetch_add(bytes as u64, Relaxed);
    }
}
