//! `Written`: counts the bytes appended to files, and the writes that append them.
//!
//! Any number of files can share one `Written`. The counts are for statistics only, and are not stored on
//! disk.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Shared counters of appended bytes and writes. Clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    writes: AtomicU64,
    bytes: AtomicU64,
}

impl Written {
    /// Number of completed writes.
    pub fn writes(&self) -> u64 {
        self.0.writes.load(Relaxed)
    }

    /// Bytes of all completed writes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Relaxed)
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.0.writes.fetch_add(1, Relaxed);
        self.0.bytes.fetch_add(bytes as u64, Relaxed);
    }
}
