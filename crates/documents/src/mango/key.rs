//! Index keys: byte strings that sort like the values they encode.
//!
//! ```text
//! null     1
//! false    2
//! true     3
//! number   4, 8 bytes: the bits of the float, big-endian; all inverted if negative, else only the sign bit
//! string   5, text
//! array    6, the values, 0
//! object   7, for each member: 1, the key as text, the value; 0
//! text     the bytes, with 255 inserted after each 0; 0, 0
//! ```
//!
//! So no key is a prefix of another, and the key of several values is the concatenation of their keys. A key
//! is truncated to [`INDEX_KEY_BYTES_MAX`] bytes, so values that differ only after that have equal keys.
//! Numbers that are equal as floats have equal keys, too. Therefore lookups by key must compare the values as
//! well.

use super::Value;

/// The maximum size of a key, in bytes.
pub const INDEX_KEY_BYTES_MAX: usize = 1024;

/// Appends the key of a value to `out`, which holds the preceding values of the same index key, and truncates
/// `out` to [`INDEX_KEY_BYTES_MAX`] bytes.
pub fn put_key(out: &mut Vec<u8>, value: &Value<'_>) {
    put_value(out, value);
    out.truncate(INDEX_KEY_BYTES_MAX);
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    // The rest would be truncated anyway.
    if out.len() >= INDEX_KEY_BYTES_MAX {
        return;
    }
    match value {
        Value::Null => out.push(1),
        Value::Bool(false) => out.push(2),
        Value::Bool(true) => out.push(3),
        Value::Number(number) => {
            out.push(4);
            let bits = number.float().to_bits();
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        Value::String(text) => {
            out.push(5);
            put_text(out, text);
        }
        Value::Array(values) => {
            out.push(6);
            values.iter().for_each(|value| put_value(out, value));
            out.push(0);
        }
        Value::Object(members) => {
            out.push(7);
            for (key, value) in members {
                out.push(1);
                put_text(out, key);
                put_value(out, value);
            }
            out.push(0);
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes().take(INDEX_KEY_BYTES_MAX) {
        out.push(byte);
        if byte == 0 {
            out.push(255);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// Whether only equal values have the key of this value, if the key is not truncated. The answer is
/// conservative: `false` for arrays and objects.
pub(crate) fn has_key_of_its_own(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_exact_float(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

/// The smallest byte string that is greater than all strings with this prefix; `None` if there is none.
pub(crate) fn end_of_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mango::value::tests::values;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn key(values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        values.iter().for_each(|value| put_key(&mut out, value));
        out
    }

    #[test]
    fn long_keys_are_cut() {
        let text = |end: &str| Value::string("x".repeat(2 * INDEX_KEY_BYTES_MAX) + end);
        assert_eq!(key(&[text("a")]).len(), INDEX_KEY_BYTES_MAX);
        assert_eq!(key(&[text("a"), Value::Null]), key(&[text("b")]));
        assert!(key(&[Value::string("x".repeat(INDEX_KEY_BYTES_MAX - 4))]) < key(&[text("")]));
        let nested = (0..2000).fold(Value::Null, |value, _| Value::Array(vec![value]));
        assert!(key(&[nested]).len() == INDEX_KEY_BYTES_MAX);
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_greater_key() {
        assert_eq!(end_of_prefix(vec![1, 2]), Some(vec![1, 3]));
        assert_eq!(end_of_prefix(vec![1, 255, 255]), Some(vec![2]));
        assert_eq!(end_of_prefix(vec![255]), None);
    }

    proptest! {
        #[test]
        fn keys_are_in_the_order_of_values(a in values(), b in values(), c in values(), d in values()) {
            let keys = key(std::slice::from_ref(&a)).cmp(&key(std::slice::from_ref(&b)));
            let values = a.cmp(&b);
            prop_assert!(keys == values || keys == Ordering::Equal && !a.to_json().eq(&b.to_json()), "{:?} {:?}", a, b);
            if keys != Ordering::Equal {
                prop_assert_eq!(key(&[a, c]).cmp(&key(&[b, d])), keys);
            } else if values == Ordering::Equal {
                prop_assert_eq!(key(&[a, c.clone()]).cmp(&key(&[b, d.clone()])), key(&[c]).cmp(&key(&[d])));
            }
        }
    }
}
