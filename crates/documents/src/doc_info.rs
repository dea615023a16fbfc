//! `DocInfo`: the metadata of one document: its revisions with their leaves, and its position in the feed.
//!
//! A `DocInfo` is an immutable value that layers and snapshots share; an edit makes a new one. It refers to
//! bodies and attachments by their blobs.
//!
//! Invariants
//! - `seq` is the update sequence of the last edit or purge; the feed has exactly one row of the document, at
//!   that sequence.
//! - A document has at least one leaf. (In `by_id`, a `DocInfo` without leaves marks a removed document.)
//! - The chunks of an attachment are in order, all but the last have [`CHUNK_BYTES`], and together they have
//!   `length` bytes. A revision that keeps an attachment of an ancestor shares the ancestor's chunks, so they
//!   are stored once.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::blob::Blob;
use crate::digest::Digest;
use crate::id::DocId;
use crate::rev_tree::RevTree;
use crate::revision::Rev;

/// The maximum bytes of a chunk of an attachment. Attachments are read by chunks, and uploads are written to
/// the log by chunks.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// The maximum bytes of an attachment.
pub const ATTACHMENT_BYTES_MAX: u64 = 1 << 30;

/// A document with all its revisions.
#[derive(Clone, Debug)]
pub struct DocInfo {
    /// Its id.
    pub id: DocId,
    /// The update sequence of its last edit or purge.
    pub seq: u64,
    /// Its revisions.
    pub revs: RevTree<DocLeaf>,
}

/// The content of a leaf revision.
#[derive(Clone, Debug)]
pub struct DocLeaf {
    /// Whether the revision deletes the document.
    pub deleted: bool,
    /// The update sequence of the edit that made it.
    pub seq: u64,
    /// Its attachments.
    pub attachments: Arc<[Attachment]>,
    /// Minified JSON, without the special members.
    pub(crate) body: Blob,
}

/// An attachment of a revision: bytes with a name and a media type.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its name; unique in its revision.
    pub name: Arc<str>,
    /// Its media type.
    pub content_type: Arc<str>,
    /// The number of the revision that added it.
    pub revpos: u32,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub length: u64,
    pub(crate) chunks: Arc<[Blob]>,
}

/// The totals of a database, and the contribution of one document to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocSums {
    /// Documents that are not deleted.
    pub documents: u64,
    /// Deleted documents.
    pub deleted: u64,
    /// Bytes of the bodies of all leaves.
    pub body_bytes: u64,
    /// Bytes of the attachments of all leaves. Bytes that leaves share count once per leaf.
    pub attachment_bytes: u64,
}

/// A row of the changes feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRow {
    /// The update sequence of the document.
    pub seq: u64,
    /// The id of the document.
    pub id: DocId,
    /// Whether it is deleted.
    pub deleted: bool,
    /// All leaves, the winner first.
    pub leaves: SmallVec<[Rev; 1]>,
}

impl DocLeaf {
    /// The size of the body in bytes.
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// The attachment with this name.
    pub fn attachment(&self, name: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| &*attachment.name == name)
    }

    fn attachment_bytes(&self) -> u64 {
        self.attachments.iter().map(|attachment| attachment.length).sum()
    }
}

impl DocInfo {
    /// Whether the winner deletes the document; also true if there is no winner.
    pub fn is_deleted(&self) -> bool {
        self.revs.winner().is_none_or(|(_, leaf)| leaf.deleted)
    }

    /// Its contribution to the totals of its database.
    pub fn sums(&self) -> DocSums {
        let deleted = u64::from(self.is_deleted());
        let mut sums = DocSums { documents: 1 - deleted, deleted, ..DocSums::default() };
        for (_, leaf) in self.revs.leaves() {
            sums.body_bytes += leaf.body_bytes() as u64;
            sums.attachment_bytes += leaf.attachment_bytes();
        }
        sums
    }

    /// Its row in the feed.
    pub fn change_row(&self) -> ChangeRow {
        ChangeRow {
            seq: self.seq,
            id: self.id.clone(),
            deleted: self.is_deleted(),
            leaves: self.revs.leaves().map(|(rev, _)| rev).collect(),
        }
    }
}

impl DocSums {
    /// The totals after the contribution `old` has been replaced by `new`.
    pub(crate) fn exchanged(self, old: DocSums, new: DocSums) -> DocSums {
        DocSums {
            documents: self.documents - old.documents + new.documents,
            deleted: self.deleted - old.deleted + new.deleted,
            body_bytes: self.body_bytes - old.body_bytes + new.body_bytes,
            attachment_bytes: self.attachment_bytes - old.attachment_bytes + new.attachment_bytes,
        }
    }
}
