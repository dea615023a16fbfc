//! `State`: one document database at one moment, and the effect of each operation on it.
//!
//! A state is an immutable value. A writer changes a copy, which is cheap to make, and publishes it with the
//! LSN of the record. The state does not validate requests; [`crate::Writer`] does.
//!
//! Invariants
//! - The data of a state is changed only by [`State::apply`] and [`State::edit`], which do the same live, in
//!   recovery and on replicas. So the same operations lead to the same data. Checkpoints and compaction only
//!   move the data between the layers and the file.
//! - `sums` are the totals over all documents. Each edit and each purge adds one to `update_seq`.

use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use lsn::Lsn;
use tree::TreeSnapshot;

use crate::blob::Blob;
use crate::by_id::Known;
use crate::change::{Edit, EditAttachment, Operation, Source};
use crate::doc_info::{Attachment, CHUNK_BYTES, DocInfo, DocLeaf, DocSums};
use crate::id::{DbId, UploadId};
use crate::layer::{Layer, LocalDoc};
use crate::rev_path::RevPath;
use crate::rev_tree::Merged;
use crate::revision::Rev;
use crate::rows::{self, DOCUMENTS, FEED, LOCAL};
use crate::store_error::StoreError;

/// The default of the number of revisions that a branch keeps.
pub const REVS_LIMIT: u32 = 1000;

/// The state of a database: up to two layers of changes over a tree file.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) db: DbId,
    pub(crate) fresh: Layer,
    pub(crate) frozen: Option<Arc<Layer>>,
    /// The last checkpoint; `None` before the first one.
    pub(crate) tree: Option<TreeSnapshot>,
    pub(crate) update_seq: u64,
    pub(crate) purge_seq: u64,
    pub(crate) sums: DocSums,
    pub(crate) revs_limit: u32,
    /// The security object as it was set; empty if it never was.
    pub(crate) security: Bytes,
    /// Unfinished uploads.
    pub(crate) uploads: OrdMap<UploadId, Upload>,
    pub(crate) next_upload: UploadId,
    /// The position of the last change.
    pub(crate) last_lsn: Lsn,
    /// The position of the last change of `security` since the database was created or opened; the position
    /// of the creation if there was none.
    pub(crate) security_lsn: Lsn,
}

/// The received part of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) chunks: u32,
    pub(crate) bytes: u64,
}

impl State {
    /// The state of a new database.
    pub(crate) fn new(db: DbId) -> State {
        State {
            db,
            fresh: Layer::new(0),
            frozen: None,
            tree: None,
            update_seq: 0,
            purge_seq: 0,
            sums: DocSums::default(),
            revs_limit: REVS_LIMIT,
            security: Bytes::new(),
            uploads: OrdMap::new(),
            next_upload: UploadId(1),
            last_lsn: db.lsn(),
            security_lsn: db.lsn(),
        }
    }

    /// The document with this id, deleted or not.
    pub(crate) fn document(&self, id: &str) -> Result<Option<Arc<DocInfo>>, StoreError> {
        if let Some(in_layer) = self.in_layers(id) {
            return Ok(in_layer.cloned());
        }
        let Some(tree) = &self.tree else { return Ok(None) };
        let row = tree.get(DOCUMENTS, id.as_bytes())?;
        row.map(|row| document_of(tree, id, &row)).transpose()
    }

    /// The position that the log must have committed before a reply may show this document, or its absence:
    /// the end of the last record that changed the document, or a later position. It is later for a purged
    /// document, and if no layer has the document: then it is the position of the last checkpoint. The
    /// security object decides who may read, so the record of its last change counts, too.
    pub(crate) fn document_lsn(&self, id: &str) -> Lsn {
        let changed = match self.in_layers(id) {
            Some(Some(info)) => self.record_of(info.seq),
            Some(None) => self.last_lsn,
            None => self.saved_lsn(),
        };
        changed.max(self.security_lsn)
    }

