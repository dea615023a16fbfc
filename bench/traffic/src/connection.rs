//! A non-blocking client connection with its unsent bytes and its incomplete frame.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::SocketAddr,
};

use mio::{Interest, Registry, Token, net::TcpStream};

use crate::{
    failure::Failure,
    frames::{Frame, FrameReader, Garbled},
};

/// Bytes received at once.
pub const RECEIVE_BYTES: usize = 256 << 10;

/// A non-blocking connection of a publisher or subscriber.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    unsent: Vec<u8>,
    partial: Vec<u8>,
    reader: FrameReader,
}

impl Connection {
    /// Connects and registers for readiness events with `token`.
    pub fn open(address: SocketAddr, registry: &Registry, token: Token) -> Result<Connection, Failure> {
        let mut stream = connect(address)?;
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let reader = FrameReader::default();
        Ok(Connection { stream, unsent: Vec::new(), partial: Vec::new(), reader })
    }

    /// Sends; bytes that the socket does not take are sent by [`Connection::flush`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let sent = if self.unsent.is_empty() { write(&mut self.stream, bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent..]);
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

    /// Receives everything available, frame by frame. `buffer` has [`RECEIVE_BYTES`] and is shared by all
    /// connections.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut each: impl FnMut(Frame<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            let kept = self.partial.len();
            buffer[..kept].copy_from_slice(&self.partial);
            let received = match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let filled = &buffer[..kept + received];
            let mut at = 0;
            while let Some((frame, len)) = self.reader.read(&filled[at..])? {
                if let Frame::Error(text) = frame {
                    return Err(Failure::Refused(String::from_utf8_lossy(text).into_owned()));
                }
                each(frame)?;
                at += len;
            }
            if at == 0 && filled.len() == buffer.len() {
                return Err(Failure::Garbled(Garbled));
            }
            self.partial.clear();
            self.partial.extend_from_slice(&filled[at..]);
            // A short read: nothing more is available, and readiness will be reported again.
            if kept + received < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// Connects; the returned stream is non-blocking.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

/// Writes as much as the socket takes.
pub fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
