//! `NewDocument`: a document as a client sends it, validated and split into special members and content.
//!
//! The module reads a JSON object once. Special members, which begin with an underscore, describe the edit;
//! all others, and those of the replicator, are the body, kept as text without white space, in the order
//! given. [`crate::Writer`] checks whether the edit's parent exists; `view` renders documents.
//!
//! The hash of an edit is the first half (16 bytes) of the BLAKE3 of:
//! ```text
//! 1 byte    1 if the edit deletes the document, else 0
//! 20 bytes  the parent, encoded as in `revision`; zeros if there is none
//! 32 bytes  the BLAKE3 of the body
//! for each attachment, in the order of names:
//!   u32, text  the length of its name, little-endian, and the name
//!   u32, text  the length of its type, little-endian, and the type
//!   16 bytes   the digest of its bytes
//! ```
//! So the same edit makes the same revision on every node. (CouchDB uses MD5, which is slower, over other
//! bytes, so its revisions differ.)

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::attachment::{self, NewAttachment};
use crate::digest::Digest;
use crate::id::DocId;
use crate::json::{Kind, Reader};
use crate::limits::Limits;
use crate::names::check_id;
use crate::{DocError, Rev, RevError, RevPath};

/// Members that begin with an underscore but belong to the body; CouchDB's replicator writes them.
const KEPT: [&str; 5] = [
    "_replication_id",
    "_replication_state",
    "_replication_state_reason",
    "_replication_state_time",
    "_replication_stats",
];
/// Members of replies that are ignored in requests.
const DROPPED: [&str; 4] = ["_conflicts", "_deleted_conflicts", "_local_seq", "_revs_info"];

/// The `_rev` of a document: a revision of a tree, or `0-N` of a `_local` document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocRev {
    /// A revision of a tree.
    Tree(Rev),
    /// The N of `0-N`, the revision of a `_local` document.
    Local(u64),
}

impl std::str::FromStr for DocRev {
    type Err = RevError;

    fn from_str(text: &str) -> Result<DocRev, RevError> {
        match text.strip_prefix("0-") {
            Some(count) if count.bytes().all(|digit| digit.is_ascii_digit()) => {
                count.parse().map(DocRev::Local).map_err(|_| RevError)
            }
            _ => text.parse().map(DocRev::Tree),
        }
    }
}

impl fmt::Display for DocRev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocRev::Tree(rev) => rev.fmt(f),
            DocRev::Local(count) => write!(f, "0-{count}"),
        }
    }
}

/// A document that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// Its `_id`, if it has one.
    pub id: Option<DocId>,
    /// The newest revision of `revisions`; without `revisions`, its `_rev`.
    pub rev: Option<DocRev>,
    /// Its `_revisions`, if they list any revision.
    pub revisions: Option<RevPath>,
    /// Its `_deleted`.
    pub deleted: bool,
    /// Its `_attachments`, sorted by name.
    pub attachments: Vec<NewAttachment>,
    /// Its body: the text of an object, without white space.
    pub body: Bytes,
    /// The hash of the body.
    pub body_hash: BodyHash,
}

/// A document that breaks a rule for documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDocument {
    /// The JSON text of the `_id` as it was sent, if it is a string; not checked otherwise.
    pub id: Option<String>,
    /// The JSON text of the `_rev` as it was sent, if it is a string.
    pub rev: Option<String>,
    /// The error that names the broken rule.
    pub error: DocError,
}

impl RefusedDocument {
    fn of(text: &str, error: DocError) -> Result<RefusedDocument, DocError> {
        let mut refused = RefusedDocument { id: None, rev: None, error };
        Reader::of_stored(text).raw_members(|key, value| match key {
            "\"_id\"" if value.starts_with('"') => refused.id = Some(value.to_owned()),
            "\"_rev\"" if value.starts_with('"') => refused.rev = Some(value.to_owned()),
            _ => {}
        })?;
        Ok(refused)
    }
}

const NO_OBJECT: DocError = DocError::bad_request("Document must be a JSON object");

/// The BLAKE3 of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyHash([u8; 32]);

