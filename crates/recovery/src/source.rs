//! The input of a recovery: the directory, and the point at which to begin.

use std::{path::Path, sync::Arc};

use documents::Documents;
use env::{Clock, Disk, Entropy};
use lsn::Lsn;
use storage::LogOptions;

/// The starting point of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The newest snapshot from which the log can be replayed; the log alone if there is none. Damage is
    /// refused.
    #[default]
    Newest,
    /// The snapshot that begins here, or the log alone if it begins here and holds everything. Newer
    /// snapshots are assumed to be damaged, and [`recover`](crate::recover::recover) sets them aside. Other
    /// damage is refused.
    From(Lsn),
    /// All data that is not damaged, in a server that is read-only until the operator has accepted the loss:
    /// see `salvage`. [`load`](crate::recover::load) must not be called with this mode.
    Force,
}

/// The source and options of a recovery.
pub struct Source<'a> {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The data directory.
    pub dir: &'a Path,
    /// The options with which the log is then opened for writing.
    pub options: LogOptions,
    /// The clock. Entries that have expired meanwhile are kept, invisible, until a delete is logged.
    pub clock: Arc<dyn Clock>,
    /// Randomness, for the id of a new log.
    pub entropy: &'a dyn Entropy,
    /// Threads that load and apply; 0 for the calling thread alone, in simulations.
    pub appliers: usize,
    /// The starting point.
    pub mode: Mode,
    /// The document databases as opened from their files, to which the log's later changes are applied;
    /// `None`: document changes are skipped.
    pub documents: Option<&'a Documents>,
}
