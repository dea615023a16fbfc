//! The outgoing notices of a worker (keyspace notifications, and messages that are not delivered at once),
//! held until their gates are committed.
//!
//! This module keeps the notices of one worker in their order. The module does not deliver them: delivery
//! begins when a notice leaves the queue.
//!
//! Invariants
//! - No notice leaves before its gate is committed, and none overtakes another one of its worker.

use std::collections::VecDeque;

use crate::Notice;
use lsn::Lsn;

/// The bytes of held notices above which the worker executes nothing: the disk must catch up first. Once
/// committed, all held notices are sent at once, so the limit is far below the unsent bytes that a subscriber
/// may have.
const HELD_BYTES_MAX: usize = 2 << 20;

/// The held notices of one worker, in order.
#[derive(Debug, Default)]
pub struct EventQueue {
    held: VecDeque<Notice>,
    bytes: usize,
}

impl EventQueue {
    /// Adds notices; returns whether there were any.
    pub fn hold(&mut self, notices: Vec<Notice>) -> bool {
        let any = !notices.is_empty();
        self.bytes += notices.iter().map(Notice::bytes).sum::<usize>();
        self.held.extend(notices);
        any
    }

    /// The gate of the first notice that is held.
    pub fn gate(&self) -> Option<Lsn> {
        self.held.front().map(Notice::gate)
    }

    /// Whether the held notices exceed the limit, so that no more should be added.
    pub fn is_full(&self) -> bool {
        self.bytes > HELD_BYTES_MAX
    }

    /// Takes the notices at the front whose gates are at most `durable`; stops at the first other one.
    pub fn release(&mut self, durable: Lsn) -> Vec<Notice> {
        let free = self.held.iter().take_while(|notice| notice.gate() <= durable).count();
        let notices: Vec<Notice> = self.held.drain(..free).collect();
        self.bytes -= notices.iter().map(Notice::bytes).sum::<usize>();
        notices
    }
}

#[cfg(test)]
mod tests {
    use crate::{Event, EventClass, Message};
    use keyspace::DbId;

    use super::*;

    fn event(name: &'static str, gate: u64) -> Notice {
        let (classes, gate) = (EventClass::STRING, Lsn::new(gate));
        Notice::Event(Event { classes, name, db: DbId::ZERO, key: (*b"k").into(), gate })
    }

    fn released(queue: &mut EventQueue, durable: u64) -> Vec<&'static str> {
        let name = |notice: &Notice| match notice {
            Notice::Event(event) => event.name,
            Notice::Message(_) => "message",
        };
        queue.release(Lsn::new(durable)).iter().map(name).collect()
    }

    #[test]
    fn notices_leave_in_order_once_they_are_durable() {
        let mut queue = EventQueue::default();
        assert!(!queue.hold(vec![]) && queue.gate().is_none());
        assert!(queue.hold(vec![event("a", 8), event("b", 16), event("c", 0)]));
        assert!(queue.hold(vec![event("d", 16)]));
        assert_eq!(released(&mut queue, 7), [""; 0]);
        assert_eq!(released(&mut queue, 8), ["a"]);
        assert_eq!(queue.gate(), Some(Lsn::new(16)));
        assert_eq!(released(&mut queue, 15), [""; 0], "one that is free does not overtake");
        assert_eq!(released(&mut queue, 99), ["b", "c", "d"]);
    }

    #[test]
    fn held_notices_are_bounded() {
        let mut queue = EventQueue::default();
        let payload = vec![0; HELD_BYTES_MAX].into();
        let (kind, channel, gate) = (pubsub::Kind::Channel, (*b"c").into(), Lsn::new(8));
        queue.hold(vec![Notice::Message(Message { kind, channel, payload, gate, is_logged: false })]);
        assert!(queue.is_full());
        assert_eq!(released(&mut queue, 8), ["message"]);
        assert!(!queue.is_full());
    }
}
