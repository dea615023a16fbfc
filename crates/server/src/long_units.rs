//! The threads that run long units: see [`engine::LongUnit`].
//!
//! There is a queue of units, and a bounded number of threads, each started only while units wait.
//! `engine::long_units` decides which units are long; the worker of the client sends the reply.
//!
//! Invariants
//! - A unit that was accepted is answered exactly once, by a message to the worker of its client; the thread
//!   keeps nothing of the unit.
//! - A connection has at most one unit here, so `maxclients` bounds the queue. While all threads are busy and
//!   a script runs, a unit that has waited for longer than `busy-reply-threshold` is answered BUSY.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use engine::{Host, LongUnit, Scripts};
use env::Clock;
use parking_lot::{Condvar, Mutex};
use storage::{Appender, Log};

use crate::{
    attached_log::AttachedLog,
    config::Config,
    data::Data,
    mailbox::{LongUnitDone, Mailbox, WorkerOrder},
    reaper::Reaper,
};

/// The maximum number of long units that run at the same time.
pub(crate) const LONG_UNITS_MAX: usize = 32;

/// Interval at which [`LongUnits::settle`] checks whether to give up.
const SETTLE_PERIOD: Duration = Duration::from_millis(10);

/// The niceness of the threads of long units. Workers, which serve all clients, have priority over a single
/// client's unit.
const NICE: i32 = 5;

/// A unit, and the client that waits for it.
pub(crate) struct Job {
    pub(crate) client_id: u64,
    pub(crate) unit: Box<LongUnit>,
    pub(crate) mailbox: Mailbox,
    pub(crate) reaper: Reaper,
    pub(crate) host: Host,
}

pub(crate) struct LongUnits {
    data: Data,
    workers: usize,
    clock: Arc<dyn Clock>,
    config: Arc<Config>,
    log: Arc<AttachedLog>,
    state: Mutex<State>,
    /// Notified when a unit begins or ends.
    ended: Condvar,
    /// Idle appenders for these threads, kept for reuse because a log has a limited number of appenders.
    appenders: Mutex<Vec<Appender>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    /// The serial number of the unit that each thread runs.
    running: [Option<u64>; LONG_UNITS_MAX],
    begun: u64,
}

impl LongUnits {
    pub(crate) fn new(
        data: Data,
        workers: usize,
        clock: Arc<dyn Clock>,
        config: Arc<Config>,
        log: Arc<AttachedLog>,
    ) -> LongUnits {
        let (state, ended, appenders) = Default::default();
        LongUnits { data, workers, clock, config, log, state, ended, appenders }
    }

    /// Runs a unit, now or when a thread is free. Returns the units for which no thread could be started.
    pub(crate) fn take_on(self: &Arc<Self>, job: Job) -> VecDeque<Job> {
        let mut state = self.state.lock();
        state.waiting.push_back((self.clock.monotonic_us(), job));
        let Some(free) = state.running.iter().position(Option::is_none) else { return VecDeque::new() };
        let running = self.clone();
        let run = move || {
            // If the nice value cannot be set, the thread still works.
            let _ = env::thread::set_nice(NICE);
            running.run(free);
        };
        // The new thread waits for the lock held here, so it finds this entry.
        state.running[free] = Some(state.begun);
        match std::thread::Builder::new().name(format!("long-{free}")).spawn(run) {
            Ok(_) => VecDeque::new(),
            Err(error) => {
                tracing::error!(target: "server", %error, "cannot start a thread for a long unit");
                state.running[free] = None;
                state.waiting.drain(..).map(|(_, job)| job).collect()
            }
        }
    }

    /// Runs waiting units until the queue is empty.
    fn run(&self, thread: usize) {
        loop {
            let mut state = self.state.lock();
            let Some((_, job)) = state.waiting.pop_front() else {
                state.running[thread] = None;
                self.ended.notify_all();
                return;
            };
            state.begun += 1;
            state.running[thread] = Some(state.begun);
            self.ended.notify_all();
            drop(state);
            self.execute(thread, job);
        }
    }

    /// While all threads are busy and a script runs, removes the units that have waited longer than
    /// `busy-reply-threshold`.
    pub(crate) fn take_overdue(&self, scripts: &Scripts) -> Vec<Job> {
        let mut state = self.state.lock();
        let busy_after_us = scripts.settings.busy_after_ms() * 1000;
        // While a thread is free, no unit is overdue: a thread that is about to take the unit may be slow to
        // start.
        let has_free_thread = state.running.iter().any(Option::is_none);
        if state.waiting.is_empty() || busy_after_us == 0 || has_free_thread || !scripts.is_running() {
            return Vec::new();
        }
        let until_us = self.clock.monotonic_us().saturating_sub(busy_after_us);
        let overdue = state.waiting.iter().take_while(|(since_us, _)| *since_us <= until_us).count();
        state.waiting.drain(..overdue).map(|(_, job)| job).collect()
    }

    /// The number of units that these threads have begun since this incarnation began.
    pub(crate) fn begun(&self) -> u64 {
        self.state.lock().begun
    }

    /// Waits for all units that run now, until `gives_up` returns true (a script may be endless). Returns
    /// whether all have ended.
    pub(crate) fn settle(&self, gives_up: &dyn Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        let newest = state.begun;
        while state.running.iter().flatten().any(|number| *number <= newest) {
            if gives_up() {
                return false;
            }
            self.ended.wait_for(&mut state, SETTLE_PERIOD);
        }
        true
    }

    fn execute(&self, thread: usize, Job { client_id, unit, mailbox, reaper, host }: Job) {
        // The executor needs only the numbers of subscribers from the channels, because messages of the unit
        // leave as notices.
        let mut executor = self.data.executor(self.workers + thread, 0);
        executor.own_thread();
        let spare = self.appenders.lock().pop();
        if let Some(appender) = spare.or_else(|| self.log.get().map(Log::appender)) {
            executor.attach(appender);
        }
        let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
        let (bulk_bytes_max, now_ms) = (self.config.hot().bulk_bytes_max(), || self.clock.unix_ms());
        let reply = executor.execute_long(*unit, &host, bulk_bytes_max, now_ms, pause);
        let (notices, wrote) = (executor.take_notices(), executor.take_wrote());
        let (serves, traced) = (executor.take_pending_serves(), executor.take_traced());
        let done = LongUnitDone { client_id, reply, notices, wrote, serves, traced };
        if let Some(freed) = executor.take_freed() {
            reaper.free(freed);
        }
        self.appenders.lock().extend(executor.detach());
        drop(executor);
        mailbox.send(WorkerOrder::LongUnit(Box::new(done)));
    }
}
