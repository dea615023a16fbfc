//! Sends the replies of several connections together.
//!
//! Without this module, a client with several connections would be woken by each reply: it reads the reply,
//! and sleeps again before its next connection has one. With commands that take some microseconds (scripts,
//! above all), these wake-ups are a tenth of the server's work. Therefore replies are kept while other
//! connections of the tick are served.
//!
//! Invariants
//! - A reply waits for the replies of at most [`TOGETHER_MAX`] connections, and at most until the first round
//!   that begins in a later millisecond. A slow command delays the replies kept just before it, as it delays
//!   everything else on its worker.
//! - No kept reply stays beyond the end of the tick, so a connection that is active alone waits for no other
//!   one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::Worker;
use crate::connection::Connection;

/// When this many connections have kept replies, all these replies are sent at once.
const TOGETHER_MAX: usize = 16;

/// Connections with unsent replies.
#[derive(Default)]
pub(super) struct Replied {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// Clients whose replies wait for the lease of this leader; a client may be listed more than once.
    withheld: RefCell<Vec<u64>>,
    /// Unix time at the start of the last round, in milliseconds.
    now_ms: Cell<u64>,
}

impl Worker {
    /// Keeps the connection's sendable replies, and sends them together with the replies of the next
    /// connections.
    pub(crate) fn send_together(&self, connection: &Rc<Connection>) {
        if !connection.has_sendable() {
            return;
        }
        self.replied.connections.borrow_mut().push(connection.clone());
        if self.replied.connections.borrow().len() >= TOGETHER_MAX {
            self.send_replies();
        } else {
            self.end_tick_later();
        }
    }

    /// Sends the kept replies if they are of rounds that began in an earlier millisecond. Called before each
    /// round.
    pub(crate) fn send_replies_of_before(&self) {
        let now_ms = self.parts.clock.unix_ms();
        if self.replied.now_ms.replace(now_ms) != now_ms {
            self.send_replies();
        }
    }

    /// Whether replies that show data may leave now. The leader of a group withholds them while it has no
    /// lease, unless old data may be shown (`stale-reads`).
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        self.parts.node.may_answer()
    }

    /// Keeps the replies of a connection until the lease is renewed.
    pub(crate) fn withhold(&self, connection: &Connection) {
        self.replied.withheld.borrow_mut().push(connection.client().id());
    }

    /// Sends the replies that were withheld, if they may leave by now.
    pub(super) fn send_withheld(&self) {
        if self.replied.withheld.borrow().is_empty() || !self.may_answer() {
            return;
        }
        let mut withheld = self.replied.withheld.take();
        withheld.sort_unstable();
        withheld.dedup();
        for id in withheld {
            let connection = self.connections.borrow().get(&id).cloned();
            if let Some(connection) = connection {
                connection.send_withheld();
            }
        }
    }

    /// While another member may lead in place of this one, closes the connections whose next reply might
    /// never leave: those with withheld replies, with replies that wait for the log, and with blocked
    /// commands. Their clients then look for the new leader.
    pub(super) fn close_unanswerable(&self) {
        if !self.parts.node.may_be_replaced() {
            return;
        }
        let withheld = self.replied.withheld.take();
        let waits = |connection: &Rc<Connection>| {
            connection.is_holding()
                || connection.client().is_blocked()
                || withheld.contains(&connection.client().id())
        };
        self.connections.borrow().values().filter(|it| waits(it)).for_each(|it| it.kill());
    }

    /// Sends all kept replies.
    pub(super) fn send_replies(&self) {
        self.replied.connections.borrow_mut().drain(..).for_each(|connection| _ = connection.send());
    }
}
