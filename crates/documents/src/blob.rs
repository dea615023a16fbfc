//! `Blob`: bytes of a body or of a part of an attachment, in memory or in the file of the database.
//!
//! What it is: what a document refers to instead of having it. Cheap to clone: revisions share what they have in common.
//! What it is not: read from disk here; a state knows its file.
//!
//! Invariants
//! - Bytes in memory remember where a checkpoint has put them, so that whoever still shares them does not store them twice. The
//!   place counts for that file alone (compaction makes another), and only until a checkpoint fails: what that one has put is
//!   nowhere.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tree::{Pointer, TreeError};

/// Within what a place counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Era {
    /// The random id of a tree file.
    pub(crate) file: [u8; 16],
    /// How many of its checkpoints have failed.
    pub(crate) failures: u32,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) enum Blob {
    /// In memory.
    Unsaved(Arc<Unsaved>),
    /// In the file of the state that it belongs to.
    Saved(Pointer),
}

/// Bytes that were in no file when they were made.
#[derive(Debug)]
pub(crate) struct Unsaved {
    pub(crate) bytes: Bytes,
    place: OnceLock<(Era, Pointer)>,
}

impl Blob {
    /// Bytes that are to be stored.
    pub(crate) fn new(bytes: Bytes) -> Blob {
        Blob::Unsaved(Arc::new(Unsaved { bytes, place: OnceLock::new() }))
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Blob::Unsaved(unsaved) => unsaved.bytes.len(),
            Blob::Saved(pointer) => pointer.len(),
        }
    }

    /// The same bytes in the file; `put` stores them if they are not there.
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
                    // Where it was in another era stays: then it is stored again by the next checkpoint that meets it.
                    let _ = unsaved.place.set((era, pointer));
                    Ok(pointer)
                }
            },
        }
    }

    /// Where it is in the file, if it is nowhere else.
    pub(crate) fn pointer(&self) -> Option<Pointer> {
        match self {
            Blob::Saved(pointer) => Some(*pointer),
            Blob::Unsaved(_) => None,
        }
    }
}
