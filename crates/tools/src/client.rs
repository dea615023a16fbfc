//! A client of the Redis protocol: one connection, requests out, values in.
//!
//! The client does not interpret values, and has no timeout except for connecting.

mod stream;

use std::{io, time::Duration};

use tls::ClientFiles;
use wire::{DecodeLimits, Decoder, Value};

use self::stream::Stream;
pub(crate) use self::stream::is_path;

/// How long a connection may take to be made, with its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The memory that is offered to one read.
const READ_BYTES: usize = 256 << 10;
/// Once this many bytes are taken, they are removed from memory before the next read.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// The first two bytes of a TLS server's answer to bytes that are not TLS.
const TLS_ALERT: u8 = 0x15;
const TLS_MAJOR: u8 = 3;

/// Advice for a client's operator about an error reply; empty if there is none.
pub(crate) fn advice(text: &str) -> &'static str {
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    match code {
        "NOAUTH" => "Give the password with --password-file FILE",
        "WRONGPASS" => {
            "The password in the first line of the password file, or the user (--user), is another one"
        }
        "ERR" if rest.starts_with("unknown command") => "It is no Sheaf server, or an earlier version",
        _ => "",
    }
}

/// An error reply, with advice if there is any.
pub(crate) fn with_advice(text: &str, advice: &str) -> String {
    // Redis answers HELLO with advice for programs, which is left out.
    let text = if text.starts_with("NOAUTH ") { "NOAUTH Authentication required" } else { text };
    if advice.is_empty() { text.into() } else { format!("{}. {advice}", text.trim_end_matches(['.', ' '])) }
}

/// A text of a server without control characters, which would spoil the terminal.
pub(crate) fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

pub(crate) struct Client {
    pub(crate) stream: Stream,
    limits: DecodeLimits,
    received: Vec<u8>,
    /// The bytes of `received` that were taken.
    taken: usize,
    decoder: Decoder,
}

impl Client {
    /// Connects to a server, encrypted if `tls` is given.
    ///
    /// # Errors
    /// The reason, in words.
    pub(crate) async fn connect(
        host: &str,
        port: u16,
        tls: Option<&ClientFiles>,
        limits: DecodeLimits,
    ) -> Result<Client, String> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, Stream::connect(host, port, tls)).await;
        let stream = connected.map_err(|_| "no answer".to_string())??;
        Ok(Client { stream, limits, received: Vec::new(), taken: 0, decoder: Decoder::new() })
    }

    /// Sends one request.
    pub(crate) async fn send(&mut self, arguments: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut request = Vec::new();
        wire::request::encode(arguments, &mut request);
        self.send_bytes(&request).await
    }

    /// Sends requests that are encoded already.
    pub(crate) async fn send_bytes(&mut self, requests: &[u8]) -> io::Result<()> {
        self.stream.send(requests).await
    }

    /// Waits for more bytes. If the call is cancelled, nothing received is lost.
    ///
    /// # Errors
    /// An error of the socket, or [`io::ErrorKind::UnexpectedEof`] if the other side has closed the
    /// connection.
    pub(crate) async fn receive(&mut self) -> io::Result<()> {
        self.make_room();
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Takes over bytes that have arrived; returns whether there were any.
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub(crate) fn try_receive(&mut self) -> io::Result<bool> {
        self.make_room();
        match self.stream.try_read_buf(&mut self.received) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn make_room(&mut self) {
        if self.taken == self.received.len() || self.taken >= TAKEN_BYTES_MAX {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
        self.received.reserve(READ_BYTES);
    }

    /// The received bytes that were not taken.
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Takes this many bytes of the buffer, which are not a part of a value.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        self.decoder = Decoder::new();
    }

    /// Takes the next value; `None` if it has not arrived whole.
    ///
    /// # Errors
    /// The reason, in words: the value is not of the Redis protocol, or larger than the limits.
    pub(crate) fn next_value(&mut self) -> Result<Option<Value>, String> {
        let Client { limits, received, taken, decoder, .. } = self;
        let buffer = &received[*taken..];
        let found = decoder.decode(buffer, limits).map_err(|error| match buffer {
            [b'H', b'T', b'T', b'P', b'/', ..] => "it is an HTTP port".into(),
            [TLS_ALERT, TLS_MAJOR, ..] => "it is a port for TLS: use --tls".into(),
            _ => error.to_string(),
        })?;
        Ok(found.map(|(value, len)| {
            self.taken += len;
            value
        }))
    }
}
