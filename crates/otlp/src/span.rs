//! A span: a piece of work that is over, with its place in a trace.

use std::borrow::Cow;

/// The id of a trace, not zero.
pub type TraceId = [u8; 16];
/// The id of a span, not zero.
pub type SpanId = [u8; 8];

/// A piece of work that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span in whose course it was done, if there is one.
    pub parent_id: Option<SpanId>,
    /// Its name, from a small set.
    pub name: Cow<'static, str>,
    /// Its part in the system.
    pub kind: SpanKind,
    /// When it began, in microseconds since 1970.
    pub began_unix_us: u64,
    /// When it ended, in microseconds since 1970.
    pub ended_unix_us: u64,
    /// Facts about the work.
    pub attributes: Vec<Attribute>,
    /// Why it failed, if it did; may be empty.
    pub error: Option<Cow<'static, str>>,
}

/// The part of a span in a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within the server.
    Internal,
    /// The answer to a request of a client.
    Server,
}

/// A fact about a span or a program: its name, such as `service.name`, and its value.
pub type Attribute = (&'static str, Value);

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Integer(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}
