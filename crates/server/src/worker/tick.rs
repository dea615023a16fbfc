//! The rounds of a worker's connections and the end of its tick: carries out what [`engine::tick`] decides.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use engine::{
    Notice,
    conversation::{ConversationState, Round},
    tick::Action,
};
use lsn::Lsn;
use pubsub::Backpressure;
use wire::Limits;

use super::Worker;
use crate::{connection::Connection, log_threads::LogThreads};

impl Worker {
    /// Lends the worker's executor and parse buffer for one round of a connection's commands.
    pub(crate) fn with_round<R>(&self, run: impl FnOnce(&mut Round<'_>) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        let is_congested = self.tick.borrow().is_congested();
        let flush_alone = || self.flush_alone();
        let merging = self.parts.startup.merges || self.log.get().is_none();
        let hot = self.parts.config.hot();
        let limits = Limits {
            bulk_bytes_max: hot.bulk_bytes_max(),
            request_bytes_max: hot.request_bytes_max(),
            ..Limits::DEFAULT
        };
        let mut round = Round {
            executor: &mut executor,
            batch: &mut self.batch.borrow_mut(),
            host: &self.host,
            now_ms: self.parts.clock.unix_ms(),
            limits,
            is_congested,
            flush_alone: if merging { None } else { Some(&flush_alone) },
        };
        run(&mut round)
    }

    /// Flushes the write that was just executed, before the next command runs. Used if merging is off.
    fn flush_alone(&self) {
        if let Some(threads) = self.log.get() {
            // If the flush fails, the replies are never released, and the log thread ends the server.
            while threads.log().unwritten_bytes() > 0 && threads.log().flush().is_ok() {}
        }
    }

    /// Called by a connection after a round, before its replies leave. `gate` is the position for which its
    /// newest replies wait. Returns the reason to hold its next command back, if there is one: slow
    /// subscribers, or a full mailbox.
    pub(crate) fn after_round(
        &self,
        connection: &Rc<Connection>,
        gate: Option<Lsn>,
        state: ConversationState,
    ) -> Option<Backpressure> {
        let ended = {
            let mut executor = self.executor.borrow_mut();
            let ended = self.tick.borrow_mut().after_round(&mut executor, connection, gate, state);
            self.reap(&mut executor);
            ended
        };
        if ended.must_deliver {
            self.deliver();
        }
        if ended.ends_tick {
            self.wake_up.notify_one();
        }
        ended.backpressure
    }

    /// Makes the tick end once the connections that are ready have been served.
    pub(super) fn end_tick_later(&self) {
        if self.tick.borrow_mut().request_end() {
            self.wake_up.notify_one();
        }
    }

    /// Ends a tick once the connections that were ready in it have been served. Also runs whenever the
    /// committed end of the log has moved.
    pub(super) async fn tick_loop(self: Rc<Self>) {
        loop {
            self.wake_up.notified().await;
            self.tick.borrow_mut().begin_end();
            self.send_replies();
            while let Some(action) = self.next_action() {
                match action {
                    Action::LookAgain => tokio::task::yield_now().await,
                    action => self.carry_out(action),
                }
            }
            self.executor.borrow_mut().end_traced(&self.host);
            self.resume_held_back();
        }
    }

    fn next_action(&self) -> Option<Action<Rc<Connection>>> {
        self.tick.borrow_mut().next_action(&*self.executor.borrow())
    }

    #[inline]
    fn carry_out(&self, action: Action<Rc<Connection>>) {
        match action {
            Action::Release(connection, committed) => connection.release(committed),
            Action::Resume(connection) => connection.resume(),
            Action::Publish(notices) => self.publish(&notices),
            Action::Deliver => self.deliver(),
            Action::FlushHere => {
                self.mailbox.while_writing(|| self.log.get().into_iter().for_each(LogThreads::flush_here));
            }
            Action::WakeFlusher => self.log.get().into_iter().for_each(LogThreads::wake_if_needed),
            Action::LookAgain => {}
        }
    }

    /// Publishes notices that are committed.
    fn publish(&self, notices: &[Notice]) {
        let events = notices.iter().filter(|notice| matches!(notice, Notice::Event(_))).count();
        self.parts.counters.key_events.fetch_add(events as u64, Relaxed);
        self.executor.borrow_mut().publish_all(notices);
    }
}
