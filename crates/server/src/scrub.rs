//! The scrubber: a thread that slowly re-reads log, snapshots and control file, so that damage is found while
//! memory still has all data.
//!
//! ```text
//! waits for the next pass -> storage::scrub, paced -> findings -> logged, and replaced by a snapshot
//! ```
//!
//! This module decides when and how fast to read, and handles findings. `storage::scrub` reads.
//!
//! Invariants
//! - A damaged file is never repaired in place. Its data are written anew from memory, so that the damaged
//!   file is not needed any more.
//! - A damaged snapshot stays in place until another one can replace it at a start, because its intact parts
//!   may be the only copy. It is moved away earlier only for a new snapshot that begins at the same position.
//! - No file is renamed while a replica or a backup copies it: a later pass renames it.

use std::{
    cell::Cell,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use env::{Clock, Disk};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use settings::Key;
use storage::{
    Log, retain_snapshots,
    scrub::{Finding, scrub},
    set_aside_unpinned, snapshot,
};

use crate::{config::Config, pace::Pace, snapshots::Snapshots, startup_info::StartupInfo};

/// Period of the check for a due pass.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Figures for INFO and metrics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) in_progress: bool,
    pub(crate) rounds: u64,
    /// When the last pass ended; 0 before the first.
    pub(crate) last_round_unix_ms: u64,
    /// Damaged files found in all passes.
    pub(crate) damaged_files: u64,
}

pub(crate) struct Scrubber {
    startup: Arc<StartupInfo>,
    clock: Arc<dyn Clock>,
    config: Arc<Config>,
    snapshots: Arc<Snapshots>,
    state: Mutex<State>,
    wake: Condvar,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    figures: Figures,
    stopping: bool,
}

impl Scrubber {
    pub(crate) fn new(
        startup: Arc<StartupInfo>,
        clock: Arc<dyn Clock>,
        config: Arc<Config>,
        snapshots: Arc<Snapshots>,
    ) -> Scrubber {
        let (state, wake, bytes) = Default::default();
        Scrubber { startup, clock, config, snapshots, state, wake, bytes }
    }

    pub(crate) fn figures(&self) -> Figures {
        self.state.lock().figures
    }

