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
//! - What could not be saved is tried again for ever, less and less often: there may be room on the disk again. Till then it stays
//!   in the log, which takes writes as long as there is room for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use documents::{Due, StoreError};
use engine::DocumentsCell;
use env::Clock;
use lsn::Lsn;
use parking_lot::{Condvar, Mutex};
use storage::Log;

use crate::replication::Node;

/// How often it is looked what is due.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How long a save of everything waits for replicas, and how often it looks.
const COMMIT_PATIENCE_US: u64 = 10_000_000;
const COMMIT_POLL: Duration = Duration::from_millis(1);
/// After a failure it is tried again after so long, unless somebody asks, and after twice as long each time it fails again.
const RETRY_MS_MIN: u64 = 1_000;
const RETRY_MS_MAX: u64 = 60_000;

/// See the module documentation.
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
    /// Everything is to be saved.
    wanted: bool,
    stopping: bool,
    failing: Option<Failing>,
}

/// The last save has failed.
#[derive(Clone, Copy)]
struct Failing {
    at_ms: u64,
    retry_ms: u64,
}

impl Failing {
    /// It has failed now, perhaps again.
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

    /// Starts the thread, once documents are served.
    pub(crate) fn start(self: &Arc<Self>, log: &Log) -> std::io::Result<JoinHandle<()>> {
        let (saver, log) = (self.clone(), log.clone());
        thread::Builder::new().name("documents".into()).spawn(move || saver.run(&log))
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
    pub(crate) fn save_all(&self, log: &Log) -> Result<Option<Lsn>, StoreError> {
        self.save(log, true)
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
            // What a forced recovery has left is not written down before it is confirmed.
            if (everything || !rests) && !log.is_frozen() {
                // It was told, and is tried again.
                let _ = self.save(log, everything);
            }
        }
    }

    fn save(&self, log: &Log, everything: bool) -> Result<Option<Lsn>, StoreError> {
        let Some(documents) = self.documents.get() else { return Ok(None) };
        let _turn = self.turn.lock();
        let due = Due { now_ms: self.clock.monotonic_us() / 1000, upto: self.node.applied(log), everything };
        let patience_us = if everything { COMMIT_PATIENCE_US } else { 0 };
        let mut committed = |lsn: Lsn| {
            let is_durable = lsn <= log.durable_lsn() || log.make_durable(lsn).is_ok();
            is_durable && self.await_commit(log, lsn, self.clock.monotonic_us() + patience_us)
        };
        let saved = documents.checkpoint(&due, &mut committed);
        self.note(&saved);
        if documents.is_saved()
            && let Err(error) = log.note_documents()
        {
            tracing::warn!(target: "server", %error, "the control file cannot say that there are documents; it is tried again");
        }
        saved.map(|()| documents.saved_lsn())
    }

    /// Waits for replicas, if they have to have it.
    fn await_commit(&self, log: &Log, lsn: Lsn, until_us: u64) -> bool {
        while lsn > log.committed_lsn() {
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
            // Replicas take their time; they are asked again.
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
    fn what_fails_is_tried_again_less_and_less_often_but_for_ever() {
        let mut failing = None;
        let mut pauses_ms = Vec::new();
        for now_ms in 0..9 {
            failing = Some(Failing::after(failing, now_ms));
            pauses_ms.extend(failing.map(|failing| failing.retry_ms));
        }
        assert_eq!(pauses_ms, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    }
}
