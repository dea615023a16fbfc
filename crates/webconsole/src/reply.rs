//! Converts replies to JSON.
//!
//! | reply | JSON |
//! |---|---|
//! | string, status, verbatim text | a string; `{"base64": ...}` if it is not UTF-8 |
//! | integer | a number; `{"integer": "..."}` from ±2^53 on, where JavaScript may round |
//! | big number | `{"integer": "..."}` |
//! | double | a number; `{"double": "inf"}`, `-inf`, `nan` |
//! | null, boolean | `null`, `true`, `false` |
//! | array, set, push | an array |
//! | map | `{"map": [[key, value], ...]}`, in the order of the reply: keys need not be texts |
//! | error | `{"error": "..."}`; U+FFFD replaces bytes that are not UTF-8 |
//! | value with attributes | the value alone |

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Serialize, Serializer, ser::SerializeMap};
use wire::Value;

/// `Number.MAX_SAFE_INTEGER` of JavaScript. JavaScript may round larger integers.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// A reply as JSON.
#[derive(Debug, Clone, Copy)]
pub struct JsonReply<'v>(pub &'v Value);

impl Serialize for JsonReply<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => {
                match std::str::from_utf8(bytes) {
                    Ok(text) => serializer.serialize_str(text),
                    Err(_) => wrapped(serializer, "base64", &BASE64_STANDARD.encode(bytes)),
                }
            }
            Value::Error(text) => wrapped(serializer, "error", &String::from_utf8_lossy(text)),
            Value::Integer(number) if number.unsigned_abs() <= EXACT_MAX => serializer.serialize_i64(*number),
            Value::Integer(number) => wrapped(serializer, "integer", &number.to_string()),
            Value::BigNumber(digits) => wrapped(serializer, "integer", &String::from_utf8_lossy(digits)),
            Value::Double(number) if number.is_finite() => serializer.serialize_f64(*number),
            Value::Double(number) => {
                let name = if number.is_nan() {
                    "nan"
                } else if *number > 0.0 {
                    "inf"
                } else {
                    "-inf"
                };
                wrapped(serializer, "double", name)
            }
            Value::Null => serializer.serialize_unit(),
            Value::Boolean(is_true) => serializer.serialize_bool(*is_true),
            Value::Array(values) | Value::Set(values) | Value::Push(values) => {
                serializer.collect_seq(values.iter().map(JsonReply))
            }
            Value::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("map", &Pairs(pairs))?;
                map.end()
            }
            Value::Attributed { value, .. } => JsonReply(value).serialize(serializer),
        }
    }
}

fn wrapped<S: Serializer>(serializer: S, name: &str, text: &str) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(1))?;
    map.serialize_entry(name, text)?;
    map.end()
}

struct Pairs<'v>(&'v [(Value, Value)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| (JsonReply(key), JsonReply(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value) -> String {
        serde_json::to_string(&JsonReply(value)).unwrap()
    }

    #[test]
    fn every_reply_has_one_form() {
        let bulk = |bytes: &[u8]| Value::Bulk(bytes.to_vec());
        for (value, expected) in [
            (Value::Simple(b"OK".into()), r#""OK""#),
            (bulk("ü\n<b>".as_bytes()), r#""ü\n<b>""#),
            (bulk(b"\xff\x00"), r#"{"base64":"/wA="}"#),
            (Value::Error(b"ERR no".into()), r#"{"error":"ERR no"}"#),
            (Value::Integer(9_007_199_254_740_991), "9007199254740991"),
            (Value::Integer(-9_007_199_254_740_992), r#"{"integer":"-9007199254740992"}"#),
            (Value::Integer(i64::MIN), r#"{"integer":"-9223372036854775808"}"#),
            (Value::BigNumber(b"12".into()), r#"{"integer":"12"}"#),
            (Value::Double(1.5), "1.5"),
            (Value::Double(f64::NEG_INFINITY), r#"{"double":"-inf"}"#),
            (Value::Double(f64::NAN), r#"{"double":"nan"}"#),
            (Value::Null, "null"),
            (Value::Boolean(true), "true"),
            (Value::Verbatim { format: *b"txt", text: b"x".into() }, r#""x""#),
            (Value::Set(vec![bulk(b"a"), Value::Integer(1)]), r#"["a",1]"#),
            (Value::Map(vec![(bulk(b"\xff"), bulk(b"v"))]), r#"{"map":[[{"base64":"/w=="},"v"]]}"#),
            (Value::Attributed { attributes: Vec::new(), value: Box::new(Value::Array(Vec::new())) }, "[]"),
        ] {
            assert_eq!(json(&value), expected);
        }
    }
}
