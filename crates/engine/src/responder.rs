//! Replies that another thread writes, long after the command has run (as for SAVE).
//!
//! A responder is in the hands of the thread that does the work. The client runs no command meanwhile; a
//! disconnected client is not answered. The wait for a key is something else (see `blocking`). A responder
//! has no timeout of its own.

use std::sync::Arc;

use lsn::Lsn;
use wire::{Protocol, ReplyWriter};

use crate::clients::Client;

/// The right to answer a client that waits; see the module documentation.
#[derive(Debug)]
pub struct Responder {
    client: Arc<Client>,
    protocol: Protocol,
    /// Whether the client gets no replies (CLIENT REPLY OFF or SKIP).
    is_silent: bool,
}

impl Responder {
    /// The right to answer this client. `is_silent` says that the client gets no replies.
    pub(crate) fn new(client: Arc<Client>, protocol: Protocol, is_silent: bool) -> Responder {
        Responder { client, protocol, is_silent }
    }

    /// Answers the client: OK, or an error, prefix included.
    pub fn keep(self, outcome: Result<(), String>) {
        self.answer(|reply| match outcome {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&error),
        });
    }

    /// Shows the client as blocked until it is answered, because the client waits for a position of the log.
    pub fn block(&self) {
        self.client.set_awaits_position(true);
    }

    /// The number of the client's connection.
    pub fn client_id(&self) -> u64 {
        self.client.id()
    }

    /// Whether the client has disconnected.
    pub fn is_void(&self) -> bool {
        // The client's connection and the list of clients hold references until the client disconnects.
        Arc::strong_count(&self.client) == 1
    }

    /// Answers the client with the reply that `write` writes.
    pub fn answer(self, write: impl FnOnce(&mut ReplyWriter<'_>)) {
        let mut bytes = Vec::new();
        if !self.is_silent {
            write(&mut ReplyWriter::new(&mut bytes, self.protocol));
        }
        self.client.set_awaits_position(false);
        self.client.answer(bytes.into(), Lsn::ZERO);
    }
}
