//! Blocking commands: clients that wait until a key holds something for them.
//!
//! ```text
//! BLPOP k   lock slot -> nothing there -> register -> unlock                       its conversation stops
//! RPUSH k   lock slot -> apply -> awaited -> pop for the waiters -> one record -> unlock -> both replies
//! ```
//!
//! This module is the wait of a client: how it begins and ends. The registry of waiters by key is in
//! `interest`, the order of serving in `serve`. The family of a command decides the reply.
//! It is not a thread or a task that waits. A blocked client is an entry in the registry and a conversation
//! that takes no command.
//!
//! Invariants
//! - A client begins to wait under the locks of all its keys: nothing can happen between looking at the keys
//!   and waiting.
//! - A wait ends once, for one reason: served, timed out, woken (CLIENT UNBLOCK) or disconnected. The caller
//!   that wins [`Waiter::end`] acts on it; the others do nothing. The element of a client that disconnects
//!   after it was served is popped all the same: the reply was on its way, as in Redis.
//! - The waiters of a key are served in the order in which they began to wait.

mod serve;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use keyspace::{DbId, SlotId, ValueType};
use lsn::Lsn;
use storage::Durability;
use wire::{Args, OwnedArgs, Protocol, ReplyWriter};

use crate::{CommandError, Context, Interests, ReplyMode, Unit, clients::Client};
pub(crate) use serve::PendingServe;

/// Takes an awaited element from a key that holds the wanted type, and writes the reply. The arguments are
/// those of the blocked command.
///
/// # Errors
/// The error becomes the reply; nothing may have changed.
pub type Serve = fn(cx: &mut Context<'_, '_>, key: &[u8], args: Args<'_>) -> Result<(), CommandError>;

/// The reply of a command that found nothing and must not wait. A timed-out client gets a null array for
/// every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// A null.
    Value,
    /// A null array.
    Array,
}

impl Nothing {
    /// Writes the reply.
    pub fn write(self, reply: &mut ReplyWriter<'_>) {
        match self {
            Nothing::Value => reply.null(),
            Nothing::Array => reply.null_array(),
        }
    }
}

/// Whether a client that blocked with these arguments can be served from the key.
pub type Condition = fn(unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool;

/// The state of a key that a waiter waits for.
#[derive(Clone, Copy)]
pub enum Wants {
    /// Anything of this type.
    Type(ValueType),
    /// A state for which the condition holds; the key may be absent.
    Condition(Condition),
}

impl Wants {
    fn are_met(self, unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool {
        match self {
            Wants::Type(wanted) => unit.peek(db, key).is_some_and(|entry| entry.value_type() == wanted),
            Wants::Condition(is_met) => is_met(unit, db, key, args),
        }
    }
}

/// The wait that a command asks for when it has found nothing.
#[derive(Clone)]
pub struct Awaited {
    /// The indices of its keys among its arguments.
    pub keys: Range<usize>,
    /// The state that one of them must reach.
    pub wants: Wants,
    /// A slot that serving needs besides that of the key.
    pub needs: Option<SlotId>,
    /// The longest wait; `None`: unlimited.
    pub timeout_ms: Option<u64>,
    /// The reply where waiting is impossible (in a transaction or a script).
    pub nothing: Nothing,
    /// Pops the element and writes the reply.
    pub serve: Serve,
}

/// The wait of one client, shared between its session, the registry and the workers that may end it.
pub struct Waiter {
    client: Arc<Client>,
    /// Its place in the order of all waiters.
    ticket: u64,
    db: DbId,
    protocol: Protocol,
    durability: Option<Durability>,
    /// The client gets no replies (CLIENT REPLY OFF or SKIP).
    is_silent: bool,
    args: OwnedArgs,
    awaited: Awaited,
    ended: AtomicBool,
}

impl Waiter {
    /// Ends the wait. Returns whether this call ended it. Relaxed: no other data is passed on by it.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Relaxed)
    }

    /// Whether the wait is over, though the client may not have been answered yet.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Whether it waits for a condition rather than for a type.
    pub fn has_condition(&self) -> bool {
        matches!(self.awaited.wants, Wants::Condition(_))
    }

    /// Its place in the order in which clients began to wait.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The database of the keys that it waits for.
    pub fn db(&self) -> DbId {
        self.db
    }

    /// The keys it waits for; a key may occur several times.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let keys = &self.awaited.keys;
        self.args.as_args().skip(keys.start).take(keys.len()).iter()
    }

    /// The encoded reply that `write` writes; empty if the client gets no replies.
    fn reply(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        bytes
    }

    /// Wakes the client without an element: with the reply of a timeout, or with an error (CLIENT UNBLOCK).
    /// Returns whether it was still waiting.
    pub fn wake(&self, with_error: bool) -> bool {
        if !self.end() {
            return false;
        }
        let reply = self.reply(|reply| match with_error {
            true => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            false => reply.null_array(),
        });
        self.client.answer(reply.into(), Lsn::ZERO);
        true
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("client", &self.client).field("ticket", &self.ticket).finish()
    }
}

/// The wait of a session. Dropping it ends the wait.
#[derive(Debug)]
pub enum Wait {
    /// For a key (BLPOP and others).
    Key(KeyWait),
    /// For the reply of a [`Responder`](crate::Responder).
    Responder,
    /// For the answer of the thread of durable channels: see [`Executor::tell`](crate::Executor::tell).
    Channels {
        /// The client gets no replies (CLIENT REPLY OFF or SKIP).
        is_silent: bool,
    },
}

/// The wait for a key. Dropping it ends the wait and leaves the registry.
#[derive(Debug)]
pub struct KeyWait {
    waiter: Arc<Waiter>,
    interests: Arc<Interests>,
}

impl Wait {
    /// The longest wait; `None`: unlimited.
    pub fn timeout_ms(&self) -> Option<u64> {
        match self {
            Wait::Key(wait) => wait.waiter.awaited.timeout_ms,
            Wait::Responder | Wait::Channels { .. } => None,
        }
    }

    /// The timeout has passed: ends the wait and returns the reply. `None` if something else has ended the
    /// wait: its reply is on its way.
    pub fn time_out(&self) -> Option<Vec<u8>> {
        let Wait::Key(KeyWait { waiter, .. }) = self else { return None };
        waiter.end().then(|| waiter.reply(|reply| reply.null_array()))
    }
}

impl Drop for KeyWait {
    fn drop(&mut self) {
        self.waiter.end();
        self.interests.leave(&self.waiter);
        self.waiter.client.set_waiter(None);
    }
}

impl Context<'_, '_> {
    /// Blocks the client until a key can serve the command with these arguments; there is no reply now. In a
    /// transaction or a script the command cannot wait: it gets [`Awaited::nothing`] at once.
    pub fn block(&mut self, args: Args<'_>, awaited: Awaited) {
        if self.in_transaction {
            awaited.nothing.write(&mut self.reply);
            return;
        }
        let interests = self.unit.interests();
        let session = &mut *self.session;
        let waiter = Arc::new(Waiter {
            client: session.client.clone(),
            ticket: interests.next_ticket(),
            db: session.db,
            protocol: session.protocol,
            durability: session.durability,
            is_silent: session.reply_mode != ReplyMode::On,
            args: args.into(),
            awaited,
            ended: AtomicBool::new(false),
        });
        session.client.set_waiter(Some(&waiter));
        interests.wait(&waiter);
        session.wait = Some(Wait::Key(KeyWait { waiter, interests: interests.clone() }));
    }
}
