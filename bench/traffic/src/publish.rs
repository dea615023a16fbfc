//! Publishing at full rate to channels that some listen to, while others come and go.
//!
//! ```text
//! connect, subscribe | warm up | measured | no more is published; all that was must arrive
//! ```
//!
//! One thread, so that the order in which things were seen is known, and its CPU time says whether it was the limit.

use std::{net::SocketAddr, time::Duration};

use env::{Clock, RealClock};
use mio::{Events, Poll, Token};
use serde_json::{Value, json};

use crate::{
    connection::{Connection, RECEIVE_BYTES},
    failure::Failure,
    frames::Frame,
    latency::Latencies,
    ledger::Ledger,
    listener::Listener,
    message::write_command,
    process::Process,
    publisher::Publisher,
};

/// For so long nothing may come.
const SILENCE_US_MAX: u64 = 10_000_000;
/// Connections that come and go, and the channels that each of them asks for at once.
const CHURNERS: usize = 10;
const CHURNED_CHANNELS: usize = 20;
const POLL_MS: u64 = 2;
const EVENTS: usize = 4096;

/// What is done.
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
    /// Patterns that somebody has subscribed to and none of the channels matches.
    pub patterns: usize,
    /// SUBSCRIBE and UNSUBSCRIBE of others, pairs per second.
    pub churn_per_s: u64,
    /// For how long it is measured.
    pub seconds: f64,
}

struct Traffic {
    plan: Plan,
    poll: Poll,
    buffer: Vec<u8>,
    ledger: Ledger,
    latencies: Latencies,
    publishers: Vec<Publisher>,
    listeners: Vec<Listener>,
    churners: Vec<Listener>,
    /// Pairs that were begun, and since when.
    churned: u64,
    churned_since_us: u64,
    is_publishing: bool,
    heard_at_us: u64,
}

/// A moment of the measurement.
struct Reading {
    at_us: u64,
    publishes: u64,
    deliveries: u64,
    churned: u64,
    server_cpu_s: f64,
    own_cpu_s: f64,
}

/// Does it, and says what came of it. Messages that go wrong are a failure.
pub fn run(plan: Plan) -> Result<Value, Failure> {
    let mut traffic = Traffic::connect(plan)?;
    let mut events = Events::with_capacity(EVENTS);
    // Held until the end.
    let _patterns = subscribe_patterns(&plan)?;
    let Traffic { listeners, ledger, .. } = &mut traffic;
    listeners.iter_mut().try_for_each(|listener| listener.begin(ledger))?;
    while !traffic.listeners.iter().all(Listener::is_listening) {
        traffic.turn(&mut events)?;
        traffic.must_not_be_silent("subscribing")?;
    }
    traffic.begin()?;
    traffic.turn_for(&mut events, plan.seconds / 4.0)?;
    traffic.latencies = Latencies::default();
    let before = traffic.reading()?;
    traffic.turn_for(&mut events, plan.seconds)?;
    let after = traffic.reading()?;
    let (p50_ms, p99_ms) = (traffic.latencies.quantile_ms(0.5), traffic.latencies.quantile_ms(0.99));
    traffic.finish(&mut events)?;
    if !traffic.ledger.faults.is_none() {
        return Err(Failure::Faults(traffic.ledger.faults));
    }

    let elapsed_s = (after.at_us - before.at_us) as f64 / 1e6;
    let (publishes, deliveries) = (after.publishes - before.publishes, after.deliveries - before.deliveries);
    let server_cpu_us = (after.server_cpu_s - before.server_cpu_s) * 1e6;
    Ok(json!({
        "publishes_s": publishes as f64 / elapsed_s,
        "deliveries_s": deliveries as f64 / elapsed_s,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "cpu_us_per_publish": server_cpu_us / publishes.max(1) as f64,
        "cpu_us_per_delivery": (deliveries > 0).then(|| server_cpu_us / deliveries as f64),
        "server_share": server_cpu_us / 1e6 / elapsed_s,
        "client_share": (after.own_cpu_s - before.own_cpu_s) / elapsed_s,
        "churn_s": (plan.churn_per_s > 0).then(|| (after.churned - before.churned) as f64 / elapsed_s),
        "checked": traffic.ledger.deliveries,
        "faults": 0,
    }))
}

impl Traffic {
    fn connect(plan: Plan) -> Result<Traffic, Failure> {
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
                Listener::open(plan.address, registry, token(), first, span)
            })
            .collect::<Result<_, _>>()?;
        let churners = if plan.churn_per_s > 0 { CHURNERS } else { 0 };
        let span = CHURNED_CHANNELS.min(plan.channels);
        let churners = (0..churners)
            .map(|index| Listener::open(plan.address, registry, token(), index * span % plan.channels, span))
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
            churned: 0,
            churned_since_us: 0,
            is_publishing: false,
            heard_at_us: RealClock.monotonic_us(),
        })
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let now_us = RealClock.monotonic_us();
        (self.is_publishing, self.churned_since_us) = (true, now_us);
        for publisher in &mut self.publishers {
            publisher.publish(self.plan.pipeline, &mut self.ledger, now_us)?;
        }
        Ok(())
    }

    fn turn_for(&mut self, events: &mut Events, seconds: f64) -> Result<(), Failure> {
        let until_us = RealClock.monotonic_us() + (seconds * 1e6) as u64;
        while RealClock.monotonic_us() < until_us {
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
        self.churn()
    }

    fn advance(&mut self, token: usize) -> Result<(), Failure> {
        let now_us = RealClock.monotonic_us();
        self.heard_at_us = now_us;
        let Traffic { publishers, listeners, churners, buffer, ledger, latencies, .. } = self;
        if let Some(publisher) = publishers.get_mut(token) {
            publisher.advance(buffer, ledger, latencies, now_us)?;
            if publisher.is_idle() && self.is_publishing {
                publisher.publish(self.plan.pipeline, ledger, now_us)?;
            }
            return Ok(());
        }
        let index = token - publishers.len();
        if let Some(listener) = listeners.get_mut(index) {
            return listener.advance(buffer, ledger);
        }
        let churner = &mut churners[index - listeners.len()];
        churner.advance(buffer, ledger)?;
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
        let elapsed_us = RealClock.monotonic_us() - self.churned_since_us;
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

    /// Publishes no more, and waits for all that is on its way.
    fn finish(&mut self, events: &mut Events) -> Result<(), Failure> {
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
        if self.ledger.faults.is_none() && !is_done(self) {
            return Err(Failure::Stalled("replies are missing"));
        }
        Ok(())
    }

    fn must_not_be_silent(&self, doing: &'static str) -> Result<(), Failure> {
        let silent_us = RealClock.monotonic_us().saturating_sub(self.heard_at_us);
        if silent_us > SILENCE_US_MAX { Err(Failure::Stalled(doing)) } else { Ok(()) }
    }

    fn reading(&self) -> Result<Reading, Failure> {
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
