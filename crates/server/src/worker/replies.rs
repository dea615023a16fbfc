//! Replies of several connections that leave together.
//!
//! A client that sleeps is woken by what it is sent, takes it, and sleeps again before the next connection of it has its reply: for
//! commands that take some microseconds (scripts, above all) the waking is a tenth of what the server does. Replies are therefore
//! kept while other connections of the tick are served.
//!
//! Invariants
//! - Replies wait for no more than [`TOGETHER_MAX`] connections, and not beyond the round in which a millisecond ends: a command that
//!   takes long holds up what came just before it, as it holds up all that its worker does.
//! - At the end of a tick none waits: who is alone waits for nobody.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::Worker;
use crate::connection::Connection;

/// Connections that replies are sent to together, at most.
const TOGETHER_MAX: usize = 16;

/// The connections whose replies wait.
#[derive(Default)]
pub(super) struct Replied {
    connections: RefCell<Vec<Rc<Connection>>>,
    /// When the last round began.
    now_ms: Cell<u64>,
}

impl Worker {
    /// Sends what is free of the replies of a connection, with those of the next ones.
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

    /// A round is about to begin: what waits since an earlier millisecond is sent.
    pub(crate) fn send_replies_of_before(&self) {
        let now_ms = self.parts.clock.unix_ms();
        if self.replied.now_ms.replace(now_ms) != now_ms {
            self.send_replies();
        }
    }

    /// Sends all replies that wait.
    pub(super) fn send_replies(&self) {
        self.replied.connections.borrow_mut().drain(..).for_each(|connection| connection.send());
    }
}
