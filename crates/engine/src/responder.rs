//! Promises: replies that another thread writes, long after the command has run. SAVE is such a command.
//!
//! A responder is the answer channel of a deferred reply, in the hands of the thread that does the work. The
//! client runs no command meanwhile; a disconnected client is not answered. It is not a wait for a key (see
//! `blocking`). There is no timeout, and CLIENT UNBLOCK does not end it.

use std::sync::Arc;

use lsn::Lsn;
use wire::{Protocol, ReplyWriter};

use crate::{Context, ReplyMode, Wait, clients::Client};

/// The answer channel of a deferred reply.
#[derive(Debug)]
pub struct Responder {
    client: Arc<Client>,
    protocol: Protocol,
    /// The client gets no replies (CLIENT REPLY OFF or SKIP).
    is_silent: bool,
}

impl Responder {
    /// Answers the client: OK, or an error, prefix included.
    pub fn keep(self, outcome: Result<(), String>) {
        self.answer(|reply| match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&error),
        });
    }

    /// Whether the client has disconnected.
    pub fn is_void(&self) -> bool {
        // Its connection and the list of clients hold references until the client disconnects.
        Arc::strong_count(&self.client) == 1
    }

    /// Answers the client with the reply that `write` writes.
    pub fn answer(self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        self.client.answer(bytes.into(), Lsn::ZERO);
    }
}

impl Context<'_, '_> {
    /// Passes a responder to `begin`, which hands it to the thread that does the work; the client waits for the
    /// answer. If `begin` fails, the client does not wait, and the responder is dropped.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn responder<E>(&mut self, begin: impl FnOnce(Responder) -> Result<(), E>) -> Result<(), E> {
        let session = &mut *self.session;
        begin(Responder {
            client: session.client.clone(),
            protocol: session.protocol,
            is_silent: session.reply_mode != ReplyMode::On,
        })?;
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
