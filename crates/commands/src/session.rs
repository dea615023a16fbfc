//! A session: what the server remembers about one client between its commands.

use std::sync::Arc;

use keyspace::DbId;
use storage::Durability;
use wire::Protocol;

use crate::clients::Client;

/// Which replies are sent (CLIENT REPLY).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// All but that of the next command.
    SkipNext,
    /// The present command's is the one to skip.
    Skip,
}

/// State of one client. Belongs to one worker; what others may see is in [`Client`].
#[derive(Debug)]
pub struct Session {
    /// The entry in the list of clients.
    pub client: Arc<Client>,
    /// The selected database.
    pub db: DbId,
    /// The protocol of the replies.
    pub protocol: Protocol,
    /// Whether the client may run commands.
    pub authenticated: bool,
    /// Which replies are sent.
    pub reply_mode: ReplyMode,
    /// A durability weaker than the server's that this client has asked for.
    pub durability: Option<Durability>,
    /// Whether reads leave the access stamps alone (CLIENT NO-TOUCH).
    pub no_touch: bool,
    /// Whether the client is shown every command (MONITOR): it may not use keys itself.
    pub monitoring: bool,
    /// Set by QUIT and its like: close once the replies are sent.
    pub closing: bool,
    /// Set by DEBUG SLEEP: the worker holds the connection for so long before its next command.
    pub pause_ms: u64,
}

impl Session {
    /// The session of a client that has just connected.
    pub fn new(client: Arc<Client>, authenticated: bool) -> Session {
        Session {
            client,
            db: DbId::ZERO,
            protocol: Protocol::Resp2,
            authenticated,
            reply_mode: ReplyMode::On,
            durability: None,
            no_touch: false,
            monitoring: false,
            closing: false,
            pause_ms: 0,
        }
    }

    /// What holds for this client: its own wish, never more than the server's setting.
    #[inline]
    pub fn effective_durability(&self, server: Durability) -> Durability {
        self.durability.map_or(server, |wish| wish.min(server))
    }
}
