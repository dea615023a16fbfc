//! Edits: from documents that clients send to what the database is asked to do, and back to what the clients are told.

use std::sync::Arc;

use axum::body::Bytes;
use documents::{
    AttachmentRequest, AttachmentSource, CHUNK_BYTES, Database, DocError, DocId, DocRev, EditRequest,
    History, LOCAL_PREFIX, Limits, NewAttachment, NewContent, NewDocument, Rev, RevError, RevPath, UploadId,
    Writer, check_id,
};

use super::{
    failure::Failure,
    request::Call,
    upload::{Stored, Upload},
};
use crate::config::Key;

/// What is done to one document.
pub(super) enum Edit {
    /// One that is listed and replicated, with what keeps attachments of it that are in the log already.
    Document(EditRequest, Vec<Stored>),
    /// One that is neither. Its id is without the prefix.
    Local { id: DocId, rev: Option<u64>, deleted: bool, body: Bytes },
}

impl Edit {
    /// About how many bytes it takes in the log.
    pub(super) fn size_bytes(&self) -> usize {
        let attachment = |attachment: &AttachmentRequest| match &attachment.source {
            AttachmentSource::Inline { bytes, .. } => bytes.len(),
            AttachmentSource::Stub | AttachmentSource::Upload { .. } => 0,
        };
        match self {
            Edit::Document(edit, _) => {
                edit.body.len() + edit.attachments.iter().map(attachment).sum::<usize>()
            }
            Edit::Local { body, .. } => body.len(),
        }
    }

    /// Does it.
    pub(super) fn make(self, writer: &mut Writer) -> Result<DocRev, DocError> {
        match self {
            Edit::Document(edit, stored) => {
                stored.into_iter().for_each(Stored::taken);
                let uploads: Vec<_> = edit.attachments.iter().filter_map(upload_of).collect();
                let edited = writer.edit(edit);
                if edited.is_err() {
                    uploads.into_iter().try_for_each(|upload| writer.discard_upload(upload))?;
                }
                edited.map(DocRev::Tree)
            }
            Edit::Local { id, rev, deleted: false, body } => {
                writer.put_local(&id, rev, body).map(DocRev::Local)
            }
            Edit::Local { id, rev, deleted: true, .. } => {
                writer.remove_local(&id, rev).map(|()| DocRev::Local(0))
            }
        }
    }
}

fn upload_of(attachment: &AttachmentRequest) -> Option<UploadId> {
    match attachment.source {
        AttachmentSource::Upload { upload, .. } => Some(upload),
        AttachmentSource::Stub | AttachmentSource::Inline { .. } => None,
    }
}

/// How large documents may be.
pub(super) fn limits(call: &Call) -> Limits {
    let document_bytes_max = call.thread.host.settings().integer(Key::MaxDocumentSize) as usize;
    Limits { document_bytes_max, ..Limits::default() }
}

/// What is done to the document `id`, if `document` is sent. Attachments that are too large for one record are stored before.
pub(super) async fn edit_of(
    call: &Call,
    database: &Arc<Database>,
    id: &str,
    document: NewDocument,
    new_edits: bool,
) -> Result<Edit, Failure> {
    check_id(id)?;
    if let Some(id) = id.strip_prefix(LOCAL_PREFIX) {
        let rev = document.rev.map(local_rev).transpose()?;
        return Ok(Edit::Local { id: id.into(), rev, deleted: document.deleted, body: document.body.into() });
    }
    let rev = document.rev.map(tree_rev).transpose()?;
    let history = match (new_edits, document.revisions, rev) {
        (true, _, rev) => History::Parent(rev),
        (false, Some(path), _) => History::Path(path),
        (false, None, Some(rev)) => History::Path(RevPath::of(rev)),
        (false, None, None) => {
            let reason = "When `new_edits: false`, the document needs `_rev` or `_revisions` specified";
            return Err(Failure::bad_request(reason));
        }
    };
    let (mut attachments, mut stored) = (Vec::with_capacity(document.attachments.len()), Vec::new());
    for attachment in document.attachments {
        let (attachment, kept) = attachment_request(call, database, attachment).await?;
        attachments.push(attachment);
        stored.extend(kept);
    }
    let request = EditRequest {
        id: id.into(),
        history,
        deleted: document.deleted,
        body: document.body.into(),
        body_digest: document.body_digest,
        attachments,
    };
    Ok(Edit::Document(request, stored))
}

async fn attachment_request(
    call: &Call,
    database: &Arc<Database>,
    attachment: NewAttachment,
) -> Result<(AttachmentRequest, Option<Stored>), Failure> {
    let NewAttachment { name, content_type, revpos, content } = attachment;
    let (source, stored) = match content {
        NewContent::Stub { .. } => (AttachmentSource::Stub, None),
        NewContent::Inline { bytes, digest } if bytes.len() <= CHUNK_BYTES => {
            let (content_type, bytes) = (content_type.into(), bytes.into());
            (AttachmentSource::Inline { content_type, bytes, digest, revpos }, None)
        }
        NewContent::Inline { bytes, .. } => {
            let mut upload = Upload::new(&call.thread, database);
            upload.push(bytes.into()).await?;
            upload.finish(content_type.into(), revpos).await?
        }
        NewContent::Follows { .. } => {
            return Err(Failure::bad_request("Attachments that follow need a multipart/related body"));
        }
    };
    Ok((AttachmentRequest { name: name.into(), source }, stored))
}

/// The revision of a document that is listed.
pub(super) fn tree_rev(rev: DocRev) -> Result<Rev, Failure> {
    match rev {
        DocRev::Tree(rev) => Ok(rev),
        DocRev::Local(_) => Err(Failure::Doc(RevError.into())),
    }
}

fn local_rev(rev: DocRev) -> Result<u64, Failure> {
    match rev {
        DocRev::Local(count) => Ok(count),
        DocRev::Tree(_) => Err(Failure::Doc(RevError.into())),
    }
}
