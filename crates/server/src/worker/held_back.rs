//! Held publishers: each waits before its next command, while other connections go on.
//!
//! Invariants
//! - Messages are delivered while their publishers wait, so the awaited delivery makes progress.
//! - Slow subscribers hold a publisher back for about [`HELD_BACK_US_MAX`] at most. Then its next command
//!   runs, however far behind they are.
//! - A full mailbox holds a publisher back until it is no longer full. This wait ends, because the worker
//!   that empties the mailbox never waits for a publisher.
//! - A worker with held publishers has registered itself with the channels, which wake it when a reason may
//!   have ended. After the registration it checks the reasons once more, because one may have ended before.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use pubsub::{Backpressure, SubscriberId};

use super::Worker;
use crate::connection::{Connection, DISTRUST_US};

/// The longest that subscribers may delay one command of a publisher.
const HELD_BACK_US_MAX: u64 = 1_000_000;

/// The held publishers of a worker.
#[derive(Default)]
pub(super) struct HeldBack {
    waiting: RefCell<Vec<Waiting>>,
    /// Number of subscribers of this worker that are behind.
    behind: Cell<usize>,
    /// The time until which publishers do not wait for new subscribers: those that have not yet received
    /// anything after their sockets first refused bytes.
    distrusts_until_us: Cell<u64>,
}

struct Waiting {
    connection: Rc<Connection>,
    reason: Backpressure,
    until_us: u64,
}

impl HeldBack {
    /// Drops the held publishers without resuming them.
    pub(super) fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }
}

impl Worker {
    /// Holds the connection's next command back, until the reason no longer holds or its time is over.
    pub(crate) fn hold_back(&self, connection: &Rc<Connection>, reason: Backpressure) {
        let until_us = if reason.is_of_subscribers() { self.now_us() + HELD_BACK_US_MAX } else { u64::MAX };
        let mut waiting = self.held_back.waiting.borrow_mut();
        if waiting.is_empty() {
            self.executor.borrow_mut().channels().begin_waiting();
        }
        waiting.push(Waiting { connection: connection.clone(), reason, until_us });
        self.end_tick_later();
    }

    /// Resumes the publishers whose reason no longer holds, or whose time is over.
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

    /// Notes whether a subscriber of this worker is behind.
    pub(crate) fn note_behind(&self, id: SubscriberId, is_behind: bool) {
        let before = self.held_back.behind.get();
        self.held_back.behind.set(if is_behind { before + 1 } else { before - 1 });
        self.executor.borrow_mut().channels().set_behind(id, is_behind);
    }

    /// Ends overlong waits for subscribers and of publishers. Called several times a second.
    pub(super) fn end_overlong_waits(&self) {
        if self.held_back.behind.get() > 0 {
            let connections = self.connections.borrow();
            connections.values().filter(|it| it.is_waited_for()).for_each(|it| it.end_overlong_waits());
        }
        self.resume_held_back();
    }

    /// Whether publishers may wait for new subscribers, which have not yet proven that they receive.
    pub(crate) fn trusts_newcomers(&self, now_us: u64) -> bool {
        now_us >= self.held_back.distrusts_until_us.get()
    }

    /// Notes that a wait for a new subscriber was useless. For [`DISTRUST_US`], publishers do not wait for
    /// new subscribers.
    pub(crate) fn distrust_newcomers(&self, now_us: u64) {
        self.held_back.distrusts_until_us.set(now_us + DISTRUST_US);
    }

    /// Microseconds of a monotonic clock.
    pub(crate) fn now_us(&self) -> u64 {
        self.host.monotonic_us()
    }
}
