//! The path of channel messages through a worker: from the publishers among its clients to the connections of
//! subscribers.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use engine::Notice;
use lsn::Lsn;
use pubsub::durable::{Encoded, Feed, Part, Request};

use super::Worker;
use crate::connection::Connection;

/// Extra polls of the sockets before messages are delivered, at most.
const LOOKS_MAX: usize = 3;
/// Number of rounds that must have published before the worker polls for more.
const ROUNDS_MIN: u32 = 2;

impl Worker {
    /// Called after a round, before its replies leave: hands its messages over to other workers. Returns
    /// whether messages must be delivered at the end of the tick.
    pub(super) fn flush_mailboxes(&self) -> bool {
        let (published, must_deliver) = {
            let mut executor = self.executor.borrow_mut();
            let channels = executor.channels();
            (channels.flush_mailboxes(), channels.must_deliver())
        };
        if must_deliver {
            self.deliver();
        }
        published
    }

    /// While several clients publish, polls the sockets a few times more before messages are delivered, so
    /// that a subscriber gets more with one send: a send costs far more than all other work for a message. A
    /// single publisher is never delayed.
    pub(super) async fn coalesce_messages(&self) {
        for _ in 0..LOOKS_MAX {
            let before = self.published_rounds.get();
            if before < ROUNDS_MIN {
                return;
            }
            tokio::task::yield_now().await;
            self.kick_flush();
            if self.published_rounds.get() == before {
                return;
            }
        }
    }

    /// Delivers published messages and sends them with other pushed bytes: one write per connection, unless
    /// memory requires more.
    pub(super) fn deliver(&self) {
        self.published_rounds.set(0);
        while self.deliver_some() {}
    }

    /// Delivers and sends as much as memory should hold at once, and enforces the common limit of unsent
    /// bytes. Returns whether more is left.
    fn deliver_some(&self) -> bool {
        let has_more = {
            let mut executor = self.executor.borrow_mut();
            let connections = self.connections.borrow();
            let mut pushed = self.pushed.borrow_mut();
            let channels = executor.channels();
            let has_more = channels.deliver_some();
            channels.take_due(|client_id, delivery| {
                let connection = connections.get(&client_id).filter(|it| !it.is_broken());
                if let Some(connection) = connection
                    && connection.deliver(delivery)
                {
                    pushed.push(connection.clone());
                }
                connection.is_some()
            });
            has_more
        };
        let pushed = std::mem::take(&mut *self.pushed.borrow_mut());
        pushed.iter().for_each(|connection| connection.send_pushed());
        self.enforce_common_limit();
        has_more
    }

    /// The log is durable up to here: publishes the notices that waited for it.
    pub(super) fn tell(&self, durable: Lsn) {
        let notices = self.waiting.borrow_mut().release_notices(durable);
        if notices.is_empty() {
            return;
        }
        let events = notices.iter().filter(|notice| matches!(notice, Notice::Event(_))).count();
        self.parts.counters.key_events.fetch_add(events as u64, Relaxed);
        {
            let mut executor = self.executor.borrow_mut();
            notices.iter().for_each(|notice| executor.publish(notice));
            // The originator of these notices was held back, if at all, after its round.
            executor.channels().take_backpressure();
            executor.channels().flush_mailboxes();
        }
        self.deliver();
    }

    /// Passes messages and events on to followers of durable channels; they are sent at the end of the tick.
    pub(super) fn feed(&self, feed: &Feed) {
        for part in feed.parts() {
            match part {
                Part::Frames(run) => {
                    let mut encoded: [Option<Encoded>; 2] = [None, None];
                    for id in run.to {
                        let connection = self.connections.borrow().get(&id.client_id).cloned();
                        if let Some(connection) = connection
                            && connection.feed(*id, &run, &mut encoded)
                        {
                            self.pushed.borrow_mut().push(connection);
                        }
                    }
                }
                Part::FollowerEvent(told) => {
                    let connection = self.connections.borrow().get(&told.follower().client_id).cloned();
                    if let Some(connection) = connection {
                        let executor = &mut *self.executor.borrow_mut();
                        if connection.tell(told, |session, out| executor.tell(told, session, out)) {
                            self.pushed.borrow_mut().push(connection.clone());
                        }
                    }
                }
            }
        }
        self.end_tick_later();
    }

    /// Ends the subscriptions of a closed connection. Returns whether all have ended; if not, the caller must
    /// call it again.
    pub(super) fn end_subscriptions(&self, connection: &Rc<Connection>) -> bool {
        let mut executor = self.executor.borrow_mut();
        let ended = connection.with_session(|session| {
            if let Some(follower) = session.follower.take() {
                self.host.durable_channels.request(Request::Leave { follower: follower.id });
            }
            executor.end_subscriptions(session)
        });
        executor.channels().flush_mailboxes();
        let must_deliver = executor.channels().must_deliver();
        drop(executor);
        if must_deliver {
            self.deliver();
        }
        ended
    }
}
