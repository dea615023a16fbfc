//! A non-blocking connection of a load, with at most one pending request.

use std::{
    io::{ErrorKind, Read},
    net::SocketAddr,
};

use mio::{Interest, Registry, Token, net::TcpStream};

use crate::{
    connection::{self, write},
    documents::answer::AnswerReader,
    failure::Failure,
};

/// A non-blocking HTTP connection.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    unsent: Vec<u8>,
    reader: AnswerReader,
}

impl Exchange {
    /// Connects and registers for readiness events with `token`.
    pub fn open(address: SocketAddr, registry: &Registry, token: Token) -> Result<Exchange, Failure> {
        let mut stream = connection::connect(address)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Exchange { stream, unsent: Vec::new(), reader: AnswerReader::default() })
    }

    /// Sends a request; bytes that the socket does not take are sent by [`Exchange::flush`].
    pub fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.reader.begin();
        let sent = write(&mut self.stream, request)?;
        self.unsent.extend_from_slice(&request[sent..]);
        Ok(())
    }

    /// Sends the unsent bytes. To be called whenever the socket may be writable.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if !self.unsent.is_empty() {
            let sent = write(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    /// Receives available bytes: status and body of the response, if it is complete. A response before the
    /// whole request was sent, or without a request, is an error.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<(u16, &[u8])>, Failure> {
        loop {
            let received = match self.stream.read(buffer) {
                Ok(0) => return Err(Failure::Closed),
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if self.reader.feed(&buffer[..received])? {
                return Ok(Some((self.reader.status, &self.reader.body)));
            }
        }
    }
}
