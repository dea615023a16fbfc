//! The effects of commands on strings in the model.

use wire::Value;

use super::{
    Key, Model,
    collections::wrong_type,
    stored::{Entry, Stored},
};

impl Model {
    pub(super) fn put(&mut self, key: Key, value: &[u8], expire_at_ms: Option<u64>) {
        self.set(key, Some(Entry { value: Stored::String(value.into()), expire_at_ms }));
    }

    pub(super) fn increment(&mut self, key: Key, now_ms: u64) -> Value {
        let old = self.live(&key, now_ms).cloned();
        let number = match old.as_ref().map(Entry::string) {
            None => Some(0),
            Some(None) => return wrong_type(),
            Some(Some(text)) => std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()),
        };
        let Some(number) = number else { return Value::Error(b"ERR value is not an integer".to_vec()) };
        self.put(key, (number + 1).to_string().as_bytes(), old.and_then(|entry| entry.expire_at_ms));
        Value::Integer(number + 1)
    }

    /// APPEND (`offset` is `None`) and SETRANGE: writes `bytes` into the string, which keeps its deadline.
    pub(super) fn splice(&mut self, key: Key, offset: Option<usize>, bytes: &[u8], now_ms: u64) -> Value {
        let old = self.live(&key, now_ms).cloned();
        let mut value = match old.as_ref().map(Entry::string) {
            None => Vec::new(),
            Some(None) => return wrong_type(),
            Some(Some(bytes)) => bytes.to_vec(),
        };
        let offset = offset.unwrap_or(value.len());
        value.resize(value.len().max(offset + bytes.len()), 0);
        value[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.put(key, &value, old.and_then(|entry| entry.expire_at_ms));
        Value::Integer(value.len() as i64)
    }
}

/// The string as a reply.
pub(super) fn bulk(entry: Option<&Entry>) -> Value {
    match entry.map(Entry::string) {
        None => Value::Null,
        Some(None) => wrong_type(),
        Some(Some(bytes)) => Value::Bulk(bytes.to_vec()),
    }
}
