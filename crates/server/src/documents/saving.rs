//! Saves databases to their files: on the thread "documents" when they are due or requested, and on the
//! calling thread before a snapshot begins or is published, and when the server stops.
//!
//! ```text
//! each second | requested | snapshot about to be published
//!     -> log durable and committed -> tree files -> catalog
//! ```
//!
//! The saver decides when to save, and logs the result. Acknowledged changes do not depend on a save: they
//! are in the log, and stay there until they are saved.
//!
//! Invariants
//! - One save at a time.
//! - After a forced recovery nothing is saved before the operator confirms it; the confirmation saves
//!   everything.
//! - Files hold only committed changes, so they fit a log that has lost its uncommitted tail.
//! - The log before a snapshot's begin is given up only if documents are saved up to there: recovery begins
//!   at a snapshot for keys and documents alike.
//! - A failed save is retried for ever, at growing pauses: the disk may have room again. Until a save
//!   succeeds, the changes stay in the log, which takes writes as long as it has room.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use documents::{Documents, Due, StoreError};
use engine::DocumentsCell;
use env::Clock;
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use storage::Log;

use crate::replication::Node;

/// Period of the check for due saves.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The longest time for which a save of everything waits, in each database, until the changes are committed.
const COMMIT_PATIENCE_US: u64 = 10_000_000;
/// As [`COMMIT_PATIENCE_US`], for a save that may leave out changes that are not committed.
const SHORT_PATIENCE_US: u64 = 1_000_000;
/// The period at which a waiting save checks whether the changes are committed.
const COMMIT_POLL: Duration = Duration::from_millis(1);
/// The pause after a failed save; it doubles with each further failure, up to the maximum. Requested saves do
/// not wait for the pause.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;

pub(crate) struct Saver {
    documents: Arc<DocumentsCell>,
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    turn: Mutex<()>,
    state: Mutex<State>,
    wake: Condvar,
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    /// A save of everything is requested.
    wanted: bool,
    stopping: bool,
    failing: Option<Failing>,
}

/// When the last save has failed, and for how long the next attempt waits, in milliseconds.
#[derive(Clone, Copy)]
struct Failing {
    at_ms: u64,
    retry_ms: u64,
}

impl Failing {
    /// The state after one more failure.
    fn after(before: Option<Failing>, now_ms: u64) -> Failing {
        let retry_ms = before.map_or(RETRY_MS_MIN, |before| (2 * before.retry_ms).min(RETRY_MS_MAX));
        Failing { at_ms: now_ms, retry_ms }
    }
}

impl Saver {
    pub(crate) fn new(documents: Arc<DocumentsCell>, node: Arc<Node>, clock: Arc<dyn Clock>) -> Saver {
        let (turn, state, wake, failures) = Default::default();
        Saver { documents, node, clock, turn, state, wake, failures }
    }

    /// Starts the thread. Call once documents are served.
    pub(crate) fn start(self: &Arc<Self>, log: &Log) -> std::io::Result<JoinHandle<()>> {
        let (saver, log) = (self.clone(), log.clone());
        thread::Builder::new().name("documents".into()).spawn(move || saver.run(&log))
    }

    /// Requests a save of everything.
    pub(crate) fn ask(&self) {
        self.state.lock().wanted = true;
        self.wake.notify_one();
    }