impl BodyHash {
    /// The hash of a body.
    pub fn of(body: &[u8]) -> BodyHash {
        BodyHash(*blake3::hash(body).as_bytes())
    }
}

impl NewDocument {
    /// Reads a text that is one document.
    pub fn parse(text: &[u8], limits: &Limits) -> Result<NewDocument, DocError> {
        let mut reader = Reader::new(text)?;
        let document = NewDocument::read(&mut reader, limits, &mut Vec::new())?;
        reader.end()?;
        Ok(document)
    }

    /// Reads one of many documents in a text. A document that breaks a rule is skipped as a whole.
    ///
    /// # Errors
    /// If the text is not JSON, or the next value is no object.
    pub fn read_or_skip(
        reader: &mut Reader<'_>,
        limits: &Limits,
        memory: &mut Vec<u8>,
    ) -> Result<Result<NewDocument, RefusedDocument>, DocError> {
        if reader.peek()? != Kind::Object {
            return Err(NO_OBJECT);
        }
        let mut again = reader.clone();
        match NewDocument::read(reader, limits, memory) {
            Ok(document) => Ok(Ok(document)),
            Err(error) => {
                let text = again.raw_of_any()?;
                *reader = again;
                Ok(Err(RefusedDocument::of(text, error)?))
            }
        }
    }

    /// Reads a document within a text. `memory` is a buffer for the body; a caller that reads many documents
    /// reuses it.
    pub fn read(
        reader: &mut Reader<'_>,
        limits: &Limits,
        memory: &mut Vec<u8>,
    ) -> Result<NewDocument, DocError> {
        if reader.peek()? != Kind::Object {
            return Err(NO_OBJECT);
        }
        memory.clear();
        memory.push(b'{');
        let mut members = Members::of(memory);
        reader
            .with_depth_of_its_own(|reader| reader.object(|reader, key| members.read(reader, key, limits)))?;
        members.body.push(b'}');
        if members.body.len() > limits.document_bytes_max {
            return Err(DocError::DocumentTooLarge(members.id.as_deref().unwrap_or_default().to_owned()));
        }
        members.check_keys()?;
        let Members { id, rev, revisions, deleted, attachments, body, .. } = members;
        Ok(NewDocument {
            id,
            rev: revisions.as_ref().map(|path| DocRev::Tree(path.newest())).or(rev),
            revisions,
            deleted,
            attachments,
            body_hash: BodyHash::of(body),
            body: Bytes::copy_from_slice(body),
        })
    }

    /// A deletion without content.
    pub fn deletion(id: DocId, rev: Option<DocRev>) -> NewDocument {
        let body = Bytes::from_static(b"{}");
        NewDocument {
            id: Some(id),
            rev,
            revisions: None,
            deleted: true,
            attachments: Vec::new(),
            body_hash: BodyHash::of(&body),
            body,
        }
    }
}

/// The hash of an edit, and so of the revision that the edit makes; the module documentation defines it.
/// `attachments` (name, type, digest) must be in the order of names.
pub fn edit_hash<'a>(
    deleted: bool,
    parent: Option<Rev>,
    body: BodyHash,
    attachments: impl Iterator<Item = (&'a str, &'a str, Digest)>,
) -> [u8; 16] {
    let mut hashed: SmallVec<[u8; 64]> = SmallVec::new();
    hashed.push(u8::from(deleted));
    hashed.extend_from_slice(&parent.map_or([0; Rev::BYTES], Rev::to_bytes));
    hashed.extend_from_slice(&body.0);
    for (name, content_type, digest) in attachments {
        for text in [name, content_type] {
            hashed.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            hashed.extend_from_slice(text.as_bytes());
        }
        hashed.extend_from_slice(&digest.0);
    }
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(&hashed).as_bytes()[..16]);
    hash
}

/// The members read so far.
struct Members<'a, 'm> {
    id: Option<DocId>,
    rev: Option<DocRev>,
    revisions: Option<RevPath>,
    deleted: bool,
    attachments: Vec<NewAttachment>,
    body: &'m mut Vec<u8>,
    /// All keys, to detect duplicates.
    keys: SmallVec<[Cow<'a, str>; 8]>,
}

impl<'a, 'm> Members<'a, 'm> {
    fn of(body: &'m mut Vec<u8>) -> Members<'a, 'm> {
        Members {
            id: None,
            rev: None,
            revisions: None,
            deleted: false,
            attachments: Vec::new(),
            body,
            keys: SmallVec::new(),
        }
    }

