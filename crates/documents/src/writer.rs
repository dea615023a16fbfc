//! `Writer`: the one who changes a database, from the first look at what is there to the position in the log.
//!
//! ```text
//! Database::lock -> edit, put_local, ... (each seen by the next) -> change: bytes for the log -> commit(LSN)
//!                                                                '-> dropped: nothing has happened
//! ```
//!
//! What it is: where everything that can be wrong with a request is found. Requests of many clients are merged: each succeeds
//! or fails alone, all that succeed are one change.
//! What it is not: durable. Whoever commits holds back the replies until the log has the position.
//!
//! Invariants
//! - There is one writer of a database at a time, from before the first look until the change has its LSN: the order of changes
//!   in the log is that in memory.
//! - What would be stored and not honoured is refused here, so by every protocol (`unsupported`).
//! - Readers see nothing of it before [`Writer::commit`].

use std::sync::Arc;

use bytes::Bytes;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, RawMutex};

use crate::DocError;
use crate::attachment::ATTACHMENTS_MAX;
use crate::change::{Edit, EditAttachment, Operation, Source, UpdateEncoder};
use crate::database::{Database, Gate, Notice};
use crate::doc_info::{ATTACHMENT_BYTES_MAX, CHUNK_BYTES, DocInfo, DocLeaf};
use crate::document::{BodyHash, edit_hash};
use crate::edit_request::{AttachmentRequest, AttachmentSource, EditRequest, History};
use crate::expected::Expected;
use crate::id::{DocId, UploadId};
use crate::names::LOCAL_PREFIX;
use crate::rev_path::RevPath;
use crate::revision::Rev;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::store_error::StoreError;
use crate::unsupported;

/// How many edits one change should have at most: whoever merges requests cuts there, so that nobody waits for long.
pub const ROUND_DOCUMENTS_MAX: usize = 1024;

/// How many bytes of bodies one change should have, unless a single document has more.
pub const ROUND_BYTES_MAX: usize = 1 << 20;

/// The largest security object.
pub const SECURITY_BYTES_MAX: usize = 32 * 1024;

/// How many revisions a branch may be told to keep.
pub const REVS_LIMIT_MAX: u32 = 16_384;

/// How many attachments may be on their way to a database at once.
pub const UPLOADS_MAX: usize = 1024;

/// How many bytes all that is known of a document may take, without bodies and attachments: what bounds its conflicts.
const INFO_BYTES_MAX: usize = 768 * 1024;

/// See the module documentation.
pub struct Writer {
    database: Arc<Database>,
    gate: ArcMutexGuard<RawMutex, Gate>,
    next: State,
    since_seq: u64,
    encoder: UpdateEncoder,
    expected: Expected,
    /// Why `next` and what was encoded do not belong together.
    failed: Option<StoreError>,
}

impl Writer {
    pub(crate) fn new(database: Arc<Database>, gate: ArcMutexGuard<RawMutex, Gate>) -> Writer {
        let next = State::clone(&database.state());
        let encoder = UpdateEncoder::new(next.db, next.update_seq);
        let expected = Expected::default();
        Writer { database, gate, since_seq: next.update_seq, next, encoder, expected, failed: None }
    }

    /// Uses this memory for the bytes for the log. To be called before anything else.
    pub fn encode_in(&mut self, memory: Vec<u8>) {
        self.encoder = UpdateEncoder::within(memory, self.next.db, self.since_seq);
    }

