//! Sending the replies of several connections together.
//!
//! A sleeping client is woken by a reply, takes it, and sleeps again before its next connection has a reply:
//! for commands of some microseconds (mainly scripts) these wake-ups cost a tenth of the server's time.
//! Replies are therefore delayed while other connections of the tick are served.
//!
//! Invariants
//! - A reply waits for at most [`TOGETHER_MAX`] connections, and not beyond the round in which a millisecond
//!   ends: a slow command delays the replies just before it, as it delays everything else on its worker.
//! - At the end of a tick all are sent: a lone client is not delayed.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::Worker;
use crate::connection::Connection;

/// The most connections whose replies are sent together.
const TOGETHER_MAX: usize = 16;

/// The connections with delayed replies.
#[derive(Default)]
pub(super) struct Replied {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// When the last round began, in Unix milliseconds.
    now_ms: Cell<u64>,
}

impl Worker {
    /// Schedules the sendable replies of a connection, to be sent with those of the next ones.
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

    /// Called before a round: sends the replies delayed since an earlier millisecond.
    pub(crate) fn send_replies_of_before(&self) {
        let now_ms = self.host.unix_ms();
        if self.replied.now_ms.replace(now_ms) != now_ms {
            self.send_replies();
        }
    }

    /// Sends all delayed replies.
    pub(super) fn send_replies(&self) {
        self.replied.connections.borrow_mut().drain(..).for_each(|connection| connection.send());
    }
}
