//! Long units of a worker's clients: away to a thread of their own, and back.

use engine::{LongUnit, PendingServes, ScriptKind};

use super::Worker;
use crate::{
    long_units::Job,
    mailbox::{LongUnitDone, WorkerOrder},
};

impl Worker {
    /// Runs a long unit on another thread, or refuses it.
    pub(crate) fn run_on_own_thread(&self, client_id: u64, unit: Box<LongUnit>) {
        let (mailbox, reaper, host) = (self.mailbox.clone(), self.reaper.clone(), self.host.clone());
        let refused = self.parts.long_units.take_on(Job { client_id, unit, mailbox, reaper, host });
        refused.into_iter().for_each(|job| self.refuse(job));
    }

    /// Passes on the reply and the notices of a long unit that has ended.
    pub(super) fn take_back(&self, done: LongUnitDone) {
        let LongUnitDone { client_id, reply, notices, wrote, serves, traced } = done;
        if !serves.is_empty() {
            self.run_own(|executor| executor.adopt_pending_serves(serves, &self.host));
        }
        let ended = {
            let executor = &mut *self.executor.borrow_mut();
            executor.adopt_traced(traced, &self.host);
            self.tick.borrow_mut().after_long_unit(executor, notices, wrote)
        };
        if ended.ends_tick {
            self.wake_up.notify_one();
        }
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let committed = self.executor.borrow().committed_lsn();
        let appended = connection.return_from_thread(reply, committed, ended.backpressure);
        let behind_reply = connection.take_behind_reply();
        self.send_later(connection, appended);
        for (bytes, gate) in behind_reply {
            self.push(client_id, &bytes, gate);
        }
    }

    /// Refuses the long units that have waited too long for a thread; their clients get a BUSY error.
    pub(super) fn refuse_overdue(&self) {
        let overdue = self.parts.long_units.take_overdue(&self.host.scripts);
        overdue.into_iter().for_each(|job| self.refuse(job));
    }

    /// Logs a warning when a script has run for longer than `busy-reply-threshold`: from then on, commands on
    /// its keys are refused, and snapshots wait for its end.
    pub(super) fn warn_of_slow_scripts(&self) {
        for kind in self.host.scripts.take_slow(self.host.monotonic_us()) {
            let (runs, way_out) = match kind {
                ScriptKind::Script => ("a script", "SCRIPT KILL"),
                ScriptKind::Function => ("a function", "FUNCTION KILL"),
            };
            tracing::warn!(
                target: "server",
                "{runs} has run for longer than busy-reply-threshold: commands on its keys are answered BUSY, and snapshots wait for them; {way_out} ends it"
            );
        }
    }

    fn refuse(&self, Job { client_id, unit, mailbox, .. }: Job) {
        let reply = self.executor.borrow_mut().refuse_long(*unit, &self.host);
        mailbox.send(WorkerOrder::LongUnit(Box::new(LongUnitDone {
            client_id,
            reply,
            notices: Vec::new(),
            wrote: false,
            serves: PendingServes::default(),
            traced: Vec::new(),
        })));
    }
}
