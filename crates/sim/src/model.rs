//! The reference model: a map, and the effect of each command on it.
//!
//! The model holds the content of all databases and executes commands in the order of the log. An undo list
//! can restore the state after every earlier record. The model is not fast, and not derived from the server's
//! code.
//!
//! Invariants
//! - A *position* counts records of the log: position 0 is the initial state. Every command or transaction
//!   that changes something makes the next one, and so does each expiry by the server itself. FLUSHDB,
//!   FLUSHALL and the SWAPDB of two databases do so even if they change nothing.
//! - Keys whose deadline has passed stay until they are removed, as in the keyspace.

mod collections;
mod hashes;
mod lists;
mod sessions;
mod sets;
mod stored;
mod strings;
mod zsets;

use std::collections::{BTreeMap, BTreeSet};

use keyspace::DbId;
use wire::Value;

use crate::Command;
pub use sessions::ModelSession;
pub use stored::{Content, Entry, Field, Key, Stored, content_of};
use strings::bulk;

/// The expected reply of a command, and the position that it shows.
#[derive(Debug, PartialEq)]
pub struct Executed {
    /// The reply; errors are compared by prefix.
    pub reply: Value,
    /// The newest position of which the reply shows a change.
    pub shows: usize,
    /// Whether the command, or the transaction that it ended, made a new position.
    pub wrote: bool,
}

/// The undo of one position: the former entries of the changed keys.
type Undo = Vec<(Key, Option<Entry>)>;

/// The reference model: the content of all databases, and the undo of every position.
#[derive(Debug, Clone, Default)]
pub struct Model {
    content: Content,
    undo: Vec<Undo>,
    /// The changes of the current, unfinished position.
    changes: Undo,
    /// The last position that changed a key or removed it.
    changed_at: BTreeMap<Key, usize>,
    /// The last position that counts as a change of all keys.
    all_changed_at: usize,
    /// The last position with a visible change of a key; removing an expired key is not visible.
    touched_at: BTreeMap<Key, usize>,
}

impl Model {
    /// The number of positions so far.
    pub fn position(&self) -> usize {
        self.undo.len()
    }

    /// The state after the last position.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The newest position with this state; `None` if there is none.
    pub fn position_of(&self, wanted: &Content) -> Option<usize> {
        let keys = self.content.keys().chain(wanted.keys());
        let mut different: BTreeSet<&Key> =
            keys.filter(|key| self.content.get(*key) != wanted.get(*key)).collect();
        let mut position = self.undo.len();
        while !different.is_empty() {
            position = position.checked_sub(1)?;
            for (key, old) in self.undo[position].iter().rev() {
                if old.as_ref() == wanted.get(key) {
                    different.remove(key);
                } else {
                    different.insert(key);
                }
            }
        }
        Some(position)
    }

    /// Returns to this position and forgets all later ones.
    pub fn rewind(&mut self, position: usize) {
        while self.undo.len() > position {
            let undo = self.undo.pop().expect("a later position");
            for (key, old) in undo.into_iter().rev() {
                match old {
                    Some(entry) => self.content.insert(key, entry),
                    None => self.content.remove(&key),
                };
            }
        }
        // Everything that a restarted server shows is durable.
        self.changed_at.clear();
        self.touched_at.clear();
        self.all_changed_at = position;
    }

    /// Executes a command outside a transaction.
    fn execute_one(&mut self, db: &mut DbId, command: &Command, now_ms: u64, reply: &Value) -> Executed {
        let seen = self.shown_by(*db, command);
        let reply = self.run(db, command, now_ms, reply);
        let (shows, wrote) = self.end_position(seen, self.logs(command), now_ms);
        Executed { reply, shows, wrote }
    }

    /// Whether the command is logged even if it changes nothing.
    fn logs(&self, command: &Command) -> bool {
        match command {
            Command::FlushDb | Command::FlushAll => true,
            Command::SwapDb(a, b) => a != b,
            _ => false,
        }
    }

    /// Ends a position, if something changed, or if the command is logged in any case (`logs`) because it
    /// concerns all keys. Returns the position shown by the reply, which is at least `seen`, and whether
    /// there is a new position.
    fn end_position(&mut self, seen: usize, logs: bool, now_ms: u64) -> (usize, bool) {
        if !logs && self.changes.is_empty() {
            return (seen, false);
        }
        let position = self.undo.len() + 1;
        if logs {
            self.all_changed_at = position;
        }
        let changes = std::mem::take(&mut self.changes);
        for (key, old) in &changes {
            self.changed_at.insert(key.clone(), position);
            if old.as_ref().is_some_and(|entry| entry.is_live(now_ms)) || self.live(key, now_ms).is_some() {
                self.touched_at.insert(key.clone(), position);
            }
        }
        self.undo.push(changes);
        (position, true)
    }

