//! Delivers spans to the collector.
//!
//! ```text
//! add -> queue, or dropped and counted -> thread "traces": batches -> encode -> POST, again if it fails
//! ```
//!
//! Invariants
//! - [`Exporter::add`] waits for nothing but the lock of the queue, which is never held for long.
//! - The queue and a batch have limits. While the collector is away, one batch is kept and the queue fills
//!   up.
//! - One log line says when delivery begins to fail, and one says when it works again. While delivery works,
//!   a line says that some spans are dropped, at most once in [`DROPS_TOLD_EVERY`].

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use env::Clock;
use otlp::{Collector, Resource, SendError, Span, encode};
use parking_lot::{Condvar, Mutex};

use super::TraceFigures;

/// The maximum number of spans that wait for the collector. They take some megabytes.
const SPANS_MAX: usize = 8192;
/// The maximum number of spans in one request to the collector.
const BATCH_SPANS_MAX: usize = 512;
/// The time for which spans are gathered before a request that is not full.
const GATHER: Duration = Duration::from_secs(1);
/// The longest time of one request to the collector.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failure. It doubles with each further failure, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest time for which the end of the process waits for the delivery.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// The shortest time between two log lines about dropped spans.
const DROPS_TOLD_EVERY: Duration = Duration::from_secs(60);
/// The niceness of the thread: serving clients has priority over traces.
const NICE: i32 = 10;

/// Delivers spans from a thread of its own.
pub(super) struct Exporter {
    shared: Arc<Shared>,
}

struct Shared {
    collector: Collector,
    resource: Resource,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Notified when a batch is full, and at the end.
    wanted: Condvar,
    /// Notified when the thread has ended.
    ended: Condvar,
    sent: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Span>,
    /// The end of delivery, in monotonic microseconds. Set at the end of the process.
    closes_us: Option<u64>,
    has_ended: bool,
}