    /// Asks the thread to end after its current save.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_one();
    }

    /// The number of failed saves; a save that only lacked a commit does not count.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Saves everything applied so far, unless the log is frozen. Returns the position after which documents
    /// still need the log; `None` without documents. Blocks.
    ///
    /// # Errors
    /// If files cannot be written or read, or records to be saved are not committed; the log has all of them.
    pub(crate) fn save_all(&self, log: &Log) -> Result<Option<Lsn>, StoreError> {
        self.save(log, true, COMMIT_PATIENCE_US)
    }

    /// As [`Saver::save_all`], but waits only briefly until changes are committed. Returns `false` if some
    /// changes are not committed yet.
    ///
    /// # Errors
    /// If files cannot be written or read.
    pub(crate) fn save_committed(&self, log: &Log) -> Result<bool, StoreError> {
        match self.save(log, true, SHORT_PATIENCE_US) {
            Err(StoreError::NotCommitted) => Ok(false),
            saved => saved.map(|_| true),
        }
    }

    /// The documents; `None` until documents are served.
    pub(crate) fn documents(&self) -> Option<&Documents> {
        self.documents.get().map(|documents| &**documents)
    }

    /// The position up to which documents are saved; `None` without documents.
    pub(crate) fn saved_lsn(&self) -> Option<Lsn> {
        self.documents.get()?.saved_lsn()
    }

    fn run(&self, log: &Log) {
        loop {
            let mut state = self.state.lock();
            if !state.wanted && !state.stopping {
                self.wake.wait_for(&mut state, LOOK_PERIOD);
            }
            if state.stopping {
                return;
            }
            let everything = std::mem::take(&mut state.wanted);
            let now_ms = self.clock.monotonic_us() / 1000;
            let rests = state.failing.is_some_and(|failing| now_ms < failing.at_ms + failing.retry_ms);
            drop(state);
            if everything || !rests {
                // A failure is logged, and the save is retried.
                let _ = self.save(log, everything, if everything { COMMIT_PATIENCE_US } else { 0 });
            }
        }
    }

    /// Saves the databases that are due, or `everything`. Waits for `patience_us` at most, in each database,
    /// until its changes are committed.
    fn save(&self, log: &Log, everything: bool, patience_us: u64) -> Result<Option<Lsn>, StoreError> {
        let Some(documents) = self.documents.get() else { return Ok(None) };
        if log.is_frozen() {
            return Ok(documents.saved_lsn());
        }
        let _turn = self.turn.lock();
        let due = Due { now_ms: self.clock.monotonic_us() / 1000, upto: self.node.applied(log), everything };
        let mut committed = |lsn: Lsn| {
            let is_durable = lsn <= log.durable_lsn() || log.make_durable(lsn).is_ok();
            is_durable && self.await_commit(log, lsn, self.clock.monotonic_us() + patience_us)
        };
        let saved = documents.checkpoint(&due, &mut committed);
        self.note(&saved);
        if documents.is_saved()
            && let Err(error) = log.note_documents()
        {
            tracing::warn!(target: "server", %error, "cannot record in the control file that documents exist; retrying");
        }
        saved.map(|()| documents.saved_lsn())
    }

    /// Waits until `lsn` is committed. Returns false after `until_us`, or if the log has failed or the thread
    /// is to end.
    fn await_commit(&self, log: &Log, lsn: Lsn, until_us: u64) -> bool {
        while lsn > self.node.committed(log) {
            let is_over = log.poison_reason().is_some() || self.state.lock().stopping;
            if is_over || self.clock.monotonic_us() > until_us {
                return false;
            }
            thread::sleep(COMMIT_POLL);
        }
        true
    }

    fn note(&self, saved: &Result<(), StoreError>) {
        let mut state = self.state.lock();
        match saved {
            // Acknowledgements of replicas take time; the save is retried.
            Err(StoreError::NotCommitted) => {}
            Ok(()) => {
                if state.failing.take().is_some() {
                    tracing::info!(target: "server", "documents are saved in their files again");
                }
            }
            Err(error) => {
                self.failures.fetch_add(1, Relaxed);
                let failing = Failing::after(state.failing, self.clock.monotonic_us() / 1000);
                state.failing = Some(failing);
                let retry_s = failing.retry_ms / 1000;
                tracing::error!(
                    target: "server", %error, retry_s,
                    "documents cannot be saved in their files. Nothing is lost, the log keeps them and grows: see to the disk; \
                     it is tried again"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_save_is_retried_at_growing_pauses_for_ever() {
        let mut failing = None;
        let mut pauses_ms = Vec::new();
        for now_ms in 0..9 {
            failing = Some(Failing::after(failing, now_ms));
            pauses_ms.extend(failing.map(|failing| failing.retry_ms));
        }
        assert_eq!(pauses_ms, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    }
}
