//! `Snapshot`: a database as it was at one moment, for readers.
//!
//! What it is: everything that can be asked: a document with any of its revisions, the feed, all documents in order, what a
//! replica lacks, bodies and attachments. Cheap to clone; held as long as wanted, it never holds up writers.
//! What it is not: committed: see [`Snapshot::last_lsn`].

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

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: Arc<State>,
}

/// What is said of a database as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// How many documents there are, and how many bytes.
    pub sums: DocSums,
    /// The update sequence.
    pub update_seq: u64,
    /// How many purges there were.
    pub purge_seq: u64,
    /// How many bytes its file has.
    pub file_bytes: u64,
    /// How many of them are in use.
    pub active_bytes: u64,
}

/// Which revision of a document is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The winner; a deleted one is not found.
    Winner,
    /// This leaf.
    Rev(Rev),
    /// This leaf, or the best one that descends from it.
    Latest(Rev),
}

/// What a replica lacks of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevsDiff {
    /// Of the revisions asked for, those that are not here.
    pub missing: Vec<Rev>,
    /// Leaves that they may follow.
    pub possible_ancestors: Vec<Rev>,
}

impl Snapshot {
    pub(crate) fn new(state: Arc<State>) -> Snapshot {
        Snapshot { state }
    }

    /// Which database it is of.
    pub fn db(&self) -> DbId {
        self.state.db
    }

    /// The end of the last record that it has seen: what is read here may leave the server when the log has committed it.
    pub fn last_lsn(&self) -> Lsn {
        self.state.last_lsn
    }

    /// The update sequence.
    pub fn update_seq(&self) -> u64 {
        self.state.update_seq
    }

    /// How many revisions a branch keeps.
    pub fn revs_limit(&self) -> u32 {
        self.state.revs_limit
    }

    /// The security object as it was set; empty if it never was.
    pub fn security(&self) -> &Bytes {
        &self.state.security
    }

    /// The database as a whole.
    pub fn info(&self) -> DatabaseInfo {
        let State { sums, update_seq, purge_seq, .. } = *self.state;
        let (file_bytes, active_bytes) = self.state.file_bytes();
        DatabaseInfo { sums, update_seq, purge_seq, file_bytes, active_bytes }
    }

    /// All that is known of a document, deleted or not.
    pub fn document(&self, id: &str) -> Result<Option<Arc<DocInfo>>, DocError> {
        Ok(self.state.document(id)?)
    }

    /// One revision of a document.
    ///
    /// # Errors
    /// [`DocError::Missing`] or [`DocError::Deleted`] if it is not there.
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

    /// All leaves of a document, the winner first; none if there is no such document.
    pub fn open_all(&self, id: &str) -> Result<Vec<Found>, DocError> {
        let Some(info) = self.document(id)? else { return Ok(Vec::new()) };
        Ok(info.revs.leaves().filter_map(|(rev, _)| Found::new(info.clone(), rev)).collect())
    }

    /// The leaves that were asked for, or with `latest` those that descend from them, each once; or the revision that is
    /// missing.
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

    /// A `_local` document.
    pub fn local(&self, id: &str) -> Result<Option<Arc<LocalDoc>>, DocError> {
        Ok(self.state.local(id)?)
    }

    /// The feed: each document once, behind `since` in ascending order, or before and with `since` in descending order.
    pub fn changes(&self, since: u64, direction: Direction) -> Changes {
        Changes::new(self.state.clone(), since, direction)
    }

    /// How many rows of the feed are behind `seq`, or a few more.
    pub fn pending(&self, seq: u64) -> u64 {
        self.state.update_seq.saturating_sub(seq)
    }

    /// All documents that are not deleted, by id.
    pub fn all_docs(&self, range: IdRange, direction: Direction) -> AllDocs {
        AllDocs::new(self.state.clone(), range, direction)
    }

    /// What of these revisions is not here. `None` if nothing is missing.
    pub fn revs_diff(&self, id: &str, revs: &[Rev]) -> Result<Option<RevsDiff>, DocError> {
        let Some(info) = self.document(id)? else {
            let diff = RevsDiff { missing: revs.to_vec(), possible_ancestors: Vec::new() };
            return Ok((!revs.is_empty()).then_some(diff));
        };
        let missing = info.revs.missing(revs);
        let possible_ancestors = info.revs.possible_ancestors(&missing);
        Ok((!missing.is_empty()).then_some(RevsDiff { missing, possible_ancestors }))
    }

    /// The body of a revision: minified JSON, without the members that begin with an underscore.
    pub fn body(&self, leaf: &DocLeaf) -> Result<Bytes, DocError> {
        self.blob(&leaf.body)
    }

    /// The bytes of an attachment in this range, cut to what there is, in parts of at most [`CHUNK_BYTES`].
    pub fn attachment(&self, attachment: &Attachment, range: Range<u64>) -> AttachmentReader {
        let range = range.start..range.end.min(attachment.length);
        AttachmentReader { snapshot: self.clone(), chunks: attachment.chunks.clone(), range }
    }

    fn blob(&self, blob: &Blob) -> Result<Bytes, DocError> {
        Ok(self.state.read_blob(blob)?)
    }
}

/// The bytes of an attachment, part by part.
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
