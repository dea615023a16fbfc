//! Model code that is common to collections of all types.
//!
//! Invariants
//! - No key holds an empty collection.
//! - Fields whose deadline has passed stay until they are removed, as in the keyspace: by a command that
//!   writes them, removes them or sets their deadline, or by the server's own expiry.

use std::rc::Rc;

use wire::Value;

use super::{
    Content, Key, Model,
    stored::{Entry, Stored},
};
use crate::Operation;

/// The collection at a live key, or an empty one, to be modified and put back. Returns an error from the
/// calling function if the key holds another type.
macro_rules! collection {
    ($entry:expr, $type:ident) => {
        match $entry.map(|entry| &entry.value) {
            None => std::rc::Rc::default(),
            Some(crate::model::stored::Stored::$type(collection)) => collection.clone(),
            Some(_) => return crate::model::collections::wrong_type(),
        }
    };
}
pub(super) use collection;

pub(super) fn wrong_type() -> Value {
    Value::Error(b"WRONGTYPE".to_vec())
}

pub(super) fn count(number: usize) -> Value {
    Value::Integer(number as i64)
}

pub(super) fn bulks(words: impl IntoIterator<Item = Vec<u8>>) -> Value {
    Value::Array(words.into_iter().map(Value::Bulk).collect())
}

impl Model {
    /// Runs an operation. The server's `reply` gives random choices, and the order of unordered elements.
    pub(super) fn operate(&mut self, key: Key, operation: &Operation, now_ms: u64, reply: &Value) -> Value {
        match operation {
            Operation::List(operation) => self.operate_list(key, operation, now_ms),
            Operation::Set(operation) => self.operate_set(key, operation, now_ms, reply),
            Operation::Zset(operation) => self.operate_zset(key, operation, now_ms),
            Operation::Hash(operation) => self.operate_hash(key, operation, now_ms, reply),
        }
    }

    /// Puts a modified collection back at its key, which keeps its deadline. An unmodified collection counts
    /// as no change.
    pub(super) fn put_back(&mut self, key: Key, value: Stored, now_ms: u64) {
        if self.live(&key, now_ms).is_none_or(|entry| entry.value != value) {
            self.write_back(key, value, now_ms);
        }
    }

    /// As [`Model::put_back`], after a write that counts as a change even if the value stays equal: LSET,
    /// LMOVE from a list to itself, HSET and HINCRBY do not compare.
    pub(super) fn write_back(&mut self, key: Key, value: Stored, now_ms: u64) {
        if value.is_empty() {
            self.delete_live(key, now_ms);
        } else {
            let expire_at_ms = self.live(&key, now_ms).and_then(|entry| entry.expire_at_ms);
            self.set(key, Some(Entry { value, expire_at_ms }));
        }
    }

    /// Stores a collection at a key, replacing a value of any type.
    pub(super) fn store(&mut self, key: Key, value: Stored, now_ms: u64) {
        if value.is_empty() {
            self.delete_live(key, now_ms);
        } else {
            self.set(key, Some(Entry { value, expire_at_ms: None }));
        }
    }

    /// Removes an expired key: LREM, SREM, ZREM and HDEL do so implicitly, because they apply their effect
    /// without checking whether the key is live.
    pub(super) fn remove_if_expired(&mut self, key: &Key, now_ms: u64) {
        if self.content.get(key).is_some_and(|entry| !entry.is_live(now_ms)) {
            self.set(key.clone(), None);
        }
    }

    /// Simulates one record of the server's own expiry: it removes some of the due keys and fields of one
    /// slot; `left` is the content afterwards.
    ///
    /// # Panics
    /// If nothing was removed.
    pub fn expire(&mut self, now_ms: u64, left: &Content) {
        for (key, Entry { value, expire_at_ms }) in self.content.clone() {
            match (left.get(&key).map(|entry| &entry.value), value) {
                (None, _) if expire_at_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) => {
                    self.set(key, None);
                }
                (there, Stored::Hash(mut hash)) => {
                    let is_there =
                        |name: &Vec<u8>| matches!(there, Some(Stored::Hash(hash)) if hash.contains_key(name));
                    let before = hash.len();
                    Rc::make_mut(&mut hash).retain(|name, field| field.is_live(now_ms) || is_there(name));
                    if hash.len() < before {
                        let value = Stored::Hash(hash);
                        self.set(key, (!value.is_empty()).then_some(Entry { value, expire_at_ms }));
                    }
                }
                _ => {}
            }
        }
        let (_, wrote) = self.end_position(0, false, now_ms);
        assert!(wrote, "what the server has removed was not due");
    }
}
