//! `tree`: append-only copy-on-write B+trees in one file, for a caller that has a log in front of them.
//!
//! ```text
//! TreeFile -- begin --> Checkpoint: put_blob*, modify(tree, sorted batch)*, finish(metadata, applied_lsn)
//!    |                      appends blobs and rewritten nodes in pieces of 1 MiB, then a header, then syncs
//!    |                      once -> TreeSnapshot
//!    '-- snapshot() --> TreeSnapshot: get, get_many, range (both ways), sums, read_blob; valid for ever
//! Builder: the same file from sorted entries, densely packed: the output of compaction, renamed into place
//! ```
//!
//! What it is: up to [`TREES_MAX`] sorted maps from bytes to bytes per file, large values beside them as
//! blobs, sums over any range in a walk from the root. The module [`mod@format`] describes every byte.
//! What it is not: durable per change. The changes between two checkpoints must be in a log; after a restart
//! those behind [`TreeSnapshot::applied_lsn`] are applied again. Nor does it own threads, locks or clocks, or
//! know the meaning of keys and values.
//!
//! Invariants
//! - Nothing that a header can reach is ever overwritten: a snapshot stays readable while others write,
//!   without locks.
//! - Every reader of a node or blob verifies its checksum, which stands in the pointer that led there. So the
//!   bytes that are read are the written ones, up to the header, which contains its own checksum.
//! - A node lies behind everything that it points to, one level above it: every walk ends.
//! - After a crash the file opens with the last checkpoint whose every byte arrived; one whose sync had
//!   returned always is such a one. The bytes behind it were never promised, and are overwritten.
//! - After a failed write or sync nothing more is written: the file must be opened again, past the page
//!   cache.

#![forbid(unsafe_code)]

mod appender;
mod bulk;
mod cache;
mod checkpoint;
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
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// The longest value, in bytes; larger data is stored as a blob.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest blob, in bytes.
pub const BLOB_BYTES_MAX: usize = 64 << 20;
/// The longest metadata of a checkpoint, in bytes.
pub const METADATA_BYTES_MAX: usize = 64 << 10;

/// For fuzzing: decodes arbitrary bytes as a node and as a header.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::{header::decode_any as decode_header, node::decode_any as decode_node};
}
