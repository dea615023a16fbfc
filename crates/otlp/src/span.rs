//! A span: a piece of work that has ended, with its place in a trace.

use std::borrow::Cow;

/// The id of a trace, not zero.
pub type TraceId = [u8; 16];
/// The id of a span, not zero.
pub type SpanId = [u8; 8];

/// A piece of work that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace to which the span belongs.
    pub trace_id: TraceId,
    /// The id of the span.
    pub span_id: SpanId,
    /// The span in whose course this work was done, if there is one.
    pub parent_id: Option<SpanId>,
    /// The name of the span, from a small set.
    pub name: Cow<'static, str>,
    /// The part of the work in the system.
    pub kind: SpanKind,
    /// The begin of the work, in microseconds since 1970.
    pub began_unix_us: u64,
    /// The end of the work, in microseconds since 1970.
    pub ended_unix_us: u64,
    /// Facts about the work.
    pub attributes: Vec<Attribute>,
    /// The reason why the work failed; `None` if it succeeded. The text may be empty.
    pub error: Option<Cow<'static, str>>,
}

/// The part of the work of a span in the system.
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
