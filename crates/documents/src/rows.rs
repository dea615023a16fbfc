//! The rows of a database's tree file: documents, the feed and `_local` documents on disk.
//!
//! This module defines keys, values and sums; `metadata` has the rest of the file. The format of the trees is
//! in `tree`.
//!
//! # Encoding
//! Numbers and texts are encoded as in [`crate::codec`]; a pointer is 16 bytes ([`tree::Pointer`]), a
//! revision 20 bytes.
//!
//! | tree | key | value |
//! |------|-----|-------|
//! | 0, documents | id | deleted (0 or 1); bytes of bodies, of attachments; update sequence; revisions |
//! | 1, feed | update sequence (u64, big endian) | deleted (0 or 1); id text; count; leaves, winner first |
//! | 2, local | `d`, id of a `_local` document | revision number; 0 and body bytes, or 1 and a pointer |
//! | 2, local | `u`, upload (u64), number of the chunk (u32), both big endian | pointer |
//!
//! Revisions are encoded as in `rev_tree`, with these leaves:
//! ```text
//! deleted (0 or 1), update sequence, pointer to the body, count of attachments, and for each attachment:
//!   name text, type text, revpos, digest (16 bytes), length, count of chunks, pointers to the chunks
//! ```
//!
//! A file keeps four sums for each tree. Over tree 0 they are the fields of [`DocSums`], in order. Over tree
//! 1 the first sum counts rows; over tree 2 the third sum counts bytes of blobs.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tree::{Pointer, Sums, TreeError, TreeId};

use crate::blob::{Blob, Era};
use crate::codec::{Input, put_bytes};
use crate::digest::Digest;
use crate::doc_info::{Attachment, ChangeRow, DocInfo, DocLeaf, DocSums};
use crate::layer::{ChunkKey, LocalDoc};
use crate::rev_tree::{Leaf, RevTree};
use crate::revision::Rev;

/// Documents by id.
pub(crate) const DOCUMENTS: TreeId = TreeId(0);
/// Documents by update sequence.
pub(crate) const FEED: TreeId = TreeId(1);
/// `_local` documents, and chunks of uploads.
pub(crate) const LOCAL: TreeId = TreeId(2);
/// The number of trees in a file.
pub(crate) const TREES: u8 = 3;

/// The first byte of keys of `_local` documents.
const LOCAL_DOC: u8 = b'd';
/// The first byte of keys of chunks.
const CHUNK: u8 = b'u';
/// The lower bound of the chunks in the tree `LOCAL`. All rows from here to the end of the tree are chunks.
pub(crate) const FROM_FIRST_CHUNK: Bound<&[u8]> = Bound::Included(&[CHUNK]);

/// The largest body of a `_local` document that is stored in its row, in bytes.
const INLINE_BYTES_MAX: usize = 1024;
const INLINE: u8 = 0;
const POINTER: u8 = 1;

/// The contribution of a row to the sums of its tree.
pub(crate) fn measure(tree: TreeId, key: &[u8], value: &[u8]) -> Sums {
    let mut input = Input::new(value);
    match tree {
        DOCUMENTS => decode_sums(&mut input).map_or(Sums::default(), |sums| {
            Sums([sums.documents, sums.deleted, sums.body_bytes, sums.attachment_bytes])
        }),
        FEED => Sums([1, 0, 0, 0]),
        _ => {
            let pointer = if key.first() == Some(&CHUNK) {
                decode_pointer(&mut input)
            } else {
                decode_local_body(&mut input).and_then(|(_, body)| body.err())
            };
            Sums([0, 0, pointer.map_or(0, |pointer| pointer.len() as u64), 0])
        }
    }
}

fn decode_sums(input: &mut Input<'_>) -> Option<DocSums> {
    let deleted = u64::from(decode_flag(input)?);
    let (body_bytes, attachment_bytes) = (input.number()?, input.number()?);
    Some(DocSums { documents: 1 - deleted, deleted, body_bytes, attachment_bytes })
}

