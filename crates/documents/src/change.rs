//! `Change`: a change of one database, or of the list of databases, as a record of the log holds it.
//!
//! Documents change in no other way. A change is made under the lock of its database or of the catalog, after
//! the request has been validated. The same change has the same effect live, in recovery and on replicas. A
//! change in the log can always be applied, unless files or the log are damaged, or a file cannot be read.
//!
//! Invariants
//! - Decoding arbitrary bytes never panics, and allocates no more than the size of the input justifies. Every
//!   change has exactly one encoding.
//!
//! # Encoding
//! Numbers are LEB128, `bytes` and `text` have their length before them ([`crate::codec`]), `db` is a u64,
//! little endian. A hash is 16 bytes, a revision 20 ([`Rev::to_bytes`]). A change is one of
//!
//! | opcode | change | fields |
//! |--------|--------|--------|
//! | 0x01 | Create | name text; the id of the database is the LSN of its record |
//! | 0x02 | Delete | db |
//! | 0x03 | Update | db, update sequence before it (number), operations up to the end |
//!
//! and an operation is one of
//!
//! | opcode | operation | fields |
//! |--------|-----------|--------|
//! | 0x10 | Edit | id text, flags (bit 0: deleted), path, body bytes, count of attachments, attachments |
//! | 0x11 | PutLocal | id text, revision number, body bytes |
//! | 0x12 | RemoveLocal | id text |
//! | 0x13 | Purge | id text, count, that many revisions |
//! | 0x14 | SetSecurity | bytes |
//! | 0x15 | SetRevsLimit | number |
//! | 0x16 | Chunk | upload number, bytes |
//! | 0x17 | Discard | first number of a range of uploads, first number after it |
//!
//! ```text
//! path        number of the newest revision, count (at least 1), that many hashes, newest first
//! attachment  name text, type text, revpos number, digest (16 bytes), length number, source
//! source      0, bytes    the bytes of the attachment
//!             1, number   n: the attachment has the bytes of the attachment of the same name in the revision
//!                         that is n steps before the newest one of the path
//!             2, number   of the upload that brought the bytes
//! ```

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{Input, put_bytes};
use crate::digest::Digest;
use crate::id::{DbId, DocId, UploadId};
use crate::rev_path::RevPath;
use crate::revision::Rev;

const CREATE: u8 = 0x01;
const DELETE: u8 = 0x02;
const UPDATE: u8 = 0x03;

const EDIT: u8 = 0x10;
const PUT_LOCAL: u8 = 0x11;
const REMOVE_LOCAL: u8 = 0x12;
const PURGE: u8 = 0x13;
const SET_SECURITY: u8 = 0x14;
const SET_REVS_LIMIT: u8 = 0x15;
const CHUNK: u8 = 0x16;
const DISCARD: u8 = 0x17;

const FLAG_DELETED: u8 = 1;

const INLINE: u8 = 0;
const KEPT: u8 = 1;
const UPLOADED: u8 = 2;

/// No attachment in an edit has a shorter encoding than this, in bytes.
const ATTACHMENT_BYTES_MIN: usize = 21;

/// The error of decoding bytes that are not a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed change of documents")]
pub struct ChangeError;

/// A decoded change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Creates a database; its id is the LSN of the record.
    Create {
        /// Its name.
        name: &'a str,
    },
    /// Deletes a database.
    Delete {
        /// Its id.
        db: DbId,
    },
    /// Changes a database.
    Update {
        /// Its id.
        db: DbId,
        /// Its update sequence before the change.
        since_seq: u64,
        /// The operations, in order.
        operations: Operations<'a>,
    },
}

/// The operations of an update: an iterator that decodes one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations<'a> {
    rest: &'a [u8],
}

/// One operation of an update; the module documentation has the encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds a revision, and those ancestors in its path that the database does not know.
    Edit(Edit),
    /// Creates or replaces a `_local` document.
    PutLocal {
        /// Its id, without the prefix.
        id: DocId,
        /// The N of its revision `0-N`.
        rev: u64,
        /// Minified JSON.
        body: Bytes,
    },
    /// Removes a `_local` document.
    RemoveLocal {
        /// Its id, without the prefix.
        id: DocId,
    },
    /// Removes leaves, with the ancestors that no other leaf has. Without leaves, the document is removed.
    Purge {
        /// The id of the document.
        id: DocId,
        /// The leaves.
        revs: Vec<Rev>,
    },
    /// Replaces the security object.
    SetSecurity(Bytes),
    /// Sets the number of revisions that a branch keeps.
    SetRevsLimit(u32),
    /// Adds bytes to an attachment that is uploaded in chunks; a later edit refers to it.
    Chunk {
        /// The id of the upload; an unknown id begins a new upload.
        upload: UploadId,
        /// The next bytes; empty if the operation only begins the upload.
        bytes: Bytes,
    },
    /// Discards the unfinished uploads in a range of ids.
    Discard {
        /// The first id of the range.
        from: UploadId,
        /// The first id after the range.
        to: UploadId,
    },
}

