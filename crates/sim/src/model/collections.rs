//! What is common to collections of all types in the model.
//!
//! Invariants
//! - A collection without anything in it is no key.
//! - Fields whose deadline has passed stay until something removes them, as in the keyspace: a command that names them, or
//!   the server's own expiry.

use std::rc::Rc;

use wire::Value;

use super::{
    Content, Key, Model,
    stored::{Entry, Stored},
};
use crate::Operation;

/// The collection at a live key, or an empty one, to be changed and put back; returns from the function with an error if the
/// key holds another type.
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
    /// Runs an operation. `reply` is that of the server: what was chosen, and in which order what has none is shown.
    pub(super) fn operate(&mut self, key: Key, operation: &Operation, now_ms: u64, reply: &Value) -> Value {
        match operation {
            Operation::List(operation) => self.operate_list(key, operation, now_ms),
            Operation::Set(operation) => self.operate_set(key, operation, now_ms, reply),
            Operation::Zset(operation) => self.operate_zset(key, operation, now_ms),
            Operation::Hash(operation) => self.operate_hash(key, operation, now_ms, reply),
        }
    }

    /// Puts a changed collection back where it was; it keeps its deadline. What is as it was is no change.
    pub(super) fn put_back(&mut self, key: Key, value: Stored, now_ms: u64) {
        if self.live(&key, now_ms).is_none_or(|entry| entry.value != value) {
            self.write_back(key, value, now_ms);
        }
    }

    /// As [`Model::put_back`], after a write that counts as a change even if all is as it was: LSET, LMOVE from a list to
    /// itself, HSET and HINCRBY do not compare.
    pub(super) fn write_back(&mut self, key: Key, value: Stored, now_ms: u64) {
        if value.is_empty() {
            self.delete_live(key, now_ms);
        } else {
            let expire_at_ms = self.live(&key, now_ms).and_then(|entry| entry.expire_at_ms);
            self.set(key, Some(Entry { value, expire_at_ms }));
        }
    }

    /// Makes a collection the value of a key, whatever that holds.
    pub(super) fn store(&mut self, key: Key, value: Stored, now_ms: u64) {
        if value.is_empty() {
            self.delete_live(key, now_ms);
        } else {
            self.set(key, Some(Entry { value, expire_at_ms: None }));
        }
    }

    /// Removes a key that has expired: LREM, SREM, ZREM and HDEL do it on their way, as they remove without a look whether
    /// it is there.
    pub(super) fn bury(&mut self, key: &Key, now_ms: u64) {
        if self.content.get(key).is_some_and(|entry| !entry.is_live(now_ms)) {
            self.set(key.clone(), None);
        }
    }

    /// What the server's own expiry does in one record: some of the keys and fields that are due go, all of one slot, and
    /// `left` tells which did not.
    ///
    /// # Panics
    /// If none went.
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
