//! Shared by commands that need no server: the use of a directory, its keyspace, and progress.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use env::{Clock, Disk, Entropy, File, RealClock, RealDisk, RealEntropy};
use keyspace::Keyspace;
use lsn::Lsn;
use parking_lot::Mutex;
use storage::{LogOptions, Recovery};

use crate::{
    progress::LoadProgress,
    progress_bar::ProgressBar,
    recover::{Memory, Mode, RecoverError, load_opened},
};

/// The period of progress reports.
const REPORT_PERIOD: Duration = Duration::from_millis(200);

/// Receives progress: the stage, the amount done and the total.
pub type Report<'a> = &'a (dyn Fn(Stage, u64, u64) + Sync);

/// A stage of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for another server to prepare its data.
    Waiting,
    /// Recovering: bytes of snapshot and log loaded into memory.
    Recovering,
    /// Verifying: bytes checked of a file before it is imported, of a log before it is restored, or of a copy
    /// before it becomes a backup.
    Verifying,
    /// Importing: bytes of a file written into the log.
    Importing,
    /// Exporting: keys written into a file.
    Exporting,
    /// Comparing: bytes of an earlier backup with their recorded checksums.
    Comparing,
    /// Copying: bytes from a server.
    Copying,
    /// Copying an unknown number of bytes from a server.
    Receiving,
    /// Writing: slots written into a snapshot.
    Writing,
}

/// A data directory without a running server, and the means to use it.
#[derive(Clone)]
pub struct Place<'a> {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for hash seeds and the id of a new log.
    pub entropy: &'a dyn Entropy,
    /// The data directory.
    pub dir: &'a Path,
    /// The options of the log.
    pub options: LogOptions,
    /// Threads for loading and writing; 0 for the calling thread alone.
    pub appliers: usize,
}

impl<'a> Place<'a> {
    /// A directory with the machine's disk, clock and randomness, and a thread per core.
    pub fn real(dir: &'a Path) -> Place<'a> {
        Place {
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock),
            entropy: &RealEntropy,
            dir,
            options: LogOptions::default(),
            appliers: env::process::cores_available(),
        }
    }

    /// Loads the keyspace of the directory; document databases are left out. Changes nothing in the
    /// directory, except that temporary files are removed, and a directory without a log gets an empty one.
    pub fn load(&self, report: Report<'_>) -> Result<(Keyspace, Recovery), RecoverError> {
        let recovery = Recovery::open(self.disk.clone(), self.dir, self.options, self.entropy)?;
        self.load_opened(recovery, report)
    }

    /// Loads the keyspace as of the last record at or before `until`; the directory may be read-only.
    pub fn load_until(&self, until: Lsn, report: Report<'_>) -> Result<(Keyspace, Recovery), RecoverError> {
        let mut recovery = Recovery::open_to_read(self.disk.clone(), self.dir)?;
        recovery.read_until(until);
        self.load_opened(recovery, report)
    }

    fn load_opened(
        &self,
        mut recovery: Recovery,
        report: Report<'_>,
    ) -> Result<(Keyspace, Recovery), RecoverError> {
        let keyspace = Keyspace::new(keyspace::Options { hash_seed: self.entropy.random_u64() });
        let progress = LoadProgress::new(self.clock.clone());
        let (place, now_ms) = ((&*self.disk, self.dir), self.clock.unix_ms());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let reporter = scope.spawn(|| {
                while !done.load(Relaxed) {
                    let (bytes, total) = progress.bytes();
                    report(Stage::Recovering, bytes, total);
                    thread::park_timeout(REPORT_PERIOD);
                }
            });
            let memory = Memory { keyspace: &keyspace, documents: None };
            let loaded =
                load_opened(&mut recovery, place, Mode::Newest, now_ms, self.appliers, memory, &progress);
            done.store(true, Relaxed);
            reporter.thread().unpark();
            loaded
        })?;
        Ok((keyspace, recovery))
    }
}

/// Progress bars on a terminal, one stage after the other.
#[derive(Default)]
pub struct ProgressBars {
    current: Mutex<Option<(Stage, ProgressBar)>>,
}

impl ProgressBars {
    /// Shows that `done` of `total` of a stage is done; a new stage replaces the bar of the previous one.
    pub fn show(&self, stage: Stage, done: u64, total: u64) {
        let mut current = self.current.lock();
        if current.as_ref().is_none_or(|(shown, _)| *shown != stage) {
            if let Some((_, bar)) = current.take() {
                bar.finish();
            }
            *current = Some((stage, stage.bar()));
        }
        if let Some((_, bar)) = &*current {
            bar.show(done, total);
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some((_, bar)) = self.current.lock().take() {
            bar.finish();
        }
    }
}

impl Stage {
    /// The name of the stage, in progress bars and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting for the source",
            Stage::Recovering => "recovering",
            Stage::Verifying => "verifying",
            Stage::Importing => "importing",
            Stage::Exporting => "exporting",
            Stage::Comparing => "comparing",
            Stage::Copying => "copying",
            Stage::Receiving => "receiving",
            Stage::Writing => "writing",
        }
    }

    fn bar(self) -> ProgressBar {
        match self {
            Stage::Waiting => ProgressBar::of_waiting(self.name()),
            Stage::Exporting => ProgressBar::of_keys(self.name()),
            Stage::Receiving => ProgressBar::of_unknown(self.name()),
            Stage::Writing => ProgressBar::of_slots(self.name()),
            _ => ProgressBar::new(self.name()),
        }
    }
}

/// A file as a stream of bytes from its start, with a callback for its offset.
pub struct Stream<'a> {
    file: Arc<dyn File>,
    offset: u64,
    moved: &'a dyn Fn(u64),
}

impl<'a> Stream<'a> {
    /// A stream over `file` that reports its offset to `moved` after each read and write.
    pub fn new(file: Arc<dyn File>, moved: &'a dyn Fn(u64)) -> Self {
        Stream { file, offset: 0, moved }
    }

    /// Bytes read or written so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn advance(&mut self, bytes: usize) -> usize {
        self.offset += bytes as u64;
        (self.moved)(self.offset);
        bytes
    }
}

impl io::Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        Ok(self.advance(read))
    }
}

impl io::Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.offset)?;
        Ok(self.advance(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
