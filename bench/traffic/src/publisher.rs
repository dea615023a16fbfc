//! A connection that publishes: a pipeline of messages at once, and the next ones when all are confirmed.

use std::net::SocketAddr;

use mio::{Registry, Token};

use crate::{
    connection::Connection,
    failure::Failure,
    frames::{Frame, Garbled},
    latency::Latencies,
    ledger::Ledger,
};

/// A publishing connection.
#[derive(Debug)]
pub struct Publisher {
    connection: Connection,
    index: usize,
    /// The channels of the messages in the pipeline, and the number of confirmed ones.
    channels: Vec<usize>,
    confirmed: usize,
    sent_at_us: u64,
    random: u64,
    request: Vec<u8>,
}

impl Publisher {
    /// Connects without publishing.
    pub fn open(
        address: SocketAddr,
        registry: &Registry,
        token: Token,
        index: usize,
    ) -> Result<Publisher, Failure> {
        Ok(Publisher {
            connection: Connection::open(address, registry, token)?,
            index,
            channels: Vec::new(),
            confirmed: 0,
            sent_at_us: 0,
            // The same channels in every run.
            random: 0x9E37_79B9_7F4A_7C15 ^ (index as u64 + 1),
            request: Vec::new(),
        })
    }

    /// Publishes `count` messages to random channels.
    pub fn publish(&mut self, count: usize, ledger: &mut Ledger, now_us: u64) -> Result<(), Failure> {
        self.channels.clear();
        self.request.clear();
        self.confirmed = 0;
        for _ in 0..count {
            let channel = self.random(ledger.channels());
            self.channels.push(channel);
            ledger.publish(self.index, channel, now_us, &mut self.request);
        }
        self.sent_at_us = now_us;
        self.connection.send(&self.request)
    }

    /// Handles readiness of the socket.
    pub fn advance(
        &mut self,
        buffer: &mut [u8],
        ledger: &mut Ledger,
        latencies: &mut Latencies,
        now_us: u64,
    ) -> Result<(), Failure> {
        self.connection.flush()?;
        let Publisher { connection, index, channels, confirmed, .. } = self;
        let before = *confirmed;
        connection.receive(buffer, |frame| {
            let (Frame::Integer(heard), Some(channel)) = (frame, channels.get(*confirmed)) else {
                return Err(Garbled.into());
            };
            *confirmed += 1;
            ledger.confirm(*index, *channel, heard);
            Ok(())
        })?;
        latencies.add(now_us.saturating_sub(self.sent_at_us), (self.confirmed - before) as u64);
        Ok(())
    }

    /// Whether all its messages are confirmed.
    pub fn is_idle(&self) -> bool {
        self.confirmed == self.channels.len()
    }

    /// A number below `bound`, by xorshift.
    fn random(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * bound as u128) >> 64) as usize
    }
}
