//! Storage: the durable, totally ordered log, the control file that names it, and snapshots.
//!
//! This crate stores framed bytes under an [`Lsn`](lsn::Lsn), makes them durable in merged batches, and reads
//! them back, distinguishing the kinds of damage. The crate
//! - does not know commands, keys or documents: a payload is opaque bytes;
//! - owns no thread: the server calls [`Log::flush`] and [`Log::prepare_segment`] in loops of its own;
//! - never calls the operating system itself: files come from [`env::Disk`].
//!
//! Invariants
//! - Bytes before `durable_lsn` survive a crash. `durable_lsn` never moves back, and never runs ahead of a
//!   completed sync.
//! - A batch is recovered whole or not at all. So is a record, even if it was split into parts.
//! - After a failed write or sync the log is poisoned: no batch is written or synced again.
//! - Recovery either yields the durable prefix (plus batches that were written but not yet durable) or
//!   reports which bytes of which file are damaged. One case looks like an interrupted write: damage to the
//!   last batches, for which no later footer, snapshot or clean end vouches (`log::reader`).
//! - Recovery skips damage only on request ([`Recovery::salvage`]). A salvage reports all skipped damage; if
//!   something is lost, the log takes no writes before the operator agrees.

mod error;
mod log;
pub mod scrub;
pub mod snapshot;
mod stats;
mod sync;

pub use error::{Damage, Error, SnapshotDamage};
pub use log::check::{CheckReport, check, check_behind};
pub use log::control::{Control, EPOCH_MAX, Start};
pub use log::cut::{Cut, cut_log, cut_log_alone};
pub use log::mirror::outbid_epoch;
pub use log::reader::{Batch, LogReader, Tail};
pub use log::record::{CHAIN_BYTES_MAX, RECORD_HEADER_BYTES, Record, RecordKind};
pub use log::recovery::{Reached, Recovery};
pub use log::retention::{retain_snapshots, set_aside_unpinned};
pub use log::salvage::{Hole, HoleKind};
pub use log::{
    Admission, Appender, BatchInfo, Chains, Chunk, CopiedFile, CopyPlan, CursorRead, Durability, Flush,
    FlushTime, Log, LogCursor, LogOptions, Mirror, MirrorError, Pending, Pin, Prepare, STALLED_US,
    batches_in,
};
pub use stats::{Histogram, LogStats};
