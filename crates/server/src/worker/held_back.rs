//! Connections that publish more than is taken: each waits before its next command, and nobody else does.
//!
//! Invariants
//! - What was published is delivered while its publishers wait, so what they wait for goes on.
//! - Nobody waits longer than [`HELD_BACK_US_MAX`] for subscribers: then the next message is published, whoever takes it. For a
//!   mailbox that is full a publisher waits until it is not: the worker that empties it waits for no publisher.
//! - A worker that holds somebody back has entered itself with the channels, and looks at the reasons once more after that.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use engine::Notice;
use pubsub::{Backpressure, SubscriberId};

use super::Worker;
use crate::connection::{Connection, DISTRUST_US};

/// For how long a connection waits before one of its commands.
const HELD_BACK_US_MAX: u64 = 1_000_000;

/// Connections that wait.
#[derive(Default)]
pub(super) struct HeldBack {
    waiting: RefCell<Vec<Waiting>>,
    /// Subscribers of this worker that may be waited for.
    behind: Cell<usize>,
    /// Until then no subscriber is waited for that has yet to take anything.
    distrusts_until_us: Cell<u64>,
}

struct Waiting {
    connection: Rc<Connection>,
    reason: Backpressure,
    until_us: u64,
}

impl HeldBack {
    /// Nobody waits any more.
    pub(super) fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }
}

impl Worker {
    /// A round has ended that has these notices to tell once they are durable: why its connection is to wait, if it is.
    pub(super) fn backpressure_of(&self, notices: &[Notice]) -> Option<Backpressure> {
        let mut executor = self.executor.borrow_mut();
        if !notices.is_empty() && executor.channels().may_hold_back() {
            notices.iter().for_each(|notice| executor.weigh(notice));
        }
        executor.channels().take_backpressure()
    }

    /// The connection's next command waits until the reason is gone; it is resumed then.
    pub(crate) fn hold_back(&self, connection: &Rc<Connection>, reason: Backpressure) {
        let until_us = if reason.is_of_subscribers() { self.now_us() + HELD_BACK_US_MAX } else { u64::MAX };
        let mut waiting = self.held_back.waiting.borrow_mut();
        if waiting.is_empty() {
            self.executor.borrow_mut().channels().begin_waiting();
        }
        waiting.push(Waiting { connection: connection.clone(), reason, until_us });
        self.end_tick_later();
    }

    /// Resumes the connections that need not wait any more.
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

    /// A subscriber of this worker is behind, or no more.
    pub(crate) fn note_behind(&self, id: SubscriberId, is_behind: bool) {
        let before = self.held_back.behind.get();
        self.held_back.behind.set(if is_behind { before + 1 } else { before - 1 });
        self.executor.borrow_mut().channels().set_behind(id, is_behind);
    }

    /// To be called some times a second: neither subscribers nor publishers are waited for without end.
    pub(super) fn lose_patience(&self) {
        if self.held_back.behind.get() > 0 {
            let connections = self.connections.borrow();
            connections.values().filter(|it| it.is_waited_for()).for_each(|it| it.lose_patience());
        }
        self.resume_held_back();
    }

    /// Whether subscribers are waited for that have yet to take anything.
    pub(crate) fn trusts_newcomers(&self, now_us: u64) -> bool {
        now_us >= self.held_back.distrusts_until_us.get()
    }

    /// One of them was waited for in vain.
    pub(crate) fn distrust_newcomers(&self, now_us: u64) {
        self.held_back.distrusts_until_us.set(now_us + DISTRUST_US);
    }

    /// Microseconds of a monotonic clock.
    pub(crate) fn now_us(&self) -> u64 {
        self.host.monotonic_us()
    }
}
