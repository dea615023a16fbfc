//! Connections that each send a request as soon as the previous one is answered, on one thread.
//!
//! The module handles sockets and measures times. Requests are made, and responses checked, by a [`Work`].
//!
//! Invariants
//! - Every request that was sent is answered, or the run fails.

use std::{net::SocketAddr, time::Duration};

use env::{Clock, RealClock};
use mio::{Events, Poll, Token};

use crate::{
    documents::{answer::write_request, exchange::Exchange},
    failure::Failure,
    latency::Latencies,
};

/// Time without a response after which the run fails.
const SILENCE_US_MAX: u64 = 60_000_000;
const POLL_MS: u64 = 2;
const EVENTS: usize = 1024;
const RECEIVE_BYTES: usize = 256 << 10;

/// The requests of a load.
pub trait Work {
    /// Writes the body of a connection's next request, and returns its method and path; `None` if there are
    /// no more.
    fn next(&mut self, connection: usize, body: &mut Vec<u8>) -> Option<(&'static str, String)>;

    /// Checks a response. Returns the number of documents that it confirms.
    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<u64, Failure>;
}

/// A load and its measurements.
pub struct Load<W> {
    /// The requests.
    pub work: W,
    /// Number of documents confirmed since the start.
    pub documents: u64,
    /// Times from sending a request to its complete response.
    pub latencies: Latencies,
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    connections: Vec<Exchange>,
    /// The time of sending each connection's pending request; `None` if there is none.
    sent_us: Vec<Option<u64>>,
    is_ending: bool,
    heard_us: u64,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl<W: Work> Load<W> {
    /// Connects, and sends the first request of each connection.
    pub fn begin(address: SocketAddr, connections: usize, work: W) -> Result<Load<W>, Failure> {
        let poll = Poll::new()?;
        let open = |index| Exchange::open(address, poll.registry(), Token(index));
        let connections: Vec<Exchange> = (0..connections).map(open).collect::<Result<_, _>>()?;
        let mut load = Load {
            work,
            documents: 0,
            latencies: Latencies::default(),
            events: Events::with_capacity(EVENTS),
            buffer: vec![0; RECEIVE_BYTES],
            sent_us: vec![None; connections.len()],
            connections,
            poll,
            is_ending: false,
            heard_us: RealClock.monotonic_us(),
            body: Vec::new(),
            request: Vec::new(),
        };
        (0..load.connections.len()).try_for_each(|index| load.send(index))?;
        Ok(load)
    }

    /// Runs for this many seconds.
    pub fn turn_for(&mut self, seconds: f64) -> Result<(), Failure> {
        let until_us = RealClock.monotonic_us() + (seconds * 1e6) as u64;
        while RealClock.monotonic_us() < until_us {
            self.turn()?;
        }
        Ok(())
    }

    /// Waits for all pending responses without sending more requests.
    pub fn finish(mut self) -> Result<W, Failure> {
        self.is_ending = true;
        self.run_out()
    }

    /// Runs until there are no more requests.
    pub fn run_out(mut self) -> Result<W, Failure> {
        while self.sent_us.iter().any(Option::is_some) {
            self.turn()?;
        }
        Ok(self.work)
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        self.poll.poll(&mut events, Some(Duration::from_millis(POLL_MS)))?;
        for event in &events {
            self.serve(event.token().0)?;
        }
        self.events = events;
        if RealClock.monotonic_us().saturating_sub(self.heard_us) > SILENCE_US_MAX {
            return Err(Failure::Stalled("answers are missing"));
        }
        Ok(())
    }

    fn serve(&mut self, index: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[index];
        connection.flush()?;
        let Some((status, body)) = connection.receive(&mut self.buffer)? else { return Ok(()) };
        self.documents += self.work.answer(index, status, body)?;
        self.heard_us = RealClock.monotonic_us();
        if let Some(sent_us) = self.sent_us[index].take() {
            self.latencies.add(self.heard_us.saturating_sub(sent_us), 1);
        }
        self.send(index)
    }

    fn send(&mut self, index: usize) -> Result<(), Failure> {
        if self.is_ending {
            return Ok(());
        }
        self.body.clear();
        self.request.clear();
        if let Some((method, path)) = self.work.next(index, &mut self.body) {
            write_request(&mut self.request, method, &path, &self.body);
            self.sent_us[index] = Some(RealClock.monotonic_us());
            self.connections[index].send(&self.request)?;
        }
        Ok(())
    }
}
