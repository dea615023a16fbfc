//! `Value`: JSON values for queries, and their order.
//!
//! Numbers keep their text, and objects the order of their members. Objects are ordered by their first
//! different member: by key, then by value; then by the number of members.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::json::{JsonError, Kind, Reader, put_string};

/// A JSON value; strings are borrowed where possible.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, which keeps the text in which it was stored.
    Number(Number<'a>),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Value<'a>>),
    /// An object. Of members with the same key only the last is kept, as in CouchDB.
    Object(Vec<(Cow<'a, str>, Value<'a>)>),
}

/// A number, as text and as a float.
#[derive(Debug, Clone)]
pub struct Number<'a> {
    text: Cow<'a, str>,
    float: f64,
}

/// 2^53: from here on, different integers may have the same float.
const EXACT_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

impl<'a> Number<'a> {
    fn new(text: &'a str) -> Number<'a> {
        // A number that is too large for a float becomes infinite, which keeps its order.
        Number { float: text.parse().unwrap_or(f64::INFINITY), text: Cow::Borrowed(text) }
    }

    /// The number as a float; zero has no sign.
    pub fn float(&self) -> f64 {
        self.float + 0.0
    }

    /// The integer, if the text has neither a point nor an exponent and fits into an `i128`.
    pub fn integer(&self) -> Option<i128> {
        self.text.parse().ok()
    }

    /// Whether its text has neither a point nor an exponent.
    fn is_whole(&self) -> bool {
        !self.text.contains(['.', 'e', 'E'])
    }

    /// Whether all numbers with the same float are equal to this number. This is true below 2^53.
    pub(crate) fn is_exact_float(&self) -> bool {
        self.float().abs() < EXACT_FLOAT_MAX
    }

    /// An integer that distinguishes integers with the same float, from 2^53 on. Numbers with a point or an
    /// exponent, or outside of the range of an `i128`, count as their float.
    fn exact(&self) -> i128 {
        self.integer().unwrap_or(self.float as i128)
    }
}

impl<'a> Value<'a> {
    /// Parses a text that is one value.
    pub fn parse(text: &'a str) -> Result<Value<'a>, JsonError> {
        let mut reader = Reader::of(text);
        let value = Value::read(&mut reader)?;
        reader.end()?;
        Ok(value)
    }

    /// Parses a text that was stored, maybe by a version that took numbers of any size.
    pub fn parse_stored(text: &'a str) -> Result<Value<'a>, JsonError> {
        let mut reader = Reader::of_stored(text);
        let value = Value::read(&mut reader)?;
        reader.end()?;
        Ok(value)
    }

    /// Reads the next value.
    pub fn read(reader: &mut Reader<'a>) -> Result<Value<'a>, JsonError> {
        Ok(match reader.peek()? {
            Kind::Null => {
                reader.raw()?;
                Value::Null
            }
            Kind::Bool => Value::Bool(reader.boolean()?),
            Kind::Number => Value::Number(Number::new(reader.raw()?)),
            Kind::String => Value::String(reader.string()?),
            Kind::Array => {
                let mut values = Vec::new();
                reader.array(|reader| {
                    values.push(Value::read(reader)?);
                    Ok::<_, JsonError>(())
                })?;
                Value::Array(values)
            }
            Kind::Object => {
                let mut members = Vec::new();
                reader.object(|reader, key| {
                    members.push((key, Value::read(reader)?));
                    Ok::<_, JsonError>(())
                })?;
                keep_last(&mut members);
                Value::Object(members)
            }
        })
    }

    /// Makes a string.
    pub fn string(text: impl Into<Cow<'a, str>>) -> Value<'a> {
        Value::String(text.into())
    }

    /// Makes a number.
    pub fn integer(number: i128) -> Value<'static> {
        Value::Number(Number { float: number as f64, text: Cow::Owned(number.to_string()) })
    }

    /// The value of a member; `None` if this is not an object or does not have it.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number as a `u64`, if it is a non-negative integer.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(number) => number.integer().and_then(|number| u64::try_from(number).ok()),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[(Cow<'a, str>, Value<'a>)]> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The name of its type for `$type`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Copies borrowed text, so that the value borrows nothing.
    pub fn into_owned(self) -> Value<'static> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        match self {
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(value),
            Value::Number(Number { text, float }) => Value::Number(Number { text: own(text), float }),
            Value::String(text) => Value::String(own(text)),
            Value::Array(values) => Value::Array(values.into_iter().map(Value::into_owned).collect()),
            Value::Object(members) => Value::Object(
                members.into_iter().map(|(key, value)| (own(key), value.into_owned())).collect(),
            ),
        }
    }

    /// Appends the value as JSON.
    pub fn render(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::Number(number) => out.extend_from_slice(number.text.as_bytes()),
            Value::String(text) => put_string(out, text),
            Value::Array(values) => {
                out.push(b'[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    value.render(out);
                }
                out.push(b']');
            }
            Value::Object(members) => {
                out.push(b'{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    put_string(out, key);
                    out.push(b':');
                    value.render(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The value as JSON, for error texts.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.render(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Whether both values are equal and have the same form: 1 is equal to 1.0, but not identical.
    pub(crate) fn is_identical(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.is_whole() == b.is_whole() && self == other,
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_identical(b))
            }
            (Value::Object(a), Value::Object(b)) => {
                let same =
                    |((name, a), (other, b)): (&Member<'_>, &Member<'_>)| name == other && a.is_identical(b);
                a.len() == b.len() && a.iter().zip(b).all(same)
            }
            _ => self == other,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Null => 0,
            Value::Bool(false) => 1,
            Value::Bool(true) => 2,
            Value::Number(_) => 3,
            Value::String(_) => 4,
            Value::Array(_) => 5,
            Value::Object(_) => 6,
        }
    }
}

/// A member of an object: its key and its value.
type Member<'a> = (Cow<'a, str>, Value<'a>);

/// The number of members up to which comparing each with each is cheap.
const FEW_MEMBERS: usize = 16;

/// Removes all members but the last of those with the same key.
fn keep_last(members: &mut Vec<Member<'_>>) {
    let is_later = |key: &str, later: &[Member<'_>]| later.iter().any(|(other, _)| other == key);
    if members.len() <= FEW_MEMBERS {
        for index in (0..members.len()).rev() {
            if is_later(&members[index].0, &members[index + 1..]) {
                members.remove(index);
            }
        }
        return;
    }
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| members[*a].0.cmp(&members[*b].0));
    let mut keep = vec![true; members.len()];
    for [a, b] in order.array_windows() {
        keep[*a] = members[*a].0 != members[*b].0;
    }
    let mut keep = keep.into_iter();
    members.retain(|_| keep.next().unwrap_or(true));
}

impl Ord for Value<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => a.float().total_cmp(&b.float()).then_with(|| {
                match a.float().abs() < 9_007_199_254_740_992.0 {
                    true => Ordering::Equal,
                    false => a.exact().cmp(&b.exact()),
                }
            }),
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => a.cmp(b),
            (Value::Object(a), Value::Object(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value<'_> {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few keys and few values of each type, so that equal ones are likely.
    pub(crate) fn values() -> impl Strategy<Value = Value<'static>> {
        let number = prop_oneof![
            (-3i32..4).prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:e}")),
            any::<i128>().prop_map(|number| number.to_string()),
            Just("1.0".to_owned()),
            Just("-0".to_owned()),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            number.prop_map(|text| Value::parse(&text).expect("a number").into_owned()),
            "[ab\0\u{1}é]{0,3}".prop_map(Value::string),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                proptest::collection::vec(("[ab]".prop_map(Cow::Owned), inner), 0..3).prop_map(
                    |mut members| {
                        members.dedup_by(|a, b| a.0 == b.0);
                        Value::Object(members)
                    }
                ),
            ]
        })
    }