/// A new revision. See [`Operation::Edit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The id of the document.
    pub id: DocId,
    /// Whether the revision deletes it.
    pub deleted: bool,
    /// The revision and ancestors of it, known to the database or not.
    pub path: RevPath,
    /// Minified JSON.
    pub body: Bytes,
    /// All attachments of the revision.
    pub attachments: Vec<EditAttachment>,
}

/// An attachment of a new revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditAttachment {
    /// Its name; unique in the revision.
    pub name: Arc<str>,
    /// Its media type.
    pub content_type: Arc<str>,
    /// The number of the revision that added it.
    pub revpos: u32,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub length: u64,
    /// The location of the attachment's bytes.
    pub source: Source,
}

/// The location of the bytes of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the change itself.
    Inline(Bytes),
    /// The bytes of the attachment of the same name in the revision that is this many steps before the newest
    /// one of the path.
    Kept(usize),
    /// In the chunks of an upload, from earlier changes.
    Upload(UploadId),
}

impl<'a> Change<'a> {
    /// Decodes the output of [`encode_create`], [`encode_delete`] or [`UpdateEncoder`]. The operations of an
    /// update are decoded only when they are iterated over.
    ///
    /// # Errors
    /// If the bytes are not a change.
    pub fn decode(bytes: &'a [u8]) -> Result<Change<'a>, ChangeError> {
        decode_change(bytes).ok_or(ChangeError)
    }
}

fn decode_change(bytes: &[u8]) -> Option<Change<'_>> {
    let mut input = Input::new(bytes);
    let change = match input.byte()? {
        CREATE => Change::Create { name: input.text()? },
        DELETE => Change::Delete { db: decode_db(&mut input)? },
        UPDATE => {
            let (db, since_seq) = (decode_db(&mut input)?, input.number()?);
            return Some(Change::Update { db, since_seq, operations: Operations { rest: input.rest() } });
        }
        _ => return None,
    };
    input.is_empty().then_some(change)
}

fn decode_db(input: &mut Input<'_>) -> Option<DbId> {
    Some(DbId::new(lsn::Lsn::new(u64::from_le_bytes(input.array()?))))
}

/// Encodes the creation of a database.
pub fn encode_create(name: &str) -> Vec<u8> {
    let mut out = vec![CREATE];
    put_bytes(&mut out, name.as_bytes());
    out
}

/// Encodes the deletion of a database.
pub fn encode_delete(db: DbId) -> Vec<u8> {
    let mut out = vec![DELETE];
    out.extend_from_slice(&db.get().to_le_bytes());
    out
}

/// Encodes the operations of an update.
#[derive(Debug)]
pub struct UpdateEncoder {
    bytes: Vec<u8>,
    head_bytes: usize,
}

impl UpdateEncoder {
    /// Begins an update of `db`, whose current update sequence is `since_seq`.
    pub fn new(db: DbId, since_seq: u64) -> UpdateEncoder {
        UpdateEncoder::within(Vec::new(), db, since_seq)
    }

    /// As [`UpdateEncoder::new`], reusing the memory of `bytes`; its contents are discarded.
    pub fn within(mut bytes: Vec<u8>, db: DbId, since_seq: u64) -> UpdateEncoder {
        bytes.clear();
        bytes.push(UPDATE);
        bytes.extend_from_slice(&db.get().to_le_bytes());
        varint::put(&mut bytes, since_seq);
        UpdateEncoder { head_bytes: bytes.len(), bytes }
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: &Operation) {
        operation.encode_into(&mut self.bytes);
    }

    /// Adds an edit.
    pub fn push_edit(&mut self, edit: &Edit) {
        edit.encode_into(&mut self.bytes);
    }

    /// Whether no operation was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == self.head_bytes
    }

    /// The encoded change.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

impl Iterator for Operations<'_> {
    type Item = Result<Operation, ChangeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut input = Input::new(self.rest);
        let operation = decode_operation(&mut input).ok_or(ChangeError);
        // An operation of unknown length cannot be skipped: iteration ends after the error.
        self.rest = if operation.is_ok() { input.rest() } else { &[] };
        Some(operation)
    }
}

fn decode_operation(input: &mut Input<'_>) -> Option<Operation> {
    Some(match input.byte()? {
        EDIT => Operation::Edit(decode_edit(input)?),
        PUT_LOCAL => {
            let (id, rev) = (input.text()?.into(), input.number()?);
            Operation::PutLocal { id, rev, body: copied(input.bytes()?) }
        }
        REMOVE_LOCAL => Operation::RemoveLocal { id: input.text()?.into() },
        PURGE => {
            let id = input.text()?.into();
            let count = input.count(Rev::BYTES)?;
            let revs = (0..count).map(|_| Rev::from_bytes(input.take(Rev::BYTES)?)).collect::<Option<_>>()?;
            Operation::Purge { id, revs }
        }
        SET_SECURITY => Operation::SetSecurity(copied(input.bytes()?)),
        SET_REVS_LIMIT => Operation::SetRevsLimit(input.number_u32()?),
        CHUNK => {
            let upload = UploadId(input.number()?);
            Operation::Chunk { upload, bytes: copied(input.bytes()?) }
        }
        DISCARD => Operation::Discard { from: UploadId(input.number()?), to: UploadId(input.number()?) },
        _ => return None,
    })
}

