//! The wait of a client for a key, as the registry of waiters and other workers see it. The module `blocking`
//! begins and serves the waits.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use keyspace::{DbId, SlotId, ValueType};
use lsn::Lsn;
use storage::Durability;
use wire::{OwnedArgs, Protocol, ReplyWriter};

use super::Client;
use crate::{
    CommandError, Flags, Host, Row,
    callbacks::{Condition, Serve},
    stats::WorkerStats,
};

/// The reply of a command that found nothing and must not wait. A wait that times out has another reply:
/// always a null array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// A null: in RESP2 a null bulk string.
    Value,
    /// A null array; in RESP3 a null.
    Array,
}

impl Nothing {
    /// Writes the reply in the protocol of the writer.
    pub fn write(self, reply: &mut ReplyWriter<'_>) {
        match self {
            Nothing::Value => reply.null(),
            Nothing::Array => reply.null_array(),
        }
    }
}

/// The state of a key that a waiter waits for.
#[derive(Clone, Copy)]
pub enum Wants {
    /// The key holds a value of this type.
    Type(ValueType),
    /// A state for which the condition holds; the key may be absent.
    Condition(Condition),
}

/// The wait that a command requests when it has found nothing.
#[derive(Clone)]
pub struct Awaited {
    /// The indices of the command's keys among its arguments.
    pub keys: Range<usize>,
    /// The state that one of the keys must reach.
    pub wants: Wants,
    /// A slot that serving needs besides the slot of the key.
    pub needs: Option<SlotId>,
    /// The longest wait; `None`: unlimited.
    pub timeout_ms: Option<u64>,
    /// The reply where waiting is impossible (in a transaction or a script).
    pub nothing: Nothing,
    /// Serves the command from a key that is in the wanted state.
    pub serve: Serve,
}

/// The wait of one client, shared between its session, the registry and the workers that may end it.
pub struct Waiter {
    pub(crate) client: Arc<Client>,
    pub(crate) row: &'static Row,
    /// The place in the order in which clients began to wait.
    pub(crate) ticket: u64,
    pub(crate) db: DbId,
    pub(crate) protocol: Protocol,
    pub(crate) durability: Option<Durability>,
    /// Whether the client gets no replies (CLIENT REPLY OFF or SKIP).
    pub(crate) is_silent: bool,
    pub(crate) args: OwnedArgs,
    pub(crate) awaited: Awaited,
    pub(crate) ended: AtomicBool,
    /// Microseconds that the command ran before it began to wait; 0 if it was not timed.
    pub(crate) ran_us: AtomicU64,
}

impl Waiter {
    /// Ends the wait. Returns whether this call ended it. The access is relaxed, because it passes no other
    /// data on.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Relaxed)
    }

    /// Whether the wait is over, though the client may not have been answered yet.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Whether the client waits for a condition rather than for a type.
    pub fn has_condition(&self) -> bool {
        matches!(self.awaited.wants, Wants::Condition(_))
    }

    /// Whether the client is also served when its key is removed: a command that writes to its key
    /// (XREADGROUP) then gets an error.
    pub(crate) fn hears_of_removal(&self) -> bool {
        self.has_condition() && self.row.flags.has(Flags::WRITE)
    }

    /// The place in the order in which clients began to wait.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The database of the keys that the client waits for.
    pub fn db(&self) -> DbId {
        self.db
    }

    /// The keys that the client waits for; a key may occur several times.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let keys = &self.awaited.keys;
        self.args.as_args().skip(keys.start).take(keys.len()).iter()
    }

    /// The encoded reply that `write` writes; empty if the client gets no replies.
    pub(crate) fn reply(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        bytes
    }

    /// Counts the command, which is over, and logs it if it was slow. `usec` is the time in microseconds for
    /// which it has run since it was woken; the time that it has waited does not count.
    pub(crate) fn note_end(&self, usec: u64, host: &Host) {
        self.client.count_command();
        if host.observer.watch().includes(self.row) {
            let usec = self.ran_us.load(Relaxed) + usec;
            let (args, now_ms) = (self.args.as_args(), || host.clock.unix_ms());
            host.observer.slow_log.ran(usec, self.row, args, &self.client, now_ms);
        }
    }

    /// Counts the error that the client gets; its call was counted when it began to wait.
    pub(crate) fn count_error(&self, error: &CommandError, stats: &WorkerStats) {
        let mut text = Vec::new();
        error.render(&mut text);
        stats.replied_error(&text);
        self.count_failure(stats);
    }

    /// Counts the failure of the command, whose error is counted already.
    pub(crate) fn count_failure(&self, stats: &WorkerStats) {
        // A waiting client runs nothing else, so its last command is the one that waits.
        if let Some(row) = self.client.last_command() {
            stats.failed_later(row);
        }
    }

    /// Wakes the client without an element, with the reply of a timeout. Returns whether the client still
    /// waited.
    pub fn wake(&self, host: &Host) -> bool {
        if !self.end() {
            return false;
        }
        self.note_end(0, host);
        self.answer(self.reply(|reply| reply.null_array()))
    }

    /// As [`Waiter::wake`], with an error, which is counted.
    pub fn wake_with(&self, error: &CommandError, host: &Host, stats: &WorkerStats) -> bool {
        if !self.end() {
            return false;
        }
        self.note_end(0, host);
        self.count_error(error, stats);
        self.answer(self.error(error))
    }

    /// Ends the wait with an error, because this server does not lead any more.
    pub(crate) fn fail(&self, error: &CommandError) {
        if self.end() {
            self.client.count_command();
            self.answer(self.error(error));
        }
    }

    /// The encoded error; empty if the client gets no replies.
    pub(crate) fn error(&self, error: &CommandError) -> Vec<u8> {
        let mut text = Vec::new();
        error.render(&mut text);
        self.reply(|reply| reply.error(text))
    }

    fn answer(&self, reply: Vec<u8>) -> bool {
        self.client.answer(reply.into(), Lsn::ZERO);
        true
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("client", &self.client).field("ticket", &self.ticket).finish()
    }
}