    fn read(&mut self, reader: &mut Reader<'a>, key: Cow<'a, str>, limits: &Limits) -> Result<(), DocError> {
        let done = self.read_member(reader, &key, limits);
        self.keys.push(key);
        done
    }

    fn read_member(&mut self, reader: &mut Reader<'a>, key: &str, limits: &Limits) -> Result<(), DocError> {
        if !key.starts_with('_') || KEPT.contains(&key) {
            return self.read_content(reader, key, limits);
        }
        match (key, reader.peek()?) {
            ("_id", Kind::String) => {
                let id = reader.string()?;
                check_id(&id)?;
                self.id = Some(DocId::from(&*id));
            }
            ("_id", _) => return Err(DocError::IllegalDocId("Document id must be a string")),
            ("_rev", Kind::String) => self.rev = Some(reader.string()?.parse()?),
            ("_rev", _) => return Err(RevError.into()),
            ("_deleted", Kind::Bool) => self.deleted = reader.boolean()?,
            ("_revisions", Kind::Object) => self.revisions = read_revisions(reader)?,
            ("_attachments", Kind::Object) => self.attachments = attachment::read(reader, limits)?,
            _ if DROPPED.contains(&key) => reader.raw().map(drop)?,
            _ => return Err(DocError::DocValidation(format!("Bad special document member: {key}").into())),
        }
        Ok(())
    }

    fn read_content(&mut self, reader: &mut Reader<'_>, key: &str, limits: &Limits) -> Result<(), DocError> {
        if self.body.len() > 1 {
            self.body.push(b',');
        }
        crate::json::put_string(self.body, key);
        self.body.push(b':');
        // No further member is copied if the body is too large. The error has no id if `_id` has not been
        // read yet.
        if self.body.len() > limits.document_bytes_max {
            return Err(DocError::DocumentTooLarge(self.id.as_deref().unwrap_or_default().to_owned()));
        }
        Ok(reader.copy(self.body)?)
    }

    fn check_keys(&mut self) -> Result<(), DocError> {
        self.keys.sort_unstable();
        match self.keys.array_windows().find(|[a, b]| a == b) {
            Some([twice, _]) => {
                Err(DocError::DocValidation(format!("Duplicate document member: {twice}").into()))
            }
            None => Ok(()),
        }
    }
}

fn read_revisions(reader: &mut Reader<'_>) -> Result<Option<RevPath>, DocError> {
    const START: DocError = DocError::doc_validation("_revisions.start isn't an integer.");
    const IDS: DocError = DocError::doc_validation("_revisions.ids isn't a array.");
    let (mut start, mut ids) = (None, None);
    reader.object::<DocError>(|reader, key| {
        match (&*key, reader.peek()?) {
            ("start", Kind::Number) => start = reader.raw()?.parse::<u32>().ok(),
            ("ids", Kind::Array) => ids = Some(read_hashes(reader)?),
            _ => reader.raw().map(drop)?,
        }
        Ok(())
    })?;
    let (start, ids) = (start.ok_or(START)?, ids.ok_or(IDS)?);
    if ids.is_empty() {
        return Ok(None);
    }
    let path = RevPath::new(start, ids);
    path.map(Some).ok_or(DocError::doc_validation("_revisions.ids has more revisions than _revisions.start"))
}

fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<[u8; 16]>, DocError> {
    let mut hashes = Vec::new();
    reader.array::<DocError>(|reader| {
        if reader.peek()? != Kind::String {
            return Err(DocError::doc_validation("RevId isn't a string"));
        }
        let hash = crate::revision::parse_hash(&reader.string()?);
        hashes.push(hash.ok_or(DocError::doc_validation("RevId isn't a valid hexadecimal"))?);
        Ok(())
    })?;
    Ok(hashes)
}

#[cfg(test)]
mod tests;
