//! `tree`: append-only copy-on-write B+trees in one file, for a caller that has a log in front of them.
//!
//! ```text
//! TreeFile -- begin --> Checkpoint: put_blob*, modify(tree, batch)*, finish(metadata, applied_lsn)
//!    |                      appends blobs and rewritten nodes in pieces of 1 MiB, then a header, then syncs
//!    |                      once -> TreeSnapshot
//!    '-- snapshot() --> TreeSnapshot: get, get_many, range (both ways), sums, read_blob; valid for ever
//! Builder: a new file from sorted entries, densely packed: the output of compaction, renamed into place
//! ```
//!
//! A file has up to [`TREES_MAX`] sorted maps from bytes to bytes, with large values beside them as blobs,
//! and gives sums over any range in a walk from the root. The module [`mod@format`] describes every byte. A
//! change is not durable by itself: the changes between two checkpoints must be in a log; after a restart,
//! the caller applies the changes after [`TreeSnapshot::applied_lsn`] again. The crate owns no threads and no
//! clocks, and does not know the meaning of keys and values.
//!
//! Invariants
//! - While a header is in the file, nothing that it can reach is overwritten. So a snapshot stays readable
//!   without locks while others write.
//! - Every reader of a node or blob verifies its checksum, which is in the pointer to it; a header contains
//!   its own checksum. So all bytes that are read are the bytes that were written.
//! - A node lies in the file after everything that it points to, and is one level above its children, so
//!   every walk ends.
//! - After a crash, the file opens with the last checkpoint of which every byte has reached the disk. Once
//!   the sync of a checkpoint has returned, all bytes of the checkpoint are on disk. The file never opens
//!   with an intermediate checkpoint ([`Checkpoint::finish_in_between`]). The bytes after the opened
//!   checkpoint are cut off before the next checkpoint is written.
//! - After a failed write or sync nothing more is written until the file is opened again.
//!   [`TreeFile::open`] reads from the disk, not from the page cache.

#![forbid(unsafe_code)]

mod appender;
mod bulk;
mod cache;
mod checkpoint;
mod difference;
mod encode;
mod error;
mod file;
pub mod format;
mod header;
mod modify;
mod node;
mod options;
mod pointer;
mod range;
mod reader;
mod search;
mod snapshot;
mod sums;
mod verify;
mod written;

#[cfg(test)]
mod tests;

pub use bulk::Builder;
pub use cache::NodeCache;
pub use checkpoint::Checkpoint;
pub use difference::{Changed, Difference};
pub use error::{PassedOver, TreeError};
pub use file::TreeFile;
pub use modify::{Change, Op};
pub use options::{Options, Wanted};
pub use pointer::Pointer;
pub use range::{Direction, EntryRef, Range};
pub use search::verify_appended;
pub use snapshot::TreeSnapshot;
pub use sums::{Measure, Sums};
pub use verify::{Report, verify};
pub use written::Written;

/// The index of a tree in its file, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeId(pub u8);

/// The maximum number of trees in a file.
pub const TREES_MAX: u8 = 16;
/// The maximum bytes of a key.
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// The maximum bytes of a value; larger data is stored as a blob.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The maximum bytes of a blob.
pub const BLOB_BYTES_MAX: usize = 64 << 20;
/// The maximum bytes of a checkpoint's metadata.
pub const METADATA_BYTES_MAX: usize = 64 << 10;

/// For fuzzing: decodes arbitrary bytes as a node and as a header.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::{header::decode_any as decode_header, node::decode_any as decode_node};
}
