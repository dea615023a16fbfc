//! Spans of jobs: snapshots, copies of files, elections. There are few jobs, so each is traced.

use std::sync::Arc;

use otlp::{Attribute, SpanKind};

use super::Traces;

/// A job that has begun. If it is dropped without [`Job::end`], it leaves no span.
pub(crate) struct Job {
    traces: Arc<Traces>,
    name: &'static str,
    began_us: u64,
}

impl Traces {
    /// Begins a job of this name.
    pub(crate) fn job(self: &Arc<Self>, name: &'static str) -> Job {
        Job { traces: self.clone(), name, began_us: self.clock.monotonic_us() }
    }
}

impl Job {
    /// Ends the job, perhaps with an error, and exports its span.
    pub(crate) fn end(self, attributes: Vec<Attribute>, error: Option<String>) {
        let Job { traces, name, began_us } = self;
        if traces.is_on() {
            let times = (began_us, traces.clock.monotonic_us());
            let place = traces.new_place(None);
            let mut span = traces.span(place, (name.to_owned(), SpanKind::Internal), times, attributes);
            span.error = error.map(Into::into);
            traces.export(vec![span]);
        }
    }
}
