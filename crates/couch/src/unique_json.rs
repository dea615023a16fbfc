//! JSON in which no object has a member twice.
//!
//! `serde_json::Value` keeps the last of two members with one name, other readers keep the first. A text
//! about rights, or a text that another server has signed, must mean the same to every reader. So this module
//! refuses such members (RFC 8725 and RFC 7515 about tokens).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// A value that was read from a text without duplicate members.
#[derive(Debug)]
pub(super) struct Unique(pub(super) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(OfAnyType).map(Unique)
    }
}

struct OfAnyType;

impl<'de> Visitor<'de> for OfAnyType {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate members")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = elements.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((name, Unique(value))) = members.next_entry::<String, Unique>()? {
            if values.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is given twice"));
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Value> {
        serde_json::from_str(text).ok().map(|Unique(value)| value)
    }

    #[test]
    fn a_value_is_read_as_it_is() {
        let text = r#"{"a":[null,true,1,-1,18446744073709551615,1.5,"x",{"a":{}}],"b":{"a":1},"":[]}"#;
        assert_eq!(read(text), serde_json::from_str(text).ok());
        assert_eq!(read("[1] 2"), None);
    }

    #[test]
    fn a_member_that_is_given_twice_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"\u0061":3}"#, r#"[{"b":{"a":1,"a":2}}]"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