impl Exporter {
    /// Starts the thread that delivers spans.
    ///
    /// # Errors
    /// If the OS refuses the thread.
    pub(super) fn start(
        collector: Collector,
        resource: Resource,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Exporter> {
        let shared = Arc::new(Shared {
            collector,
            resource,
            clock,
            state: Mutex::default(),
            wanted: Condvar::new(),
            ended: Condvar::new(),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let delivering = shared.clone();
        let run = move || {
            // If the nice value cannot be set, delivery still works.
            let _ = env::thread::set_nice(NICE);
            delivering.deliver();
        };
        thread::Builder::new().name("traces".into()).spawn(run)?;
        Ok(Exporter { shared })
    }

    /// Puts spans into the queue: all of them, or none if the queue is closed or has no room.
    pub(super) fn add(&self, spans: Vec<Span>) {
        let mut state = self.shared.state.lock();
        if state.queue.len() + spans.len() > SPANS_MAX || state.closes_us.is_some() {
            drop(state);
            return self.dropped(spans.len() as u64);
        }
        state.queue.extend(spans);
        if state.queue.len() >= BATCH_SPANS_MAX {
            self.shared.wanted.notify_one();
        }
    }

    /// Counts spans that were dropped.
    pub(super) fn dropped(&self, count: u64) {
        self.shared.dropped.fetch_add(count, Relaxed);
    }

    pub(super) fn figures(&self) -> TraceFigures {
        TraceFigures { sent: self.shared.sent.load(Relaxed), dropped: self.shared.dropped.load(Relaxed) }
    }

    /// Takes no more spans, and waits up to [`CLOSE_PATIENCE`] for the delivery of the spans in the queue.
    pub(super) fn close(&self) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        state.closes_us = Some(shared.clock.monotonic_us() + CLOSE_PATIENCE.as_micros() as u64);
        shared.wanted.notify_one();
        let still_runs = |state: &mut State| !state.has_ended;
        shared.ended.wait_while_for(&mut state, still_runs, CLOSE_PATIENCE);
        let left = state.queue.len() as u64;
        drop(state);
        self.dropped(left);
    }
}

/// The number of dropped spans that the last log line reported, and the time of that line.
#[derive(Default)]
struct Drops {
    told: u64,
    told_at_us: Option<u64>,
}

impl Drops {
    /// Whether a log line about this total of dropped spans is due. If so, the line counts as written.
    fn are_news(&mut self, dropped: u64, now_us: u64) -> bool {
        let next_us = self.told_at_us.map_or(0, |at_us| at_us + DROPS_TOLD_EVERY.as_micros() as u64);
        let are_news = dropped > self.told && now_us >= next_us;
        if are_news {
            *self = Drops { told: dropped, told_at_us: Some(now_us) };
        }
        are_news
    }
}

impl Shared {
    /// Delivers batches until the exporter is closed and the queue is empty.
    fn deliver(&self) {
        let (mut is_failing, mut drops) = (false, Drops::default());
        while let Some(batch) = self.next_batch() {
            let count = batch.len() as u64;
            let refused = self.send(&encode(&self.resource, &batch), &mut is_failing).unwrap_or(count);
            self.dropped.fetch_add(refused, Relaxed);
            self.sent.fetch_add(count.saturating_sub(refused), Relaxed);
            let dropped = self.dropped.load(Relaxed);
            if !is_failing && drops.are_news(dropped, self.clock.monotonic_us()) {
                tracing::warn!(
                    target: "server", url = self.collector.url(), dropped,
                    "spans are dropped: more come than the collector takes, or it refuses some. A lower otel-sample-ratio makes fewer"
                );
            }
        }
        self.state.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Waits for spans, and returns a batch of them; `None` once the queue is closed and empty.
    fn next_batch(&self) -> Option<Vec<Span>> {
        let mut state = self.state.lock();
        loop {
            let is_full = state.queue.len() >= BATCH_SPANS_MAX;
            if !is_full && state.closes_us.is_none() {
                self.wanted.wait_for(&mut state, GATHER);
            }
            let count = state.queue.len().min(BATCH_SPANS_MAX);
            if count > 0 {
                return Some(state.queue.drain(..count).collect());
            }
            if state.closes_us.is_some() {
                return None;
            }
        }
    }

    /// Sends a batch until the collector has taken or refused it. Returns the number of spans that the
    /// collector has refused; `None` if it has taken none.
    fn send(&self, body: &[u8], is_failing: &mut bool) -> Option<u64> {
        let mut pause = PAUSE_MIN;
        loop {
            let timeout = self.time_left(SEND_TIMEOUT)?;
            let sent = self.collector.send(body, timeout);
            self.report(&sent, is_failing);
            match sent {
                Ok(refused) => return Some(refused),
                Err(SendError { may_retry: false, .. }) => return None,
                Err(_) => self.pause(pause)?,
            }
            pause = PAUSE_MAX.min(2 * pause);
        }
    }

    /// The time until delivery ends, at most `limit`; `None` once delivery has ended.
    fn time_left(&self, limit: Duration) -> Option<Duration> {
        let Some(closes_us) = self.state.lock().closes_us else { return Some(limit) };
        let left_us = closes_us.checked_sub(self.clock.monotonic_us()).filter(|left_us| *left_us > 0)?;
        Some(limit.min(Duration::from_micros(left_us)))
    }

    /// Pauses after a failure. `None` if delivery ends, so that another attempt is of no use.
    fn pause(&self, pause: Duration) -> Option<()> {
        let ends_us = self.clock.monotonic_us() + pause.as_micros() as u64;
        let mut state = self.state.lock();
        loop {
            if state.closes_us.is_some() {
                return None;
            }
            let left_us = ends_us.saturating_sub(self.clock.monotonic_us());
            if left_us == 0 {
                return Some(());
            }
            self.wanted.wait_for(&mut state, Duration::from_micros(left_us));
        }
    }

    /// Logs that delivery begins to fail, or works again.
    fn report(&self, sent: &Result<u64, SendError>, is_failing: &mut bool) {
        let (url, dropped) = (self.collector.url(), self.dropped.load(Relaxed));
        match sent {
            Ok(_) if *is_failing => {
                tracing::info!(target: "server", url, dropped, "traces are delivered again");
            }
            Err(error) if !*is_failing => tracing::warn!(
                target: "server", url, %error,
                "traces are not delivered: is the collector of otel-endpoint there? What it does not take in time is dropped"
            ),
            _ => {}
        }
        *is_failing = sent.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_told_once_a_minute() {
        let minute_us = DROPS_TOLD_EVERY.as_micros() as u64;
        let mut drops = Drops::default();
        assert!(!drops.are_news(0, 5));
        assert!(drops.are_news(3, 5));
        assert!(!drops.are_news(9, 4 + minute_us));
        assert!(drops.are_news(9, 5 + minute_us));
        assert!(!drops.are_news(9, 9 * minute_us), "none since");
    }
}
