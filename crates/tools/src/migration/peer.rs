//! A connection to source or target: received bytes, and commands with their replies.

use std::time::Duration;

use wire::{DecodeLimits, Value};

use super::address::Address;
use crate::client::{Client, plain, with_advice};

/// Silence after which a peer that should send is considered lost: Redis' own limit between master and
/// replica.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Why the communication with a server failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The connection cannot be established.
    #[error("cannot connect to the {role} {address}: {reason}")]
    Unreachable {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// An established connection was lost.
    #[error("lost the connection to the {role} {address}: {reason}")]
    Lost {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port of the server.
        address: String,
        /// The reason, in words.
        reason: String,
    },
    /// The server replies with an error.
    #[error("the {role} {address} refuses {command}: {}", with_advice(text, advice(command, text)))]
    Refused {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port of the server.
        address: String,
        /// The name of the refused command.
        command: String,
        /// The error reply of the server.
        text: String,
    },
    /// The source is a Sheaf, whose offsets do not tell how far a copy is.
    #[error(
        "the source {address} is a Sheaf: have another follow it (--replica-of), or move with sheaf backup"
    )]
    Sheaf {
        /// Host and port of the source.
        address: String,
    },
    /// The reply is not of the Redis protocol.
    #[error("the {role} {address} does not speak the protocol of Redis: {reason}")]
    Foreign {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port of the server.
        address: String,
        /// A description of the error, in words.
        reason: String,
    },
}

/// Advice for an error reply.
fn advice(command: &str, text: &str) -> &'static str {
    match text.split(' ').next().unwrap_or_default() {
        "ERR" if command == "REPLCONF" || command == "PSYNC" => {
            "It is no Redis or Valkey, or one that takes no replicas, or renames this command"
        }
        "ERR" if command == "CLIENT" => "It is no Sheaf server, or an older one",
        "NOAUTH" => "Give the password: redis://:PASSWORD@HOST:PORT, or a password file",
        "WRONGPASS" => "The password, or the user, is another one",
        "NOPERM" => "The user needs the rights of a replica: +psync +replconf +ping +info",
        "NOMASTERLINK" => "It is a replica without its master: copy from the master, or wait for the link",
        _ => "",
    }
}

impl PeerError {
    /// Whether the operation is worth repeating: the peer was not reached or was lost, or gave an error that
    /// passes.
    pub(super) fn passes(&self) -> bool {
        match self {
            PeerError::Unreachable { .. } | PeerError::Lost { .. } => true,
            PeerError::Refused { text, .. } => {
                ["LOADING", "NOMASTERLINK", "BUSY", "MASTERDOWN"].iter().any(|code| text.starts_with(code))
            }
            PeerError::Foreign { .. } | PeerError::Sheaf { .. } => false,
        }
    }
}

pub(super) struct Peer {
    pub(super) client: Client,
    role: &'static str,
    address: String,
}

impl Peer {
    /// Connects, and authenticates if there is a password.
    pub(super) async fn open(role: &'static str, address: &Address) -> Result<Peer, PeerError> {
        let unreachable =
            |reason: String| PeerError::Unreachable { role, address: address.to_string(), reason };
        let connected =
            Client::connect(&address.host, address.port, address.tls.as_ref(), DecodeLimits::DEFAULT).await;
        let client = connected.map_err(unreachable)?;
        let mut peer = Peer { client, role, address: address.to_string() };
        match (&address.user, &address.password) {
            (_, None) => {}
            (None, Some(password)) => _ = peer.ask(&["AUTH", password]).await?,
            (Some(user), Some(password)) => _ = peer.ask(&["AUTH", user, password]).await?,
        }
        Ok(peer)
    }

    pub(super) fn lost(&self, reason: impl ToString) -> PeerError {
        PeerError::Lost { role: self.role, address: self.address.clone(), reason: reason.to_string() }
    }

    pub(super) fn sheaf(&self) -> PeerError {
        PeerError::Sheaf { address: self.address.clone() }
    }

    pub(super) fn foreign(&self, reason: impl ToString) -> PeerError {
        PeerError::Foreign { role: self.role, address: self.address.clone(), reason: reason.to_string() }
    }

    pub(super) fn refused(&self, command: &str, text: &[u8]) -> PeerError {
        PeerError::Refused {
            role: self.role,
            address: self.address.clone(),
            command: command.into(),
            text: plain(text),
        }
    }

    /// Sends a command without waiting for its reply.
    pub(super) async fn send(&mut self, arguments: &[&str]) -> Result<(), PeerError> {
        self.client.send(arguments).await.map_err(|error| self.lost(error))
    }

    /// Sends a command and returns its reply; an error reply is an error.
    pub(super) async fn ask(&mut self, arguments: &[&str]) -> Result<Value, PeerError> {
        self.send(arguments).await?;
        loop {
            match self.next_value()? {
                // The error has only the name of the command: its arguments may be a password.
                Some(Value::Error(text)) => return Err(self.refused(arguments[0], &text)),
                Some(value) => return Ok(value),
                None => self.receive().await?,
            }
        }
    }

    /// The received bytes that are not consumed.
    pub(super) fn buffer(&self) -> &[u8] {
        self.client.buffer()
    }

    /// Consumes bytes at the front of the buffer.
    pub(super) fn take(&mut self, bytes: usize) {
        self.client.take(bytes);
    }

    /// Waits until bytes are received. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<(), PeerError> {
        match tokio::time::timeout(SILENCE_MAX, self.client.receive()).await {
            Err(_) => Err(self.lost("it says nothing")),
            Ok(received) => received.map_err(|error| self.ended(&error)),
        }
    }

    /// As [`Peer::receive`], without waiting; `false` if nothing was received.
    pub(super) fn try_receive(&mut self) -> Result<bool, PeerError> {
        self.client.try_receive().map_err(|error| self.ended(&error))
    }

    fn ended(&self, error: &std::io::Error) -> PeerError {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.lost("it was closed there"),
            _ => self.lost(error),
        }
    }

    /// Consumes the next received value; `None` if it is incomplete.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, PeerError> {
        self.client.next_value().map_err(|error| self.foreign(error))
    }
}
