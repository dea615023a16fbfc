//! `EditRequest`: an edit that a client requests, parsed but not yet validated against the database; see
//! [`crate::Writer::edit`].

use std::sync::Arc;

use bytes::Bytes;

use crate::digest::Digest;
use crate::document::BodyHash;
use crate::id::{DocId, UploadId};
use crate::rev_path::RevPath;
use crate::revision::Rev;
use crate::{DocError, DocRev, NewAttachment, NewContent, NewDocument, RevError};

/// A requested edit of one document.
#[derive(Clone, Debug)]
pub struct EditRequest {
    /// The id of the document.
    pub id: DocId,
    /// Its parent, or the path of the new revision.
    pub history: History,
    /// Whether it deletes the document.
    pub deleted: bool,
    /// Minified JSON, without the special members.
    pub body: Bytes,
    /// The hash of the body.
    pub body_hash: BodyHash,
    /// All attachments of the new revision.
    pub attachments: Vec<AttachmentRequest>,
}

/// The place of an edit among the revisions of its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// The edit has this parent, which must be a leaf. `None` is allowed if the document is new, or is
    /// deleted and the edit does not delete it again. The server names the new revision (`new_edits: true`).
    Parent(Option<Rev>),
    /// The sender has named the new revision and its ancestors (`new_edits: false`). A revision that
    /// conflicts becomes a further leaf.
    Path(RevPath),
}

/// An attachment of a requested revision.
#[derive(Clone, Debug)]
pub struct AttachmentRequest {
    /// Its name; unique in the revision.
    pub name: Arc<str>,
    /// The source of its bytes.
    pub source: AttachmentSource,
}

impl AttachmentRequest {
    /// The upload that brought the bytes; `None` if the bytes come from elsewhere.
    pub(crate) fn upload(&self) -> Option<UploadId> {
        match self.source {
            AttachmentSource::Upload { upload, .. } => Some(upload),
            AttachmentSource::Stub | AttachmentSource::Inline { .. } => None,
        }
    }
}

/// The source of an attachment's bytes.
#[derive(Clone, Debug)]
pub enum AttachmentSource {
    /// Kept from the nearest ancestor of the new revision that is a leaf and has an attachment of this name.
    Stub,
    /// Sent inline.
    Inline {
        /// Its media type.
        content_type: Arc<str>,
        /// Its bytes.
        bytes: Bytes,
        /// The digest of the bytes.
        digest: Digest,
        /// The number of the revision that added the attachment, if a replicated revision gives it.
        revpos: Option<u32>,
    },
    /// Uploaded in chunks before.
    Upload {
        /// Its media type.
        content_type: Arc<str>,
        /// The id of the upload.
        upload: UploadId,
        /// Its size in bytes.
        length: u64,
        /// The digest of the bytes.
        digest: Digest,
        /// The number of the revision that added the attachment, if a replicated revision gives it.
        revpos: Option<u32>,
    },
}

impl AttachmentSource {
    /// The digest of the bytes; `None` for a stub, which sends none.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            AttachmentSource::Stub => None,
            AttachmentSource::Inline { digest, .. } | AttachmentSource::Upload { digest, .. } => {
                Some(*digest)
            }
        }
    }
}

/// An attachment that was uploaded apart from its document, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The id of the upload.
    pub upload: UploadId,
    /// The number of bytes sent.
    pub length: u64,
    /// The MD5 of the bytes.
    pub digest: Digest,
}

impl EditRequest {
    /// Makes the edit of a document that was sent as `id`. `uploaded` returns the upload of an attachment
    /// that follows the document, by name.
    ///
    /// # Errors
    /// If `_rev` has the form for `_local` documents, `new_edits` is false without `_rev` or `_revisions`, or
    /// an announced attachment did not follow with the announced length and digest.
    pub fn new(
        id: DocId,
        document: NewDocument,
        new_edits: bool,
        mut uploaded: impl FnMut(&str) -> Option<Uploaded>,
    ) -> Result<EditRequest, DocError> {
        const NAMELESS: DocError = DocError::doc_validation(
            "When `new_edits: false`, the document needs `_rev` or `_revisions` specified",
        );
        let NewDocument { rev, revisions, deleted, attachments, body, body_hash, .. } = document;
        let rev = match rev {
            Some(DocRev::Local(_)) => return Err(RevError.into()),
            Some(DocRev::Tree(rev)) => Some(rev),
            None => None,
        };
        let history = match (new_edits, revisions, rev) {
            (true, _, parent) => History::Parent(parent),
            (false, Some(path), _) => History::Path(path),
            (false, None, Some(rev)) => History::Path(RevPath::of(rev)),
            (false, None, None) => return Err(NAMELESS),
        };
        let attachments = attachments
            .into_iter()
            .map(|attachment| AttachmentRequest::new(attachment, new_edits, &mut uploaded))
            .collect::<Result<_, _>>()?;
        Ok(EditRequest { id, history, deleted, body, body_hash, attachments })
    }
}

impl AttachmentRequest {
    fn new(
        attachment: NewAttachment,
        new_edits: bool,
        uploaded: &mut impl FnMut(&str) -> Option<Uploaded>,
    ) -> Result<AttachmentRequest, DocError> {
        let NewAttachment { name, content_type, revpos, content } = attachment;
        let content_type = content_type.into();
        // With `new_edits`, a new attachment belongs to the revision that the server makes, so the `revpos`
        // of the client is ignored.
        let revpos = revpos.filter(|_| !new_edits);
        let source = match content {
            NewContent::Stub { .. } => AttachmentSource::Stub,
            NewContent::Inline { bytes, digest } => {
                AttachmentSource::Inline { content_type, bytes: bytes.into(), digest, revpos }
            }
            NewContent::Follows { length, digest } => {
                let sent = uploaded(&name).filter(|sent| {
                    sent.length == length && digest.is_none_or(|digest| digest == sent.digest)
                });
                let Some(Uploaded { upload, length, digest }) = sent else {
                    return Err(DocError::BadRequest(format!("Attachment {name} did not follow").into()));
                };
                AttachmentSource::Upload { content_type, upload, length, digest, revpos }
            }
        };
        Ok(AttachmentRequest { name: name.into(), source })
    }
}