fn decode_flag(input: &mut Input<'_>) -> Option<bool> {
    match input.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn decode_pointer(input: &mut Input<'_>) -> Option<Pointer> {
    Some(Pointer::decode(&input.array()?))
}

/// Encodes the row of a document. Blobs in memory get zeros in place of a pointer.
pub(crate) fn encode_document(info: &DocInfo) -> Vec<u8> {
    let sums = info.sums();
    let mut out = Vec::with_capacity(96);
    out.push(u8::from(sums.deleted == 1));
    varint::put(&mut out, sums.body_bytes);
    varint::put(&mut out, sums.attachment_bytes);
    varint::put(&mut out, info.seq);
    info.revs.encode(&mut out);
    out
}

/// Decodes the row of a document; `None` if it is malformed or its sums are wrong.
pub(crate) fn decode_document(id: &[u8], value: &[u8]) -> Option<DocInfo> {
    let mut input = Input::new(value);
    let id = std::str::from_utf8(id).ok()?.into();
    let sums = decode_sums(&mut input)?;
    let info = DocInfo { id, seq: input.number()?, revs: RevTree::decode(&mut input)? };
    (input.is_empty() && !info.revs.is_empty() && info.sums() == sums).then_some(info)
}

impl Leaf for DocLeaf {
    fn deleted(&self) -> bool {
        self.deleted
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.deleted));
        varint::put(out, self.seq);
        encode_blob(&self.body, out);
        varint::put(out, self.attachments.len() as u64);
        for attachment in self.attachments.iter() {
            put_bytes(out, attachment.name.as_bytes());
            put_bytes(out, attachment.content_type.as_bytes());
            varint::put(out, u64::from(attachment.revpos));
            out.extend_from_slice(&attachment.digest.0);
            varint::put(out, attachment.length);
            varint::put(out, attachment.chunks.len() as u64);
            attachment.chunks.iter().for_each(|chunk| encode_blob(chunk, out));
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<DocLeaf> {
        let deleted = decode_flag(input)?;
        let (seq, body) = (input.number()?, Blob::Saved(decode_pointer(input)?));
        let count = input.count(21)?;
        let attachments = (0..count).map(|_| decode_attachment(input)).collect::<Option<_>>()?;
        Some(DocLeaf { deleted, seq, attachments, body })
    }
}

/// Encodes the pointer of a blob, or as many zeros if its bytes are in memory, so that the size of a row is
/// known before its blobs are stored.
fn encode_blob(blob: &Blob, out: &mut Vec<u8>) {
    out.extend_from_slice(&blob.pointer().map_or([0; Pointer::ENCODED_BYTES], |pointer| pointer.encode()));
}

fn decode_attachment(input: &mut Input<'_>) -> Option<Attachment> {
    let (name, content_type) = (input.text()?.into(), input.text()?.into());
    let (revpos, digest, length) = (input.number_u32()?, Digest(input.array()?), input.number()?);
    let count = input.count(Pointer::ENCODED_BYTES)?;
    let chunks = (0..count).map(|_| decode_pointer(input).map(Blob::Saved)).collect::<Option<_>>()?;
    Some(Attachment { name, content_type, revpos, digest, length, chunks })
}

pub(crate) fn feed_key(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

/// Encodes the value of a feed row.
pub(crate) fn encode_change(row: &ChangeRow) -> Vec<u8> {
    let mut out = vec![u8::from(row.deleted)];
    put_bytes(&mut out, row.id.as_bytes());
    varint::put(&mut out, row.leaves.len() as u64);
    row.leaves.iter().for_each(|rev| out.extend_from_slice(&rev.to_bytes()));
    out
}

/// Decodes a feed row.
pub(crate) fn decode_change(key: &[u8], value: &[u8]) -> Option<ChangeRow> {
    let seq = u64::from_be_bytes(key.try_into().ok()?);
    let mut input = Input::new(value);
    let deleted = decode_flag(&mut input)?;
    let id = input.text()?.into();
    let count = input.count(Rev::BYTES)?;
    let leaves =
        (0..count).map(|_| Rev::from_bytes(input.take(Rev::BYTES)?)).collect::<Option<SmallVec<_>>>()?;
    input.is_empty().then_some(ChangeRow { seq, id, deleted, leaves })
}

pub(crate) fn local_key(id: &str) -> Vec<u8> {
    [&[LOCAL_DOC], id.as_bytes()].concat()
}

/// Encodes the value of a `_local` document; stores a large body with `put`.
pub(crate) fn encode_local(
    document: &LocalDoc,
    put: &mut impl FnMut(&[u8]) -> Result<Pointer, TreeError>,
) -> Result<Vec<u8>, TreeError> {
    let mut out = Vec::new();
    varint::put(&mut out, document.rev);
    if document.body.len() <= INLINE_BYTES_MAX {
        out.push(INLINE);
        put_bytes(&mut out, &document.body);
    } else {
        out.push(POINTER);
        out.extend_from_slice(&put(&document.body)?.encode());
    }
    Ok(out)
}

/// Decodes the revision of a `_local` document, and its body or the pointer to it.
pub(crate) fn decode_local(value: &[u8]) -> Option<(u64, Result<Bytes, Pointer>)> {
    let mut input = Input::new(value);
    let (rev, body) = decode_local_body(&mut input)?;
    input.is_empty().then_some((rev, body.map(Bytes::copy_from_slice)))
}

fn decode_local_body<'a>(input: &mut Input<'a>) -> Option<(u64, Result<&'a [u8], Pointer>)> {
    let rev = input.number()?;
    let body = match input.byte()? {
        INLINE => Ok(input.bytes()?),
        POINTER => Err(decode_pointer(input)?),
        _ => return None,
    };
    Some((rev, body))
}

pub(crate) fn chunk_key((upload, number): ChunkKey) -> Vec<u8> {
    [&[CHUNK][..], &upload.0.to_be_bytes(), &number.to_be_bytes()].concat()
}

/// Decodes the value of a chunk: the pointer to its bytes.
pub(crate) fn decode_chunk(value: &[u8]) -> Option<Pointer> {
    value.try_into().ok().map(Pointer::decode)
}

/// A row of the tree `LOCAL`, after `move_blob` has moved the row's blob, if it has one. `None` if the row is
/// malformed.
pub(crate) fn moved_local(
    key: &[u8],
    value: &[u8],
    move_blob: &mut impl FnMut(Pointer) -> Result<Pointer, TreeError>,
) -> Result<Option<Vec<u8>>, TreeError> {
    let is_chunk = key.first() == Some(&CHUNK);
    let pointer = if is_chunk {
        decode_chunk(value)
    } else {
        match decode_local(value) {
            None => return Ok(None),
            Some((_, Ok(_))) => return Ok(Some(value.to_vec())),
            Some((_, Err(pointer))) => Some(pointer),
        }
    };
    let Some(pointer) = pointer else { return Ok(None) };
    let mut moved = value[..value.len() - Pointer::ENCODED_BYTES].to_vec();
    moved.extend_from_slice(&move_blob(pointer)?.encode());
    Ok(Some(moved))
}

/// The pointer of a chunk row; `None` for other rows.
pub(crate) fn chunk_of_row(key: &[u8], value: &[u8]) -> Option<Pointer> {
    if key.first() == Some(&CHUNK) { decode_chunk(value) } else { None }
}

impl DocInfo {
    /// The size of the document's row in bytes. Bodies and attachments are stored outside the row.
    pub(crate) fn stored_bytes(&self) -> usize {
        encode_document(self).len()
    }

    /// The document with all its blobs stored in the file of `era`.
    pub(crate) fn saved(
        &self,
        era: Era,
        put: &mut impl FnMut(&[u8]) -> Result<Pointer, TreeError>,
    ) -> Result<DocInfo, TreeError> {
        self.with_blobs(&mut |blob| blob.saved(era, put).map(Blob::Saved))
    }

    /// The document with each blob replaced by the result of `exchange`.
    pub(crate) fn with_blobs<E>(
        &self,
        exchange: &mut impl FnMut(&Blob) -> Result<Blob, E>,
    ) -> Result<DocInfo, E> {
        let mut info = self.clone();
        for (_, leaf) in info.revs.leaves_mut() {
            leaf.body = exchange(&leaf.body)?;
            if leaf.attachments.is_empty() {
                continue;
            }
            let exchanged = leaf.attachments.iter().map(|attachment| {
                let chunks = attachment.chunks.iter().map(&mut *exchange).collect::<Result<_, _>>()?;
                Ok(Attachment { chunks, ..attachment.clone() })
            });
            leaf.attachments = exchanged.collect::<Result<Arc<[Attachment]>, E>>()?;
        }
        Ok(info)
    }

    /// All blobs of the document, in an order that does not depend on their pointers.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Blob> {
        self.revs.leaves().flat_map(|(_, leaf)| {
            let chunks = leaf.attachments.iter().flat_map(|attachment| attachment.chunks.iter());
            std::iter::once(&leaf.body).chain(chunks)
        })
    }
}