    #[test]
    fn values_are_in_couchdbs_order() {
        let texts = [
            "null",
            "false",
            "true",
            "-1e400",
            "-2",
            "-0.5",
            "0",
            "1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "170141183460469231731687303715884105727",
            "1e400",
            "\"\"",
            "\"a\"",
            "\"aa\"",
            "\"b\"",
            "[]",
            "[null]",
            "[1,2]",
            "[2]",
            "[[]]",
            "{}",
            "{\"a\":1}",
            "{\"a\":2}",
            "{\"a\":2,\"b\":1}",
            "{\"b\":0}",
        ];
        let values: Vec<Value<'_>> =
            texts.iter().map(|text| Value::parse_stored(text).expect(text)).collect();
        for (index, pair) in values.array_windows::<2>().enumerate() {
            assert!(pair[0] < pair[1], "{} {}", texts[index], texts[index + 1]);
        }
        let value = |text: &'static str| Value::parse(text).expect("JSON");
        assert_eq!(value("1"), value("1.0"));
        assert_eq!(value("-0"), value("0e5"));
        assert_ne!(value("[1]"), value("1"));
    }

    #[test]
    fn values_are_shown_as_they_were_read() {
        let text = r#"{"b":[1.50,-0,1E9,null,true],"a":{"":"\n\""}}"#;
        let value = Value::parse(text).expect("JSON");
        assert_eq!(value.to_json(), text);
        assert_eq!(value.into_owned().to_json(), text);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let value = Value::parse(r#"{"a":1,"b":{"x":1,"x":2},"a":3,"c":4,"a":5}"#).expect("JSON");
        assert_eq!(value.to_json(), r#"{"b":{"x":2},"c":4,"a":5}"#);
        let many: Vec<String> = (0..100).map(|n| format!("\"{}\":{n}", n % 40)).collect();
        let many = format!("{{{}}}", many.join(","));
        let value = Value::parse(&many).expect("JSON");
        assert_eq!(value.as_object().expect("an object").len(), 40);
        assert_eq!(value.get("19"), Value::parse("99").ok().as_ref());
        assert_eq!(value.get("20"), Value::parse("60").ok().as_ref());
    }

    #[test]
    fn identical_values_have_the_same_form() {
        let identical =
            |a: &str, b: &str| Value::parse(a).expect("JSON").is_identical(&Value::parse(b).expect("JSON"));
        for same in ["1", "1.5", "[1,{\"a\":\"x\"}]", "null", "\"a\"", "{}"] {
            assert!(identical(same, same), "{same}");
        }
        assert!(identical("1.0", "1e0") && identical("\"a\"", "\"\\u0061\""));
        for (a, b) in [("1", "1.0"), ("[1]", "[1.0]"), ("{\"a\":1}", "{\"a\":1,\"b\":2}"), ("[]", "{}")] {
            assert!(!identical(a, b), "{a} {b}");
        }
        assert!(!identical("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"));
    }

    #[test]
    fn stored_numbers_may_be_of_any_size() {
        for text in ["1e310", "-1e310", "[1E999]"] {
            assert!(Value::parse(text).is_err(), "{text}");
            assert_eq!(Value::parse_stored(text).expect("JSON").to_json(), text);
        }
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in values(), b in values(), c in values()) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&a), Ordering::Equal);
            let mut sorted = [a, b, c];
            sorted.sort();
            prop_assert!(sorted[0] <= sorted[1] && sorted[1] <= sorted[2] && sorted[0] <= sorted[2]);
        }

        #[test]
        fn written_values_are_parsed_unchanged(value in values()) {
            let text = value.to_json();
            prop_assert_eq!(Value::parse(&text).expect("JSON"), value);
        }
    }
}
