//! The connection of `sheaf tail`: sends commands, receives replies and messages.

use wire::{DecodeLimits, Value};

use super::{Options, TailError};
use crate::{client::Client, migration::address::Address};

/// Limits of a value, larger than any message of a server with its frame.
const LIMITS: DecodeLimits = DecodeLimits { bytes_max: 1 << 30, ..DecodeLimits::DEFAULT };
/// A PING is sent whenever this many more ticks pass in silence.
const PING_TICKS: u32 = 10;
/// Ticks of silence after which the server is considered lost.
const SILENT_TICKS_MAX: u32 = 30;

pub(super) struct Connection {
    client: Client,
    address: String,
    silent_ticks: u32,
}

impl Connection {
    pub(super) async fn open(options: &Options) -> Result<Connection, TailError> {
        let Address { host, port, tls, .. } = &options.address;
        let address = options.address.to_string();
        let connected = Client::connect(host, *port, tls.as_ref(), LIMITS).await;
        let client =
            connected.map_err(|reason| TailError::Unreachable { address: address.clone(), reason })?;
        Ok(Connection { client, address, silent_ticks: 0 })
    }

    fn lost(&self, reason: impl ToString) -> TailError {
        TailError::Lost { address: self.address.clone(), reason: reason.to_string() }
    }

    /// Sends a command without waiting for its reply.
    pub(super) async fn send(&mut self, arguments: &[&[u8]]) -> Result<(), TailError> {
        self.client.send(arguments).await.map_err(|error| self.lost(error))
    }

    /// Waits until bytes are received. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<(), TailError> {
        self.client.receive().await.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.lost("the server closed it"),
            _ => self.lost(error),
        })?;
        self.silent_ticks = 0;
        Ok(())
    }

    /// Consumes the next received value; `None` if it is incomplete.
    pub(super) fn next_value(&mut self) -> Result<Option<Value>, TailError> {
        let value = self.client.next_value();
        value.map_err(|error| TailError::Foreign { address: self.address.clone(), error })
    }

    /// Sends a PING to a silent server, and fails if the server does not reply; to be called at every tick.
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