    /// Says which documents are edited next, in this order, if they are many: they are looked up together.
    pub fn look_up<'i>(&mut self, ids: impl Iterator<Item = &'i DocId>) {
        self.expected = Expected::look_up(&self.next, ids);
    }

    /// The database as it will be after the commit.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::new(self.next.clone()))
    }

    /// Edits documents one after the other; each succeeds or fails alone and sees those before it.
    pub fn prepare(&mut self, edits: Vec<EditRequest>) -> Vec<Result<Rev, DocError>> {
        edits.into_iter().map(|edit| self.edit(edit)).collect()
    }

    /// Edits a document. A revision that is there already is no error and no change.
    pub fn edit(&mut self, request: EditRequest) -> Result<Rev, DocError> {
        if request.id.starts_with(LOCAL_PREFIX) {
            return Err(DocError::bad_request("A _local document has no revisions that are listed."));
        }
        unsupported::refuse(self.database.name(), &request)?;
        let old = match self.expected.take(&request.id) {
            Some(found) => found,
            None => self.next.document(&request.id)?,
        };
        let EditRequest { id, history, deleted, body, body_hash, attachments } = request;
        if attachments.len() > ATTACHMENTS_MAX {
            return Err(DocError::TooLarge);
        }
        let (path, attachments) = match history {
            History::Parent(parent) => {
                let parent = parent_of(old.as_deref(), parent, deleted)?;
                let named =
                    self.name_revision(&id, old.as_deref(), parent, deleted, body_hash, attachments)?;
                let rev = named.0.newest();
                if old.as_ref().is_some_and(|old| old.revs.contains(rev)) {
                    // The same edit was made elsewhere, and has come here without its ancestors.
                    return Ok(rev);
                }
                named
            }
            History::Path(path) => {
                if old.as_ref().is_some_and(|old| old.revs.contains(path.newest())) {
                    return Ok(path.newest());
                }
                let number = path.newest().number();
                let attachments = self.attachments(&id, old.as_deref(), &path, number, attachments)?;
                (path, attachments)
            }
        };
        check_info_bytes(&id, old.as_deref(), &path, &attachments, deleted)?;
        let rev = path.newest();
        let edit = Edit { id, deleted, path, body, attachments };
        self.encoder.push_edit(&edit);
        let done = self.next.edit(edit, old);
        self.noted(done)?;
        Ok(rev)
    }

    /// Writes a `_local` document, and gives the N of its revision `0-N`. `rev` is that of the one it replaces.
    pub fn put_local(&mut self, id: &str, rev: Option<u64>, body: Bytes) -> Result<u64, DocError> {
        let there = self.next.local(id)?.map(|document| document.rev);
        // Revision 0-0 is what a client may say of a document that is not there.
        if there.unwrap_or(0) != rev.unwrap_or(0) {
            return Err(DocError::Conflict);
        }
        let rev = there.unwrap_or(0).saturating_add(1);
        self.push(Operation::PutLocal { id: id.into(), rev, body })?;
        Ok(rev)
    }

    /// Removes a `_local` document with this revision.
    pub fn remove_local(&mut self, id: &str, rev: Option<u64>) -> Result<(), DocError> {
        let there = self.next.local(id)?.ok_or(DocError::Missing)?;
        if rev != Some(there.rev) {
            return Err(DocError::Conflict);
        }
        self.push(Operation::RemoveLocal { id: id.into() })
    }

    /// Removes leaves without a trace, and gives those that were there.
    pub fn purge(&mut self, id: &str, revs: &[Rev]) -> Result<Vec<Rev>, DocError> {
        self.expected.forget();
        let Some(info) = self.next.document(id)? else { return Ok(Vec::new()) };
        let leaves = info.revs.leaves().map(|(rev, _)| rev);
        let purged: Vec<Rev> = leaves.filter(|rev| revs.contains(rev)).collect();
        if !purged.is_empty() {
            self.push(Operation::Purge { id: info.id.clone(), revs: purged.clone() })?;
        }
        Ok(purged)
    }

    /// Replaces the security object, which is JSON text.
    pub fn set_security(&mut self, security: Bytes) -> Result<(), DocError> {
        if security.len() > SECURITY_BYTES_MAX {
            return Err(DocError::TooLarge);
        }
        self.push(Operation::SetSecurity(security))
    }

    /// Says how many revisions a branch keeps from now on.
    pub fn set_revs_limit(&mut self, limit: u32) -> Result<(), DocError> {
        if !(1..=REVS_LIMIT_MAX).contains(&limit) {
            return Err(DocError::bad_request("`_revs_limit` must be an integer from 1 to 16384"));
        }
        self.push(Operation::SetRevsLimit(limit))
    }

    /// Begins an attachment that is sent in chunks. What an earlier life of the server has left unfinished goes.
    pub fn begin_upload(&mut self) -> Result<UploadId, DocError> {
        if !self.gate.has_uploaded && !self.next.uploads.is_empty() {
            let to = self.next.next_upload;
            self.push(Operation::Discard { from: UploadId(0), to })?;
        }
        self.gate.has_uploaded = true;
        if self.next.uploads.len() >= UPLOADS_MAX {
            return Err(DocError::TooLarge);
        }
        let upload = self.next.next_upload;
        self.push(Operation::Chunk { upload, bytes: Bytes::new() })?;
        Ok(upload)
    }

    /// Adds [`CHUNK_BYTES`] bytes to an upload; fewer only at its end.
    pub fn put_chunk(&mut self, upload: UploadId, bytes: Bytes) -> Result<(), DocError> {
        const UNKNOWN: DocError = DocError::bad_request("The attachment is not being sent.");
        const UNEVEN: DocError = DocError::bad_request("The attachment is not sent in even parts.");
        let progress = self.next.uploads.get(&upload).copied().ok_or(UNKNOWN)?;
        if progress.bytes != u64::from(progress.chunks) * CHUNK_BYTES as u64 || bytes.len() > CHUNK_BYTES {
            return Err(UNEVEN);
        }
        if progress.bytes + bytes.len() as u64 > ATTACHMENT_BYTES_MAX {
            return Err(DocError::TooLarge);
        }
        self.push(Operation::Chunk { upload, bytes })
    }

    /// Ends an upload that no edit will refer to.
    pub fn discard_upload(&mut self, upload: UploadId) -> Result<(), DocError> {
        if !self.next.uploads.contains_key(&upload) {
            return Ok(());
        }
        self.push(Operation::Discard { from: upload, to: UploadId(upload.0.saturating_add(1)) })
    }

    /// Takes back all that was changed; goes on with the database as it was when it was locked.
    pub fn undo(&mut self) {
        self.next = State::clone(&self.database.state());
        self.encoder = UpdateEncoder::new(self.next.db, self.since_seq);
        self.expected.forget();
        self.failed = None;
    }

    /// The bytes for the log, if anything has changed. Ask once, when all is done.
    ///
    /// # Errors
    /// If a file could not be read half-way through: none of the requests has succeeded, and there is nothing to commit.
    pub fn change(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let encoder = UpdateEncoder::new(self.next.db, self.since_seq);
        let made = std::mem::replace(&mut self.encoder, encoder);
        Ok((!made.is_empty()).then(|| made.finish()))
    }

    /// Shows what has changed to all: the record with the change ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        let Writer { database, gate, mut next, since_seq, .. } = self;
        next.last_lsn = lsn;
        let notice = Notice::Updated { db: next.db, update_seq: next.update_seq, lsn };
        let has_news = next.update_seq != since_seq;
        database.publish(next);
        drop(gate);
        if has_news {
            database.tell(notice);
        }
    }

    fn push(&mut self, operation: Operation) -> Result<(), DocError> {
        self.encoder.push(&operation);
        let done = self.next.apply(operation);
        self.noted(done)
    }

    fn noted(&mut self, done: Result<(), StoreError>) -> Result<(), DocError> {
        done.map_err(|error| {
            self.failed = Some(error.clone());
            error.into()
        })
    }

    /// The path and the attachments of a revision that gets its name here.
    fn name_revision(
        &self,
        id: &DocId,
        old: Option<&DocInfo>,
        parent: Option<Rev>,
        deleted: bool,
        body: BodyHash,
        attachments: Vec<AttachmentRequest>,
    ) -> Result<(RevPath, Vec<EditAttachment>), DocError> {
        let number =
            parent.map_or(Some(1), |parent| parent.number().checked_add(1)).ok_or(DocError::Conflict)?;
        // Where attachments are kept from does not depend on the name, which does depend on what is kept.
        let unnamed = RevPath::edit(parent, [0; 16]).ok_or(DocError::Conflict)?;
        let attachments = self.attachments(id, old, &unnamed, number, attachments)?;
        let named = attachments
            .iter()
            .map(|attachment| (&*attachment.name, &*attachment.content_type, attachment.digest));
        let hash = edit_hash(deleted, parent, body, named);
        Ok((RevPath::edit(parent, hash).ok_or(DocError::Conflict)?, attachments))
    }

    /// The attachments of a revision, with those that it keeps looked up.
    fn attachments(
        &self,
        id: &DocId,
        old: Option<&DocInfo>,
        path: &RevPath,
        number: u32,
        attachments: Vec<AttachmentRequest>,
    ) -> Result<Vec<EditAttachment>, DocError> {
        let decide = |attachment: AttachmentRequest| {
            let name = attachment.name;
            let (content_type, revpos, digest, length, source) = match attachment.source {
                AttachmentSource::Stub => {
                    let kept = old.and_then(|old| kept_from(old, path, &name));
                    let (back, leaf) = kept.ok_or_else(|| missing_stub(id, &name))?;
                    let kept = leaf.attachment(&name).ok_or_else(|| missing_stub(id, &name))?;
                    let source = Source::Kept(back);
                    (kept.content_type.clone(), Some(kept.revpos), kept.digest, kept.length, source)
                }
                AttachmentSource::Inline { content_type, bytes, digest, revpos } => {
                    (content_type, revpos, digest, bytes.len() as u64, Source::Inline(bytes))
                }
                AttachmentSource::Upload { content_type, upload, length, digest, revpos } => {
                    if self.next.uploads.get(&upload).is_none_or(|progress| progress.bytes != length) {
                        return Err(DocError::bad_request("The attachment was not sent as a whole."));
                    }
                    (content_type, revpos, digest, length, Source::Upload(upload))
                }
            };
            if length > ATTACHMENT_BYTES_MAX {
                return Err(DocError::AttachmentTooLarge(name.to_string()));
            }
            let revpos = revpos.unwrap_or(number).min(number);
            Ok(EditAttachment { name, content_type, revpos, digest, length, source })
        };
        let mut decided: Vec<EditAttachment> =
            attachments.into_iter().map(decide).collect::<Result<_, _>>()?;
        // Their order is part of the name of a revision.
        decided.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        match decided.array_windows().find(|[a, b]| a.name == b.name) {
            Some([twice, _]) => {
                Err(DocError::BadRequest(format!("Duplicate attachment: {}", twice.name).into()))
            }
            None => Ok(decided),
        }
    }
}