    /// The end of the record that gave a document the update sequence `seq`. A layer must have that document.
    fn record_of(&self, seq: u64) -> Lsn {
        let oldest_first = self.frozen.as_deref().into_iter().chain([&self.fresh]);
        let mut records = oldest_first.filter_map(|layer| layer.records.range(seq..).next());
        records.next().map_or(self.last_lsn, |(_, lsn)| *lsn)
    }

    /// Notes that the record with the changes since the state `before` ends at `lsn`.
    pub(crate) fn end_record(&mut self, before: &State, lsn: Lsn) {
        self.last_lsn = lsn;
        if self.update_seq != before.update_seq {
            self.fresh.records.insert(self.update_seq, lsn);
        }
        if self.security != before.security {
            self.security_lsn = lsn;
        }
    }

    /// The documents with these ids, which must ascend; the file is read in one walk.
    pub(crate) fn look_up(&self, ids: &[&str]) -> Result<Vec<Option<Arc<DocInfo>>>, StoreError> {
        let known: Vec<Option<Known<'_>>> = ids.iter().map(|id| self.in_layers(id)).collect();
        let others = ids.iter().zip(&known).filter(|(_, known)| known.is_none());
        let mut on_disk = self.on_disk(&others.map(|(id, _)| *id).collect::<Vec<_>>())?.into_iter();
        let document = |known: Option<Known<'_>>| match known {
            Some(known) => known.cloned(),
            None => on_disk.next().flatten(),
        };
        Ok(known.into_iter().map(document).collect())
    }

    /// The entry of this id in the layers, if they have one.
    fn in_layers(&self, id: &str) -> Option<Known<'_>> {
        self.layers().find_map(|layer| layer.by_id.get(id))
    }

    /// The documents with these ids in the file. The ids must ascend.
    fn on_disk(&self, ids: &[&str]) -> Result<Vec<Option<Arc<DocInfo>>>, StoreError> {
        let Some(tree) = &self.tree else { return Ok(vec![None; ids.len()]) };
        let rows = tree.get_many(DOCUMENTS, ids)?;
        let document =
            |(row, id): (Option<Vec<u8>>, &&str)| row.map(|row| document_of(tree, id, &row)).transpose();
        rows.into_iter().zip(ids).map(document).collect()
    }

    /// The `_local` document with this id.
    pub(crate) fn local(&self, id: &str) -> Result<Option<Arc<LocalDoc>>, StoreError> {
        if let Some(in_layer) = self.layers().find_map(|layer| layer.local.get(id)) {
            return Ok(in_layer.clone());
        }
        let Some(tree) = &self.tree else { return Ok(None) };
        let Some(row) = tree.get(LOCAL, &rows::local_key(id))? else { return Ok(None) };
        let (rev, body) = decoded(tree, rows::decode_local(&row))?;
        let body = match body {
            Ok(body) => body,
            Err(pointer) => tree.read_blob(pointer)?.into(),
        };
        Ok(Some(Arc::new(LocalDoc { rev, body })))
    }

    /// The bytes of a blob: from memory, or from the tree file if they are only there.
    pub(crate) fn read_blob(&self, blob: &Blob) -> Result<Bytes, StoreError> {
        match (blob, &self.tree) {
            (Blob::Unsaved(unsaved), _) => Ok(unsaved.bytes.clone()),
            (Blob::Saved(pointer), Some(tree)) => Ok(tree.read_blob(*pointer)?.into()),
            (Blob::Saved(_), None) => Err(self.misfit("bytes in a file, and there is none")),
        }
    }

    /// Bytes of the file up to the last checkpoint, and how many of them are in use; attachment bytes that
    /// leaves share count once per leaf.
    pub(crate) fn file_bytes(&self) -> (u64, u64) {
        let Some(tree) = &self.tree else { return (0, 0) };
        let nodes: u64 = [DOCUMENTS, FEED, LOCAL].into_iter().map(|id| tree.node_bytes(id)).sum();
        let ([_, _, bodies, attachments], [_, _, local, _]) = (tree.sums(DOCUMENTS).0, tree.sums(LOCAL).0);
        (tree.file_end(), nodes + bodies + attachments + local)
    }

    /// The position up to which the file has all changes.
    pub(crate) fn saved_lsn(&self) -> Lsn {
        self.tree.as_ref().map_or(self.db.lsn(), TreeSnapshot::applied_lsn)
    }

    /// Whether the log has changes that the file does not have.
    pub(crate) fn is_dirty(&self) -> bool {
        self.last_lsn > self.saved_lsn()
    }

    /// The layers above the tree, the newest first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.fresh).chain(self.frozen.as_deref())
    }

    /// Applies one operation.
    pub(crate) fn apply(&mut self, operation: Operation) -> Result<(), StoreError> {
        match operation {
            Operation::Edit(edit) => {
                let old = self.document(&edit.id)?;
                self.edit(edit, old)?;
            }
            Operation::PutLocal { id, rev, body } => self.fresh.put_local(id, Some(LocalDoc { rev, body })),
            Operation::RemoveLocal { id } => self.fresh.put_local(id, None),
            Operation::Purge { id, revs } => {
                let old = self.document(&id)?.ok_or_else(|| self.misfit("no document to purge"))?;
                self.purge(&old, &revs);
            }
            Operation::SetSecurity(security) => self.security = security,
            Operation::SetRevsLimit(limit) => self.revs_limit = limit,
            Operation::Chunk { upload, bytes } => self.put_chunk(upload, bytes),
            Operation::Discard { from, to } => self.discard(from, to)?,
        }
        Ok(())
    }

    /// Adds a revision to the document whose current version is `old`.
    pub(crate) fn edit(&mut self, edit: Edit, old: Option<Arc<DocInfo>>) -> Result<(), StoreError> {
        let mut new_bytes = edit.body.len() as u64;
        let attachments = edit
            .attachments
            .into_iter()
            .map(|attachment| self.attachment(attachment, &edit.path, old.as_deref(), &mut new_bytes))
            .collect::<Result<_, _>>()?;
        let seq = self.update_seq + 1;
        let leaf = DocLeaf { deleted: edit.deleted, seq, attachments, body: Blob::new(edit.body) };
        let (id, mut revs) = old
            .as_ref()
            .map_or_else(|| (edit.id, Default::default()), |old| (old.id.clone(), old.revs.clone()));
        if revs.merge(&edit.path, leaf) == Merged::Known {
            return Err(self.misfit("a revision that is there"));
        }
        revs.stem(self.revs_limit);
        self.put_document(old.as_deref(), DocInfo { id, seq, revs }, new_bytes);
        Ok(())
    }

    fn purge(&mut self, old: &DocInfo, revs: &[Rev]) {
        let mut left = old.revs.clone();
        left.purge(revs);
        self.purge_seq += 1;
        if left.is_empty() {
            self.update_seq += 1;
            self.sums = self.sums.exchanged(old.sums(), DocSums::default());
            self.fresh.remove_document(old);
        } else {
            let info = DocInfo { id: old.id.clone(), seq: self.update_seq + 1, revs: left };
            self.put_document(Some(old), info, 0);
        }
    }

    fn put_document(&mut self, old: Option<&DocInfo>, info: DocInfo, new_bytes: u64) {
        let old_sums = old.map(DocInfo::sums).unwrap_or_default();
        self.sums = self.sums.exchanged(old_sums, info.sums());
        self.update_seq = info.seq;
        self.fresh.put_document(old.map(|old| old.seq), Arc::new(info), new_bytes);
    }

    /// Resolves the attachment of an edit; takes over the chunks of an upload.
    fn attachment(
        &mut self,
        attachment: EditAttachment,
        path: &RevPath,
        old: Option<&DocInfo>,
        new_bytes: &mut u64,
    ) -> Result<Attachment, StoreError> {
        let EditAttachment { name, content_type, revpos, digest, length, source } = attachment;
        let chunks = match source {
            Source::Inline(bytes) => {
                *new_bytes += bytes.len() as u64;
                let starts = (0..bytes.len()).step_by(CHUNK_BYTES);
                let end = |start: usize| bytes.len().min(start + CHUNK_BYTES);
                starts.map(|start| Blob::new(bytes.slice(start..end(start)))).collect()
            }
            Source::Kept(back) => {
                let kept = path.revs().nth(back).zip(old).and_then(|(rev, old)| old.revs.leaf(rev));
                let kept = kept.and_then(|leaf| leaf.attachment(&name)).filter(|kept| kept.length == length);
                kept.ok_or_else(|| self.misfit("an attachment to keep is not there"))?.chunks.clone()
            }
            Source::Upload(upload) => self.take_upload(upload, length)?,
        };
        Ok(Attachment { name, content_type, revpos, digest, length, chunks })
    }

    fn put_chunk(&mut self, upload: UploadId, bytes: Bytes) {
        let mut progress = self.uploads.get(&upload).copied().unwrap_or_default();
        self.next_upload = self.next_upload.max(UploadId(upload.0.saturating_add(1)));
        if !bytes.is_empty() {
            let key = (upload, progress.chunks);
            progress.chunks += 1;
            progress.bytes += bytes.len() as u64;
            self.fresh.put_chunk(key, Some(Blob::new(bytes)));
        }
        self.uploads.insert(upload, progress);
    }

    /// Ends an upload and returns its chunks for the edit.
    fn take_upload(&mut self, upload: UploadId, length: u64) -> Result<Arc<[Blob]>, StoreError> {
        if self.uploads.get(&upload).is_none_or(|progress| progress.bytes != length) {
            return Err(self.misfit("an attachment was not sent as a whole"));
        }
        self.end_upload(upload)
    }

    fn discard(&mut self, from: UploadId, to: UploadId) -> Result<(), StoreError> {
        let ended: Vec<UploadId> = if from < to {
            self.uploads.range(from..to).map(|(upload, _)| *upload).collect()
        } else {
            Vec::new()
        };
        for upload in ended {
            self.end_upload(upload)?;
        }
        Ok(())
    }

    fn end_upload(&mut self, upload: UploadId) -> Result<Arc<[Blob]>, StoreError> {
        let progress = self.uploads.remove(&upload).unwrap_or_default();
        let mut chunks = Vec::new();
        for number in 0..progress.chunks {
            let key = (upload, number);
            let chunk =
                self.chunk(key)?.ok_or_else(|| self.misfit("a part of an attachment is not there"))?;
            chunks.push(chunk);
            self.fresh.put_chunk(key, None);
        }
        Ok(chunks.into())
    }

    fn chunk(&self, key: (UploadId, u32)) -> Result<Option<Blob>, StoreError> {
        if let Some(in_layer) = self.layers().find_map(|layer| layer.chunks.get(&key)) {
            return Ok(in_layer.clone());
        }
        let Some(tree) = &self.tree else { return Ok(None) };
        let Some(row) = tree.get(LOCAL, &rows::chunk_key(key))? else { return Ok(None) };
        decoded(tree, rows::decode_chunk(&row)).map(|pointer| Some(Blob::Saved(pointer)))
    }

    pub(crate) fn misfit(&self, what: &'static str) -> StoreError {
        StoreError::Misfit { db: self.db, what }
    }
}

fn document_of(tree: &TreeSnapshot, id: &str, row: &[u8]) -> Result<Arc<DocInfo>, StoreError> {
    decoded(tree, rows::decode_document(id.as_bytes(), row)).map(Arc::new)
}

/// The decoded row, or an error if it is malformed.
pub(crate) fn decoded<T>(tree: &TreeSnapshot, row: Option<T>) -> Result<T, StoreError> {
    row.ok_or_else(|| StoreError::Damaged { path: tree.path().to_owned(), what: "a row that is none" })
}
