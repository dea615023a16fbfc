//! Connections that each send a request as soon as the one before is answered, on one thread.
//!
//! What it is: sockets and times. What it is not: a judge of answers: what is sent, and whether the answer is right, is a [`Work`].
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

/// For so long no answer may come.
const SILENCE_US_MAX: u64 = 60_000_000;
const POLL_MS: u64 = 2;
const EVENTS: usize = 1024;
const RECEIVE_BYTES: usize = 256 << 10;

/// What connections ask for.
pub trait Work {
    /// Writes the body of a connection's next request, and says how it is asked; `None` if there is nothing left.
    fn next(&mut self, connection: usize, body: &mut Vec<u8>) -> Option<(&'static str, String)>;

    /// Checks an answer. Returns how many documents it confirms.
    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<u64, Failure>;
}

/// See the module documentation.
pub struct Load<W> {
    /// The parameters of a request.
    pub work: W,
    /// Confirmed since the beginning.
    pub documents: u64,
    /// From sending a request to its whole answer.
    pub latencies: Latencies,
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    connections: Vec<Exchange>,
    /// When each connection's request was sent; `None` if it has none on its way.
    sent_us: Vec<Option<u64>>,
    is_ending: bool,
    heard_us: u64,
    body: Vec<u8>,
    request: Vec<u8>,
}

impl<W: Work> Load<W> {
    /// Connects, and sends the first request of each.
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

    /// Goes on for some seconds.
    pub fn turn_for(&mut self, seconds: f64) -> Result<(), Failure> {
        let until_us = RealClock.monotonic_us() + (seconds * 1e6) as u64;
        while RealClock.monotonic_us() < until_us {
            self.turn()?;
        }
        Ok(())
    }

    /// Sends no more, and waits for all answers. Returns what was asked for.
    pub fn finish(mut self) -> Result<W, Failure> {
        self.is_ending = true;
        self.run_out()
    }

    /// Goes on until there is nothing left to ask for.
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
