//! Promises: replies that come from work which is done elsewhere, long after the command has run. SAVE is such a command.
//!
//! What it is: what is left of the command, in the hands of whoever does the work. The client runs no command meanwhile; a
//! client that has gone is not answered.
//! What it is not: a wait for a key (see `blocking`). There is no timeout, and CLIENT UNBLOCK does not end it.

use std::sync::Arc;

use lsn::Lsn;
use wire::{Protocol, ReplyWriter};

use crate::{Context, ReplyMode, Wait, clients::Client};

/// See the module documentation.
#[derive(Debug)]
pub struct Promise {
    client: Arc<Client>,
    protocol: Protocol,
    /// Its replies are off.
    is_silent: bool,
}

impl Promise {
    /// Answers the client: OK, or an error, prefix included.
    pub fn keep(self, outcome: Result<(), String>) {
        self.answer(|reply| match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&error),
        });
    }

    /// Whether there is nobody left to answer.
    pub fn is_void(&self) -> bool {
        // Its connection and the list of clients hold it as well, for as long as it is there.
        Arc::strong_count(&self.client) == 1
    }

    /// Answers the client with what `write` writes.
    pub fn answer(self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        self.client.answer(bytes.into(), Lsn::ZERO);
    }
}

impl Context<'_, '_> {
    /// Hands the reply to `begin`, which passes it on to whoever does the work: the client waits for it. If `begin` fails it
    /// does not, and the promise is forgotten.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn promise<E>(&mut self, begin: impl FnOnce(Promise) -> Result<(), E>) -> Result<(), E> {
        let session = &mut *self.session;
        begin(Promise {
            client: session.client.clone(),
            protocol: session.protocol,
            is_silent: session.reply_mode != ReplyMode::On,
        })?;
        // The answer cannot be too early: the worker that runs this delivers it.
        session.wait = Some(Wait::Promise);
        Ok(())
    }

    /// As [`Context::promise`], where nothing can fail.
    pub fn promise_for_sure(&mut self, begin: impl FnOnce(Promise)) {
        let Ok(()) = self.promise(|promise| {
            begin(promise);
            Ok::<(), std::convert::Infallible>(())
        });
    }
}
