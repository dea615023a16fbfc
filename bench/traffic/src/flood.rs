//! A closed loop of publishers on one thread, and subscribers on another that read as fast as they can.
//! Neither waits for the other, so the server must hold back the publishers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use env::{Clock, RealClock};
use mio::{Events, Poll, Token};
use serde_json::{Value, json};

use crate::{
    connection::RECEIVE_BYTES,
    failure::Failure,
    latency::Latencies,
    ledger::Ledger,
    listener::{From, Listener},
    traffic::{EVENTS, Plan, SILENCE_US_MAX, Traffic},
};

const POLL_MS: u64 = 2;

/// Runs the flood and returns its figures. A faulty message, a disconnected subscriber and a wrong count of
/// receivers are failures.
pub fn run(plan: Plan) -> Result<Value, Failure> {
    let subscribers = plan.subscribers as u64;
    let audience = Audience::connect(&plan)?;
    let (deliveries, has_failed) = (audience.deliveries.clone(), audience.has_failed.clone());
    let mut traffic = Traffic::connect(Plan { subscribers: 0, ..plan })?;
    let mut events = Events::with_capacity(EVENTS);
    let (tell_sent, sent) = channel();
    let reading = thread::spawn(move || audience.read(&sent));

    traffic.begin()?;
    traffic.turn_for(&mut events, plan.seconds / 4.0)?;
    traffic.latencies = Latencies::default();
    let (before, delivered_before) = (traffic.reading()?, deliveries.load(Relaxed));
    traffic.turn_for(&mut events, plan.seconds)?;
    let (after, delivered_after) = (traffic.reading()?, deliveries.load(Relaxed));
    let finished = if has_failed.load(Relaxed) { Ok(()) } else { traffic.finish(&mut events) };
    // If the receiver has ended, its thread returns the reason.
    let _ = tell_sent.send(traffic.ledger.sent(0).to_vec());
    let delay_p99_ms =
        reading.join().map_err(|_| Failure::Impossible("the subscribers' thread panicked"))??;
    finished?;
    if traffic.ledger.heard != traffic.ledger.publishes * subscribers {
        let (heard, publishes) = (traffic.ledger.heard, traffic.ledger.publishes);
        return Err(Failure::Wrong(format!("{heard} receivers of {publishes} messages to {subscribers}")));
    }

    let elapsed_s = (after.at_us - before.at_us) as f64 / 1e6;
    let (publishes, delivered) = (after.publishes - before.publishes, delivered_after - delivered_before);
    let server_cpu_us = (after.server_cpu_s - before.server_cpu_s) * 1e6;
    Ok(json!({
        "publishes_s": publishes as f64 / elapsed_s,
        "deliveries_s": delivered as f64 / elapsed_s,
        "p50_ms": traffic.latencies.quantile_ms(0.5),
        "p99_ms": traffic.latencies.quantile_ms(0.99),
        "delay_p99_ms": delay_p99_ms,
        "cpu_us_per_delivery": server_cpu_us / delivered.max(1) as f64,
        "server_share": server_cpu_us / 1e6 / elapsed_s,
        "client_share": (after.own_cpu_s - before.own_cpu_s) / elapsed_s,
        "rss_peak_mb": plan.process.rss_peak_bytes()? as f64 / 1e6,
        "checked": deliveries.load(Relaxed),
        "faults": 0,
    }))
}

/// The subscribers, all of one channel.
struct Audience {
    poll: Poll,
    listeners: Vec<Listener>,
    ledger: Ledger,
    buffer: Vec<u8>,
    /// Number of messages received by all of them, for the other thread.
    deliveries: Arc<AtomicU64>,
    has_failed: Arc<AtomicBool>,
}

impl Audience {
    fn connect(plan: &Plan) -> Result<Audience, Failure> {
        let poll = Poll::new()?;
        let open =
            |index| Listener::open(plan.address, poll.registry(), Token(index), 0, plan.channels, From::Now);
        let listeners = (0..plan.subscribers).map(open).collect::<Result<_, _>>()?;
        let mut audience = Audience {
            poll,
            listeners,
            ledger: Ledger::new(plan.channels, plan.publishers),
            buffer: vec![0; RECEIVE_BYTES],
            deliveries: Arc::default(),
            has_failed: Arc::default(),
        };
        let Audience { listeners, ledger, .. } = &mut audience;
        listeners.iter_mut().try_for_each(|listener| listener.begin(ledger))?;
        audience.read_until(|audience| audience.listeners.iter().all(Listener::is_listening))?;
        Ok(audience)
    }

    /// Reads until all messages `sent` by each publisher are received; returns the 99th percentile of the
    /// delay.
    fn read(mut self, sent: &Receiver<Vec<u64>>) -> Result<f64, Failure> {
        let mut is_known = false;
        let read = self.read_until(|audience| {
            if let Ok(sent) = sent.try_recv() {
                audience.ledger.owe(0, &sent);
                is_known = true;
            }
            is_known && audience.listeners.iter().all(|listener| listener.has_all(&audience.ledger))
        });
        self.has_failed.store(read.is_err(), Relaxed);
        if is_known {
            self.listeners.iter().for_each(|listener| listener.judge(&mut self.ledger));
        }
        if !self.ledger.faults.is_none() {
            return Err(Failure::Faults(self.ledger.faults));
        }
        read?;
        Ok(self.ledger.delays.quantile_ms(0.99))
    }

    fn read_until(&mut self, mut is_done: impl FnMut(&mut Audience) -> bool) -> Result<(), Failure> {
        let mut events = Events::with_capacity(EVENTS);
        let mut heard_at_us = RealClock.monotonic_us();
        while !is_done(self) {
            self.poll.poll(&mut events, Some(Duration::from_millis(POLL_MS)))?;
            let now_us = RealClock.monotonic_us();
            if !events.is_empty() {
                heard_at_us = now_us;
            } else if now_us - heard_at_us > SILENCE_US_MAX {
                return Err(Failure::Stalled("subscribers"));
            }
            for event in events.iter() {
                let Audience { listeners, ledger, buffer, .. } = self;
                listeners[event.token().0].advance(buffer, ledger, now_us)?;
            }
            self.deliveries.store(self.ledger.deliveries, Relaxed);
        }
        Ok(())
    }
}
