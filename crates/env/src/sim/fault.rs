//! Which I/O of a simulated disk fails or stops the machine, and the record of what was done.
//!
//! What it is: the plan, the counter, the verdict per operation, the recognisable crash error.
//! What it is not: what a failure does to the contents; that is in `volume`.
//!
//! Invariants
//! - Every operation that changes something is one I/O, numbered from 0 over the whole life of the disk. Calls
//!   that are refused for what they ask (no such file, misaligned) are none; nor are reads.
//! - Once stopped, every operation fails, reads too, until the disk is reborn by a crash.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What goes wrong, and when. The default: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultPlan {
    /// From the I/O with this number on, everything fails as if the machine had stopped in the middle of it.
    pub crash_at_io: Option<u64>,
    /// The I/O with this number fails in this way, and the machine goes on.
    pub fail_io: Option<(u64, FaultKind)>,
    /// Whether all I/O after `fail_io` fails in the same way too.
    pub sticky: bool,
}

/// How an I/O fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device gives up (`EIO`). A write leaves nothing, a durable write any part, a sync loses data.
    Eio,
    /// No space (`ENOSPC`). A write leaves nothing; a sync loses data, as with delayed allocation.
    Enospc,
    /// The first part of a write arrives, then the device gives up (`EIO`). Other operations: as `Eio`.
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

/// Whether `error` says that the simulated machine has stopped.
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

/// The kinds of I/O that a plan can hit.
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
    /// `write_all_at`.
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
    /// The number that a [`FaultPlan`] would name.
    pub io: u64,
    /// What was asked.
    pub kind: IoKind,
    /// The file or directory; for a rename the old name.
    pub path: PathBuf,
    /// First byte written (0 if nothing is); for `SetLen` the new size.
    pub offset: u64,
    /// Bytes written.
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

/// What is to happen to one I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Proceed,
    Fail(FaultKind),
    /// The machine stops in the middle of this one.
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

    /// Counts one I/O of a running machine and decides about it.
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
