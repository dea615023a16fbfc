//! Messages of channels on their way through a worker: from what its clients publish to the connections of those who listen.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use engine::Notice;
use lsn::Lsn;
use pubsub::durable::{Encoded, Feed, Part, Request};

use super::Worker;
use crate::connection::Connection;

/// How often the sockets are looked at before messages are delivered, at most.
const LOOKS_MAX: usize = 3;
/// So many rounds have to have published before more are waited for.
const ROUNDS_MIN: u32 = 2;

impl Worker {
    /// A round has ended, and its replies have not left: hands over what it has published to other workers. Returns whether
    /// there is something to deliver at the end of the tick.
    pub(super) fn hand_over(&self) -> bool {
        let (published, must_deliver) = {
            let mut executor = self.executor.borrow_mut();
            let channels = executor.channels();
            (channels.hand_over(), channels.must_deliver())
        };
        if must_deliver {
            self.deliver();
        }
        published
    }

    /// While several clients publish, looks at the sockets a few times more before messages are delivered: what a subscriber gets
    /// is sent at once, and a send costs far more than anything else about a message. Who publishes alone waits for nobody.
    pub(super) async fn gather(&self) {
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

    /// Delivers what was published, and sends it and what else was pushed: one write per connection, unless it is very much.
    pub(super) fn deliver(&self) {
        self.published_rounds.set(0);
        while self.deliver_some() {}
    }

    /// Delivers and sends as much as memory should hold at once, and sees that what is left unsent keeps its limits. Returns whether
    /// there is more.
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

    /// The log is durable up to here: tells others what waited for it.
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
            // Who has caused this has been asked to wait when it did.
            executor.channels().take_backpressure();
            executor.channels().hand_over();
        }
        self.deliver();
    }

    /// Passes on what followers of durable channels get; it is sent at the end of the tick.
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

    /// A client has gone. Returns whether all its subscriptions have ended; if not, this is to be called again.
    pub(super) fn end_subscriptions(&self, connection: &Rc<Connection>) -> bool {
        let mut executor = self.executor.borrow_mut();
        let ended = connection.with_session(|session| {
            if let Some(follower) = session.follower.take() {
                self.host.durable_channels.request(Request::Leave { follower: follower.id });
            }
            executor.end_subscriptions(session)
        });
        executor.channels().hand_over();
        let must_deliver = executor.channels().must_deliver();
        drop(executor);
        if must_deliver {
            self.deliver();
        }
        ended
    }
}
