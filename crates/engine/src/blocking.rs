//! Blocking: clients that wait until a key holds something for them.
//!
//! ```text
//! BLPOP k   lock slot -> nothing there -> register -> unlock                       its conversation stops
//! RPUSH k   lock slot -> apply -> k is awaited -> pop for who waits -> one record -> unlock -> both replies
//! ```
//!
//! What it is: the wait of a client, how it begins and what ends it. Who waits for which key is in the registry (see
//! `interest`), who is served when in `serve`. What a client gets is up to the family of its command.
//! What it is not: a thread or a task that waits. A blocked client is an entry in the registry and a conversation that
//! takes no command.
//!
//! Invariants
//! - A client begins to wait under the locks of all its keys: nothing can come between looking and waiting.
//! - A wait ends once, for one reason: served, timed out, woken (CLIENT UNBLOCK) or gone. Whoever wins [`Waiter::end`] acts on
//!   it; the others do nothing. A client that disconnects after it was served has its element popped all the same: the reply
//!   was on its way, as in Redis.
//! - Those who wait for a key are served in the order in which they began to.

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
pub(crate) use serve::{Later, Serving};

/// Takes what a client waits for from a key that holds the type it wants, and writes the reply. The arguments are those of
/// its command.
///
/// # Errors
/// Becomes the reply; nothing may have changed.
pub type Serve = fn(cx: &mut Context<'_, '_>, key: &[u8], args: Args<'_>) -> Result<(), CommandError>;

/// The reply of a command that found nothing and must not wait. Who has waited in vain gets a null array whatever the command.
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

/// When a key is one that a client waits for, with the arguments of its command.
pub type Condition = fn(unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool;

/// What a key must hold.
#[derive(Clone, Copy)]
pub enum Wants {
    /// Anything of this type.
    Type(ValueType),
    /// What its command says, which may be nothing.
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

/// What a command that found nothing waits for.
#[derive(Clone)]
pub struct Awaited {
    /// Where its keys stand among its arguments.
    pub keys: Range<usize>,
    /// What they must hold.
    pub wants: Wants,
    /// A slot that serving needs beside that of the key.
    pub needs: Option<SlotId>,
    /// For how long; `None`: for ever.
    pub timeout_ms: Option<u64>,
    /// The reply where nobody can wait.
    pub nothing: Nothing,
    /// What to do once a key holds something.
    pub serve: Serve,
}

/// A client that waits, as others see it.
pub struct Waiter {
    client: Arc<Client>,
    /// Its place in the order of all who wait.
    ticket: u64,
    db: DbId,
    protocol: Protocol,
    durability: Option<Durability>,
    /// Its replies are off.
    is_silent: bool,
    args: OwnedArgs,
    awaited: Awaited,
    ended: AtomicBool,
}

impl Waiter {
    /// Ends the wait; whether this was the call that did. Relaxed: nothing else is passed on by it.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Relaxed)
    }

    /// Whether the wait is over, though the client may not know yet.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Whether it waits for what no type of a key says.
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

    /// The keys it waits for; one may stand there several times.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let keys = &self.awaited.keys;
        self.args.as_args().skip(keys.start).take(keys.len()).iter()
    }

    /// The bytes of a reply to it, written by `write`.
    fn reply(&self, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        bytes
    }

    /// Wakes the client without what it waits for: as if its time were over, or with an error. Returns whether it still
    /// waited.
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
    /// For a key that holds something.
    Key(KeyWait),
    /// For a [`Promise`](crate::Promise).
    Promise,
    /// For what the thread of durable channels tells: see [`Executor::tell`](crate::Executor::tell).
    Channels {
        /// Its replies are off.
        is_silent: bool,
    },
}

/// See [`Wait::Key`].
#[derive(Debug)]
pub struct KeyWait {
    waiter: Arc<Waiter>,
    interests: Arc<Interests>,
}

impl Wait {
    /// For how long the client waits; `None`: for ever.
    pub fn timeout_ms(&self) -> Option<u64> {
        match self {
            Wait::Key(wait) => wait.waiter.awaited.timeout_ms,
            Wait::Promise | Wait::Channels { .. } => None,
        }
    }

    /// The time is over: ends the wait and returns the reply, unless something else has ended it, whose reply is on its way
    /// then.
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
    /// There is nothing for the command with these arguments yet: the client waits, and gets no reply now. As one of several
    /// commands it cannot wait: the reply is that nothing came.
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
