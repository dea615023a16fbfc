//! Connections that publish, listen, subscribe and unsubscribe, or read slowly, all on one thread: so the
//! order of events is known, and the CPU time of this process shows whether it was the limit.

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

/// Time without events after which the run fails.
pub const SILENCE_US_MAX: u64 = 10_000_000;
/// Number of connections that subscribe and unsubscribe, and the number of channels of each.
const CHURNERS: usize = 10;
const CHURNED_CHANNELS: usize = 20;
const POLL_MS: u64 = 2;
/// Maximum number of readiness events per poll.
pub const EVENTS: usize = 4096;

/// The parameters of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The address of the server under test.
    pub address: SocketAddr,
    /// The server's process.
    pub process: Process,
    /// Number of publishing connections.
    pub publishers: usize,
    /// Number of pending messages per publisher.
    pub pipeline: usize,
    /// Number of channels; messages go to random ones.
    pub channels: usize,
    /// Number of channels with listeners; these are the first ones.
    pub listened: usize,
    /// Number of listeners per such channel.
    pub subscribers: usize,
    /// Number of channels per listening connection.
    pub span: usize,
    /// The start of the listeners' subscriptions.
    pub from: From,
    /// Number of slow readers of the same channels, which read a kilobyte per second.
    pub slow: usize,
    /// Number of subscribed patterns that match none of the channels.
    pub patterns: usize,
    /// SUBSCRIBE and UNSUBSCRIBE pairs per second on other connections.
    pub churn_per_s: u64,
    /// Messages per second of all publishers together; 0 for as many as the server accepts.
    pub rate_per_s: u64,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
}

/// The connections of a measurement and their state.
pub struct Traffic {
    plan: Plan,
    poll: Poll,
    buffer: Vec<u8>,
    /// The sent and received messages.
    pub ledger: Ledger,
    /// Times from sending a message to its reply.
    pub latencies: Latencies,
    publishers: Vec<Publisher>,
    listeners: Vec<Listener>,
    churners: Vec<Listener>,
    slow: Vec<SlowReader>,
    /// Kept open for its subscriptions.
    _patterns: Option<(Connection, Poll)>,
    /// The time at which publishing began.
    since_us: u64,
    /// Number of SUBSCRIBE and UNSUBSCRIBE pairs begun.
    churned: u64,
    /// Number of messages sent, and the publishers that wait until more are due.
    sent: u64,
    idle: VecDeque<usize>,
    is_publishing: bool,
    heard_at_us: u64,
}

/// The state at one moment of the measurement.
pub struct Reading {
    /// The time by the clock of this process.
    pub at_us: u64,
    /// Number of replies to PUBLISH.
    pub publishes: u64,
    /// Number of messages received.
    pub deliveries: u64,
    /// Number of SUBSCRIBE and UNSUBSCRIBE pairs begun.
    pub churned: u64,
    /// The server's CPU time in seconds.
    pub server_cpu_s: f64,
    /// The CPU time of this process in seconds.
    pub own_cpu_s: f64,
}

impl Traffic {
    /// Opens all connections; subscribes to the patterns.
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

    /// Subscribes the listeners, and waits for the confirmations.
    pub fn listen(&mut self, events: &mut Events) -> Result<(), Failure> {
        let Traffic { listeners, ledger, .. } = self;
        listeners.iter_mut().try_for_each(|listener| listener.begin(ledger))?;
        while !self.listeners.iter().all(Listener::is_listening) {
            self.turn(events)?;
            self.must_not_be_silent("subscribing")?;
        }
        Ok(())
    }

    /// Adds a listener without subscribing it.
    pub fn add_listener(&mut self, from: From) -> Result<(), Failure> {
        let token = Token(self.publishers.len() + self.listeners.len());
        let (address, channels) = (self.plan.address, self.plan.channels);
        self.listeners.push(Listener::open(address, self.poll.registry(), token, 0, channels, from)?);
        Ok(())
    }

    /// Starts publishing, and opens the slow readers.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let now_us = RealClock.monotonic_us();
        for index in 0..self.plan.slow {
            // Spread over the period.
            let due_us = now_us + slow::PERIOD_US * index as u64 / self.plan.slow as u64;
            let channel = channel_name(index % self.plan.listened);
            self.slow.push(SlowReader::open(self.plan.address, channel, due_us)?);
        }
        (self.is_publishing, self.since_us) = (true, now_us);
        self.idle = (0..self.publishers.len()).collect();
        self.publish_due(now_us)
    }

    /// Lets idle publishers publish, as far as the rate allows.
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

    /// Runs for this many seconds.
    pub fn turn_for(&mut self, events: &mut Events, seconds: f64) -> Result<(), Failure> {
        let until_us = RealClock.monotonic_us() + (seconds * 1e6) as u64;
        while RealClock.monotonic_us() < until_us {
            self.turn(events)?;
            self.must_not_be_silent("publishing")?;
        }
        Ok(())
    }

    /// Runs until this many messages are published.
    pub fn turn_until_published(&mut self, events: &mut Events, messages: u64) -> Result<(), Failure> {
        while self.ledger.publishes < messages {
            self.turn(events)?;
            self.must_not_be_silent("publishing")?;
        }
        Ok(())
    }

    /// Handles the events of one poll.
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

    /// Stops publishing, and waits for all pending messages. Faulty messages are a failure.
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

    /// Number of times that slow readers were disconnected.
    pub fn given_up(&self) -> u64 {
        self.slow.iter().map(|reader| reader.given_up).sum()
    }

    /// Reads the counters and CPU times of this moment.
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

/// Subscribes to patterns with the same prefix as the channels' names, which match none of them: a server
/// that compares them one by one cannot reject them early.
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
