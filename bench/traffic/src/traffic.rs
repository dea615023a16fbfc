//! Connections that publish, listen, come and go, or take too little, on one thread: so the order in which things were seen
//! is known, and the CPU time of this process says whether it was the limit.

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

use env::{Clock, RealClock};
use mio::{Events, Poll, Token};

use crate::{
    connection::{Connection, RECEIVE_BYTES},
    failure::Failure,
    frames::Frame,
    latency::Latencies,
    ledger::{Ledger, channel_name},
    listener::{From, Listener},
    message::write_command,
    process::Process,
    publisher::Publisher,
    slow::{self, SlowReader},
};

/// For so long nothing may come.
pub const SILENCE_US_MAX: u64 = 10_000_000;
/// Connections that come and go, and the channels that each of them asks for at once.
const CHURNERS: usize = 10;
const CHURNED_CHANNELS: usize = 20;
const POLL_MS: u64 = 2;
/// Sockets looked at at once.
pub const EVENTS: usize = 4096;

/// The operation on it.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// Its process.
    pub process: Process,
    /// Connections that publish.
    pub publishers: usize,
    /// Messages that each has on its way at once.
    pub pipeline: usize,
    /// Channels that are published to, at random.
    pub channels: usize,
    /// Channels that are listened to: the first ones.
    pub listened: usize,
    /// Listeners of each of them.
    pub subscribers: usize,
    /// Channels that one connection listens to.
    pub span: usize,
    /// What they begin with.
    pub from: From,
    /// Readers of the same channels that take a kilobyte per second.
    pub slow: usize,
    /// Patterns that somebody has subscribed to and none of the channels matches.
    pub patterns: usize,
    /// SUBSCRIBE and UNSUBSCRIBE of others, pairs per second.
    pub churn_per_s: u64,
    /// Messages per second of all publishers together; 0 for as many as the server takes.
    pub rate_per_s: u64,
    /// For how long it is measured.
    pub seconds: f64,
}

/// See the module documentation.
pub struct Traffic {
    plan: Plan,
    poll: Poll,
    buffer: Vec<u8>,
    /// What was sent and what came of it.
    pub ledger: Ledger,
    /// From sending to the reply.
    pub latencies: Latencies,
    publishers: Vec<Publisher>,
    listeners: Vec<Listener>,
    churners: Vec<Listener>,
    slow: Vec<SlowReader>,
    /// Somebody must hold it.
    _patterns: Option<(Connection, Poll)>,
    /// When publishing began.
    since_us: u64,
    /// Pairs that were begun.
    churned: u64,
    /// Messages sent, and publishers that have nothing to do until more are due.
    sent: u64,
    idle: VecDeque<usize>,
    is_publishing: bool,
    heard_at_us: u64,
}

/// A moment of the measurement.
pub struct Reading {
    /// By the clock of this process.
    pub at_us: u64,
    /// Replies to PUBLISH.
    pub publishes: u64,
    /// Messages received.
    pub deliveries: u64,
    /// Pairs begun by those who come and go.
    pub churned: u64,
    /// The server's CPU time.
    pub server_cpu_s: f64,
    /// That of this process.
    pub own_cpu_s: f64,
}

