//! Keyspace notifications on their way out of a worker: held until what they tell is durable.
//!
//! What it is: the events of one worker in their order, and the seam to whoever passes them on.
//! What it is not: subscriptions. What takes the events today only counts them.
//!
//! Invariants
//! - No event leaves before its gate is durable, and none overtakes another one of its worker.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use commands::Event;
use lsn::Lsn;

/// Takes events that may be shown, from any worker.
pub(crate) trait EventSink {
    /// These have happened, in this order.
    fn publish(&self, events: &[Event]);
}

/// Counts events.
#[derive(Debug, Default)]
pub(crate) struct EventCounter {
    count: AtomicU64,
}

impl EventCounter {
    /// Events so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

impl EventSink for EventCounter {
    fn publish(&self, events: &[Event]) {
        self.count.fetch_add(events.len() as u64, Relaxed);
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    held: VecDeque<Event>,
}

impl EventQueue {
    /// Adds events; returns whether there were any.
    pub(crate) fn hold(&mut self, events: Vec<Event>) -> bool {
        let any = !events.is_empty();
        self.held.extend(events);
        any
    }

    /// What the first event waits for.
    pub(crate) fn gate(&self) -> Option<Lsn> {
        self.held.front().map(|event| event.gate)
    }

    /// Hands on what may be shown now that everything up to `durable` is.
    pub(crate) fn release(&mut self, durable: Lsn, sink: &dyn EventSink) {
        let free = self.held.iter().take_while(|event| event.gate <= durable).count();
        if free > 0 {
            let events: Vec<Event> = self.held.drain(..free).collect();
            sink.publish(&events);
        }
    }

    /// Forgets all events: what they tell will never be durable.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use commands::EventClass;
    use keyspace::DbId;

    use super::*;

    #[derive(Default)]
    struct Seen(RefCell<Vec<&'static str>>);

    impl EventSink for Seen {
        fn publish(&self, events: &[Event]) {
            self.0.borrow_mut().extend(events.iter().map(|event| event.name));
        }
    }

    fn event(name: &'static str, gate: u64) -> Event {
        Event { classes: EventClass::STRING, name, db: DbId::ZERO, key: (*b"k").into(), gate: Lsn::new(gate) }
    }

    #[test]
    fn events_leave_in_order_once_they_are_durable() {
        let (mut queue, seen) = (EventQueue::default(), Seen::default());
        assert!(!queue.hold(vec![]) && queue.gate().is_none());
        assert!(queue.hold(vec![event("a", 8), event("b", 16), event("c", 0)]));
        assert!(queue.hold(vec![event("d", 16)]));
        let released = |queue: &mut EventQueue, durable| {
            queue.release(Lsn::new(durable), &seen);
            std::mem::take(&mut *seen.0.borrow_mut())
        };
        assert_eq!(released(&mut queue, 7), [""; 0]);
        assert_eq!(released(&mut queue, 8), ["a"]);
        assert_eq!(queue.gate(), Some(Lsn::new(16)));
        assert_eq!(released(&mut queue, 15), [""; 0], "one that is free does not overtake");
        assert_eq!(released(&mut queue, 99), ["b", "c", "d"]);
        queue.hold(vec![event("e", 100)]);
        queue.clear();
        assert_eq!(released(&mut queue, 100), [""; 0]);
    }

    #[test]
    fn events_are_counted() {
        let counter = EventCounter::default();
        counter.publish(&[event("a", 0), event("b", 0)]);
        counter.publish(&[event("c", 0)]);
        assert_eq!(counter.count(), 3);
    }
}
