//! `Writer`: exclusive write access to a database, from the first read of its state to the position in the
//! log.
//!
//! ```text
//! Database::lock -> edit, put_local, ... (each seen by the next) -> change: bytes for the log -> commit(LSN)
//!                                                                '-> dropped: no effect
//! ```
//!
//! A writer validates requests. Requests of many clients are merged: each succeeds or fails alone, and all
//! that succeed form one change. [`Writer::commit`] does not make the change durable: the caller holds back
//! the replies until the log has committed the position.
//!
//! Invariants
//! - A database has one writer at a time, from before its first read until the change has its LSN: changes
//!   have the same order in the log and in memory.
//! - The edits that `unsupported` lists are rejected here, and thus for every protocol.
//! - Readers see no change before [`Writer::commit`].
//! - If an edit or a discard ends an upload, and the change is not committed, the upload is discarded when
//!   the next upload begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use lsn::Lsn;
use parking_lot::{ArcMutexGuard, RawMutex};

use crate::DocError;
use crate::attachment::ATTACHMENTS_MAX;
use crate::change::{Edit, EditAttachment, Operation, Source, UpdateEncoder};
use crate::database::{Database, Gate};
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

/// The recommended maximum number of edits in one change. A caller that merges requests begins another change
/// after this many, so that no client waits for long.
pub const WRITE_BATCH_DOCUMENTS_MAX: usize = 1024;

/// The recommended bytes of bodies and attachments in one change. A caller that merges requests begins
/// another change once it has this many, so one large request may exceed this.
pub const WRITE_BATCH_BYTES_MAX: usize = 1 << 20;

/// The largest security object, in bytes.
pub const SECURITY_BYTES_MAX: usize = 32 * 1024;

/// The largest limit of revisions per branch.
pub const REVS_LIMIT_MAX: u32 = 16_384;

/// The maximum number of unfinished uploads of a database.
pub const UPLOADS_MAX: usize = 1024;

/// The maximum bytes of a document's row, which holds no bytes of bodies and attachments; a deletion may
/// exceed it a little. This limits the number of conflicts.
const INFO_BYTES_MAX: usize = 768 * 1024;

/// Exclusive write access to a database.
pub struct Writer {
    database: Arc<Database>,
    gate: ArcMutexGuard<RawMutex, Gate>,
    next: State,
    since_seq: u64,
    encoder: UpdateEncoder,
    expected: Expected,
    /// The documents changed so far, and whether each was deleted or gone after one of the changes; `None` if
    /// nobody asks for them.
    changed: Option<BTreeMap<DocId, bool>>,
    /// Whether this change discards the uploads that nobody continues, if there are any.
    has_tidied: bool,
    /// An error after which `next` and the encoded operations may differ.
    failed: Option<StoreError>,
}

impl Database {
    /// Locks the database for changes; waits for the current writer.
    ///
    /// # Errors
    /// If it was deleted.
    pub fn lock(self: &Arc<Self>) -> Result<Writer, DocError> {
        let gate = self.gate();
        if gate.is_deleted {
            return Err(DocError::NoDatabase);
        }
        Ok(Writer::new(self.clone(), gate))
    }
}

impl Writer {
    pub(crate) fn new(database: Arc<Database>, mut gate: ArcMutexGuard<RawMutex, Gate>) -> Writer {
        let next = State::clone(&database.state());
        abandon(&mut gate, &next);
        let encoder = UpdateEncoder::new(next.db, next.update_seq);
        let expected = Expected::default();
        Writer {
            database,
            gate,
            since_seq: next.update_seq,
            next,
            encoder,
            expected,
            changed: None,
            has_tidied: false,
            failed: None,
        }
    }

    /// Reuses `memory` for the encoded change. Must be called before any change.
    pub fn encode_in(&mut self, memory: Vec<u8>) {
        self.encoder = UpdateEncoder::within(memory, self.next.db, self.since_seq);
    }

    /// From here on, notes which documents are changed, for [`Writer::changed`].
    pub fn note_changes(&mut self) {
        self.changed = Some(BTreeMap::new());
    }

    /// The documents changed since [`Writer::note_changes`], without `_local` ones, and whether each was
    /// deleted or gone after one of the changes, even if it has been made again.
    pub fn changed(&self) -> impl Iterator<Item = (&DocId, bool)> {
        self.changed.iter().flatten().map(|(id, was_gone)| (id, *was_gone))
    }

    /// Notes that a document has been changed just now.
    fn note_changed(&mut self, id: &DocId) -> Result<(), DocError> {
        if let Some(changed) = &mut self.changed {
            let is_gone = self
                .next
                .document(id)?
                .is_none_or(|info| info.revs.winner().is_none_or(|(_, leaf)| leaf.deleted));
            *changed.entry(id.clone()).or_default() |= is_gone;
        }
        Ok(())
    }

