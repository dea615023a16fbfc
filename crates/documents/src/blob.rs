//! `Blob`: the bytes of a body or of an attachment chunk, in memory or in the file of the database.
//!
//! A document refers to blobs instead of owning the bytes. A blob is cheap to clone, so revisions share the
//! blobs that they have in common. This module does not read files; the [`State`](crate::state::State) does.
//!
//! Invariants
//! - A blob in memory notes the pointer under which a checkpoint first stored its bytes. So revisions and
//!   checkpoints that share the blob do not store it again. The pointer is valid only in one file (compaction
//!   makes another), and only until a checkpoint fails, because the blobs of a failed checkpoint do not
//!   exist.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tree::{Pointer, TreeError};

/// The time in which the noted pointer of a blob is valid. An era ends when a checkpoint of the file fails,
/// and when the blob's database gets another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era {
    /// The random id of a tree file.
    pub(crate) file: [u8; 16],
    /// The number of failed checkpoints of the file.
    pub(crate) failures: u32,
}

/// Bytes that a document refers to.
#[derive(Clone, Debug)]
pub(crate) enum Blob {
    /// In memory.
    Unsaved(Arc<Unsaved>),
    /// In the tree file of the state that the blob belongs to.
    Saved(Pointer),
}

/// Bytes that were created in memory, with their pointer once they have been stored in a file.
#[derive(Debug)]
pub(crate) struct Unsaved {
    pub(crate) bytes: Bytes,
    place: OnceLock<(Era, Pointer)>,
}

impl Blob {
    /// Bytes that are not stored yet.
    pub(crate) fn new(bytes: Bytes) -> Blob {
        Blob::Unsaved(Arc::new(Unsaved { bytes, place: OnceLock::new() }))
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Blob::Unsaved(unsaved) => unsaved.bytes.len(),
            Blob::Saved(pointer) => pointer.len(),
        }
    }

    /// The pointer to the bytes in the file of `era`. If the blob has noted none for that era, stores the
    /// bytes with `put`.
    pub(crate) fn saved(
        &self,
        era: Era,
        put: &mut impl FnMut(&[u8]) -> Result<Pointer, TreeError>,
    ) -> Result<Pointer, TreeError> {
        match self {
            Blob::Saved(pointer) => Ok(*pointer),
            Blob::Unsaved(unsaved) => match unsaved.place.get() {
                Some((there, pointer)) if *there == era => Ok(*pointer),
                _ => {
                    let pointer = put(&unsaved.bytes)?;
                    // A pointer of an earlier era is not replaced, so each later checkpoint with this blob
                    // stores the bytes again.
                    let _ = unsaved.place.set((era, pointer));
                    Ok(pointer)
                }
            },
        }
    }

    /// The pointer of a blob that is only in the file; `None` if its bytes are in memory.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        match self {
            Blob::Saved(pointer) => Some(*pointer),
            Blob::Unsaved(_) => None,
        }
    }
}
