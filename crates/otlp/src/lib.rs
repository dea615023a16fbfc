//! OTLP: spans of traces, in the JSON of OpenTelemetry, and their delivery to a collector over HTTP.
//!
//! ```text
//! Span, Span, ... -> encode -> Collector::send -> POST http://COLLECTOR/v1/traces
//! ```
//!
//! This crate has the format (`opentelemetry.proto.collector.trace.v1` as JSON, with ids in hexadecimal and
//! times as decimal texts) and one request. The queue, the thread and the choice of what is traced are in the
//! server. This crate knows neither commands nor documents.
//!
//! Why the crates of OpenTelemetry were not taken: docs/decisions/013-traces.md.

#![forbid(unsafe_code)]

mod collector;
mod encoding;
mod span;

pub use collector::{Collector, SendError};
pub use encoding::{Resource, encode};
pub use span::{Attribute, Span, SpanId, SpanKind, TraceId, Value};
