//! Carries out the orders of other threads: connections to serve, bytes for clients, results to take over.

use std::rc::Rc;

use engine::CommandError;
use lsn::Lsn;

use super::Worker;
use crate::{connection::Connection, log_threads::LogThreads, mailbox::WorkerOrder};

impl Worker {
    pub(super) fn handle(self: &Rc<Self>, order: WorkerOrder) {
        match order {
            WorkerOrder::Connect(_) if self.stopping.get() => {}
            WorkerOrder::Connect(admitted) => self.connect(admitted),
            WorkerOrder::Attach(log) => self.attach(log),
            WorkerOrder::Kill(id) => {
                let killed = self.connections.borrow().get(&id).cloned();
                if let Some(connection) = killed {
                    connection.kill();
                }
            }
            WorkerOrder::Review(id) => self.review(id),
            WorkerOrder::Push { client_id, bytes, gate } => self.push(client_id, &bytes, gate),
            WorkerOrder::Answer { client_id, bytes, gate } => self.answer(client_id, &bytes, gate),
            WorkerOrder::GoOn(client_id) => {
                let held = self.connections.borrow().get(&client_id).cloned();
                if let Some(connection) = held {
                    connection.end_hold();
                }
            }
            WorkerOrder::LongUnit(done) => self.take_back(*done),
            WorkerOrder::Feed(feed) => self.feed(&feed),
            WorkerOrder::Publish(events) => self.publish_own(&events),
            WorkerOrder::Report(done) => _ = done.send(()),
            WorkerOrder::ReleaseMemory => env::allocator::release_unused(),
            WorkerOrder::LeaseRenewed => self.send_withheld(),
            WorkerOrder::Overdue(up_to) => {
                let failed = self.fail_held(up_to, &CommandError::NotReplicated);
                self.parts.node.acks_timed_out(failed);
            }
            WorkerOrder::RefuseHeld(refusal) => _ = self.fail_held(Lsn::MAX, &CommandError::Text(refusal)),
            WorkerOrder::HangUp => {
                self.connections.borrow().values().for_each(|connection| connection.kill())
            }
            WorkerOrder::Fail(done) => {
                self.fail_all();
                let _ = done.send(());
            }
            WorkerOrder::Stop(done) => _ = done.send(()),
        }
    }

    /// Closes a connection that listens to a channel, or uses MONITOR, if its user may no longer do that.
    fn review(&self, id: u64) {
        let Some(connection) = self.connections.borrow().get(&id).cloned() else { return };
        connection.client().begin_review();
        if !connection.may_listen(&mut self.executor.borrow_mut(), &self.host) {
            connection.kill();
        }
    }

    fn attach(&self, log: LogThreads) {
        let appender = log.log().appender();
        let wake_up = self.wake_up.clone();
        appender.listen(move || wake_up.notify_one());
        self.executor.borrow_mut().attach(appender);
        let _ = self.log.set(log);
    }

    /// Appends bytes for a client. They are sent at the end of the tick, together with its other pushed
    /// bytes.
    pub(super) fn push(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let committed = self.executor.borrow().committed_lsn();
        let appended = connection.push(bytes, gate, committed);
        self.send_later(connection, appended);
    }

    /// Appends the reply to a blocked command.
    fn answer(&self, client_id: u64, bytes: &[u8], gate: Lsn) {
        let Some(connection) = self.connections.borrow().get(&client_id).cloned() else { return };
        let committed = self.executor.borrow().committed_lsn();
        let appended = connection.answer(bytes, gate, committed);
        self.send_later(connection, appended);
    }

    /// Takes care of a connection to whose outbox bytes were appended: parks it at the gate `held`, if any.
    /// If `first`, also adds it to the connections that send at the end of the tick.
    pub(super) fn send_later(&self, connection: Rc<Connection>, (held, first): (Option<Lsn>, bool)) {
        if let Some(gate) = held {
            self.tick.borrow_mut().park(gate, connection.clone());
        }
        if first {
            self.pushed.borrow_mut().push(connection);
        }
        self.end_tick_later();
    }

    /// Fails the replies that wait for a gate up to this position. Returns the number of these replies.
    fn fail_held(&self, up_to: Lsn, error: &CommandError) -> u64 {
        let waiting = self.tick.borrow_mut().take_overdue(up_to);
        self.end_tick_later();
        self.executor.borrow_mut().fail_traced(up_to, error, &self.host);
        waiting.iter().map(|connection| connection.fail_held(up_to, error)).sum()
    }
}
