//! Traces: spans of commands, requests over HTTP and jobs, for a collector of OpenTelemetry.
//!
//! ```text
//! worker (engine::observe::TraceSink) --+
//! thread "http-n" (couch::Traces) ------+-> spans -> queue -> thread "traces" -> HTTP
//! jobs ---------------------------------+     ^
//! log: when was the batch written? -----------+
//! ```
//!
//! This module chooses the requests and commands to trace, and gives ids. `spans` makes spans from the
//! reports of the other crates, and `export` delivers them. Traces belong to the process, so they go on when
//! it restarts within itself.
//!
//! Invariants
//! - Without `otel-endpoint` there is neither a queue nor a thread, and other parts are asked for no reports.
//! - No thread that serves clients waits for a collector: spans that the queue cannot take are dropped and
//!   counted.

mod export;
mod job;
mod spans;

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use couch::TraceParent;
use engine::observe::{TraceSink, TracedCommand};
use env::{Clock, Entropy};
use otlp::{Collector, Resource, SpanId, TraceId};
use parking_lot::{Mutex, RwLock};
use prng::Prng;
use settings::{Key, Settings};
use storage::Log;

use self::export::Exporter;
pub(crate) use self::job::Job;

/// The share, in millionths, that means all requests and commands.
const WHOLE: u64 = 1_000_000;
/// Up to this drift between the wall clock and the monotonic clock, all spans use one origin. Beyond it, a
/// new origin is taken from the wall clock.
const DRIFT_US_MAX: u64 = 2_000;

/// The traces of a process.
pub(crate) struct Traces {
    /// `None` without a collector.
    exporter: Option<Exporter>,
    clock: Arc<dyn Clock>,
    millionths: AtomicU32,
    random: Mutex<Prng>,
    /// The wall clock at the origin of the monotonic clock, microseconds.
    origin_us: AtomicU64,
    /// The log of the present incarnation.
    log: RwLock<Option<Log>>,
}

/// The place of a span in a trace.
#[derive(Debug, Clone, Copy)]
struct Place {
    trace_id: TraceId,
    span_id: SpanId,
    parent_id: Option<SpanId>,
}

/// The numbers of delivered and dropped spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceFigures {
    /// Spans that the collector has taken.
    pub(crate) sent: u64,
    /// Spans that were dropped: a queue was full, the collector has refused them, or the process ended first.
    pub(crate) dropped: u64,
}

impl Traces {
    /// Traces by the settings; `run_id` tells this process from others.
    ///
    /// # Errors
    /// If the OS refuses the thread.
    pub(crate) fn start(
        settings: &Settings,
        run_id: &str,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
    ) -> std::io::Result<Traces> {
        let url = settings.text(Key::OtelEndpoint);
        let exporter = match url {
            "" => None,
            url => {
                let version = env!("CARGO_PKG_VERSION");
                let attributes = vec![
                    ("service.name", settings.text(Key::OtelServiceName).to_owned().into()),
                    ("service.instance.id", run_id.to_owned().into()),
                    ("service.version", version.into()),
                    ("telemetry.sdk.name", "sheaf".into()),
                    ("telemetry.sdk.language", "rust".into()),
                    ("telemetry.sdk.version", version.into()),
                ];
                Some(Exporter::start(Collector::new(url), Resource { attributes, version }, clock.clone())?)
            }
        };
        Ok(Traces {
            exporter,
            millionths: settings.millionths(Key::OtelSampleRatio).into(),
            random: Mutex::new(Prng::new(entropy.random_u64())),
            origin_us: AtomicU64::new(0),
            log: RwLock::default(),
            clock,
        })
    }

    /// Takes over the settings that can change.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.millionths.store(settings.millionths(Key::OtelSampleRatio), Relaxed);
    }

    /// Whether there is a collector.
    pub(crate) fn is_on(&self) -> bool {
        self.exporter.is_some()
    }

    /// Uses this log from now on to explain the waits of commands and requests.
    pub(crate) fn attach(&self, log: &Log) {
        if self.is_on() {
            log.keep_flush_times();
            *self.log.write() = Some(log.clone());
        }
    }

    /// Forgets the log, which has ended.
    pub(crate) fn detach(&self) {
        *self.log.write() = None;
    }

    /// The numbers of delivered and dropped spans.
    pub(crate) fn figures(&self) -> TraceFigures {
        self.exporter.as_ref().map_or(TraceFigures { sent: 0, dropped: 0 }, Exporter::figures)
    }

    /// Delivers the spans in the queue, for about a second at most.
    pub(crate) fn close(&self) {
        self.exporter.iter().for_each(Exporter::close);
    }

    fn draws(&self) -> bool {
        let share = u64::from(self.millionths.load(Relaxed));
        share > 0 && self.random.lock().below(WHOLE) < share
    }

    /// The place of a new span: below the span of a client (`parent`), or in a new trace.
    fn new_place(&self, parent: Option<&TraceParent>) -> Place {
        let mut random = self.random.lock();
        let mut trace_id = [0; 16];
        while trace_id == [0; 16] {
            random.fill(&mut trace_id);
        }
        let span_id = new_id(&mut random);
        match parent {
            Some(parent) => Place { trace_id: parent.trace_id, span_id, parent_id: Some(parent.span_id) },
            None => Place { trace_id, span_id, parent_id: None },
        }
    }

    /// The place of a new span below the span at `place`.
    fn place_below(&self, place: Place) -> Place {
        let span_id = new_id(&mut self.random.lock());
        Place { span_id, parent_id: Some(place.span_id), ..place }
    }

    /// The wall-clock time at the origin of the monotonic clock, in microseconds. It is the same for all
    /// spans until the clocks have drifted apart by more than [`DRIFT_US_MAX`].
    fn origin_us(&self) -> u64 {
        let now_us = (self.clock.unix_ms() * 1000).saturating_sub(self.clock.monotonic_us());
        let kept_us = self.origin_us.load(Relaxed);
        if kept_us.abs_diff(now_us) <= DRIFT_US_MAX {
            return kept_us;
        }
        self.origin_us.store(now_us, Relaxed);
        now_us
    }

    fn export(&self, spans: Vec<otlp::Span>) {
        if let Some(exporter) = &self.exporter {
            exporter.add(spans);
        }
    }
}

fn new_id(random: &mut Prng) -> SpanId {
    loop {
        let id = random.next_u64().to_be_bytes();
        if id != [0; 8] {
            return id;
        }
    }
}

impl TraceSink for Traces {
    fn ran(&self, command: &TracedCommand, released_us: u64) {
        self.export(self.spans_of_command(command, released_us));
    }

    fn overflowed(&self) {
        self.exporter.iter().for_each(|exporter| exporter.dropped(1));
    }
}

impl couch::Traces for Traces {
    fn is_on(&self) -> bool {
        Traces::is_on(self)
    }

    fn chooses(&self, parent: Option<&TraceParent>) -> bool {
        parent.map_or_else(|| self.draws(), |parent| parent.is_sampled)
    }

    fn ended(&self, request: &couch::TracedRequest) {
        self.export(self.spans_of_request(request));
    }
}
