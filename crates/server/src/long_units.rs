//! The threads that long units run on: see [`engine::LongUnit`].
//!
//! What it is: a bounded number of threads, each of which is there only while there is something to run, and a queue in front of
//! them. What it is not: what decides that a unit is long (see `engine::long_units`), or what sends its reply, which is up to the
//! worker of its client.
//!
//! Invariants
//! - A unit that was taken on is answered, once, by a message to the worker of its client; the thread keeps nothing of it then.
//! - A connection has one unit here at most, so `maxclients` bounds the queue. Who waits in it for longer than
//!   `busy-reply-threshold`, because scripts have all threads, is told BUSY.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use engine::{Host, LongReply, LongUnit, Notice, Scripts};
use env::Clock;
use parking_lot::{Condvar, Mutex};
use storage::{Appender, Log};

use crate::{
    attached_log::AttachedLog,
    config::Config,
    mailbox::{Mailbox, Message},
    parts::Data,
    reaper::Reaper,
};

/// Long units that run at the same time.
pub(crate) const LONG_UNITS_MAX: usize = 32;

/// How often who waits for all that run is asked whether to give up.
const SETTLE_PERIOD: Duration = Duration::from_millis(10);

/// Threads of long units leave more to others, if there is not enough for all: somebody waits for each of those.
const NICE: i32 = 5;

/// A unit, and who waits for it.
pub(crate) struct Job {
    pub(crate) client_id: u64,
    pub(crate) unit: Box<LongUnit>,
    pub(crate) mailbox: Mailbox,
    pub(crate) reaper: Reaper,
    pub(crate) host: Host,
}

/// What came of a unit.
pub(crate) struct Done {
    pub(crate) client_id: u64,
    pub(crate) reply: LongReply,
    /// The notices of the worker.
    pub(crate) notices: Vec<Notice>,
    /// Whether it has appended to the log.
    pub(crate) wrote: bool,
}

/// See the module documentation.
pub(crate) struct LongUnits {
    data: Data,
    workers: usize,
    clock: Arc<dyn Clock>,
    config: Arc<Config>,
    log: Arc<AttachedLog>,
    state: Mutex<State>,
    /// Something has ended.
    ended: Condvar,
    /// What units append to the log with; a log has only so many.
    appenders: Mutex<Vec<Appender>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    /// What each thread runs, by its number.
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

    /// Runs a unit, now or when a thread is free. Returns those that no thread can be had for.
    pub(crate) fn take_on(self: &Arc<Self>, job: Job) -> VecDeque<Job> {
        let mut state = self.state.lock();
        state.waiting.push_back((self.clock.monotonic_us(), job));
        let Some(free) = state.running.iter().position(Option::is_none) else { return VecDeque::new() };
        let running = self.clone();
        let run = move || {
            // Where it is refused, the work is done all the same.
            let _ = env::thread::set_nice(NICE);
            running.run(free);
        };
        // The thread begins with the lock that is held here.
        state.running[free] = Some(state.begun);
        match std::thread::Builder::new().name(format!("long-{free}")).spawn(run) {
            Ok(_) => VecDeque::new(),
            Err(error) => {
                tracing::error!(target: "server", %error, "no thread for a command that takes long");
                state.running[free] = None;
                state.waiting.drain(..).map(|(_, job)| job).collect()
            }
        }
    }

    /// Runs what waits, until nothing does.
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

    /// Takes out those that have waited for longer than `busy-reply-threshold`, because scripts have all threads.
    pub(crate) fn take_overdue(&self, scripts: &Scripts) -> Vec<Job> {
        let mut state = self.state.lock();
        let busy_after_us = scripts.settings.busy_after_ms() * 1000;
        if state.waiting.is_empty() || busy_after_us == 0 || !scripts.is_running() {
            return Vec::new();
        }
        let until_us = self.clock.monotonic_us().saturating_sub(busy_after_us);
        let overdue = state.waiting.iter().take_while(|(since_us, _)| *since_us <= until_us).count();
        state.waiting.drain(..overdue).map(|(_, job)| job).collect()
    }

    /// How many have begun on these threads since the start.
    pub(crate) fn begun(&self) -> u64 {
        self.state.lock().begun
    }

    /// Waits for all that run now, until it is asked to give up, which an endless script makes necessary. Whether all have ended.
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
        // It asks for the subscribers, and no more: the messages of the unit are among its notices.
        let mut executor = self.data.executor(self.workers + thread, 0);
        executor.own_thread();
        let spare = self.appenders.lock().pop();
        if let Some(appender) = spare.or_else(|| self.log.get().map(Log::appender)) {
            executor.attach(appender);
        }
        let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
        let (bulk_bytes_max, now_ms) = (self.config.hot().bulk_bytes_max(), || self.clock.unix_ms());
        let reply = executor.execute_long(*unit, &host, bulk_bytes_max, now_ms, pause);
        let done = Done { client_id, reply, notices: executor.take_notices(), wrote: executor.take_wrote() };
        if let Some(freed) = executor.take_freed() {
            reaper.free(freed);
        }
        self.appenders.lock().extend(executor.detach());
        drop(executor);
        mailbox.send(Message::LongUnit(Box::new(done)));
    }
}
