//! `Layer`: what of a database is newer than its tree file.
//!
//! ```text
//! fresh    takes all changes           a row of a layer hides those of the layers below with the same key;
//! frozen   is being written            one that says that there is nothing hides them too
//! tree     is on disk
//! ```
//!
//! What it is: immutable maps, so that a snapshot is a copy of their roots.
//! What it is not: durable. The log has everything that is in a layer.
//!
//! Invariants
//! - Rows of `by_seq` are behind `base_seq`, and those of the layers below are not: feeds are read one layer after the other.
//! - `hidden_seqs` are rows of layers below that are in the feed no more.

use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};

use crate::blob::Blob;
use crate::by_id::ById;
use crate::doc_info::DocInfo;
use crate::id::{DocId, UploadId};

/// What an entry of a layer takes beside its bytes, roughly: nodes of three maps. Each revision that is known takes 16 more.
const ENTRY_BYTES: u64 = 400;

/// A `_local` document.
#[derive(Clone, Debug)]
pub struct LocalDoc {
    /// The N of its revision `0-N`.
    pub rev: u64,
    /// Minified JSON.
    pub body: Bytes,
}

/// A part of an attachment that is being sent: of which upload, and its number.
pub(crate) type ChunkKey = (UploadId, u32);

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    pub(crate) by_id: ById,
    pub(crate) by_seq: OrdMap<u64, Arc<DocInfo>>,
    pub(crate) hidden_seqs: OrdSet<u64>,
    pub(crate) local: OrdMap<DocId, Option<Arc<LocalDoc>>>,
    pub(crate) chunks: OrdMap<ChunkKey, Option<Blob>>,
    /// The update sequence when the layer began.
    pub(crate) base_seq: u64,
    /// Roughly what it takes in memory.
    pub(crate) bytes: u64,
}

impl Layer {
    /// An empty layer behind `base_seq`.
    pub(crate) fn new(base_seq: u64) -> Layer {
        Layer { base_seq, ..Layer::default() }
    }

    /// Moves a document in the feed, from `old_seq` to where it is now.
    pub(crate) fn put_document(&mut self, old_seq: Option<u64>, info: Arc<DocInfo>, new_bytes: u64) {
        if let Some(seq) = old_seq {
            self.leave_feed(seq);
        }
        self.bytes += ENTRY_BYTES + 16 * info.revs.count() as u64 + new_bytes;
        self.by_seq.insert(info.seq, info.clone());
        self.by_id.put(info);
    }

    /// Exchanges a document for one that differs only in where its bytes are.
    pub(crate) fn replace_document(&mut self, info: Arc<DocInfo>) {
        self.by_seq.insert(info.seq, info.clone());
        self.by_id.put(info);
    }

    /// Takes a document away.
    pub(crate) fn remove_document(&mut self, info: &DocInfo) {
        self.leave_feed(info.seq);
        self.bytes += ENTRY_BYTES;
        self.by_id.hide(info.id.clone());
    }

    /// Puts a `_local` document in its place, or takes it away.
    pub(crate) fn put_local(&mut self, id: DocId, document: Option<LocalDoc>) {
        self.bytes += ENTRY_BYTES + document.as_ref().map_or(0, |document| document.body.len() as u64);
        self.local.insert(id, document.map(Arc::new));
    }

    /// Puts a part of an upload in its place, or takes it away.
    pub(crate) fn put_chunk(&mut self, key: ChunkKey, chunk: Option<Blob>) {
        self.bytes += ENTRY_BYTES + chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        self.chunks.insert(key, chunk);
    }

    /// Whether the layers below have a row of the feed that this one hides.
    pub(crate) fn hides(&self, seq: u64) -> bool {
        !self.hidden_seqs.is_empty() && self.hidden_seqs.contains(&seq)
    }

    fn leave_feed(&mut self, seq: u64) {
        if seq > self.base_seq {
            self.by_seq.remove(&seq);
        } else {
            self.hidden_seqs.insert(seq);
        }
    }
}
