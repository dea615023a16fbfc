//! Decides which I/O of a simulated disk fails or stops the machine, and records the I/Os.
//!
//! This module has the plan, the counter, the verdict per operation, and an error that shows that the machine
//! has stopped. The effect of a failure on the contents is in `volume`.
//!
//! Invariants
//! - Every operation that changes state is one I/O, numbered from 0 over the whole life of the disk. Calls
//!   refused because of their arguments (no such file, misaligned) and reads are not counted.
//! - Once the machine has stopped, every operation fails, even a read, until
//!   [`SimDisk::crash`](super::SimDisk::crash) restarts the machine.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The planned faults. The default has none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultPlan {
    /// From the I/O with this number on, every operation fails as if the machine had stopped in the middle of
    /// that I/O.
    pub crash_at_io: Option<u64>,
    /// The I/O with this number fails in this way; the machine keeps running.
    pub fail_io: Option<(u64, FaultKind)>,
    /// Whether all I/Os after `fail_io` fail in the same way, too.
    pub sticky: bool,
}

/// How an I/O fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device fails (`EIO`). A write changes nothing, a durable write writes a random set of its sectors,
    /// a sync loses data.
    Eio,
    /// No space (`ENOSPC`). A write changes nothing; a sync loses data, as with delayed allocation.
    Enospc,
    /// A prefix of a write is done, from nothing to all of it, then the device fails (`EIO`). The prefix is
    /// durable if the write was to be durable. Other operations fail as with `Eio`.
    ShortWrite,
}

impl FaultKind {
    pub(super) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            FaultKind::Eio | FaultKind::ShortWrite => libc::EIO,
            FaultKind::Enospc => libc::ENOSPC,
        })
    }
}

/// Whether `error` was returned because the simulated machine has stopped.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SimulatedCrash>())
}

/// The payload of the errors that [`is_crash`] recognises.
#[derive(Debug, thiserror::Error)]
#[error("the simulated machine has stopped")]
struct SimulatedCrash;

pub(super) fn crash_error() -> io::Error {
    io::Error::other(SimulatedCrash)
}

/// The kinds of I/O that are counted and for which a fault can be planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoKind {
    /// `create_dir_all` that creates something.
    CreateDir,
    /// `create_new`.
    Create,
    /// `rename`.
    Rename,
    /// `remove`.
    Remove,
    /// `sync_dir`.
    SyncDir,
    /// `write_all_at`, `write_direct_at`.
    Write,
    /// `write_durable_at`.
    WriteDurable,
    /// `set_len`.
    SetLen,
    /// `sync_data`, `sync_all`.
    Sync,
    /// `drop_cache`.
    DropCache,
}

/// One traced I/O, to be printed when a test fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoEvent {
    /// The number for a [`FaultPlan`].
    pub io: u64,
    /// The kind of the operation.
    pub kind: IoKind,
    /// The file or directory; for a rename the old name.
    pub path: PathBuf,
    /// Offset of a write (0 for other operations); for `SetLen` the new size.
    pub offset: u64,
    /// Bytes that a write was to write; 0 for other operations.
    pub len: usize,
}

impl fmt::Display for IoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {:?} {}", self.io, self.kind, self.path.display())?;
        match self.kind {
            IoKind::Write | IoKind::WriteDurable => write!(f, " @{}+{}", self.offset, self.len),
            IoKind::SetLen => write!(f, " to {}", self.offset),
            _ => Ok(()),
        }
    }
}

/// The outcome that the plan assigns to one I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Proceed,
    Fail(FaultKind),
    /// The machine stops in the middle of the I/O.
    Stop,
}

/// Counts I/Os and applies the plan.
#[derive(Clone, Default, Debug)]
pub(super) struct Gate {
    pub(super) plan: FaultPlan,
    pub(super) io_count: u64,
    pub(super) stopped: bool,
}

impl Gate {
    /// An error once the machine has stopped.
    pub(super) fn require_running(&self) -> io::Result<()> {
        if self.stopped { Err(crash_error()) } else { Ok(()) }
    }

    /// Counts one I/O of a running machine and returns its verdict.
    pub(super) fn next(&mut self) -> Verdict {
        let io = self.io_count;
        self.io_count += 1;
        if self.plan.crash_at_io.is_some_and(|at| io >= at) {
            self.stopped = true;
            return Verdict::Stop;
        }
        match self.plan.fail_io {
            Some((at, kind)) if io == at || (self.plan.sticky && io > at) => Verdict::Fail(kind),
            _ => Verdict::Proceed,
        }
    }
}