fn decode_edit(input: &mut Input<'_>) -> Option<Edit> {
    let id = input.text()?.into();
    let flags = input.byte()?;
    if flags & !FLAG_DELETED != 0 {
        return None;
    }
    let path = decode_path(input)?;
    let body = copied(input.bytes()?);
    let count = input.count(ATTACHMENT_BYTES_MIN)?;
    let attachments = (0..count).map(|_| decode_attachment(input, &path)).collect::<Option<_>>()?;
    Some(Edit { id, deleted: flags & FLAG_DELETED != 0, path, body, attachments })
}

fn decode_path(input: &mut Input<'_>) -> Option<RevPath> {
    let newest = input.number_u32()?;
    let count = input.count(16)?;
    let hashes = (0..count).map(|_| input.array()).collect::<Option<_>>()?;
    RevPath::new(newest, hashes)
}

fn decode_attachment(input: &mut Input<'_>, path: &RevPath) -> Option<EditAttachment> {
    let (name, content_type) = (input.text()?.into(), input.text()?.into());
    let (revpos, digest, length) = (input.number_u32()?, Digest(input.array()?), input.number()?);
    let source = match input.byte()? {
        INLINE => {
            let bytes = copied(input.bytes()?);
            if bytes.len() as u64 != length {
                return None;
            }
            Source::Inline(bytes)
        }
        KEPT => {
            let back = usize::try_from(input.number()?).ok()?;
            if back >= path.count() {
                return None;
            }
            Source::Kept(back)
        }
        UPLOADED => Source::Upload(UploadId(input.number()?)),
        _ => return None,
    };
    Some(EditAttachment { name, content_type, revpos, digest, length, source })
}

fn copied(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

impl Operation {
    fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Edit(edit) => edit.encode_into(out),
            Operation::PutLocal { id, rev, body } => {
                out.push(PUT_LOCAL);
                put_bytes(out, id.as_bytes());
                varint::put(out, *rev);
                put_bytes(out, body);
            }
            Operation::RemoveLocal { id } => {
                out.push(REMOVE_LOCAL);
                put_bytes(out, id.as_bytes());
            }
            Operation::Purge { id, revs } => {
                out.push(PURGE);
                put_bytes(out, id.as_bytes());
                varint::put(out, revs.len() as u64);
                revs.iter().for_each(|rev| out.extend_from_slice(&rev.to_bytes()));
            }
            Operation::SetSecurity(security) => {
                out.push(SET_SECURITY);
                put_bytes(out, security);
            }
            Operation::SetRevsLimit(limit) => {
                out.push(SET_REVS_LIMIT);
                varint::put(out, u64::from(*limit));
            }
            Operation::Chunk { upload, bytes } => {
                out.push(CHUNK);
                varint::put(out, upload.0);
                put_bytes(out, bytes);
            }
            Operation::Discard { from, to } => {
                out.push(DISCARD);
                varint::put(out, from.0);
                varint::put(out, to.0);
            }
        }
    }
}

impl Edit {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(EDIT);
        put_bytes(out, self.id.as_bytes());
        out.push(if self.deleted { FLAG_DELETED } else { 0 });
        varint::put(out, u64::from(self.path.newest().number()));
        varint::put(out, self.path.count() as u64);
        self.path.revs().for_each(|rev| out.extend_from_slice(&rev.hash()));
        put_bytes(out, &self.body);
        varint::put(out, self.attachments.len() as u64);
        self.attachments.iter().for_each(|attachment| attachment.encode_into(out));
    }
}

impl EditAttachment {
    fn encode_into(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.content_type.as_bytes());
        varint::put(out, u64::from(self.revpos));
        out.extend_from_slice(&self.digest.0);
        varint::put(out, self.length);
        match &self.source {
            Source::Inline(bytes) => {
                out.push(INLINE);
                put_bytes(out, bytes);
            }
            Source::Kept(back) => {
                out.push(KEPT);
                varint::put(out, *back as u64);
            }
            Source::Upload(upload) => {
                out.push(UPLOADED);
                varint::put(out, upload.0);
            }
        }
    }
}

/// For the fuzz target: decodes arbitrary bytes, and encodes the result again. Returns whether they decode.
///
/// # Panics
/// If the encoding differs from the input.
#[doc(hidden)]
pub fn check_round_trip(bytes: &[u8]) -> bool {
    let again = match Change::decode(bytes) {
        Err(ChangeError) => return false,
        Ok(Change::Create { name }) => encode_create(name),
        Ok(Change::Delete { db }) => encode_delete(db),
        Ok(Change::Update { db, since_seq, operations }) => {
            let mut encoder = UpdateEncoder::new(db, since_seq);
            for operation in operations {
                let Ok(operation) = operation else { return false };
                encoder.push(&operation);
            }
            encoder.finish()
        }
    };
    assert_eq!(again, bytes, "a second encoding");
    true
}

#[cfg(test)]
mod tests;
