//! What commands do to collections, in the model.
//!
//! Invariants
//! - A collection without anything in it is no key.
//! - Fields whose deadline has passed stay until something removes them, as in the keyspace: a command that names them, or
//!   the server's own expiry.

use std::rc::Rc;

use keyspace::{SlotId, slot_of};
use wire::Value;

use super::{
    Key, Model, ok,
    stored::{Entry, Field, Stored},
};
use crate::Operation;

/// The collection at a live key, or an empty one, to be changed and put back; returns from the function with an error if the
/// key holds another type.
macro_rules! collection {
    ($entry:expr, $type:ident) => {
        match $entry.map(|entry| &entry.value) {
            None => Rc::default(),
            Some(Stored::$type(collection)) => collection.clone(),
            Some(_) => return wrong_type(),
        }
    };
}

pub(super) fn wrong_type() -> Value {
    Value::Error(b"WRONGTYPE".to_vec())
}

fn bulk(bytes: Option<Vec<u8>>) -> Value {
    bytes.map_or(Value::Null, Value::Bulk)
}

fn count(number: usize) -> Value {
    Value::Integer(number as i64)
}

impl Model {
    /// Runs an operation. `reply` is that of the server: what SPOP has chosen.
    pub(super) fn operate(&mut self, key: Key, operation: &Operation, now_ms: u64, reply: &Value) -> Value {
        match operation {
            Operation::PushLeft(_)
            | Operation::PushRight(_)
            | Operation::PopLeft
            | Operation::PopRight
            | Operation::Trim(..)
            | Operation::Elements => self.operate_list(key, operation, now_ms),
            Operation::AddMembers(_)
            | Operation::RemoveMembers(_)
            | Operation::PopMember
            | Operation::HasMember(_) => self.operate_set(key, operation, now_ms, reply),
            Operation::Score(_) | Operation::RemoveScored(_) | Operation::PopLowest | Operation::Ranking => {
                self.operate_zset(key, operation, now_ms)
            }
            Operation::SetFields(_)
            | Operation::RemoveFields(_)
            | Operation::ExpireFields(..)
            | Operation::Field(_) => self.operate_hash(key, operation, now_ms),
        }
    }

    fn operate_list(&mut self, key: Key, operation: &Operation, now_ms: u64) -> Value {
        let mut list = collection!(self.live(&key, now_ms), List);
        let elements = Rc::make_mut(&mut list);
        let reply = match operation {
            Operation::PushLeft(pushed) => {
                elements.splice(..0, pushed.iter().rev().cloned());
                count(elements.len())
            }
            Operation::PushRight(pushed) => {
                elements.extend_from_slice(pushed);
                count(elements.len())
            }
            Operation::PopLeft => bulk((!elements.is_empty()).then(|| elements.remove(0))),
            Operation::PopRight => bulk(elements.pop()),
            Operation::Trim(start, stop) => {
                elements.truncate(stop + 1);
                elements.drain(..elements.len().min(*start));
                ok()
            }
            _ => return Value::Array(elements.iter().cloned().map(Value::Bulk).collect()),
        };
        self.put_back(key, Stored::List(list), now_ms);
        reply
    }

    fn operate_set(&mut self, key: Key, operation: &Operation, now_ms: u64, chosen: &Value) -> Value {
        let mut set = collection!(self.live(&key, now_ms), Set);
        let members = Rc::make_mut(&mut set);
        let reply = match operation {
            Operation::AddMembers(added) => {
                count(added.iter().filter(|member| members.insert(member.to_vec())).count())
            }
            Operation::RemoveMembers(removed) => {
                self.bury(&key, now_ms);
                count(removed.iter().filter(|member| members.remove(*member)).count())
            }
            Operation::PopMember => match chosen {
                Value::Bulk(member) if members.remove(member) => chosen.clone(),
                _ => bulk(members.first().cloned()),
            },
            Operation::HasMember(member) => return Value::Integer(members.contains(member).into()),
            _ => unreachable!("not on sets: {operation:?}"),
        };
        self.put_back(key, Stored::Set(set), now_ms);
        reply
    }

    fn operate_zset(&mut self, key: Key, operation: &Operation, now_ms: u64) -> Value {
        let mut zset = collection!(self.live(&key, now_ms), Zset);
        let scores = Rc::make_mut(&mut zset);
        let pair = |(member, score): (&Vec<u8>, &i64)| {
            [Value::Bulk(member.clone()), Value::Bulk(score.to_string().into_bytes())]
        };
        let reply = match operation {
            Operation::Score(scored) => {
                let added =
                    |(score, member): &&(i64, Vec<u8>)| scores.insert(member.clone(), *score).is_none();
                count(scored.iter().filter(added).count())
            }
            Operation::RemoveScored(removed) => {
                count(removed.iter().filter(|member| scores.remove(*member).is_some()).count())
            }
            Operation::PopLowest => {
                let lowest = scores.iter().min_by_key(|(member, score)| (**score, *member));
                let reply = Value::Array(lowest.into_iter().flat_map(pair).collect());
                if let Some(member) = lowest.map(|(member, _)| member.clone()) {
                    scores.remove(&member);
                }
                reply
            }
            _ => {
                let mut ranking: Vec<_> = scores.iter().collect();
                ranking.sort_by_key(|(member, score)| (**score, *member));
                return Value::Array(ranking.into_iter().flat_map(pair).collect());
            }
        };
        self.put_back(key, Stored::Zset(zset), now_ms);
        reply
    }

