//! Blocking commands: clients that wait until a key holds something for them.
//!
//! ```text
//! BLPOP k   lock slot -> nothing there -> register -> unlock                       its conversation stops
//! RPUSH k   lock slot -> apply -> awaited -> pop for the waiters -> one record -> unlock -> both replies
//! ```
//!
//! This module begins the waits of clients. A wait itself is in `wait` and `clients`, the registry of waiters
//! in `interest`, the order of serving in `serve`. The family of a command decides the reply.
//! No thread or task waits: a blocked client is an entry in the registry and a conversation that takes no
//! command.
//!
//! Invariants
//! - A client begins to wait under the locks of all its keys: nothing can happen between looking at the keys
//!   and waiting.
//! - A wait ends once, for one reason: served, refused, timed out, woken (CLIENT UNBLOCK, demotion) or
//!   disconnected. The caller that wins [`Waiter::end`] acts on it; the others do nothing. If a client
//!   disconnects after it was served, its element stays popped: the reply was on its way, as in Redis.
//! - The waiters of a key are served in the order in which they began to wait. Waiters for which the key is
//!   not in the wanted state are skipped.
//! - A waiter is admitted again when it is served, as a new call would be ([`crate::admission`]).
//! - No client of a replica waits for an element that it would take: a demotion ends all waits.

mod serve;

use std::sync::atomic::{AtomicBool, AtomicU64};

use wire::Args;

use crate::{
    CommandError, Context, Flags, ReplyMode, Responder,
    clients::{Awaited, Waiter},
    wait::{KeyWait, Wait},
};
pub(crate) use serve::PendingServe;
pub use serve::PendingServes;

impl Context<'_, '_> {
    /// Blocks the client until a key can serve the command with these arguments; there is no reply now. In a
    /// transaction or a script the command cannot wait: it gets [`Awaited::nothing`] at once. If this server
    /// has just been demoted, a command that writes gets an error at once.
    ///
    /// # Panics
    /// If no command runs.
    pub fn block(&mut self, args: Args<'_>, awaited: Awaited) {
        if self.in_transaction {
            awaited.nothing.write(&mut self.reply);
            return;
        }
        let row = self.row.expect("a command runs");
        let interests = self.unit.interests();
        let session = &*self.session;
        let waiter = Waiter {
            client: session.client.clone(),
            row,
            ticket: interests.next_ticket(),
            db: session.db,
            protocol: session.protocol,
            durability: session.durability,
            is_silent: session.reply_mode != ReplyMode::On,
            args: args.into(),
            awaited,
            ended: AtomicBool::new(false),
            ran_us: AtomicU64::new(0),
        };
        session.client.uncount_command();
        let wait = KeyWait::begin(waiter, interests);
        // A demotion sets read-only first, and then ends all registered waits. This wait is registered by
        // now: either the demotion ends the wait, or the demotion is seen here.
        let is_demoted = row.flags.has(Flags::WRITE) && self.host.replication.is_read_only();
        if is_demoted && wait.end() {
            self.session.client.count_command();
            self.reply_error(&CommandError::Unblocked);
        } else {
            self.session.wait = Some(Wait::Key(wait));
        }
    }

    /// Passes a responder to `begin`, which hands it to the thread that does the work; the client waits for
    /// the answer. If `begin` fails, the client does not wait, and the responder is dropped.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn responder<E>(&mut self, begin: impl FnOnce(Responder) -> Result<(), E>) -> Result<(), E> {
        let session = &mut *self.session;
        let is_silent = session.reply_mode != ReplyMode::On;
        begin(Responder::new(session.client.clone(), session.protocol, is_silent))?;
        // The answer cannot be too early: it is delivered by the worker that runs this command.
        session.wait = Some(Wait::Responder);
        Ok(())
    }

    /// As [`Context::responder`], where `begin` cannot fail.
    pub fn promise_for_sure(&mut self, begin: impl FnOnce(Responder)) {
        let Ok(()) = self.responder(|responder| {
            begin(responder);
            Ok::<(), std::convert::Infallible>(())
        });
    }
}
