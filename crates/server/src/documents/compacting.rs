//! The thread "compaction": rewrites the files of databases that are mostly garbage, one at a time.
//!
//! This thread decides when a compaction runs (a periodic check, `POST /db/_compact`) and how fast. The crate
//! `documents` does the compaction itself, in steps.
//!
//! Invariants
//! - The thread rests between two steps, so that it takes at most [`CPU_PERCENT`] of the processors' time. It
//!   does not rest while a requested compaction runs or waits for its turn, or while the compaction catches
//!   up with writers.
//! - An interrupted compaction changes nothing.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

use couch::Running;
use documents::{Compaction, Database, DbId, Step, StoreError};
use engine::DocumentsCell;
use env::Clock;
use parking_lot::{Condvar, Mutex};

use super::Saver;
use crate::pace::Pace;

/// Period of the check for files worth compacting.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
/// A compaction that must wait for a save of its database retries at this interval, and is given up after
/// this many retries.
const BLOCKED_PAUSE: Duration = Duration::from_millis(100);
const BLOCKED_MAX: u32 = 600;
/// The maximum share of the CPU time of all processors together.
const CPU_PERCENT: u64 = 20;
/// Delay of automatic compaction after a failure; requests are not delayed.
const RETRY_MS: u64 = 600_000;

pub(crate) struct Compactor {
    documents: Arc<DocumentsCell>,
    saver: Arc<Saver>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    wake: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Requested compactions, without duplicates.
    asked: VecDeque<DbId>,
    running: Option<Running>,
    failed_at_ms: Option<u64>,
}

impl Compactor {
    pub(crate) fn new(documents: Arc<DocumentsCell>, saver: Arc<Saver>, clock: Arc<dyn Clock>) -> Compactor {
        let (state, wake, stopping) = Default::default();
        Compactor { documents, saver, clock, state, wake, stopping }
    }

    /// Starts the thread. Call once documents are served.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let compactor = self.clone();
        thread::Builder::new().name("compaction".into()).spawn(move || compactor.run())
    }

    /// Asks the thread to abandon its work and end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        drop(self.state.lock());
        self.wake.notify_one();
    }

    fn run(&self) {
        // Commands of clients have priority. If the nice value cannot be set, compaction still works.
        let _ = env::thread::set_nice(15);
        loop {
            let mut state = self.state.lock();
            if state.asked.is_empty() && !self.stopping.load(Relaxed) {
                self.wake.wait_for(&mut state, LOOK_PERIOD);
            }
            if self.stopping.load(Relaxed) {
                return;
            }
            let asked = state.asked.front().copied();
            let rests = state.failed_at_ms.is_some_and(|at_ms| self.clock.unix_ms() < at_ms + RETRY_MS);
            drop(state);
            let Some(documents) = self.documents.get() else { continue };
            let database = match asked {
                Some(db) => documents.by_id(db),
                None if rests => None,
                None => documents.all().into_iter().find(|database| database.wants_compaction()),
            };
            if let Some(database) = &database {
                self.compact(database);
            }
            let mut state = self.state.lock();
            state.running = None;
            if asked.is_some() {
                state.asked.pop_front();
            }
        }
    }

    fn compact(&self, database: &Arc<Database>) {
        let outcome = self.compact_paced(database);
        let name = &**database.name();
        let failed = match outcome {
            Ok(Some(bytes)) => {
                tracing::info!(target: "server", database = name, bytes, "compacted");
                // The save makes the catalog name the new file; only then the old file is removed.
                self.saver.ask();
                false
            }
            Ok(None) => false,
            Err(error) => {
                tracing::error!(
                    target: "server", database = name, %error,
                    "a database cannot be compacted; it keeps its file"
                );
                true
            }
        };
        self.state.lock().failed_at_ms = failed.then(|| self.clock.unix_ms());
    }

    /// Compacts a database at the permitted pace. Returns the bytes of the new file; `None` if nothing was to
    /// be done, or the compaction was given up.
    fn compact_paced(&self, database: &Arc<Database>) -> Result<Option<u64>, StoreError> {
        let Some(documents) = self.documents.get() else { return Ok(None) };
        let Some(mut compaction) = documents.begin_compaction(database)? else { return Ok(None) };
        let (pace, since_unix_ms) = (Pace::default(), self.clock.unix_ms());
        let mut cpu_us = env::thread::cpu_time_us();
        let mut step = |compaction: &mut Compaction| -> Result<Step, StoreError> {
            let (db, percent) = (database.id(), compaction.percent());
            self.state.lock().running = Some(Running { db, percent, since_unix_ms });
            let step = compaction.step()?;
            let used_cpu_us = env::thread::cpu_time_us() - cpu_us;
            cpu_us += used_cpu_us;
            let per_second = CPU_PERCENT * 10_000 * env::process::cores_available() as u64;
            let pause_us = pace.pause_us(used_cpu_us, per_second, self.clock.monotonic_us());
            let mut state = self.state.lock();
            // No pause while a requested compaction runs or waits for its turn, or while the compaction
            // catches up with writers.
            let is_urgent = !state.asked.is_empty() || compaction.is_catching_up();
            if pause_us > 0 && !self.stopping.load(Relaxed) && !is_urgent {
                self.wake.wait_for(&mut state, Duration::from_micros(pause_us));
            }
            Ok(step)
        };
        let mut blocked = 0;
        while !self.stopping.load(Relaxed) && blocked < BLOCKED_MAX {
            match step(&mut compaction)? {
                Step::Done => return Ok(Some(database.snapshot().info().file_bytes)),
                Step::More => {}
                Step::Blocked => {
                    blocked += 1;
                    self.wake.wait_for(&mut self.state.lock(), BLOCKED_PAUSE);
                }
            }
        }
        Ok(None)
    }
}

impl couch::Compaction for Compactor {
    fn ask(&self, db: DbId) {
        let mut state = self.state.lock();
        if !state.asked.contains(&db) {
            state.asked.push_back(db);
        }
        self.wake.notify_one();
    }

    fn is_to_compact(&self, db: DbId) -> bool {
        let state = self.state.lock();
        state.asked.contains(&db) || state.running.is_some_and(|running| running.db == db)
    }

    fn running(&self) -> Option<Running> {
        self.state.lock().running
    }
}
