//! `Snapshot`: the state of a database at one moment, for readers.
//!
//! All reads use a snapshot: reads of documents and their revisions, of bodies and attachments, of the feed,
//! and of all documents in order. The comparison with the revisions of a replicating client uses one, too. A
//! snapshot is cheap to clone, and never blocks writers, however long it is held. The state of a snapshot may
//! not be committed yet: see [`Snapshot::last_lsn`] and [`Snapshot::document_lsn`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lsn::Lsn;

use crate::DocError;
use crate::blob::Blob;
use crate::doc_info::{Attachment, CHUNK_BYTES, DocInfo, DocLeaf, DocSums};
use crate::found::Found;
use crate::id::DbId;
use crate::layer::LocalDoc;
use crate::revision::Rev;
use crate::scan::{AllDocs, Changes, Direction, IdRange};
use crate::state::State;

/// The state of a database at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: Arc<State>,
}

/// The totals of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Numbers of documents and bytes.
    pub sums: DocSums,
    /// The update sequence of the newest change in this state.
    pub update_seq: u64,
    /// The number of purges.
    pub purge_seq: u64,
    /// Bytes of its file up to the last checkpoint; 0 without a file.
    pub file_bytes: u64,
    /// Bytes of the file that are in use; attachment bytes that leaves share count once per leaf.
    pub active_bytes: u64,
}

/// Selects a revision of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The winner; it is not found if it is deleted.
    Winner,
    /// This revision, which must be a leaf.
    Rev(Rev),
    /// This revision if it is a leaf, else the best leaf that descends from the revision.
    Latest(Rev),
}