    fn operate_hash(&mut self, key: Key, operation: &Operation, now_ms: u64) -> Value {
        let mut hash = collection!(self.live(&key, now_ms), Hash);
        let fields = Rc::make_mut(&mut hash);
        let names: Vec<&Vec<u8>> = match operation {
            Operation::SetFields(pairs) => pairs.iter().map(|(name, _)| name).collect(),
            Operation::RemoveFields(names) | Operation::ExpireFields(_, names) => names.iter().collect(),
            Operation::Field(name) => {
                let live = fields.get(name).filter(|field| field.is_live(now_ms));
                return bulk(live.map(|field| field.value.clone()));
            }
            _ => unreachable!("not on hashes: {operation:?}"),
        };
        // Those that have expired go first; if none is left, the key goes, and its deadline with it.
        fields.retain(|name, field| field.is_live(now_ms) || !names.contains(&name));
        self.put_back(key.clone(), Stored::Hash(hash.clone()), now_ms);
        let fields = Rc::make_mut(&mut hash);
        let reply = match operation {
            Operation::SetFields(pairs) => {
                let field = |value: &Vec<u8>| Field { value: value.clone(), expire_at_ms: None };
                let added =
                    |(name, value): &&(Vec<u8>, Vec<u8>)| fields.insert(name.clone(), field(value)).is_none();
                count(pairs.iter().filter(added).count())
            }
            Operation::RemoveFields(names) => {
                self.bury(&key, now_ms);
                count(names.iter().filter(|name| fields.remove(*name).is_some()).count())
            }
            Operation::ExpireFields(ms, names) => {
                let mut expire = |name: &Vec<u8>| match fields.get_mut(name) {
                    None => Value::Integer(-2),
                    Some(field) => {
                        field.expire_at_ms = Some(now_ms + ms);
                        Value::Integer(1)
                    }
                };
                Value::Array(names.iter().map(&mut expire).collect())
            }
            _ => unreachable!("answered above"),
        };
        self.put_back(key, Stored::Hash(hash), now_ms);
        reply
    }

    /// Puts a changed collection back where it was; it keeps its deadline. What is as it was is no change.
    fn put_back(&mut self, key: Key, value: Stored, now_ms: u64) {
        let old = self.live(&key, now_ms);
        let expire_at_ms = old.and_then(|entry| entry.expire_at_ms);
        match old {
            None if value.is_empty() => {}
            Some(entry) if entry.value == value => {}
            _ if value.is_empty() => self.set(key, None),
            _ => self.set(key, Some(Entry { value, expire_at_ms })),
        }
    }

    /// Removes a key that has expired: SREM and HDEL do it on their way, as they do not look before.
    fn bury(&mut self, key: &Key, now_ms: u64) {
        if self.content.get(key).is_some_and(|entry| !entry.is_live(now_ms)) {
            self.set(key.clone(), None);
        }
    }

    /// What the server's own expiry does to a slot in one record: keys and fields that are due go.
    pub fn expire(&mut self, now_ms: u64, slot: SlotId) {
        let position = self.position() + 1;
        let in_slot = |key: &&Key| slot_of(&key.1) == slot;
        let keys: Vec<Key> = self.content.keys().filter(in_slot).cloned().collect();
        for key in keys {
            self.bury(&key, now_ms);
            let Some(Entry { value: Stored::Hash(hash), .. }) = self.content.get(&key) else { continue };
            let mut live = hash.clone();
            Rc::make_mut(&mut live).retain(|_, field| field.is_live(now_ms));
            if live.len() < hash.len() {
                self.put_back(key.clone(), Stored::Hash(live), now_ms);
                self.touched_at.insert(key, position);
            }
        }
        assert!(!self.changes.is_empty(), "nothing was due in slot {slot:?}");
        self.undo.push(std::mem::take(&mut self.changes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ModelSession};

    fn on(key: &str, operation: Operation) -> Command {
        Command::Collection(key.into(), operation)
    }

    fn names(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn replies_are_those_of_the_types() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let mut run = |command: &Command| model.execute(&mut session, command, 0, &Value::Null).reply;
        let list = |operation| on("l", operation);
        assert_eq!(run(&list(Operation::PushLeft(names(&["b", "a"])))), Value::Integer(2));
        assert_eq!(run(&list(Operation::PushRight(names(&["c", "d"])))), Value::Integer(4));
        assert_eq!(run(&list(Operation::Trim(1, 2))), ok());
        let elements = names(&["b", "c"]).into_iter().map(Value::Bulk).collect();
        assert_eq!(run(&list(Operation::Elements)), Value::Array(elements));
        assert_eq!(run(&list(Operation::PopMember)), wrong_type());
        let scores = Operation::Score(vec![(2, b"a".to_vec()), (1, b"b".to_vec()), (1, b"a".to_vec())]);
        assert_eq!(run(&on("z", scores)), Value::Integer(2));
        let lowest = names(&["a", "1"]).into_iter().map(Value::Bulk).collect();
        assert_eq!(run(&on("z", Operation::PopLowest)), Value::Array(lowest));
    }

    #[test]
    fn fields_that_have_expired_stay_until_something_removes_them() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let mut run = |model: &mut Model, operation, now_ms| {
            model.execute(&mut session, &on("h", operation), now_ms, &Value::Null)
        };
        let pairs = ["a", "b"].map(|name| (name.into(), b"v".to_vec())).to_vec();
        run(&mut model, Operation::SetFields(pairs.clone()), 0);
        run(&mut model, Operation::ExpireFields(5, names(&["a", "b"])), 0);
        let get = run(&mut model, Operation::Field(b"a".to_vec()), 5);
        assert_eq!((get.reply, get.wrote), (Value::Null, false));
        let removed = run(&mut model, Operation::RemoveFields(names(&["a"])), 5);
        assert_eq!((removed.reply, removed.wrote), (Value::Integer(0), true));
        assert_eq!(model.content().len(), 1);
        model.expire(5, slot_of(b"h"));
        assert_eq!((model.content().len(), model.position()), (0, 4));
    }
}
