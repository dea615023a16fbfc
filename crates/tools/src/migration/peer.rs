//! What the connections to source and target have in common: bytes in, bytes out, a command and its reply.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use wire::{DecodeError, DecodeLimits, Value, decode};

use super::{address::Address, commands::Commands};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that says nothing for so long, when it should, is gone. Redis' own limit between master and replica.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How much is read at a time.
const READ_BYTES: usize = 256 << 10;
/// Taken bytes at the front of the buffer are removed once they are so many.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// Why a server cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Nobody answers there.
    #[error("cannot connect to the {role} {address}: {reason}")]
    Unreachable {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// What the OS said.
        reason: String,
    },
    /// There was a connection.
    #[error("lost the connection to the {role} {address}: {reason}")]
    Lost {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// What the OS said.
        reason: String,
    },
    /// It answers with an error.
    #[error("the {role} {address} refuses {command}: {text}{}", advice(command, text))]
    Refused {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// What it was asked.
        command: String,
        /// Its answer.
        text: String,
    },
    /// Something else answers there.
    #[error("the {role} {address} does not speak the protocol of Redis: {reason}")]
    Foreign {
        /// `source` or `target`.
        role: &'static str,
        /// Host and port.
        address: String,
        /// What is wrong.
        reason: String,
    },
}

/// What to do about an error reply.
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
    /// Whether it may be different the next time.
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

/// See the module documentation.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    role: &'static str,
    address: String,
    received: Vec<u8>,
    /// Bytes at the front of `received` that were taken.
    taken: usize,
}

impl Peer {
    /// Connects, and says the password if there is one.
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

    /// Sends a command, without waiting for a reply.
    pub(super) async fn send(&mut self, arguments: &[&str]) -> Result<(), PeerError> {
        let mut commands = Commands::default();
        commands.push(&arguments.iter().map(|argument| argument.as_bytes()).collect::<Vec<_>>());
        self.stream.write_all(&commands.bytes).await.map_err(|error| self.lost(error))
    }

    /// Sends a command and returns its reply, if that is no error.
    pub(super) async fn ask(&mut self, arguments: &[&str]) -> Result<Value, PeerError> {
        self.send(arguments).await?;
        loop {
            match self.next_value()? {
                // Only the name: the rest may be a password.
                Some(Value::Error(text)) => return Err(self.refused(arguments[0], &text)),
                Some(value) => return Ok(value),
                None => self.receive().await?,
            }
        }
    }

    /// What has come and was not taken.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Takes bytes from the front of the buffer.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Waits until something has come. If this is cancelled, nothing is lost.
    pub(super) async fn receive(&mut self) -> Result<(), PeerError> {
        self.make_room();
        match tokio::time::timeout(SILENCE_MAX, self.stream.read_buf(&mut self.received)).await {
            Err(_) => Err(self.lost("it says nothing")),
            Ok(Err(error)) => Err(self.lost(error)),
            Ok(Ok(0)) => Err(self.lost("it was closed there")),
            Ok(Ok(_)) => Ok(()),
        }
    }

    /// As [`Peer::receive`], without waiting; `false` if nothing has come.
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

    /// The next value of what has come, if it has come whole.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, PeerError> {
        let found = decode(self.buffer(), &DecodeLimits::DEFAULT)
            .map_err(|error: DecodeError| self.foreign(error))?;
        Ok(found.map(|(value, len)| {
            self.taken += len;
            value
        }))
    }
}