/// The revisions of a document that are missing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevsDiff {
    /// The requested revisions that are unknown here.
    pub missing: Vec<Rev>,
    /// Leaves from which the missing revisions may descend.
    pub possible_ancestors: Vec<Rev>,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<State>) -> Snapshot {
        Snapshot { state }
    }

    /// The id of the database.
    pub fn db(&self) -> DbId {
        self.state.db
    }

    /// The end of the last record in this state. Results of reads may leave the server once the log has
    /// committed this position.
    pub fn last_lsn(&self) -> Lsn {
        self.state.last_lsn
    }

    /// As [`Snapshot::last_lsn`], for a reply that shows only this document, or its absence: the end of the
    /// last record that changed the document or the security object, or a later position.
    pub fn document_lsn(&self, id: &str) -> Lsn {
        self.state.document_lsn(id)
    }

    /// The update sequence of the newest change in this state.
    pub fn update_seq(&self) -> u64 {
        self.state.update_seq
    }

    /// The number of revisions that a branch keeps.
    pub fn revs_limit(&self) -> u32 {
        self.state.revs_limit
    }

    /// The security object as it was set; empty if it never was.
    pub fn security(&self) -> &Bytes {
        &self.state.security
    }

    /// The totals of the database.
    pub fn info(&self) -> DatabaseInfo {
        let State { sums, update_seq, purge_seq, .. } = *self.state;
        let (file_bytes, active_bytes) = self.state.file_bytes();
        DatabaseInfo { sums, update_seq, purge_seq, file_bytes, active_bytes }
    }

    /// A document with all its revisions, deleted or not; `None` if the id is unknown.
    pub fn document(&self, id: &str) -> Result<Option<Arc<DocInfo>>, DocError> {
        Ok(self.state.document(id)?)
    }

    /// One revision of a document.
    ///
    /// # Errors
    /// [`DocError::Missing`] if there is no such leaf; [`DocError::Deleted`] if the winner is asked for and
    /// is deleted; [`DocError::Storage`] if the document cannot be read.
    pub fn open(&self, id: &str, pick: Pick) -> Result<Found, DocError> {
        let info = self.document(id)?.ok_or(DocError::Missing)?;
        let found = match pick {
            Pick::Winner => {
                let (rev, leaf) = info.revs.winner().ok_or(DocError::Missing)?;
                if leaf.deleted {
                    return Err(DocError::Deleted);
                }
                Some(rev)
            }
            Pick::Rev(rev) => info.revs.leaf(rev).map(|_| rev),
            Pick::Latest(rev) => info.revs.leaves_of(rev).first().map(|(rev, _)| *rev),
        };
        found.and_then(|rev| Found::new(info, rev)).ok_or(DocError::Missing)
    }

    /// All leaves of a document, the winner first; empty if the id is unknown.
    pub fn open_all(&self, id: &str) -> Result<Vec<Found>, DocError> {
        let Some(info) = self.document(id)? else { return Ok(Vec::new()) };
        Ok(info.revs.leaves().filter_map(|(rev, _)| Found::new(info.clone(), rev)).collect())
    }

    /// The requested leaves, or with `latest` the leaves that descend from the requested revisions, each
    /// once. A missing revision is an error in the list.
    pub fn open_revs(
        &self,
        id: &str,
        revs: &[Rev],
        latest: bool,
    ) -> Result<Vec<Result<Found, Rev>>, DocError> {
        let Some(info) = self.document(id)? else { return Ok(revs.iter().copied().map(Err).collect()) };
        let mut found: Vec<Result<Rev, Rev>> = Vec::new();
        for rev in revs {
            let leaves: Vec<Rev> = if latest {
                info.revs.leaves_of(*rev).into_iter().map(|(rev, _)| rev).collect()
            } else {
                info.revs.leaf(*rev).map(|_| *rev).into_iter().collect()
            };
            let missing = leaves.is_empty().then_some(Err(*rev));
            for one in leaves.into_iter().map(Ok).chain(missing) {
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        Ok(found
            .into_iter()
            .map(|one| one.and_then(|rev| Found::new(info.clone(), rev).ok_or(rev)))
            .collect())
    }

    /// A `_local` document; `id` is without the prefix.
    pub fn local(&self, id: &str) -> Result<Option<Arc<LocalDoc>>, DocError> {
        Ok(self.state.local(id)?)
    }

    /// The feed, with each document once: after `since` in ascending order, or from `since` on downwards in
    /// descending order.
    pub fn changes(&self, since: u64, direction: Direction) -> Changes {
        Changes::new(self.state.clone(), since, direction)
    }

    /// The number of feed rows after `seq`. Of the file, it reads only the nodes on at most two paths from
    /// the root of the feed tree to a leaf.
    pub fn pending(&self, seq: u64) -> Result<u64, DocError> {
        Ok(self.state.changes_count(seq)?)
    }

    /// The documents of a range of ids that are not deleted, by id.
    pub fn all_docs(&self, range: IdRange, direction: Direction) -> AllDocs {
        AllDocs::new(self.state.clone(), range, direction)
    }

    /// Finds which of the revisions `revs` are unknown here. Returns `None` if all are known.
    pub fn revs_diff(&self, id: &str, revs: &[Rev]) -> Result<Option<RevsDiff>, DocError> {
        let Some(info) = self.document(id)? else {
            let diff = RevsDiff { missing: revs.to_vec(), possible_ancestors: Vec::new() };
            return Ok((!revs.is_empty()).then_some(diff));
        };
        let missing = info.revs.missing(revs);
        let possible_ancestors = info.revs.possible_ancestors(&missing);
        Ok((!missing.is_empty()).then_some(RevsDiff { missing, possible_ancestors }))
    }

    /// The body of a revision: minified JSON, without the special members.
    pub fn body(&self, leaf: &DocLeaf) -> Result<Bytes, DocError> {
        self.blob(&leaf.body)
    }

    /// The bytes of an attachment in this range, clipped to its length, in parts of at most [`CHUNK_BYTES`].
    pub fn attachment(&self, attachment: &Attachment, range: Range<u64>) -> AttachmentReader {
        let range = range.start..range.end.min(attachment.length);
        AttachmentReader { snapshot: self.clone(), chunks: attachment.chunks.clone(), range }
    }

    fn blob(&self, blob: &Blob) -> Result<Bytes, DocError> {
        Ok(self.state.read_blob(blob)?)
    }
}

/// An iterator over the bytes of an attachment, chunk by chunk.
#[derive(Clone, Debug)]
pub struct AttachmentReader {
    snapshot: Snapshot,
    chunks: Arc<[Blob]>,
    range: Range<u64>,
}

impl Iterator for AttachmentReader {
    type Item = Result<Bytes, DocError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.range.is_empty() {
            return None;
        }
        let chunk_bytes = CHUNK_BYTES as u64;
        let number = usize::try_from(self.range.start / chunk_bytes).ok()?;
        let chunk_start = self.range.start - self.range.start % chunk_bytes;
        let chunk = match self.snapshot.blob(self.chunks.get(number)?) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.range.end = self.range.start;
                return Some(Err(error));
            }
        };
        let within = |position: u64| ((position - chunk_start) as usize).min(chunk.len());
        let end = self.range.end.min(chunk_start + chunk_bytes);
        let part = chunk.slice(within(self.range.start)..within(end));
        self.range.start = end;
        Some(Ok(part))
    }
}
