//! Scrubbing: reads files that may otherwise not be read again before the next start, so that damage is found
//! while memory still has all data.
//!
//! One pass covers the control file, the part of the log that is durable when the pass begins, and the
//! snapshots, at the pace of the caller. As far as the system permits, it reads from the disk and not from
//! the page cache, whose contents prove nothing about the disk. Unlike `check`, a pass runs while the server
//! writes. It repairs nothing.
//!
//! Invariant: segments and snapshots that are removed or recycled during the pass are not reported as
//! damaged. Before such a finding is reported, it is checked that the file is still needed.

use std::{path::Path, sync::Arc};

use env::{Access, Disk};
use lsn::Lsn;

use crate::{
    Control, Error, Log, LogReader,
    snapshot::{self, ReadBuffers, SnapshotReader},
};

/// Number of attempts to read the log if its start moves during the reading.
const TRIES: usize = 3;

/// A file that cannot be read back.
#[derive(Debug)]
pub enum Finding {
    /// The control file is damaged or missing, or cannot be read. The log still has the contents in memory:
    /// [`Log::restore_control`] writes the file again.
    Control(Error),
    /// The log is damaged or cannot be read; a new snapshot makes that part dispensable. Or the directory of
    /// the snapshots cannot be listed.
    Log(Error),
    /// A snapshot is damaged or cannot be read.
    Snapshot {
        /// The LSN at which the snapshot begins.
        begin_lsn: Lsn,
        /// The error.
        error: Error,
    },
}

impl Finding {
    /// The LSN at which the damaged snapshot begins; `None` for other findings.
    pub fn snapshot(&self) -> Option<Lsn> {
        if let Finding::Snapshot { begin_lsn, .. } = self { Some(*begin_lsn) } else { None }
    }

    /// The error of the finding.
    pub fn error(&self) -> &Error {
        match self {
            Finding::Control(error) | Finding::Log(error) | Finding::Snapshot { error, .. } => error,
        }
    }
}

/// Why a part of a pass ended early.
enum Early {
    Stopped,
    Failed(Error),
}

impl From<Error> for Early {
    fn from(error: Error) -> Self {
        Early::Failed(error)
    }
}

/// Makes one pass over the data directory `dir` of `log`. `go_on` is called after each piece with its size in
/// bytes, and may sleep to set the pace; when it returns `false` the pass ends. Returns the findings so far.
pub fn scrub(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    log: &Log,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Vec<Finding> {
    let mut round = ScrubPass { disk, dir, log, go_on, findings: Vec::new() };
    // The result is ignored, because findings count even if the pass was stopped.
    let _ = round.run();
    round.findings
}

struct ScrubPass<'a> {
    disk: &'a Arc<dyn Disk>,
    dir: &'a Path,
    log: &'a Log,
    go_on: &'a mut dyn FnMut(u64) -> bool,
    findings: Vec<Finding>,
}

impl ScrubPass<'_> {
    fn run(&mut self) -> Result<(), Early> {
        // Best effort, as in `read_durable`.
        let _ = self.disk.open(&Control::path(self.dir), Access::Read).and_then(|file| file.drop_cache());
        match Control::load(&**self.disk, self.dir) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let reason = "the control file is missing".into();
                let error = Error::Inconsistent { path: Control::path(self.dir), reason };
                self.findings.push(Finding::Control(error));
            }
            Err(error) => self.findings.push(Finding::Control(error)),
        }
        self.read_log()?;
        self.read_snapshots()
    }

    fn read_log(&mut self) -> Result<(), Early> {
        for _ in 0..TRIES {
            let start = self.log.start_lsn();
            match self.read_durable() {
                Err(Early::Failed(error)) if start == self.log.start_lsn() => {
                    self.findings.push(Finding::Log(error));
                    return Ok(());
                }
                // The log start moved during the reading: segments may have been removed or recycled.
                Err(Early::Failed(_)) => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Reads the durable part of the log, also that of the segment that is being written.
    fn read_durable(&mut self) -> Result<(), Early> {
        let mut reader = LogReader::open(self.disk.clone(), self.dir, Access::Read)?;
        let end = self.log.durable_lsn();
        let drop_caches = |reader: &LogReader| {
            for segment in reader.segments().iter().filter(|segment| segment.start < end) {
                // Best effort: if it fails, the cache is read.
                let _ = segment.file.drop_cache();
            }
        };
        drop_caches(&reader);
        while reader.position() < end {
            let before = reader.position();
            match reader.next_batch()? {
                Ok(batch) => {
                    let bytes = batch.end.bytes_since(before);
                    self.pace(bytes)?;
                }
                Err(tail) => {
                    let reason = format!("the log cannot be read behind lsn {}: {}", tail.end, tail.reason);
                    let path = reader.place(tail.end).0;
                    return Err(Error::Inconsistent { path, reason }.into());
                }
            }
        }
        drop_caches(&reader);
        Ok(())
    }

    fn read_snapshots(&mut self) -> Result<(), Early> {
        let begins = match snapshot::list_begins(&**self.disk, self.dir) {
            Ok(begins) => begins,
            Err(error) => {
                self.findings.push(Finding::Log(error));
                return Ok(());
            }
        };
        for begin_lsn in begins.into_iter().filter(|&begin| begin >= self.log.start_lsn()) {
            match self.read_snapshot(begin_lsn) {
                Err(Early::Failed(error)) => {
                    let still = snapshot::list_begins(&**self.disk, self.dir);
                    if still.is_ok_and(|begins| begins.contains(&begin_lsn)) {
                        self.findings.push(Finding::Snapshot { begin_lsn, error });
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn read_snapshot(&mut self, begin_lsn: Lsn) -> Result<(), Early> {
        let info = snapshot::load(&**self.disk, self.dir, begin_lsn)?;
        let directory = snapshot::directory(self.dir);
        let drop_caches = || {
            for name in info.file_names() {
                // Best effort, as in `read_durable`.
                let _ =
                    self.disk.open(&directory.join(name), Access::Read).and_then(|file| file.drop_cache());
            }
        };
        drop_caches();
        let reader = SnapshotReader::open(&**self.disk, self.dir, &info)?;
        let mut buffers = ReadBuffers::default();
        for run in reader.runs() {
            for chunk in run.chunks.clone() {
                reader.read(chunk, &mut buffers)?;
            }
            if !(self.go_on)(run.file_bytes) {
                return Err(Early::Stopped);
            }
        }
        drop_caches();
        Ok(())
    }

    fn pace(&mut self, bytes: u64) -> Result<(), Early> {
        if (self.go_on)(bytes) { Ok(()) } else { Err(Early::Stopped) }
    }
}