    /// Announces the documents that are edited next, in this order, so that they are looked up together. This
    /// saves time if they are many.
    pub fn look_up<'i>(&mut self, ids: impl Iterator<Item = &'i DocId>) {
        self.expected = Expected::look_up(&self.next, ids);
    }

    /// The state with the changes made so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::new(self.next.clone()))
    }

    /// Edits documents one after the other. Each edit succeeds or fails alone, and sees the earlier ones.
    pub fn prepare(&mut self, edits: Vec<EditRequest>) -> Vec<Result<Rev, DocError>> {
        edits.into_iter().map(|edit| self.edit(edit)).collect()
    }

    /// Edits a document. A revision that already exists is neither an error nor a change. Uploads of the
    /// request that the edit has not used are discarded: all of them if it fails or changes nothing.
    pub fn edit(&mut self, request: EditRequest) -> Result<Rev, DocError> {
        self.edit_after(request, |writer, request| unsupported::refuse(writer.database.name(), request))
    }

    /// Does the same as [`Writer::edit`] for the document of a user. The caller must have checked the request
    /// against the rules for users.
    pub fn edit_user(&mut self, request: EditRequest) -> Result<Rev, DocError> {
        self.edit_after(request, |_, _| Ok(()))
    }

    fn edit_after(
        &mut self,
        request: EditRequest,
        check: impl FnOnce(&Writer, &EditRequest) -> Result<(), DocError>,
    ) -> Result<Rev, DocError> {
        let uploads: Vec<UploadId> =
            request.attachments.iter().filter_map(AttachmentRequest::upload).collect();
        let edited = check(self, &request).and_then(|()| self.edit_or_refuse(request));
        self.gate.ending.extend(&uploads);
        uploads.into_iter().try_for_each(|upload| self.discard_upload(upload))?;
        edited
    }

    fn edit_or_refuse(&mut self, request: EditRequest) -> Result<Rev, DocError> {
        if request.id.starts_with(LOCAL_PREFIX) {
            return Err(DocError::bad_request("A _local document has no revisions that are listed."));
        }
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
                    // The same edit was made on another node, and was replicated without its ancestors.
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
        let id = edit.id.clone();
        let done = self.next.edit(edit, old);
        self.noted(done)?;
        self.note_changed(&id)?;
        Ok(rev)
    }

    /// Writes a `_local` document; returns the N of its revision `0-N`, which is one more than the N that the
    /// client gives. As in CouchDB, the last write wins: a `_local` document has no conflicts.
    pub fn put_local(&mut self, id: &str, rev: Option<u64>, body: Bytes) -> Result<u64, DocError> {
        let rev = rev.unwrap_or(0).saturating_add(1);
        self.push(Operation::PutLocal { id: id.into(), rev, body })?;
        Ok(rev)
    }

    /// Removes a `_local` document, if it is there.
    pub fn remove_local(&mut self, id: &str) -> Result<(), DocError> {
        match self.next.local(id)? {
            Some(_) => self.push(Operation::RemoveLocal { id: id.into() }),
            None => Ok(()),
        }
    }

    /// Removes leaves, with the ancestors that no other leaf has; returns the removed leaves.
    pub fn purge(&mut self, id: &str, revs: &[Rev]) -> Result<Vec<Rev>, DocError> {
        self.expected.forget();
        let Some(info) = self.next.document(id)? else { return Ok(Vec::new()) };
        let leaves = info.revs.leaves().map(|(rev, _)| rev);
        let purged: Vec<Rev> = leaves.filter(|rev| revs.contains(rev)).collect();
        if !purged.is_empty() {
            self.push(Operation::Purge { id: info.id.clone(), revs: purged.clone() })?;
            self.note_changed(&info.id)?;
        }
        Ok(purged)
    }

    /// Replaces the security object, which must be JSON text.
    pub fn set_security(&mut self, security: Bytes) -> Result<(), DocError> {
        if security.len() > SECURITY_BYTES_MAX {
            return Err(DocError::TooLarge);
        }
        self.push(Operation::SetSecurity(security))
    }

    /// Sets the number of revisions that a branch keeps, 1 to [`REVS_LIMIT_MAX`].
    pub fn set_revs_limit(&mut self, limit: u32) -> Result<(), DocError> {
        if !(1..=REVS_LIMIT_MAX).contains(&limit) {
            return Err(DocError::bad_request("`_revs_limit` must be an integer from 1 to 16384"));
        }
        self.push(Operation::SetRevsLimit(limit))
    }

    /// Begins an upload. Discards uploads that nobody continues. The first call since the database was opened
    /// or created, or since this server led no more, discards all unfinished ones: they are of an earlier run
    /// or of another leader.
    pub fn begin_upload(&mut self) -> Result<UploadId, DocError> {
        if !self.has_tidied {
            self.has_tidied = true;
            if self.gate.has_uploaded {
                let abandoned = self.gate.abandoned.clone();
                abandoned.into_iter().try_for_each(|upload| self.discard_upload(upload))?;
            } else if !self.next.uploads.is_empty() {
                let to = self.next.next_upload;
                self.push(Operation::Discard { from: UploadId(0), to })?;
            }
        }
        if self.next.uploads.len() >= UPLOADS_MAX {
            return Err(DocError::TooLarge);
        }
        let upload = self.next.next_upload;
        self.push(Operation::Chunk { upload, bytes: Bytes::new() })?;
        Ok(upload)
    }

    /// Adds a chunk to an upload: [`CHUNK_BYTES`] bytes, or fewer at its end.
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

    /// Discards an unfinished upload; does nothing if there is none with this id.
    pub fn discard_upload(&mut self, upload: UploadId) -> Result<(), DocError> {
        if !self.next.uploads.contains_key(&upload) {
            return Ok(());
        }
        self.gate.ending.push(upload);
        self.push(Operation::Discard { from: upload, to: UploadId(upload.0.saturating_add(1)) })
    }

    /// Discards all changes; the writer continues with the state at the time of locking.
    pub fn undo(&mut self) {
        self.next = State::clone(&self.database.state());
        abandon(&mut self.gate, &self.next);
        self.has_tidied = false;
        self.encoder = UpdateEncoder::new(self.next.db, self.since_seq);
        self.expected.forget();
        self.changed.iter_mut().for_each(BTreeMap::clear);
        self.failed = None;
    }

    /// The bytes for the log; `None` if nothing has changed. Must be called once, after the last edit.
    ///
    /// # Errors
    /// If a change could not be applied to the new state, for instance because a file could not be read. Then
    /// nothing can be committed, and the caller must report an error to all requests.
    pub fn change(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let encoder = UpdateEncoder::new(self.next.db, self.since_seq);
        let made = std::mem::replace(&mut self.encoder, encoder);
        Ok((!made.is_empty()).then(|| made.finish()))
    }

    /// Makes the change visible. The record with the change ends at `lsn`.
    pub fn commit(self, lsn: Lsn) {
        let Writer { database, mut gate, mut next, since_seq, has_tidied, .. } = self;
        gate.ending.clear();
        if has_tidied {
            gate.has_uploaded = true;
            gate.abandoned.clear();
        }
        next.end_record(&database.state(), lsn);
        let news = database.news(&next, since_seq);
        database.publish(next);
        drop(gate);
        database.notify(news);
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

    /// The path and the attachments of a revision that the server names.
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
        // The kept attachments do not depend on the hash of the new revision, but the hash depends on them.
        let unnamed = RevPath::edit(parent, [0; 16]).ok_or(DocError::Conflict)?;
        let attachments = self.attachments(id, old, &unnamed, number, attachments)?;
        let named = attachments
            .iter()
            .map(|attachment| (&*attachment.name, &*attachment.content_type, attachment.digest));
        let hash = edit_hash(deleted, parent, body, named);
        Ok((RevPath::edit(parent, hash).ok_or(DocError::Conflict)?, attachments))
    }

    /// Validates the attachments of a revision, and looks up the attachments that the revision keeps.
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
        // The attachments are sorted, because the hash of a revision depends on their order.
        decided.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        match decided.array_windows().find(|[a, b]| a.name == b.name) {
            Some([twice, _]) => {
                Err(DocError::BadRequest(format!("Duplicate attachment: {}", twice.name).into()))
            }
            None => Ok(decided),
        }
    }
}

