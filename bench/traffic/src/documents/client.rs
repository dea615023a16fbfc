//! One connection that waits for each answer: to set up, to look, and to read streams.

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

/// For so long nothing may come.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// See the module documentation.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    reader: AnswerReader,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        Ok(Client { stream, reader: AnswerReader::default(), buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Asks; `each` gets what has come of the body, takes out of it what it wants, and may break off: then the connection is
    /// of no further use. Returns the status.
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

    /// Asks about the database or what is in it (`path` begins behind its name). Returns the status and the body.
    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(u16, &[u8]), Failure> {
        let path = format!("/{DATABASE}{path}");
        let status = self.stream(method, &path, body, |_| Ok(ControlFlow::Continue(())))?;
        Ok((status, &self.reader.body))
    }

    /// As [`Client::ask`], for an answer that must have this status and be JSON.
    pub fn expect(&mut self, expected: u16, method: &str, path: &str, body: &[u8]) -> Result<Value, Failure> {
        let (status, answer) = self.ask(method, path, body)?;
        match serde_json::from_slice(answer) {
            Ok(value) if status == expected => Ok(value),
            _ => Err(Failure::unexpected(&format!("{method} {path}"), status, answer)),
        }
    }

    /// The page at `path` if there is one, else nothing.
    pub fn page(&mut self, path: &str) -> Result<String, Failure> {
        let status = self.stream("GET", path, b"", |_| Ok(ControlFlow::Continue(())))?;
        let page = String::from_utf8_lossy(&self.reader.body);
        Ok(if status == 200 { page.into_owned() } else { String::new() })
    }
}
