//! `Blob`: bytes of a body or of a part of an attachment, in memory or in the file of the database.
//!
//! What it is: what a document refers to instead of having it. Cheap to clone: revisions share what they have in common.
//! What it is not: read from disk here; a [`crate::Snapshot`] knows the file.

use std::sync::Arc;

use bytes::Bytes;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Blob(Arc<Unsaved>);

/// Bytes that are in no file yet.
#[derive(Debug)]
struct Unsaved {
    bytes: Bytes,
}

impl Blob {
    /// Bytes that are to be stored.
    pub fn new(bytes: Bytes) -> Blob {
        Blob(Arc::new(Unsaved { bytes }))
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.0.bytes.len()
    }

    /// The bytes.
    pub(crate) fn in_memory(&self) -> &Bytes {
        &self.0.bytes
    }
}
