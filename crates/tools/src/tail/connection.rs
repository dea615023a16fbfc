//! The connection of `sheaf tail`: sends commands, receives replies and messages.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use wire::{DecodeLimits, Value, decode};

use super::TailError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Larger than any message of a server with its frame.
const LIMITS: DecodeLimits = DecodeLimits { bytes_max: 1 << 30, ..DecodeLimits::DEFAULT };
/// A PING is sent whenever this many more ticks pass in silence.
const PING_TICKS: u32 = 10;
/// Ticks of silence after which the server is considered lost.
const SILENT_TICKS_MAX: u32 = 30;

pub(super) struct Connection {
    stream: TcpStream,
    address: String,
    received: Vec<u8>,
    /// Number of decoded bytes at the front of `received`.
    decoded: usize,
    silent_ticks: u32,
}

impl Connection {
    pub(super) async fn open(host: &str, port: u16) -> Result<Connection, TailError> {
        let address = format!("{host}:{port}");
        let unreachable = |reason: String| TailError::Unreachable { address: address.clone(), reason };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
        let stream = connected
            .map_err(|_| unreachable("no answer".into()))?
            .map_err(|error| unreachable(error.to_string()))?;
        Ok(Connection { stream, address, received: Vec::new(), decoded: 0, silent_ticks: 0 })
    }

    fn lost(&self, reason: impl ToString) -> TailError {
        TailError::Lost { address: self.address.clone(), reason: reason.to_string() }
    }

    /// Sends a command without waiting for its reply.
    pub(super) async fn send(&mut self, arguments: &[&[u8]]) -> Result<(), TailError> {
        let mut request = Vec::new();
        wire::request::encode(arguments, &mut request);
        self.stream.write_all(&request).await.map_err(|error| self.lost(error))
    }

    /// Waits until bytes are received. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<(), TailError> {
        self.received.drain(..self.decoded);
        self.decoded = 0;
        self.received.reserve(READ_BYTES);
        let count = self.stream.read_buf(&mut self.received).await.map_err(|error| self.lost(error))?;
        self.silent_ticks = 0;
        if count == 0 { Err(self.lost("the server closed it")) } else { Ok(()) }
    }

    /// Consumes the next received value; `None` if it is incomplete.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, TailError> {
        let found = decode(&self.received[self.decoded..], &LIMITS)
            .map_err(|error| TailError::Foreign { address: self.address.clone(), error })?;
        Ok(found.map(|(value, len)| {
            self.decoded += len;
            value
        }))
    }

    /// To be called at every tick: sends a PING to a silent server, and fails if it does not reply.
    pub(super) async fn look_after(&mut self) -> Result<(), TailError> {
        self.silent_ticks += 1;
        if self.silent_ticks > SILENT_TICKS_MAX {
            return Err(self.lost("the server does not answer"));
        }
        if self.silent_ticks.is_multiple_of(PING_TICKS) {
            self.send(&[b"PING"]).await?;
        }
        Ok(())
    }
}
