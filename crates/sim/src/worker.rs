//! A simulated worker: the executor and the tick of the server. A sabotage may show the tick a false state of
//! the log.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use engine::{
    Executor, Notice,
    conversation::ConversationState,
    tick::{Action, LogView, Tick},
};
use lsn::Lsn;
use storage::Log;

use crate::Sabotage;

/// A worker, which knows each connection by its index.
pub(crate) struct SimWorker {
    pub(crate) executor: Executor,
    tick: Tick<usize>,
    /// Whether the end of a tick is due: a round or an expiry requires it, or the log has woken the worker.
    due: Arc<AtomicBool>,
    sabotage: Option<Sabotage>,
}

impl SimWorker {
    /// A worker that appends to this log and is woken by it.
    pub(crate) fn new(mut executor: Executor, log: &Log, sabotage: Option<Sabotage>) -> SimWorker {
        let due = Arc::<AtomicBool>::default();
        let (appender, woken) = (log.appender(), due.clone());
        appender.listen(move || woken.store(true, SeqCst));
        executor.attach(appender);
        SimWorker { executor, tick: Tick::default(), due, sabotage }
    }

    /// A round of this client has ended. Returns the notices that a sabotage lets go at once.
    pub(crate) fn after_round(
        &mut self,
        client: usize,
        gate: Option<Lsn>,
        state: ConversationState,
    ) -> Vec<Notice> {
        let early = match self.sabotage {
            Some(Sabotage::EarlyNotices) => self.executor.take_notices(),
            _ => Vec::new(),
        };
        if self.tick.after_round(&mut self.executor, &client, gate, state).ends_tick {
            self.due.store(true, SeqCst);
        }
        early
    }

    /// The worker has removed expired keys.
    pub(crate) fn after_own_changes(&mut self) {
        if self.tick.after_own_changes(&mut self.executor) {
            self.due.store(true, SeqCst);
        }
    }

    /// Whether so many notices wait for the log that no command may run.
    pub(crate) fn is_congested(&self) -> bool {
        self.tick.is_congested()
    }

    /// Whether the end of a tick has begun and has actions left.
    pub(crate) fn is_ending(&self) -> bool {
        self.tick.is_ending()
    }

    /// The next action of the end of a tick; begins one that is due.
    pub(crate) fn next_action(&mut self) -> Option<Action<usize>> {
        if !self.tick.is_ending() {
            if !self.due.swap(false, SeqCst) {
                return None;
            }
            self.tick.begin_end();
        }
        self.tick.next_action(&SabotagedLog { executor: &self.executor, sabotage: self.sabotage })
    }

    /// Forgets everything that waits.
    pub(crate) fn clear(&mut self) {
        self.tick.clear();
    }
}

/// The log as the sabotage shows it.
struct SabotagedLog<'w> {
    executor: &'w Executor,
    sabotage: Option<Sabotage>,
}

impl LogView for SabotagedLog<'_> {
    fn committed_lsn(&self) -> Lsn {
        match self.sabotage {
            Some(Sabotage::EarlyReplies) => Lsn::MAX,
            _ => self.executor.committed_lsn(),
        }
    }

    fn wait_for(&self, gate: Lsn) -> bool {
        self.sabotage == Some(Sabotage::NoWakeUp) || LogView::wait_for(self.executor, gate)
    }

    fn wait_for_room(&self) -> bool {
        LogView::wait_for_room(self.executor)
    }

    fn needs_flush(&self) -> bool {
        LogView::needs_flush(self.executor)
    }
}
