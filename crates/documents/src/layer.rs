//! `Layer`: the changes of a database that are not in its tree file yet.
//!
//! ```text
//! fresh    takes all changes           a row of a layer hides rows with the same key in the layers below;
//! frozen   is being written            a row can also mark a key as removed
//! tree     is on disk
//! ```
//!
//! A layer consists of maps whose copies share their nodes, so that a snapshot copies only the roots. A layer
//! is not durable, but the log has everything that is in it.
//!
//! Invariants
//! - The sequences in `by_seq` are greater than `base_seq`, and those of the layers below are not, so feeds
//!   are read one layer after the other.
//! - `records` has each record that raised the update sequence while this was the fresh layer.
//! - `hidden_seqs` are feed rows of the layers below that are no longer in the feed.

use std::sync::Arc;

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use lsn::Lsn;

use crate::blob::Blob;
use crate::by_id::ById;
use crate::doc_info::DocInfo;
use crate::id::{DocId, UploadId};

/// The estimated memory of an entry besides its bytes: nodes of three maps. Each known revision adds 16
/// bytes.
const ENTRY_BYTES: u64 = 400;

/// A `_local` document.
#[derive(Clone, Debug)]
pub struct LocalDoc {
    /// The N of its revision `0-N`.
    pub rev: u64,
    /// Minified JSON.
    pub body: Bytes,
}

/// The key of a chunk of an upload: the upload and the number of the chunk, from 0.
pub(crate) type ChunkKey = (UploadId, u32);

/// The changes since `base_seq`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    pub(crate) by_id: ById,
    pub(crate) by_seq: OrdMap<u64, Arc<DocInfo>>,
    pub(crate) hidden_seqs: OrdSet<u64>,
    pub(crate) local: OrdMap<DocId, Option<Arc<LocalDoc>>>,
    pub(crate) chunks: OrdMap<ChunkKey, Option<Blob>>,
    /// The ends of records, by the update sequence after each.
    pub(crate) records: OrdMap<u64, Lsn>,
    /// The update sequence before the first change of the layer.
    pub(crate) base_seq: u64,
    /// An estimate of the layer's memory, in bytes.
    pub(crate) bytes: u64,
}

impl Layer {
    /// An empty layer for the changes after `base_seq`.
    pub(crate) fn new(base_seq: u64) -> Layer {
        Layer { base_seq, ..Layer::default() }
    }

    /// Inserts a document at its new position in the feed, and removes its feed row at `old_seq`. `new_bytes`
    /// is the size of its new body and attachments.
    pub(crate) fn put_document(&mut self, old_seq: Option<u64>, info: Arc<DocInfo>, new_bytes: u64) {
        if let Some(seq) = old_seq {
            self.leave_feed(seq);
        }
        self.bytes += ENTRY_BYTES + 16 * info.revs.count() as u64 + new_bytes;
        self.by_seq.insert(info.seq, info.clone());
        self.by_id.put(info);
    }

    /// Replaces a document by one that differs only in the pointers of its blobs.
    pub(crate) fn replace_document(&mut self, info: Arc<DocInfo>) {
        self.by_seq.insert(info.seq, info.clone());
        self.by_id.put(info);
    }

    pub(crate) fn remove_document(&mut self, info: &DocInfo) {
        self.leave_feed(info.seq);
        self.bytes += ENTRY_BYTES;
        self.by_id.hide(info.id.clone());
    }

    /// Puts or, with `None`, removes a `_local` document.
    pub(crate) fn put_local(&mut self, id: DocId, document: Option<LocalDoc>) {
        self.bytes += ENTRY_BYTES + document.as_ref().map_or(0, |document| document.body.len() as u64);
        self.local.insert(id, document.map(Arc::new));
    }

    /// Puts or, with `None`, removes a chunk of an upload.
    pub(crate) fn put_chunk(&mut self, key: ChunkKey, chunk: Option<Blob>) {
        self.bytes += ENTRY_BYTES + chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        self.chunks.insert(key, chunk);
    }

    /// Whether this layer hides the feed row `seq` of the layers below.
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
