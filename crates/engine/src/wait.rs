//! The wait of a session: for a key, or for an answer of another thread. A waiting session runs no command.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{Host, Interests, clients::Waiter};

/// The wait of a session, by what ends it.
#[derive(Debug)]
pub enum Wait {
    /// For a key (BLPOP and others).
    Key(KeyWait),
    /// For the reply of a [`Responder`](crate::Responder).
    Responder,
    /// For the answer of the thread of durable channels: see [`Executor::notify`](crate::Executor::notify).
    Channels {
        /// Whether the client gets no replies (CLIENT REPLY OFF or SKIP).
        is_silent: bool,
    },
}

/// The wait for a key. Dropping this value ends the wait and leaves the registry.
#[derive(Debug)]
pub struct KeyWait {
    waiter: Arc<Waiter>,
    interests: Arc<Interests>,
}

impl KeyWait {
    /// Enters a waiter into the registry. The slots of its keys must be locked.
    pub(crate) fn begin(waiter: Waiter, interests: &Arc<Interests>) -> KeyWait {
        let waiter = Arc::new(waiter);
        waiter.client.set_waiter(Some(&waiter));
        interests.wait(&waiter);
        KeyWait { waiter, interests: interests.clone() }
    }
}

impl KeyWait {
    /// Notes for how many microseconds the command has run before it began to wait.
    pub(crate) fn began_after(&self, usec: u64) {
        self.waiter.ran_us.store(usec, Relaxed);
    }

    /// Ends the wait without an answer. Returns whether this call ended the wait; `false` if something else
    /// had ended it before.
    pub(crate) fn end(&self) -> bool {
        self.waiter.end()
    }
}

impl Wait {
    /// The longest wait; `None`: unlimited.
    pub fn timeout_ms(&self) -> Option<u64> {
        match self {
            Wait::Key(wait) => wait.waiter.awaited.timeout_ms,
            Wait::Responder | Wait::Channels { .. } => None,
        }
    }

    /// Ends a wait for a key, because its timeout has passed, and returns the reply. `None` if something else
    /// has ended the wait, or if the wait is of another kind.
    pub fn time_out(&self, host: &Host) -> Option<Vec<u8>> {
        let Wait::Key(KeyWait { waiter, .. }) = self else { return None };
        if !waiter.end() {
            return None;
        }
        waiter.note_end(0, host);
        Some(waiter.reply(|reply| reply.null_array()))
    }
}

impl Drop for KeyWait {
    fn drop(&mut self) {
        self.waiter.end();
        self.interests.leave(&self.waiter);
        self.waiter.client.set_waiter(None);
    }
}
