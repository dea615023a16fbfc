//! The metadata of a database's tree file: the part of a state that is not in the trees.
//!
//! # Encoding
//! Numbers and bytes are encoded as in [`crate::codec`].
//! ```text
//! number     version, 1
//! u64        id of the database, little-endian
//! 2 numbers  update sequence, purge sequence
//! 4 numbers  the sums, in the order of the fields of `DocSums`
//! number     limit of revisions
//! number     id of the next upload
//! bytes      security object
//! number     count of unfinished uploads, and for each:
//!   3 numbers  id, number of chunks, number of bytes
//! ```

use bytes::Bytes;
use lsn::Lsn;

use crate::codec::{Input, put_bytes};
use crate::doc_info::DocSums;
use crate::id::{DbId, UploadId};
use crate::state::{State, Upload};

const METADATA_VERSION: u64 = 1;

/// Encodes the metadata of a state: the part of the state that is not in the trees.
pub(crate) fn encode_metadata(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, METADATA_VERSION);
    out.extend_from_slice(&state.db.get().to_le_bytes());
    let DocSums { documents, deleted, body_bytes, attachment_bytes } = state.sums;
    for number in [state.update_seq, state.purge_seq, documents, deleted, body_bytes, attachment_bytes] {
        varint::put(&mut out, number);
    }
    varint::put(&mut out, u64::from(state.revs_limit));
    varint::put(&mut out, state.next_upload.0);
    put_bytes(&mut out, &state.security);
    varint::put(&mut out, state.uploads.len() as u64);
    for (upload, progress) in state.uploads.iter() {
        varint::put(&mut out, upload.0);
        varint::put(&mut out, u64::from(progress.chunks));
        varint::put(&mut out, progress.bytes);
    }
    out
}

/// Decodes the state in the metadata of a file, without its tree. The fresh layer of the state is empty and
/// begins at the update sequence of the file.
pub(crate) fn decode_metadata(metadata: &[u8], applied_lsn: Lsn) -> Option<State> {
    let mut input = Input::new(metadata);
    if input.number()? != METADATA_VERSION {
        return None;
    }
    let mut state = State::new(DbId::new(Lsn::new(u64::from_le_bytes(input.array()?))));
    (state.update_seq, state.purge_seq) = (input.number()?, input.number()?);
    state.sums = DocSums {
        documents: input.number()?,
        deleted: input.number()?,
        body_bytes: input.number()?,
        attachment_bytes: input.number()?,
    };
    state.revs_limit = input.number_u32()?;
    state.next_upload = UploadId(input.number()?);
    state.security = Bytes::copy_from_slice(input.bytes()?);
    for _ in 0..input.count(3)? {
        let upload = UploadId(input.number()?);
        let progress = Upload { chunks: input.number_u32()?, bytes: input.number()? };
        state.uploads.insert(upload, progress);
    }
    state.last_lsn = applied_lsn;
    state.fresh.base_seq = state.update_seq;
    input.is_empty().then_some(state)
}