/// The leaf that an edit extends, if the document is there or was.
fn parent_of(old: Option<&DocInfo>, parent: Option<Rev>, deletes: bool) -> Result<Option<Rev>, DocError> {
    match (old.and_then(|old| old.revs.winner().zip(Some(old))), parent) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(DocError::Conflict),
        (Some((_, old)), Some(parent)) => {
            if old.revs.leaf(parent).is_some() {
                Ok(Some(parent))
            } else {
                Err(DocError::Conflict)
            }
        }
        // Whoever writes a document that was deleted need not know it: the edit follows the revision that deleted it.
        (Some(((rev, leaf), _)), None) if leaf.deleted && !deletes => Ok(Some(rev)),
        (Some(_), None) => Err(DocError::Conflict),
    }
}

/// The nearest ancestor of the path's newest revision that is a leaf with such an attachment, and how far back it is.
fn kept_from<'d>(old: &'d DocInfo, path: &RevPath, name: &str) -> Option<(usize, &'d DocLeaf)> {
    let mut leaves =
        path.revs().enumerate().skip(1).filter_map(|(back, rev)| Some((back, old.revs.leaf(rev)?)));
    leaves.find(|(_, leaf)| leaf.attachment(name).is_some())
}

fn missing_stub(id: &str, name: &str) -> DocError {
    DocError::MissingStub(format!("Invalid attachment stub in {id} for {name}"))
}