    /// Bytes read in all passes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Asks the thread to end.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_one();
    }

    /// Starts the thread. Recovery has just read everything, so the first pass is due after a pause.
    pub(crate) fn start(self: &Arc<Self>, log: &Log) -> Result<JoinHandle<()>, std::io::Error> {
        let (scrubber, log) = (self.clone(), log.clone());
        thread::Builder::new().name("scrubber".into()).spawn(move || scrubber.run(&log))
    }

    fn run(&self, log: &Log) {
        // Commands have priority. If the nice value cannot be set, the scrubber still works.
        let _ = env::thread::set_nice(10);
        let mut pause_began_ms = self.clock.unix_ms();
        while self.sleep(LOOK_PERIOD) {
            let (rate, period_s) = {
                let settings = self.config.current();
                (settings.integer(Key::ScrubRateBytes), settings.integer(Key::ScrubIntervalSeconds))
            };
            let paused_ms = self.clock.unix_ms().saturating_sub(pause_began_ms);
            // Damage that the operator has not confirmed yet is left as it is.
            if rate > 0 && paused_ms >= period_s.saturating_mul(1000) && !log.is_frozen() {
                self.round(log);
                pause_began_ms = self.clock.unix_ms();
            }
        }
    }

    /// Sleeps for `pause`; `false` if the thread must end.
    fn sleep(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopping {
            self.wake.wait_for(&mut state, pause);
        }
        !state.stopping
    }

    fn round(&self, log: &Log) {
        self.state.lock().figures.in_progress = true;
        let disk: Arc<dyn Disk> = Arc::new(self.startup.disk.clone());
        let pace = Pace::default();
        let mut go_on = |bytes: u64| {
            self.bytes.fetch_add(bytes, Relaxed);
            let rate = self.config.current().integer(Key::ScrubRateBytes);
            let pause_us = pace.pause_us(bytes, rate, self.clock.monotonic_us());
            rate > 0 && self.sleep(Duration::from_micros(pause_us))
        };
        let findings = scrub(&disk, &self.startup.dir, log, &mut go_on);
        {
            let figures = &mut self.state.lock().figures;
            figures.in_progress = false;
            figures.rounds += 1;
            figures.last_round_unix_ms = self.clock.unix_ms();
            figures.damaged_files += findings.len() as u64;
        }
        for finding in &findings {
            tracing::error!(
                target: "server", error = %finding.error(),
                "a file on disk is damaged; memory has all of the data, so the file is replaced by a new snapshot"
            );
        }
        if !findings.is_empty() && self.make_dispensable(log, &*disk, &findings) {
            tracing::warn!(
                target: "server", damaged = findings.len(),
                "the damaged file is no longer needed. Check the disk: it is likely to damage more"
            );
        }
    }

    /// Replaces the damaged files, so that they are not needed any more. Returns whether that succeeded.
    fn make_dispensable(&self, log: &Log, disk: &dyn Disk, findings: &[Finding]) -> bool {
        let outcome = self.replace(log, disk, findings);
        if let Err(error) = &outcome {
            tracing::error!(
                target: "server", %error,
                "a file that the next start needs is damaged: take a backup now; the next pass tries to replace it"
            );
        }
        outcome.is_ok()
    }

    fn replace(&self, log: &Log, disk: &dyn Disk, findings: &[Finding]) -> Result<(), String> {
        let dir: &Path = &self.startup.dir;
        let in_words = |error: storage::Error| error.to_string();
        if findings.iter().any(|finding| matches!(finding, Finding::Control(_))) {
            log.restore_control().map_err(in_words)?;
        }
        let mut damaged: Vec<Lsn> = findings.iter().filter_map(Finding::snapshot).collect();
        let is_log = findings.iter().any(|finding| matches!(finding, Finding::Log(_)));
        if damaged.is_empty() && !is_log {
            return Ok(());
        }
        let begins = snapshot::list_begins(disk, dir).map_err(in_words)?;
        let has_other = begins.iter().any(|begin| *begin >= log.start_lsn() && !damaged.contains(begin));
        // Whether a replica or a backup is copying a damaged snapshot.
        let is_copied = Cell::new(false);
        let set_aside = |begin_lsn: Lsn| match set_aside_unpinned(disk, dir, log, begin_lsn) {
            Ok(Some(kept)) => {
                tracing::warn!(target: "server", kept = %kept.display(), "a damaged snapshot was set aside");
                Ok(())
            }
            Ok(None) => {
                is_copied.set(true);
                Ok(())
            }
            Err(error) => Err(in_words(error)),
        };
        // Without writes since the damaged snapshot, a new one would begin at the same position. In that case
        // the damaged one is moved away first.
        let newest = log.written_lsn();
        let (now, later): (Vec<Lsn>, Vec<Lsn>) =
            damaged.drain(..).partition(|&begin| has_other || begin == newest);
        const COPIED: &str = "a damaged snapshot is being copied, so it stays until the next pass";
        now.into_iter().try_for_each(set_aside)?;
        if is_copied.get() && !has_other {
            // A new snapshot would have the name of the damaged one.
            return Err(COPIED.into());
        }
        self.take_snapshot()?;
        later.into_iter().try_for_each(set_aside)?;
        if is_log {
            // Only one generation is kept, because the older one needs the damaged log.
            retain_snapshots(disk, dir, log, 1).map_err(in_words)?;
        }
        if is_copied.get() { Err(COPIED.into()) } else { Ok(()) }
    }

    /// Requests a snapshot and waits for it.
    fn take_snapshot(&self) -> Result<(), String> {
        let (done, outcome) = sync_channel(1);
        // If the server is stopping, the receiver may be gone.
        self.snapshots.ask_then(Box::new(move |taken| drop(done.send(taken))));
        loop {
            match outcome.recv_timeout(LOOK_PERIOD) {
                Ok(taken) => return taken,
                Err(RecvTimeoutError::Timeout) if !self.state.lock().stopping => {}
                Err(_) => return Err("the server is stopping".into()),
            }
        }
    }
}