/// Notes as abandoned the uploads that an uncommitted change was to end.
fn abandon(gate: &mut Gate, state: &State) {
    let Gate { ending, abandoned, .. } = gate;
    for upload in ending.drain(..) {
        if state.uploads.contains_key(&upload) && !abandoned.contains(&upload) {
            abandoned.push(upload);
        }
    }
}

/// Returns the parent of an edit. A given parent must be a leaf. The client need not give one if the document
/// is new, or is deleted and the edit does not delete it again.
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
        // A client may write a deleted document without its revision: the edit follows the deletion.
        (Some(((rev, leaf), _)), None) if leaf.deleted && !deletes => Ok(Some(rev)),
        (Some(_), None) => Err(DocError::Conflict),
    }
}

/// The nearest ancestor of the path's newest revision that is a leaf with this attachment, and its distance.
fn kept_from<'d>(old: &'d DocInfo, path: &RevPath, name: &str) -> Option<(usize, &'d DocLeaf)> {
    let mut leaves =
        path.revs().enumerate().skip(1).filter_map(|(back, rev)| Some((back, old.revs.leaf(rev)?)));
    leaves.find(|(_, leaf)| leaf.attachment(name).is_some())
}

fn missing_stub(id: &str, name: &str) -> DocError {
    DocError::MissingStub(format!("Invalid attachment stub in {id} for {name}"))
}

/// Rejects an edit that makes the row of a document too large.
fn check_info_bytes(
    id: &str,
    old: Option<&DocInfo>,
    path: &RevPath,
    attachments: &[EditAttachment],
    deleted: bool,
) -> Result<(), DocError> {
    const CHUNK_ENTRY_BYTES: u64 = 24;
    /// Bytes that a deletion may exceed the limit by, so that conflicts can still be resolved.
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