    fn touched_at(&self, key: &Key) -> usize {
        self.touched_at.get(key).copied().unwrap_or(0)
    }

    /// The newest position that is visible through this key.
    fn shown_by_key(&self, key: &Key) -> usize {
        self.changed_at.get(key).copied().unwrap_or(0).max(self.all_changed_at)
    }

    /// The newest position that the reply to a command shows, unless the command writes.
    fn shown_by(&self, db: DbId, command: &Command) -> usize {
        let key = |key: &Vec<u8>| self.shown_by_key(&(db, key.clone()));
        match command {
            Command::Select(_) | Command::SwapDb(..) | Command::FlushDb | Command::FlushAll => 0,
            Command::Watch(_) | Command::Multi | Command::Exec | Command::Discard => 0,
            Command::DbSize => self.undo.len(),
            Command::MGet(keys) | Command::Del(keys) => keys.iter().map(key).max().unwrap_or(0),
            Command::Collection(name, operation) => {
                operation.other_keys().iter().map(key).fold(key(name), usize::max)
            }
            Command::MSet(pairs) => pairs.iter().map(|(name, _)| key(name)).max().unwrap_or(0),
            Command::Rename(from, to) | Command::Copy(from, to) => key(from).max(key(to)),
            Command::Set { key: name, .. }
            | Command::SetNx(name, _)
            | Command::GetSet(name, _)
            | Command::Get(name)
            | Command::GetDel(name)
            | Command::Incr(name)
            | Command::Append(name, _)
            | Command::SetRange(name, ..)
            | Command::PExpire(name, _)
            | Command::Persist(name) => key(name),
        }
    }

    /// Executes a command as a part of a position. The server's `reply` gives random choices and unspecified
    /// orders.
    fn run(&mut self, db: &mut DbId, command: &Command, now_ms: u64, reply: &Value) -> Value {
        let at = |key: &[u8]| (*db, key.to_vec());
        match command {
            Command::Set { key, value, px_ms } => {
                self.put(at(key), value, px_ms.map(|ms| now_ms + ms));
                ok()
            }
            Command::SetNx(key, value) => {
                let sets = self.live(&at(key), now_ms).is_none();
                if sets {
                    self.put(at(key), value, None);
                }
                Value::Integer(sets.into())
            }
            Command::GetSet(key, value) => {
                let old = bulk(self.live(&at(key), now_ms));
                if !is_error(&old) {
                    self.put(at(key), value, None);
                }
                old
            }
            Command::Get(key) => bulk(self.live(&at(key), now_ms)),
            Command::GetDel(key) => {
                let old = bulk(self.live(&at(key), now_ms));
                if !is_error(&old) {
                    self.delete_live(at(key), now_ms);
                }
                old
            }
            Command::MGet(keys) => {
                let value = |key: &Vec<u8>| match bulk(self.live(&at(key), now_ms)) {
                    Value::Error(_) => Value::Null,
                    value => value,
                };
                Value::Array(keys.iter().map(value).collect())
            }
            Command::MSet(pairs) => {
                pairs.iter().for_each(|(key, value)| self.put(at(key), value, None));
                ok()
            }
            Command::Del(keys) => {
                let removed = keys.iter().filter(|key| self.delete_live(at(key), now_ms)).count();
                Value::Integer(removed as i64)
            }
            Command::Incr(key) => self.increment(at(key), now_ms),
            Command::Append(key, suffix) => self.splice(at(key), None, suffix, now_ms),
            Command::SetRange(key, offset, bytes) => self.splice(at(key), Some(*offset), bytes, now_ms),
            Command::PExpire(key, ms) => self.set_deadline(at(key), Some(now_ms + ms), now_ms),
            Command::Persist(key) => {
                let expires = self.live(&at(key), now_ms).is_some_and(|entry| entry.expire_at_ms.is_some());
                if expires { self.set_deadline(at(key), None, now_ms) } else { Value::Integer(0) }
            }
            Command::Rename(from, to) => self.rename(at(from), at(to), now_ms),
            Command::Copy(from, to) => self.copy(at(from), at(to), now_ms),
            Command::Collection(key, operation) => self.operate(at(key), operation, now_ms, reply),
            Command::Select(wanted) => {
                *db = *wanted;
                ok()
            }
            Command::SwapDb(a, b) => {
                self.swap(*a, *b);
                ok()
            }
            Command::FlushDb => {
                self.remove_all(|key| key.0 == *db);
                ok()
            }
            Command::FlushAll => {
                self.remove_all(|_| true);
                ok()
            }
            Command::DbSize => Value::Integer(self.content.keys().filter(|key| key.0 == *db).count() as i64),
            Command::Watch(_) | Command::Multi | Command::Exec | Command::Discard => {
                unreachable!("these are no part of a transaction, nor do they change anything by themselves")
            }
        }
    }

