//! `EditRequest`: what a client wants a document to be.
//!
//! What it is: a parsed request. What it is not: decided; see [`crate::Writer::edit`].

use std::sync::Arc;

use bytes::Bytes;

use crate::attachment::Digest;
use crate::document::BodyHash;
use crate::id::{DocId, UploadId};
use crate::rev_path::RevPath;
use crate::revision::Rev;
use crate::{DocError, DocRev, NewAttachment, NewContent, NewDocument, RevError};

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct EditRequest {
    /// The document.
    pub id: DocId,
    /// What it is based on.
    pub history: History,
    /// Whether it deletes the document.
    pub deleted: bool,
    /// Minified JSON, without the members that begin with an underscore.
    pub body: Bytes,
    /// Of the body.
    pub body_hash: BodyHash,
    /// All attachments that the revision is to have.
    pub attachments: Vec<AttachmentRequest>,
}

/// What an edit is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// A leaf, or nothing: the revision gets its name here, and is refused if there is another leaf (`new_edits: true`).
    Parent(Option<Rev>),
    /// It has a name and ancestors, and becomes a leaf beside others if it has to (`new_edits: false`).
    Path(RevPath),
}

/// An attachment that a revision is to have.
#[derive(Clone, Debug)]
pub struct AttachmentRequest {
    /// What it is called.
    pub name: Arc<str>,
    /// Where it comes from.
    pub source: AttachmentSource,
}

/// Where a new attachment comes from.
#[derive(Clone, Debug)]
pub enum AttachmentSource {
    /// The revision that the edit is based on has it.
    Stub,
    /// It is here.
    Inline {
        /// Its media type.
        content_type: Arc<str>,
        /// Its bytes.
        bytes: Bytes,
        /// Of them.
        digest: Digest,
        /// The number of the revision that brought it, where a replicated revision says so.
        revpos: Option<u32>,
    },
    /// It was sent in chunks.
    Upload {
        /// Its media type.
        content_type: Arc<str>,
        /// Which upload.
        upload: UploadId,
        /// How many bytes it has.
        length: u64,
        /// Of them.
        digest: Digest,
        /// The number of the revision that brought it, where a replicated revision says so.
        revpos: Option<u32>,
    },
}

/// An attachment that was sent apart from its document, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Which upload.
    pub upload: UploadId,
    /// How many bytes were sent.
    pub length: u64,
    /// MD5 of them.
    pub digest: Digest,
}

impl EditRequest {
    /// The edit that a document asks for which was sent as `id`. `uploaded` tells of the attachments that follow it.
    ///
    /// # Errors
    /// If it says too little, or an attachment did not follow.
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
        // What is new comes with the revision that is made, whatever the client says.
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
