//! The path of channel messages through a worker: from the publishers among its clients to the connections of
//! subscribers.

use commands::SentinelEvent;
use pubsub::{
    Kind,
    durable::{Encoded, Feed, Part},
};

use super::Worker;

impl Worker {
    /// Delivers published messages and sends them with other pushed bytes: one write per connection, unless
    /// memory requires more.
    pub(super) fn deliver(&self) {
        self.tick.borrow_mut().note_delivered();
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

    /// Publishes messages of the server itself.
    pub(super) fn publish_own(&self, events: &[SentinelEvent]) {
        {
            let mut executor = self.executor.borrow_mut();
            let channels = executor.channels();
            for SentinelEvent { channel, message } in events {
                channels.publish(Kind::Channel, channel.as_bytes(), message.as_bytes());
            }
            // No client has published these messages, so no client has to wait for their delivery.
            channels.take_backpressure();
            channels.flush_mailboxes();
        }
        self.deliver();
    }

    /// Passes messages and events on to readers of durable channels. They are sent at the end of the tick.
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
                Part::ReaderEvent(event) => {
                    let connection = self.connections.borrow().get(&event.reader().client_id).cloned();
                    if let Some(connection) = connection {
                        let executor = &mut *self.executor.borrow_mut();
                        if connection.notify(event, |session, out| executor.notify(event, session, out)) {
                            self.pushed.borrow_mut().push(connection.clone());
                        }
                    }
                }
            }
        }
        self.end_tick_later();
    }
}
