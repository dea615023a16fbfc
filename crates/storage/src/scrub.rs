//! Scrubbing: what lies on disk and is not read otherwise is read again, so that damage is found while memory has everything.
//!
//! What it is: one round over the control file, the segments that are not written any more and the snapshots, at the pace that
//! the caller sets, past the page cache: what the cache still has says nothing about the disk.
//! What it is not: a repair, nor `check`: it runs while the server writes.
//!
//! Invariant: what was removed or recycled meanwhile is no damage. So a finding is looked at again: is it about something
//! that is still needed?

use std::{path::Path, sync::Arc};

use env::{Access, Disk};
use lsn::Lsn;

use crate::{
    Control, Error, Log, LogReader,
    snapshot::{self, ReadBuffers, SnapshotReader},
};

/// How often the log is read again that was cut while it was read.
const TRIES: usize = 3;

/// Something that cannot be read back.
#[derive(Debug)]
pub enum Finding {
    /// The control file. The log knows what it says: [`Log::restore_control`].
    Control(Error),
    /// The log. A snapshot makes it dispensable.
    Log(Error),
    /// A snapshot.
    Snapshot {
        /// Where it begins.
        begin_lsn: Lsn,
        /// What is wrong with it.
        error: Error,
    },
}

impl Finding {
    /// Where the snapshot begins, if it is one.
    pub fn snapshot(&self) -> Option<Lsn> {
        if let Finding::Snapshot { begin_lsn, .. } = self { Some(*begin_lsn) } else { None }
    }

    /// What is wrong.
    pub fn error(&self) -> &Error {
        match self {
            Finding::Control(error) | Finding::Log(error) | Finding::Snapshot { error, .. } => error,
        }
    }
}

/// Why a part of a round ended early.
enum Early {
    Stopped,
    Failed(Error),
}

impl From<Error> for Early {
    fn from(error: Error) -> Self {
        Early::Failed(error)
    }
}

/// Does a round over the data directory `dir` of `log`. `go_on` is told after each piece how many bytes it had, and may take its
/// time; once it returns `false` the round ends. Returns what was found.
pub fn scrub(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    log: &Log,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Vec<Finding> {
    let mut round = Round { disk, dir, log, go_on, findings: Vec::new() };
    // Stopped or not: what was found is found.
    let _ = round.run();
    round.findings
}

struct Round<'a> {
    disk: &'a Arc<dyn Disk>,
    dir: &'a Path,
    log: &'a Log,
    go_on: &'a mut dyn FnMut(u64) -> bool,
    findings: Vec<Finding>,
}

impl Round<'_> {
    fn run(&mut self) -> Result<(), Early> {
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
            match self.read_sealed() {
                Err(Early::Failed(error)) if start == self.log.start_lsn() => {
                    self.findings.push(Finding::Log(error));
                    return Ok(());
                }
                // The log was cut, and its oldest segments were removed or recycled under the eyes of the reader.
                Err(Early::Failed(_)) => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Reads the segments that are written to their ends and durable.
    fn read_sealed(&mut self) -> Result<(), Early> {
        let mut reader = LogReader::open(self.disk.clone(), self.dir, Access::Read)?;
        let end = self.log.durable_lsn().align_down(reader.control().segment_bytes);
        let drop_caches = |reader: &LogReader| {
            for segment in reader.segments().iter().filter(|segment| segment.end <= end) {
                // Only for the sake of a better look: if it fails, the cache is read.
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
                // As above.
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
