//! A connection that waits for each response: for setup, checks, and reading streams.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    ops::ControlFlow,
    time::Duration,
};

use serde_json::Value;

use crate::{
    documents::{
        DATABASE,
        answer::{AnswerReader, write_request},
    },
    failure::Failure,
};

/// Time without received bytes after which a request fails.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// A blocking HTTP client.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    reader: AnswerReader,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects; reads fail after [`SILENCE`] without data.
    pub fn connect(address: SocketAddr) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Client { stream, reader: AnswerReader::default(), buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Sends a request and passes the received body to `each`, which may remove bytes from it, and may end
    /// the request early; the connection is then unusable. Returns the status.
    pub fn stream(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        mut each: impl FnMut(&mut Vec<u8>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<u16, Failure> {
        let mut request = Vec::new();
        write_request(&mut request, method, path, body);
        self.stream.write_all(&request)?;
        self.reader.begin();
        loop {
            let received = self.stream.read(&mut self.buffer)?;
            if received == 0 {
                return Err(Failure::Closed);
            }
            let is_complete = self.reader.feed(&self.buffer[..received])?;
            if each(&mut self.reader.body)?.is_break() || is_complete {
                return Ok(self.reader.status);
            }
        }
    }

    /// Sends a request about the database or its documents; `path` begins after its name. Returns status and
    /// body.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(u16, &[u8]), Failure> {
        let path = format!("/{DATABASE}{path}");
        let status = self.stream(method, &path, body, |_| Ok(ControlFlow::Continue(())))?;
        Ok((status, &self.reader.body))
    }

    /// As [`Client::ask`], for a JSON response with this status.
    pub fn expect(&mut self, expected: u16, method: &str, path: &str, body: &[u8]) -> Result<Value, Failure> {
        let (status, answer) = self.ask(method, path, body)?;
        match serde_json::from_slice(answer) {
            Ok(value) if status == expected => Ok(value),
            _ => Err(Failure::unexpected(&format!("{method} {path}"), status, answer)),
        }
    }

    /// The page at `path`; empty if it does not exist.
    pub fn page(&mut self, path: &str) -> Result<String, Failure> {
        let status = self.stream("GET", path, b"", |_| Ok(ControlFlow::Continue(())))?;
        let page = String::from_utf8_lossy(&self.reader.body);
        Ok(if status == 200 { page.into_owned() } else { String::new() })
    }
}
