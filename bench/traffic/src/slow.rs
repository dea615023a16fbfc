//! A subscriber that reads far slower than it is sent to, and reconnects when the server disconnects it.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::{failure::Failure, message::write_command};

/// Bytes read per period.
const TAKEN_BYTES: usize = 1024;
/// The period in microseconds.
pub const PERIOD_US: u64 = 1_000_000;

/// A slow subscriber.
#[derive(Debug)]
pub struct SlowReader {
    address: SocketAddr,
    channel: Vec<u8>,
    stream: TcpStream,
    due_us: u64,
    /// Number of times that the server disconnected it.
    pub given_up: u64,
}

impl SlowReader {
    /// Subscribes to a channel; the first read is at `due_us`.
    pub fn open(address: SocketAddr, channel: Vec<u8>, due_us: u64) -> Result<SlowReader, Failure> {
        let stream = subscribe(address, &channel)?;
        Ok(SlowReader { address, channel, stream, due_us, given_up: 0 })
    }

    /// Reads if a period has passed.
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