/// Refuses an edit that makes what is known of a document too large.
fn check_info_bytes(
    id: &str,
    old: Option<&DocInfo>,
    path: &RevPath,
    attachments: &[EditAttachment],
    deleted: bool,
) -> Result<(), DocError> {
    const CHUNK_ENTRY_BYTES: u64 = 24;
    /// What a deletion may take beyond: conflicts must be resolvable.
    const DELETION_BYTES: usize = 128 * 1024;
    let attachment_bytes = |attachment: &EditAttachment| {
        let chunks = 1 + attachment.length / CHUNK_BYTES as u64;
        attachment.name.len() as u64 + attachment.content_type.len() as u64 + (chunks + 2) * CHUNK_ENTRY_BYTES
    };
    let is_new = |rev: &Rev| old.is_none_or(|old| !old.revs.contains(*rev));
    let new_revs = path.revs().take_while(is_new).count();
    let added = 16 * new_revs as u64 + attachments.iter().map(attachment_bytes).sum::<u64>();
    let bytes = old.map_or(0, |old| old.stored_bytes() as u64) + added;
    let bytes_max = if deleted { INFO_BYTES_MAX + DELETION_BYTES } else { INFO_BYTES_MAX };
    if bytes > bytes_max as u64 {
        return Err(DocError::DocumentTooLarge(id.to_owned()));
    }
    Ok(())
}