impl Traffic {
    /// Connects everybody; subscribes to the patterns.
    pub fn connect(plan: Plan) -> Result<Traffic, Failure> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        let mut tokens = (0..).map(Token);
        let mut token = || tokens.next().unwrap_or(Token(usize::MAX));
        let publishers = (0..plan.publishers)
            .map(|index| Publisher::open(plan.address, registry, token(), index))
            .collect::<Result<_, _>>()?;
        let starts = (0..plan.subscribers).flat_map(|_| (0..plan.listened).step_by(plan.span));
        let listeners = starts
            .map(|first| {
                let span = plan.span.min(plan.listened - first);
                Listener::open(plan.address, registry, token(), first, span, plan.from)
            })
            .collect::<Result<_, _>>()?;
        let churners = if plan.churn_per_s > 0 { CHURNERS } else { 0 };
        let span = CHURNED_CHANNELS.min(plan.channels);
        let churners = (0..churners)
            .map(|index| {
                let first = index * span % plan.channels;
                Listener::open(plan.address, registry, token(), first, span, From::Now)
            })
            .collect::<Result<_, _>>()?;
        Ok(Traffic {
            plan,
            poll,
            buffer: vec![0; RECEIVE_BYTES],
            ledger: Ledger::new(plan.channels, plan.publishers),
            latencies: Latencies::default(),
            publishers,
            listeners,
            churners,
            slow: Vec::new(),
            _patterns: subscribe_patterns(&plan)?,
            churned: 0,
            since_us: 0,
            sent: 0,
            idle: VecDeque::new(),
            is_publishing: false,
            heard_at_us: RealClock.monotonic_us(),
        })
    }

    /// Has the listeners subscribe, and waits until they have.
    pub fn listen(&mut self, events: &mut Events) -> Result<(), Failure> {
        let Traffic { listeners, ledger, .. } = self;
        listeners.iter_mut().try_for_each(|listener| listener.begin(ledger))?;
        while !self.listeners.iter().all(Listener::is_listening) {
            self.turn(events)?;
            self.must_not_be_silent("subscribing")?;
        }
        Ok(())
    }

    /// Adds a listener; it has yet to subscribe.
    pub fn add_listener(&mut self, from: From) -> Result<(), Failure> {
        let token = Token(self.publishers.len() + self.listeners.len());
        let (address, channels) = (self.plan.address, self.plan.channels);
        self.listeners.push(Listener::open(address, self.poll.registry(), token, 0, channels, from)?);
        Ok(())
    }

    /// Begins to publish; those who take too little come as well.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let now_us = RealClock.monotonic_us();
        for index in 0..self.plan.slow {
            // One after the other, not all at once.
            let due_us = now_us + slow::PERIOD_US * index as u64 / self.plan.slow as u64;
            let channel = channel_name(index % self.plan.listened);
            self.slow.push(SlowReader::open(self.plan.address, channel, due_us)?);
        }
        (self.is_publishing, self.since_us) = (true, now_us);
        self.idle = (0..self.publishers.len()).collect();
        self.publish_due(now_us)
    }

    /// Has publishers that are idle publish, as far as the rate allows.
    fn publish_due(&mut self, now_us: u64) -> Result<(), Failure> {
        let Plan { rate_per_s, pipeline, .. } = self.plan;
        let due = match rate_per_s {
            0 => u64::MAX,
            rate => rate * (now_us - self.since_us) / 1_000_000,
        };
        while self.is_publishing && self.sent < due {
            let Some(index) = self.idle.pop_front() else { break };
            self.publishers[index].publish(pipeline, &mut self.ledger, now_us)?;
            self.sent += pipeline as u64;
        }
        Ok(())
    }

    /// Goes on for so long.
    pub fn turn_for(&mut self, events: &mut Events, seconds: f64) -> Result<(), Failure> {
        let until_us = RealClock.monotonic_us() + (seconds * 1e6) as u64;
        while RealClock.monotonic_us() < until_us {
            self.turn(events)?;
            self.must_not_be_silent("publishing")?;
        }
        Ok(())
    }

    /// Goes on until so many messages are published.
    pub fn turn_until_published(&mut self, events: &mut Events, messages: u64) -> Result<(), Failure> {
        while self.ledger.publishes < messages {
            self.turn(events)?;
            self.must_not_be_silent("publishing")?;
        }
        Ok(())
    }

    /// One look at all sockets that are ready.
    fn turn(&mut self, events: &mut Events) -> Result<(), Failure> {
        self.poll.poll(events, Some(Duration::from_millis(POLL_MS)))?;
        for event in events.iter() {
            self.advance(event.token().0)?;
        }
        if !self.slow.is_empty() {
            let now_us = RealClock.monotonic_us();
            self.slow.iter_mut().try_for_each(|reader| reader.advance(now_us))?;
        }
        self.publish_due(RealClock.monotonic_us())?;
        self.churn()
    }

    fn advance(&mut self, token: usize) -> Result<(), Failure> {
        let now_us = RealClock.monotonic_us();
        self.heard_at_us = now_us;
        let Traffic { publishers, listeners, churners, buffer, ledger, latencies, .. } = self;
        if let Some(publisher) = publishers.get_mut(token) {
            let was_busy = !publisher.is_idle();
            publisher.advance(buffer, ledger, latencies, now_us)?;
            if publisher.is_idle() && was_busy {
                self.idle.push_back(token);
            }
            return self.publish_due(now_us);
        }
        let index = token - publishers.len();
        if let Some(listener) = listeners.get_mut(index) {
            return listener.advance(buffer, ledger, now_us);
        }
        let churner = &mut churners[index - listeners.len()];
        churner.advance(buffer, ledger, now_us)?;
        if churner.is_listening() {
            churner.end(ledger)?;
        }
        Ok(())
    }

    /// Begins as many pairs as are due.
    fn churn(&mut self) -> Result<(), Failure> {
        if !self.is_publishing {
            return Ok(());
        }
        let elapsed_us = RealClock.monotonic_us() - self.since_us;
        let due = self.plan.churn_per_s * elapsed_us / 1_000_000;
        let span = CHURNED_CHANNELS.min(self.plan.channels) as u64;
        for churner in self.churners.iter_mut().filter(|churner| churner.is_silent()) {
            if due < self.churned + span {
                break;
            }
            self.churned += span;
            churner.move_to((churner.first() + CHURNERS * CHURNED_CHANNELS + 1) % self.plan.channels);
            churner.begin(&self.ledger)?;
        }
        Ok(())
    }

    /// Publishes no more, and waits for all that is on its way. Messages that go wrong are a failure.
    pub fn finish(&mut self, events: &mut Events) -> Result<(), Failure> {
        self.is_publishing = false;
        let is_done = |traffic: &Traffic| {
            traffic.publishers.iter().all(Publisher::is_idle)
                && traffic.churners.iter().all(Listener::is_silent)
                && traffic.listeners.iter().all(|listener| listener.has_all(&traffic.ledger))
        };
        while !is_done(self) && self.must_not_be_silent("ending").is_ok() {
            self.turn(events)?;
        }
        self.listeners.iter().for_each(|listener| listener.judge(&mut self.ledger));
        if !self.ledger.faults.is_none() {
            return Err(Failure::Faults(self.ledger.faults));
        }
        if is_done(self) { Ok(()) } else { Err(Failure::Stalled("replies are missing")) }
    }

    fn must_not_be_silent(&self, doing: &'static str) -> Result<(), Failure> {
        let silent_us = RealClock.monotonic_us().saturating_sub(self.heard_at_us);
        if silent_us > SILENCE_US_MAX { Err(Failure::Stalled(doing)) } else { Ok(()) }
    }

    /// How often those who take too little were given up.
    pub fn given_up(&self) -> u64 {
        self.slow.iter().map(|reader| reader.given_up).sum()
    }

    /// What it looks like now.
    pub fn reading(&self) -> Result<Reading, Failure> {
        let own = env::process::cpu_time();
        Ok(Reading {
            at_us: RealClock.monotonic_us(),
            publishes: self.ledger.publishes,
            deliveries: self.ledger.deliveries,
            churned: self.churned,
            server_cpu_s: self.plan.process.cpu_s()?,
            own_cpu_s: (own.user_us + own.system_us) as f64 / 1e6,
        })
    }
}

/// Patterns like the names of the channels, none of which they match: who compares them one by one cannot tell at once.
fn subscribe_patterns(plan: &Plan) -> Result<Option<(Connection, Poll)>, Failure> {
    if plan.patterns == 0 {
        return Ok(None);
    }
    let mut poll = Poll::new()?;
    let mut connection = Connection::open(plan.address, poll.registry(), Token(0))?;
    let mut request = Vec::new();
    for number in 0..plan.patterns {
        write_command(&mut request, &[b"PSUBSCRIBE", format!("channel:{:07}:*", number).as_bytes()]);
    }
    connection.send(&request)?;
    let (mut events, mut buffer, mut begun) = (Events::with_capacity(1), vec![0; RECEIVE_BYTES], 0);
    while begun < plan.patterns {
        poll.poll(&mut events, Some(Duration::from_micros(SILENCE_US_MAX)))?;
        if events.is_empty() {
            return Err(Failure::Stalled("subscribing to patterns"));
        }
        connection.flush()?;
        connection.receive(&mut buffer, |frame| {
            begun += usize::from(matches!(frame, Frame::Began { .. }));
            Ok(())
        })?;
    }
    Ok(Some((connection, poll)))
}