    fn live(&self, key: &Key, now_ms: u64) -> Option<&Entry> {
        self.content.get(key).filter(|entry| entry.is_live(now_ms))
    }

    fn set(&mut self, key: Key, entry: Option<Entry>) {
        let old = match entry {
            Some(entry) => self.content.insert(key.clone(), entry),
            None => self.content.remove(&key),
        };
        self.changes.push((key, old));
    }

    fn delete_live(&mut self, key: Key, now_ms: u64) -> bool {
        let found = self.live(&key, now_ms).is_some();
        if found {
            self.set(key, None);
        }
        found
    }

    fn set_deadline(&mut self, key: Key, expire_at_ms: Option<u64>, now_ms: u64) -> Value {
        let Some(entry) = self.live(&key, now_ms).cloned() else { return Value::Integer(0) };
        self.set(key, Some(Entry { expire_at_ms, ..entry }));
        Value::Integer(1)
    }

    fn rename(&mut self, from: Key, to: Key, now_ms: u64) -> Value {
        let Some(entry) = self.live(&from, now_ms).cloned() else {
            return Value::Error(b"ERR no such key".to_vec());
        };
        if from != to {
            self.set(to, Some(entry));
            self.set(from, None);
        }
        Value::Simple(b"OK".to_vec())
    }

    fn copy(&mut self, from: Key, to: Key, now_ms: u64) -> Value {
        if from == to {
            return Value::Error(b"ERR source and destination objects are the same".to_vec());
        }
        let Some(entry) = self.live(&from, now_ms).cloned() else { return Value::Integer(0) };
        self.set(to, Some(entry));
        Value::Integer(1)
    }

    fn remove_all(&mut self, matches: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.content.keys().filter(|key| matches(key)).cloned().collect();
        keys.into_iter().for_each(|key| self.set(key, None));
    }

    fn swap(&mut self, a: DbId, b: DbId) {
        let swapped = |db| if db == a { b } else { a };
        let moved: Vec<(Key, Entry)> = self
            .content
            .iter()
            .filter(|(key, _)| a != b && (key.0 == a || key.0 == b))
            .map(|(key, entry)| ((swapped(key.0), key.1.clone()), entry.clone()))
            .collect();
        self.remove_all(|key| a != b && (key.0 == a || key.0 == b));
        moved.into_iter().for_each(|(key, entry)| self.set(key, Some(entry)));
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn is_error(value: &Value) -> bool {
    matches!(value, Value::Error(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str) -> Command {
        Command::Set { key: key.into(), value: value.into(), px_ms: None }
    }

    #[test]
    fn every_earlier_state_can_be_restored() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let commands = [
            set("a", "1"),
            set("b", "2"),
            Command::SwapDb(DbId::ZERO, DbId::new(1).unwrap()),
            Command::FlushAll,
        ];
        let mut states = vec![Content::new()];
        for command in &commands {
            assert!(model.execute(&mut session, command, 0, &Value::Null).wrote);
            states.push(model.content().clone());
        }
        // The states at positions 3 and 4 differ, but the state at position 0 equals the last one.
        assert_eq!(model.position_of(&states[0]), Some(4));
        for (position, state) in states.iter().enumerate().skip(1) {
            assert_eq!(model.position_of(state), Some(position));
        }
        model.rewind(2);
        assert_eq!((model.position(), model.content()), (2, &states[2]));
    }

    #[test]
    fn a_reply_shows_the_last_change_of_its_keys() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let mut shows = |command: &Command| model.execute(&mut session, command, 0, &Value::Null).shows;
        assert_eq!(shows(&set("a", "1")), 1);
        assert_eq!(shows(&set("b", "1")), 2);
        assert_eq!(shows(&Command::Get(b"a".to_vec())), 1);
        assert_eq!(shows(&Command::Get(b"c".to_vec())), 0);
        assert_eq!(shows(&Command::DbSize), 2);
        assert_eq!(shows(&Command::FlushAll), 3);
        assert_eq!(shows(&Command::Get(b"c".to_vec())), 3);
    }
}
