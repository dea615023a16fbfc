//! Spans of commands and requests, named by the conventions of OpenTelemetry. Below each span are spans of
//! the parts of its wait for the log.
//!
//! ```text
//! SET          |- runs -|--------------------- its reply waits ----------------------|
//! log.wait_for_batch    |- the batch before is written -|
//! log.write_and_sync                                    |- its batch -|
//! log.wait_for_replicas                                               |- theirs -|
//! ```

use couch::{LogWait, TracedRequest};
use engine::observe::TracedCommand;
use http::Method;
use lsn::Lsn;
use otlp::{Attribute, Span, SpanKind};

use super::{Place, Traces};

/// The methods of HTTP that spans show as they are, as well as COPY. For all others, the conventions want
/// `_OTHER`.
const METHODS: [&Method; 7] = [
    &Method::GET,
    &Method::HEAD,
    &Method::POST,
    &Method::PUT,
    &Method::DELETE,
    &Method::OPTIONS,
    &Method::PATCH,
];

impl Traces {
    /// The spans of a command and of the parts of its wait. From `released_us` on, the reply may leave.
    pub(super) fn spans_of_command(&self, command: &TracedCommand, released_us: u64) -> Vec<Span> {
        let place = self.new_place(None);
        let name = command.row.name.to_ascii_uppercase().replace('|', " ");
        let mut attributes: Vec<Attribute> = vec![
            ("db.system.name", "redis".into()),
            ("db.operation.name", name.clone().into()),
            ("db.namespace", command.db.get().to_string().into()),
            ("sheaf.argument_count", (command.args as u64).into()),
        ];
        if command.is_blocked {
            attributes.push(("sheaf.is_blocked", true.into()));
        }
        if let Some(code) = &command.error {
            attributes.push(("db.response.status_code", code.clone().into()));
            attributes.push(("error.type", code.clone().into()));
        }
        let mut span =
            self.span(place, (name, SpanKind::Server), (command.began_us, released_us), attributes);
        span.error = command.error.clone().map(Into::into);
        let wait = LogWait { lsn: command.gate, since_us: command.ran_us, until_us: released_us };
        let mut spans = self.parts_of_wait(place, wait);
        spans.push(span);
        spans
    }

    /// The spans of a request over HTTP, and of the parts of its waits.
    pub(super) fn spans_of_request(&self, request: &TracedRequest) -> Vec<Span> {
        let place = self.new_place(request.parent.as_ref());
        let is_named = METHODS.contains(&&request.method) || request.method.as_str() == "COPY";
        let method = if is_named { request.method.as_str().to_owned() } else { "_OTHER".into() };
        let name = match is_named {
            true => format!("{method} {}", request.route),
            false => format!("HTTP {}", request.route),
        };
        let mut attributes: Vec<Attribute> = vec![
            ("http.request.method", method.into()),
            ("http.route", request.route.into()),
            ("url.scheme", if request.is_encrypted { "https" } else { "http" }.into()),
            ("http.response.body.size", request.reply_bytes.into()),
        ];
        if let Some(bytes) = request.request_bytes {
            attributes.push(("http.request.body.size", bytes.into()));
        }
        if let Some(database) = &request.database {
            attributes.push(("db.system.name", "couchdb".into()));
            attributes.push(("db.namespace", database.clone().into()));
        }
        let error = match request.status {
            Some(status) => {
                attributes.push(("http.response.status_code", u64::from(status).into()));
                (status >= 500).then(|| status.to_string())
            }
            None => Some("client_left".into()),
        };
        if let Some(error) = &error {
            attributes.push(("error.type", error.clone().into()));
        }
        let times = (request.began_us, request.ended_us);
        let mut span = self.span(place, (name, SpanKind::Server), times, attributes);
        span.error = error.map(Into::into);
        let mut spans: Vec<Span> =
            request.waits.iter().flat_map(|wait| self.parts_of_wait(place, *wait)).collect();
        spans.push(span);
        spans
    }

    /// The spans of the parts of a wait for the log, one after the other. There are none if the wait has no
    /// duration, or if it is not known when the batch was written.
    fn parts_of_wait(&self, place: Place, LogWait { lsn, since_us, until_us }: LogWait) -> Vec<Span> {
        let log = self.log.read();
        let Some(log) = log.as_ref().filter(|_| lsn > Lsn::ZERO && until_us > since_us) else {
            return Vec::new();
        };
        let Some(flush) = log.flush_time(lsn) else { return Vec::new() };
        let within = |us: u64| us.clamp(since_us, until_us);
        let (began_us, ended_us) = (within(flush.began_us), within(flush.ended_us));
        // Without replicas, the rest of the wait is the time until the client's thread continues, which gets
        // no span.
        let acked_us = if log.awaits_acks() { until_us } else { ended_us };
        let parts = [
            ("log.wait_for_batch", since_us, began_us),
            ("log.write_and_sync", began_us, ended_us),
            ("log.wait_for_replicas", ended_us, acked_us),
        ];
        let bytes = flush.end.bytes_since(flush.start);
        let of_batch = || vec![("sheaf.log.lsn", lsn.get().into()), ("sheaf.log.batch_bytes", bytes.into())];
        let part = |(name, from_us, to_us): (&'static str, u64, u64)| {
            let place = self.place_below(place);
            self.span(place, (name.to_owned(), SpanKind::Internal), (from_us, to_us), of_batch())
        };
        parts.into_iter().filter(|(_, from_us, to_us)| from_us < to_us).map(part).collect()
    }

    /// A span between two times of the monotonic clock.
    pub(super) fn span(
        &self,
        place: Place,
        (name, kind): (String, SpanKind),
        (from_us, to_us): (u64, u64),
        attributes: Vec<Attribute>,
    ) -> Span {
        let origin_us = self.origin_us();
        Span {
            trace_id: place.trace_id,
            span_id: place.span_id,
            parent_id: place.parent_id,
            name: name.into(),
            kind,
            began_unix_us: origin_us + from_us,
            ended_unix_us: origin_us + to_us.max(from_us),
            attributes,
            error: None,
        }
    }
}
