//! `DocInfo`: all that is known of one document: its revisions, what its leaves hold, and its place in the feed.
//!
//! What it is: an immutable value that the newest layer and snapshots share. An edit makes a new one.
//! What it is not: the document: bodies and attachments are referred to.
//!
//! Invariants
//! - `seq` is the update sequence of the last edit, and the document is in the feed there and nowhere else.
//! - There is at least one leaf.
//! - The chunks of an attachment are in order, all but the last have [`CHUNK_BYTES`], and together they have `length` bytes. A
//!   revision that keeps an attachment of its parent shares them: they are stored once.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::attachment::Digest;
use crate::blob::Blob;
use crate::id::DocId;
use crate::rev_tree::RevTree;
use crate::revision::Rev;
use crate::rows::encode_document;

/// How many bytes a chunk of an attachment has at most: what one record of the log carries of it, and what is read at once.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// The largest attachment.
pub const ATTACHMENT_BYTES_MAX: u64 = 1 << 30;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct DocInfo {
    /// What it is called.
    pub id: DocId,
    /// The update sequence of its last edit.
    pub seq: u64,
    /// Its revisions.
    pub revs: RevTree<DocLeaf>,
}

/// What a revision holds that can be read.
#[derive(Clone, Debug)]
pub struct DocLeaf {
    /// Whether the revision deletes the document.
    pub deleted: bool,
    /// The update sequence of the edit that made it.
    pub seq: u64,
    /// Its attachments.
    pub attachments: Arc<[Attachment]>,
    /// Minified JSON, without the members that begin with an underscore.
    pub(crate) body: Blob,
}

/// Bytes with a name and a type that belong to a revision.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// What it is called; unique in its revision.
    pub name: Arc<str>,
    /// Its media type.
    pub content_type: Arc<str>,
    /// The number of the revision that brought it.
    pub revpos: u32,
    /// Of its bytes.
    pub digest: Digest,
    /// How many bytes it has.
    pub length: u64,
    pub(crate) chunks: Arc<[Blob]>,
}

/// Sums that are kept for a database, and what one document adds to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocSums {
    /// Documents that are not deleted.
    pub documents: u64,
    /// Documents that are.
    pub deleted: u64,
    /// Bytes of the bodies of all leaves.
    pub body_bytes: u64,
    /// Bytes of the attachments of all leaves. What leaves share counts for each.
    pub attachment_bytes: u64,
}

/// A document in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRow {
    /// Its update sequence.
    pub seq: u64,
    /// What it is called.
    pub id: DocId,
    /// Whether it is deleted.
    pub deleted: bool,
    /// All leaves, the winner first.
    pub leaves: SmallVec<[Rev; 1]>,
}

impl DocLeaf {
    /// How many bytes the body has.
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
    /// How many bytes it takes in the file, without bodies and attachments.
    pub(crate) fn stored_bytes(&self) -> usize {
        encode_document(self).len()
    }

    /// Whether the winner deletes the document.
    pub fn is_deleted(&self) -> bool {
        self.revs.winner().is_none_or(|(_, leaf)| leaf.deleted)
    }

    /// What it adds to the sums of its database.
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
    /// The sums when `old` has become `new`.
    pub(crate) fn exchanged(self, old: DocSums, new: DocSums) -> DocSums {
        DocSums {
            documents: self.documents - old.documents + new.documents,
            deleted: self.deleted - old.deleted + new.deleted,
            body_bytes: self.body_bytes - old.body_bytes + new.body_bytes,
            attachment_bytes: self.attachment_bytes - old.attachment_bytes + new.attachment_bytes,
        }
    }
}
