//! A connection to source or target: received bytes, and commands with their replies.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use wire::{DecodeError, DecodeLimits, Value, decode};

use super::{address::Address, commands::Commands};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which a peer that should send is considered lost: Redis' own limit between master and
/// replica.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Consumed bytes at the front of the buffer are removed once there are this many.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// Why the communication with a server failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The connection cannot be established.
    #[error("cannot connect to the {role} {address}: {reason}")]
    Unreachable {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// The error of the operating system, or a timeout.
        reason: String,
    },
    /// An established connection was lost.
    #[error("lost the connection to the {role} {address}: {reason}")]
    Lost {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// The error of the operating system, or another reason.
        reason: String,
    },
    /// It replies with an error.
    #[error("the {role} {address} refuses {command}: {text}{}", advice(command, text))]
    Refused {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// The name of the command.
        command: String,
        /// The error reply.
        text: String,
    },
    /// The reply is not of the Redis protocol.
    #[error("the {role} {address} does not speak the protocol of Redis: {reason}")]
    Foreign {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// A description of the error.
        reason: String,
    },
}

/// Advice for an error reply.
fn advice(command: &str, text: &str) -> &'static str {
    match text.split(' ').next().unwrap_or_default() {
        "ERR" if command == "REPLCONF" || command == "PSYNC" => {
            ". It is no Redis or Valkey, or one that takes no replicas; from another Sheaf, move with sheaf backup"
        }
        "ERR" if command == "CLIENT" => ". It is no Sheaf server, or an older one",
        "NOAUTH" => ". Give the password: redis://:PASSWORD@HOST:PORT, or a password file",
        "WRONGPASS" => ". The password, or the user, is another one",
        "NOPERM" => ". The user needs the rights of a replica: +psync +replconf +ping +info",
        "NOMASTERLINK" => ". It is a replica without its master: copy from the master, or wait for the link",
        _ => "",
    }
}

impl PeerError {
    /// Whether the operation may succeed if repeated.
    pub(super) fn passes(&self) -> bool {
        match self {
            PeerError::Unreachable { .. } | PeerError::Lost { .. } => true,
            PeerError::Refused { text, .. } => {
                ["LOADING", "NOMASTERLINK", "BUSY", "MASTERDOWN"].iter().any(|code| text.starts_with(code))
            }
            PeerError::Foreign { .. } => false,
        }
    }
}

pub(super) struct Peer {
    pub(super) stream: TcpStream,
    role: &'static str,
    address: String,
    received: Vec<u8>,
    /// Number of consumed bytes at the front of `received`.
    taken: usize,
}

impl Peer {
    /// Connects, and authenticates if there is a password.
    pub(super) async fn open(role: &'static str, address: &Address) -> Result<Peer, PeerError> {
        let unreachable =
            |reason: String| PeerError::Unreachable { role, address: address.to_string(), reason };
        let place = (address.host.as_str(), address.port);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(place)).await;
        let stream = connected
            .map_err(|_| unreachable("no answer".into()))?
            .map_err(|error| unreachable(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let mut peer = Peer { stream, role, address: address.to_string(), received: Vec::new(), taken: 0 };
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

    pub(super) fn foreign(&self, reason: impl ToString) -> PeerError {
        PeerError::Foreign { role: self.role, address: self.address.clone(), reason: reason.to_string() }
    }

    pub(super) fn refused(&self, command: &str, text: &[u8]) -> PeerError {
        PeerError::Refused {
            role: self.role,
            address: self.address.clone(),
            command: command.into(),
            text: text.escape_ascii().to_string(),
        }
    }

    /// Sends a command without waiting for its reply.
    pub(super) async fn send(&mut self, arguments: &[&str]) -> Result<(), PeerError> {
        let mut commands = Commands::default();
        commands.push(&arguments.iter().map(|argument| argument.as_bytes()).collect::<Vec<_>>());
        self.stream.write_all(&commands.bytes).await.map_err(|error| self.lost(error))
    }

    /// Sends a command and returns its reply; an error reply is an error.
    pub(super) async fn ask(&mut self, arguments: &[&str]) -> Result<Value, PeerError> {
        self.send(arguments).await?;
        loop {
            match self.next_value()? {
                // Only the name of the command: its arguments may be a password.
                Some(Value::Error(text)) => return Err(self.refused(arguments[0], &text)),
                Some(value) => return Ok(value),
                None => self.receive().await?,
            }
        }
    }

    /// The received bytes that are not consumed.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Consumes bytes at the front of the buffer.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Waits until bytes are received. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<(), PeerError> {
        self.make_room();
        match tokio::time::timeout(SILENCE_MAX, self.stream.read_buf(&mut self.received)).await {
            Err(_) => Err(self.lost("it says nothing")),
            Ok(Err(error)) => Err(self.lost(error)),
            Ok(Ok(0)) => Err(self.lost("it was closed there")),
            Ok(Ok(_)) => Ok(()),
        }
    }

    /// As [`Peer::receive`], without waiting; `false` if nothing was received.
    pub(super) fn try_receive(&mut self) -> Result<bool, PeerError> {
        self.make_room();
        match self.stream.try_read_buf(&mut self.received) {
            Ok(0) => Err(self.lost("it was closed there")),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn make_room(&mut self) {
        if self.taken == self.received.len() || self.taken >= TAKEN_BYTES_MAX {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
        self.received.reserve(READ_BYTES);
    }

    /// Consumes the next received value; `None` if it is incomplete.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, PeerError> {
        let found = decode(self.buffer(), &DecodeLimits::DEFAULT)
            .map_err(|error: DecodeError| self.foreign(error))?;
        Ok(found.map(|(value, len)| {
            self.taken += len;
            value
        }))
    }
}
