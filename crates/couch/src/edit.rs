//! Converts documents sent by clients into edits of a database, and makes the edits.

use std::sync::Arc;

use bytes::Bytes;
use documents::{
    AttachmentRequest, AttachmentSource, CHUNK_BYTES, Database, DocError, DocId, DocRev, EditRequest,
    LOCAL_PREFIX, Limits, NewAttachment, NewContent, NewDocument, Rev, RevError, Uploaded, Writer, check_id,
};
use settings::Key;

use super::{
    failure::Failure,
    request::Call,
    upload::{Stored, Upload},
    users::Editor,
};

/// A change of one document.
pub(super) enum Edit {
    /// A document that is listed and replicated, unlike a `_local` one; [`Stored`] keeps its uploaded
    /// attachments until the edit is made.
    Document(EditRequest, Vec<Stored>),
    /// The document of a user, changed by an [`Editor`].
    User(EditRequest, Vec<Stored>, Editor),
    /// A `_local` document, which is neither listed nor replicated. The id is without the prefix.
    Local { id: DocId, rev: Option<u64>, deleted: bool, body: Bytes },
}

impl Edit {
    /// Approximate bytes of the edit in the log.
    pub(super) fn size_bytes(&self) -> usize {
        let attachment = |attachment: &AttachmentRequest| match &attachment.source {
            AttachmentSource::Inline { bytes, .. } => bytes.len(),
            AttachmentSource::Stub | AttachmentSource::Upload { .. } => 0,
        };
        match self {
            Edit::Document(edit, _) | Edit::User(edit, ..) => {
                edit.body.len() + edit.attachments.iter().map(attachment).sum::<usize>()
            }
            Edit::Local { body, .. } => body.len(),
        }
    }

    /// The id of a document that is not `_local`.
    pub(super) fn document_id(&self) -> Option<&DocId> {
        match self {
            Edit::Document(edit, _) | Edit::User(edit, ..) => Some(&edit.id),
            Edit::Local { .. } => None,
        }
    }

    /// Makes the edit in a write batch.
    pub(super) fn make(self, writer: &mut Writer) -> Result<DocRev, DocError> {
        match self {
            Edit::Document(edit, stored) => {
                stored.into_iter().for_each(Stored::taken);
                writer.edit(edit).map(DocRev::Tree)
            }
            Edit::User(edit, stored, editor) => {
                // If the check refuses the document, dropping `stored` discards its chunks.
                editor.check(writer, &edit)?;
                stored.into_iter().for_each(Stored::taken);
                writer.edit_user(edit).map(DocRev::Tree)
            }
            Edit::Local { id, rev, deleted: false, body } => {
                writer.put_local(&id, rev, body).map(DocRev::Local)
            }
            Edit::Local { id, deleted: true, .. } => writer.remove_local(&id).map(|()| DocRev::Local(0)),
        }
    }
}

/// The limits on documents; the limit of their size is the setting `max-document-size`.
pub(super) fn limits(call: &Call) -> Limits {
    let document_bytes_max = call.thread.host().settings().integer(Key::MaxDocumentSize) as usize;
    Limits { document_bytes_max, ..Limits::default() }
}

/// The edit that stores `document` under `id`. Uploads attachments larger than [`CHUNK_BYTES`].
pub(super) async fn edit_of(
    call: &Call,
    database: &Arc<Database>,
    id: DocId,
    mut document: NewDocument,
    new_edits: bool,
) -> Result<Edit, Failure> {
    check_id(&id)?;
    if let Some(id) = id.strip_prefix(LOCAL_PREFIX) {
        let rev = document.rev.map(local_rev).transpose()?;
        return Ok(Edit::Local { id: id.into(), rev, deleted: document.deleted, body: document.body });
    }
    let (mut uploads, mut stored) = (Vec::new(), Vec::new());
    for attachment in &mut document.attachments {
        if let Some((uploaded, kept)) = store_large(call, database, attachment).await? {
            uploads.push((attachment.name.clone(), uploaded));
            stored.push(kept);
        }
    }
    let uploaded =
        |name: &str| uploads.iter().find(|(known, _)| known == name).map(|(_, uploaded)| *uploaded);
    Ok(Edit::Document(EditRequest::new(id, document, new_edits, uploaded)?, stored))
}

/// Uploads an attachment larger than [`CHUNK_BYTES`], and turns it into [`NewContent::Follows`].
async fn store_large(
    call: &Call,
    database: &Arc<Database>,
    attachment: &mut NewAttachment,
) -> Result<Option<(Uploaded, Stored)>, Failure> {
    let bytes = match &mut attachment.content {
        NewContent::Inline { bytes, .. } if bytes.len() > CHUNK_BYTES => std::mem::take(bytes),
        NewContent::Inline { .. } | NewContent::Stub { .. } => return Ok(None),
        NewContent::Follows { .. } => {
            return Err(Failure::bad_request("Attachments that follow need a multipart/related body"));
        }
    };
    let mut upload = Upload::new(&call.thread, database);
    upload.push(bytes.into()).await?;
    let (uploaded, stored) = upload.finish_stored().await?;
    let Uploaded { length, digest, .. } = uploaded;
    attachment.content = NewContent::Follows { length, digest: Some(digest) };
    Ok(Some((uploaded, stored)))
}

/// The revision of a document that is not `_local`.
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
