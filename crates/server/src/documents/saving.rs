//! The thread "documents": has databases saved in their files when it is time, and all of them before the log is cut.
//!
//! ```text
//! every second | asked | a snapshot is about to be published -> log durable and committed -> tree files -> catalog
//! ```
//!
//! What it is: when it is done, and what is told of it. What it is not: needed for anything that was acknowledged: that is in the
//! log, and stays there until it is saved.
//!
//! Invariants
//! - One save at a time.
//! - The log before a snapshot's begin is given up only if documents are saved up to there: recovery begins at a snapshot for
//!   keys and documents alike.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use commands::Host;
use documents::{Due, StoreError};
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use storage::Log;

use crate::host::ServerHost;

/// How often it is looked what is due.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How long a save of everything waits for replicas, and how often it looks.
const COMMIT_PATIENCE_US: u64 = 10_000_000;
const COMMIT_POLL: Duration = Duration::from_millis(1);
/// After a failure it is tried again after so long, unless somebody asks.
const RETRY_MS: u64 = 60_000;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Saver {
    turn: Mutex<()>,
    state: Mutex<State>,
    wake: Condvar,
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Everything is to be saved.
    wanted: bool,
    stopping: bool,
    failed_at_ms: Option<u64>,
}

impl Saver {
    /// Starts the thread, once documents are served.
    pub(crate) fn start(host: &Arc<ServerHost>, log: &Log) -> std::io::Result<JoinHandle<()>> {
        let (host, log) = (host.clone(), log.clone());
        thread::Builder::new().name("documents".into()).spawn(move || host.saver.run(&host, &log))
    }

    /// Has everything saved soon.
    pub(crate) fn ask(&self) {
        self.state.lock().wanted = true;
        self.wake.notify_one();
    }

    /// Has the thread end, when it is done with what it is at.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_one();
    }

    /// Saves that have failed.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Saves everything that was logged so far, and gives the position behind which the log is still needed, if at all. Blocks.
    ///
    /// # Errors
    /// I/O errors, or what is to be saved is not committed yet. The log has all of it.
    pub(crate) fn save_all(&self, host: &ServerHost, log: &Log) -> Result<Option<Lsn>, StoreError> {
        self.save(host, log, true)
    }

    fn run(&self, host: &ServerHost, log: &Log) {
        loop {
            let mut state = self.state.lock();
            if !state.wanted && !state.stopping {
                self.wake.wait_for(&mut state, LOOK_PERIOD);
            }
            if state.stopping {
                return;
            }
            let everything = std::mem::take(&mut state.wanted);
            let rests = state.failed_at_ms.is_some_and(|at_ms| host.unix_ms() < at_ms + RETRY_MS);
            drop(state);
            // What a forced recovery has left is not written down before it is confirmed.
            if (everything || !rests) && !log.is_frozen() {
                // It was told, and is tried again.
                let _ = self.save(host, log, everything);
            }
        }
    }

    fn save(&self, host: &ServerHost, log: &Log, everything: bool) -> Result<Option<Lsn>, StoreError> {
        let Some(served) = host.served() else { return Ok(None) };
        let _turn = self.turn.lock();
        let due = Due { now_ms: host.monotonic_us() / 1000, upto: host.node.applied(log), everything };
        let patience_us = if everything { COMMIT_PATIENCE_US } else { 0 };
        let mut committed = |lsn: Lsn| {
            let is_durable = lsn <= log.durable_lsn() || log.make_durable(lsn).is_ok();
            is_durable && self.await_commit(host, log, lsn, host.monotonic_us() + patience_us)
        };
        let saved = served.documents.checkpoint(&due, &mut committed);
        self.note(host, &saved);
        saved.map(|()| served.documents.saved_lsn())
    }

    /// Waits for replicas, if they have to have it.
    fn await_commit(&self, host: &ServerHost, log: &Log, lsn: Lsn, until_us: u64) -> bool {
        while lsn > log.committed_lsn() {
            let is_over = log.poison_reason().is_some() || self.state.lock().stopping;
            if is_over || host.monotonic_us() > until_us {
                return false;
            }
            thread::sleep(COMMIT_POLL);
        }
        true
    }

    fn note(&self, host: &ServerHost, saved: &Result<(), StoreError>) {
        let failed_at_ms = match saved {
            // Replicas take their time; they are asked again.
            Ok(()) | Err(StoreError::NotCommitted) => None,
            Err(error) => {
                self.failures.fetch_add(1, Relaxed);
                tracing::error!(
                    target: "server", %error,
                    "documents cannot be saved in their files. Nothing is lost, the log keeps them and grows: see to the disk, \
                     then start again"
                );
                Some(host.unix_ms())
            }
        };
        self.state.lock().failed_at_ms = failed_at_ms;
    }
}
