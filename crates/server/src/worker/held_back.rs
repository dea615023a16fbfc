//! Back-pressure on publishers: a connection that publishes faster than subscribers receive waits before its
//! next command, without delaying others.
//!
//! Invariants
//! - Published messages are delivered while their publishers are held, so the condition that they wait for
//!   can be met.
//! - A publisher waits for subscribers no longer than [`HELD_BACK_US_MAX`]; then its next message is
//!   published regardless. For a full mailbox it waits without a limit: the worker that empties the mailbox
//!   waits for no publisher.
//! - A worker that holds publishers has registered with the channels for wake-ups, and checks the conditions
//!   once more after that.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use commands::{Host, Notice};
use pubsub::{Backpressure, SubscriberId};

use super::Worker;
use crate::connection::{Connection, DISTRUST_US};

/// The longest wait of a connection for subscribers before one of its commands, in microseconds.
const HELD_BACK_US_MAX: u64 = 1_000_000;

/// The held publishers of a worker.
#[derive(Default)]
pub(super) struct HeldBack {
    waiting: RefCell<Vec<Waiting>>,
    /// The number of subscribers of this worker that publishers may wait for.
    behind: Cell<usize>,
    /// Until then, no publisher waits for a subscriber that has not received anything yet.
    distrusts_until_us: Cell<u64>,
}

struct Waiting {
    connection: Rc<Connection>,
    reason: Backpressure,
    until_us: u64,
}

impl HeldBack {
    /// Drops all held publishers without resuming them.
    pub(super) fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }
}

impl Worker {
    /// Called at the end of a round, with notices to deliver once they are durable. Returns the reason to
    /// hold the publisher, if there is one.
    pub(super) fn backpressure_of(&self, notices: &[Notice]) -> Option<Backpressure> {
        let mut executor = self.executor.borrow_mut();
        if !notices.is_empty() && executor.channels().may_hold_back() {
            notices.iter().for_each(|notice| executor.weigh(notice));
        }
        executor.channels().take_backpressure()
    }

    /// Holds the connection's next command until the reason no longer applies.
    pub(crate) fn hold_back(&self, connection: &Rc<Connection>, reason: Backpressure) {
        let until_us = if reason.is_of_subscribers() { self.now_us() + HELD_BACK_US_MAX } else { u64::MAX };
        let mut waiting = self.held_back.waiting.borrow_mut();
        if waiting.is_empty() {
            self.executor.borrow_mut().channels().begin_waiting();
        }
        waiting.push(Waiting { connection: connection.clone(), reason, until_us });
        self.end_tick_later();
    }

    /// Resumes the connections whose reason no longer applies, or whose time is up.
    pub(super) fn resume_held_back(&self) {
        let mut waiting = self.held_back.waiting.borrow_mut();
        if waiting.is_empty() {
            return;
        }
        let hub = self.executor.borrow_mut().channels().hub().clone();
        let now_us = self.now_us();
        waiting.retain(|it| {
            let waits = now_us < it.until_us && it.reason.holds(&hub);
            if !waits {
                it.connection.resume();
            }
            waits
        });
        if waiting.is_empty() {
            self.executor.borrow_mut().channels().end_waiting();
        }
    }

    /// Records that a subscriber of this worker has fallen behind, or has caught up.
    pub(crate) fn note_behind(&self, id: SubscriberId, is_behind: bool) {
        let before = self.held_back.behind.get();
        self.held_back.behind.set(if is_behind { before + 1 } else { before - 1 });
        self.executor.borrow_mut().channels().set_behind(id, is_behind);
    }

    /// Called several times a second: ends waits for stalled subscribers, and waits that took too long.
    pub(super) fn lose_patience(&self) {
        if self.held_back.behind.get() > 0 {
            let connections = self.connections.borrow();
            connections.values().filter(|it| it.is_waited_for()).for_each(|it| it.lose_patience());
        }
        self.resume_held_back();
    }

    /// Whether publishers wait for subscribers that have not received anything yet.
    pub(crate) fn trusts_newcomers(&self, now_us: u64) -> bool {
        now_us >= self.held_back.distrusts_until_us.get()
    }

    /// Records that a wait for such a subscriber has timed out.
    pub(crate) fn distrust_newcomers(&self, now_us: u64) {
        self.held_back.distrusts_until_us.set(now_us + DISTRUST_US);
    }

    /// The monotonic clock in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        self.host.monotonic_us()
    }
}
