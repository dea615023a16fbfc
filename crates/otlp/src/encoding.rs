//! Spans as an `ExportTraceServiceRequest` in JSON.
//!
//! Invariants
//! - As the specification of OTLP demands for JSON, ids are hexadecimal digits, numbers of 64 bits are
//!   decimal texts, and enums are numbers.

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{Attribute, Span, SpanKind, Value};

/// The program that has made the spans.
#[derive(Debug, Clone)]
pub struct Resource {
    /// The attributes of the program, such as `service.name`.
    pub attributes: Vec<Attribute>,
    /// The version of the program.
    pub version: &'static str,
}

/// The name of the instrumentation scope.
const SCOPE: &str = "sheaf";
/// The number of `STATUS_CODE_ERROR` in OTLP.
const STATUS_ERROR: u8 = 2;

/// The body of a request that delivers these spans.
pub fn encode(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let scope = Scope { name: SCOPE, version: resource.version };
    let scope_spans = [ScopeSpans { scope, spans: Spans(spans) }];
    let described = Described { attributes: Attributes(&resource.attributes) };
    let request = Request { resource_spans: [ResourceSpans { resource: described, scope_spans }] };
    // Lists of texts and numbers always have a JSON form.
    serde_json::to_vec(&request).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Described<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Described<'a> {
    attributes: Attributes<'a>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Spans<'a>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Attributes<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Integer(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

struct Spans<'a>(&'a [Span]);

impl Serialize for Spans<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        self.0.iter().try_for_each(|span| list.serialize_element(&json(span)))?;
        list.end()
    }
}

struct Attributes<'a>(&'a [Attribute]);

impl Serialize for Attributes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (key, value) in self.0 {
            let value = match value {
                Value::Text(text) => AnyValue::Text(text),
                Value::Integer(number) => AnyValue::Integer(number.to_string()),
                Value::Flag(flag) => AnyValue::Flag(*flag),
            };
            list.serialize_element(&KeyValue { key, value })?;
        }
        list.end()
    }
}

fn json(span: &Span) -> JsonSpan<'_> {
    // Nanoseconds in 64 bits reach to the year 2554.
    let nanoseconds = |us: u64| us.saturating_mul(1000).to_string();
    JsonSpan {
        trace_id: hex::encode(span.trace_id),
        span_id: hex::encode(span.span_id),
        parent_span_id: span.parent_id.map(hex::encode),
        name: &span.name,
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
        },
        start_time_unix_nano: nanoseconds(span.began_unix_us),
        end_time_unix_nano: nanoseconds(span.ended_unix_us),
        attributes: Attributes(&span.attributes),
        status: span.error.as_deref().map(|message| Status { code: STATUS_ERROR, message }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_encoded_as_the_specification_says() {
        let span = Span {
            trace_id: [0xab; 16],
            span_id: [1; 8],
            parent_id: Some([2; 8]),
            name: "SET".into(),
            kind: SpanKind::Server,
            began_unix_us: 1_700_000_000_000_001,
            ended_unix_us: 1_700_000_000_000_042,
            attributes: vec![
                ("db.operation.name", "SET".into()),
                ("n", Value::Integer(-3)),
                ("is", true.into()),
                ("quoted", String::from("a\"b").into()),
            ],
            error: Some("WRONGTYPE".into()),
        };
        let plain = Span {
            parent_id: None,
            error: None,
            kind: SpanKind::Internal,
            attributes: vec![],
            ..span.clone()
        };
        let resource = Resource { attributes: vec![("service.name", "sheaf".into())], version: "1.2" };
        let text = String::from_utf8(encode(&resource, &[span, plain])).unwrap();
        let times = r#""startTimeUnixNano":"1700000000000001000","endTimeUnixNano":"1700000000000042000""#;
        let ids = r#""traceId":"abababababababababababababababab","spanId":"0101010101010101""#;
        let expected = [
            r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"sheaf"}}]},"#,
            r#""scopeSpans":[{"scope":{"name":"sheaf","version":"1.2"},"spans":[{"#,
            ids,
            r#","parentSpanId":"0202020202020202","name":"SET","kind":2,"#,
            times,
            r#","attributes":[{"key":"db.operation.name","value":{"stringValue":"SET"}},"#,
            r#"{"key":"n","value":{"intValue":"-3"}},{"key":"is","value":{"boolValue":true}},"#,
            r#"{"key":"quoted","value":{"stringValue":"a\"b"}}],"status":{"code":2,"message":"WRONGTYPE"}},{"#,
            ids,
            r#","name":"SET","kind":1,"#,
            times,
            r#","attributes":[]}]}]}]}"#,
        ];
        assert_eq!(text, expected.concat());
    }

    #[test]
    fn the_encoding_of_numbers_fits_any_value() {
        assert_eq!(Value::from(u64::MAX), Value::Integer(i64::MAX));
        let resource = Resource { attributes: vec![("n", u64::MAX.into())], version: "" };
        let shown: serde_json::Value = serde_json::from_slice(&encode(&resource, &[])).unwrap();
        let value = &shown["resourceSpans"][0]["resource"]["attributes"][0]["value"];
        assert_eq!(value["intValue"], "9223372036854775807");
    }
}
