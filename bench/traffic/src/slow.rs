//! A subscriber that takes far less than it is sent, and comes again when the server gives it up.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::{failure::Failure, message::write_command};

/// Taken at once, once in a period.
const TAKEN_BYTES: usize = 1024;
/// Microseconds.
pub const PERIOD_US: u64 = 1_000_000;

/// See the module documentation.
#[derive(Debug)]
pub struct SlowReader {
    address: SocketAddr,
    channel: Vec<u8>,
    stream: TcpStream,
    due_us: u64,
    /// How often it was given up.
    pub given_up: u64,
}

impl SlowReader {
    /// Subscribes to a channel; takes its first bytes then.
    pub fn open(address: SocketAddr, channel: Vec<u8>, due_us: u64) -> Result<SlowReader, Failure> {
        let stream = subscribe(address, &channel)?;
        Ok(SlowReader { address, channel, stream, due_us, given_up: 0 })
    }

    /// Takes what is due.
    pub fn advance(&mut self, now_us: u64) -> Result<(), Failure> {
        if now_us < self.due_us {
            return Ok(());
        }
        self.due_us += PERIOD_US;
        match self.stream.read(&mut [0; TAKEN_BYTES]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => {
                self.given_up += 1;
                self.stream = subscribe(self.address, &self.channel)?;
            }
            Ok(_) => {}
        }
        Ok(())
    }
}

fn subscribe(address: SocketAddr, channel: &[u8]) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address)?;
    let mut request = Vec::new();
    write_command(&mut request, &[b"SUBSCRIBE", channel]);
    stream.write_all(&request)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}
