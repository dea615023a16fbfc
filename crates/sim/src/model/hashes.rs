//! The effects of commands on hashes in the model.
//!
//! A command that writes or removes fields, or sets their deadline, first removes the expired ones among
//! these fields. If the hash then has no field left, its key is removed, together with the key's deadline.
//! HPERSIST and HGETALL treat expired fields as missing, but do not remove them; HLEN counts expired fields.

use std::{collections::BTreeMap, rc::Rc};

use wire::Value;

use super::{
    Key, Model,
    collections::{bulks, collection, count},
    stored::{Field, Stored},
};
use crate::HashOperation;

type Fields = BTreeMap<Vec<u8>, Field>;

impl Model {
    /// Runs an operation. `given` is the server's reply, which gives the order of fields.
    pub(super) fn operate_hash(
        &mut self,
        key: Key,
        operation: &HashOperation,
        now_ms: u64,
        given: &Value,
    ) -> Value {
        let mut hash = collection!(self.live(&key, now_ms), Hash);
        let fields: &mut Fields = Rc::make_mut(&mut hash);
        let live = |fields: &Fields, name| fields.get(name).filter(|field| field.is_live(now_ms)).cloned();
        let reply = match operation {
            HashOperation::Put(pairs) => {
                self.remove_expired_fields(&key, fields, pairs.iter().map(|(name, _)| name), now_ms);
                let field = |value: &Vec<u8>| Field { value: value.clone(), expire_at_ms: None };
                let is_new =
                    |(name, value): &&(Vec<u8>, Vec<u8>)| fields.insert(name.clone(), field(value)).is_none();
                count(pairs.iter().filter(is_new).count())
            }
            HashOperation::Increment(name, increment) => {
                let old = live(fields, name);
                let number = old.as_ref().map_or(Some(0), |field| parse(&field.value));
                let Some(number) = number else {
                    return Value::Error(b"ERR hash value is not an integer".to_vec());
                };
                self.remove_expired_fields(&key, fields, [name], now_ms);
                let (sum, expire_at_ms) = (number + increment, old.and_then(|field| field.expire_at_ms));
                fields.insert(name.clone(), Field { value: sum.to_string().into_bytes(), expire_at_ms });
                Value::Integer(sum)
            }
            HashOperation::Remove(names) => {
                self.remove_expired_fields(&key, fields, names, now_ms);
                self.remove_if_expired(&key, now_ms);
                count(names.iter().filter(|name| fields.remove(*name).is_some()).count())
            }
            HashOperation::Expire(ms, names) => {
                self.remove_expired_fields(&key, fields, names, now_ms);
                let expire = |name: &Vec<u8>| match fields.get_mut(name) {
                    None => Value::Integer(-2),
                    Some(field) => {
                        field.expire_at_ms = Some(now_ms + ms);
                        Value::Integer(1)
                    }
                };
                Value::Array(names.iter().map(expire).collect())
            }
            HashOperation::Persist(names) => {
                let persist = |name: &Vec<u8>| match fields.get_mut(name).filter(|it| it.is_live(now_ms)) {
                    None => Value::Integer(-2),
                    Some(field) if field.expire_at_ms.is_none() => Value::Integer(-1),
                    Some(field) => {
                        field.expire_at_ms = None;
                        Value::Integer(1)
                    }
                };
                Value::Array(names.iter().map(persist).collect())
            }
            HashOperation::Len => count(fields.len()),
            HashOperation::Fields => {
                let mut shown = fields.clone();
                shown.retain(|_, field| field.is_live(now_ms));
                pairs(&shown, given)
            }
        };
        match operation {
            HashOperation::Put(_) | HashOperation::Increment(..) => {
                self.write_back(key, Stored::Hash(hash), now_ms);
            }
            _ => self.put_back(key, Stored::Hash(hash), now_ms),
        }
        reply
    }

    /// Removes the expired ones of the named fields.
    fn remove_expired_fields<'a>(
        &mut self,
        key: &Key,
        fields: &mut Fields,
        names: impl IntoIterator<Item = &'a Vec<u8>>,
        now_ms: u64,
    ) {
        let before = fields.len();
        for name in names {
            if fields.get(name).is_some_and(|field| !field.is_live(now_ms)) {
                fields.remove(name);
            }
        }
        if fields.len() < before {
            self.put_back(key.clone(), Stored::Hash(fields.clone().into()), now_ms);
        }
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// All fields and values; in the order of `given` if that has the same pairs.
fn pairs(fields: &Fields, given: &Value) -> Value {
    let plain = bulks(fields.iter().flat_map(|(name, field)| [name.clone(), field.value.clone()]));
    let sorted = |value: &Value| {
        let Value::Array(words) = value else { return None };
        let mut pairs: Vec<_> = words.chunks(2).map(|pair| format!("{pair:?}")).collect();
        pairs.sort();
        Some(pairs)
    };
    if sorted(given) == sorted(&plain) { given.clone() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Command, ModelSession, Operation,
        model::{Content, Executed},
    };

    fn names(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn run(model: &mut Model, operation: HashOperation, now_ms: u64) -> Executed {
        let command = Command::Collection(b"h".to_vec(), Operation::Hash(operation));
        model.execute(&mut ModelSession::default(), &command, now_ms, &Value::Null)
    }

    #[test]
    fn fields_hold_texts_and_numbers_and_expire_alone() {
        let mut model = Model::default();
        let integers = |numbers: &[i64]| Value::Array(numbers.iter().copied().map(Value::Integer).collect());
        let put = |name: &str, value: &str| HashOperation::Put(vec![(name.into(), value.into())]);
        let increment = |name: &str| HashOperation::Increment(name.into(), 3);
        let table = [
            (put("a", "4"), count(1), 0),
            (put("b", "text"), count(1), 0),
            (increment("a"), Value::Integer(7), 0),
            (increment("b"), Value::Error(b"ERR hash value is not an integer".to_vec()), 0),
            (HashOperation::Expire(5, names(&["a", "b", "c"])), integers(&[1, 1, -2]), 0),
            (increment("a"), Value::Integer(10), 0),
            (HashOperation::Persist(names(&["b", "b", "c"])), integers(&[1, -1, -2]), 0),
            (HashOperation::Fields, bulks(names(&["b", "text"])), 5),
            (HashOperation::Len, count(2), 5),
            (increment("a"), Value::Integer(3), 5),
            (HashOperation::Fields, bulks(names(&["a", "3", "b", "text"])), 50),
            (HashOperation::Remove(names(&["a", "b", "c"])), count(2), 50),
        ];
        for (operation, reply, now_ms) in table {
            assert_eq!(run(&mut model, operation.clone(), now_ms).reply, reply, "{operation:?}");
        }
        assert!(model.content().is_empty());
    }

    #[test]
    fn fields_that_have_expired_stay_until_something_removes_them() {
        let mut model = Model::default();
        let pairs = ["a", "b"].map(|name| (name.into(), b"v".to_vec())).to_vec();
        run(&mut model, HashOperation::Put(pairs), 0);
        run(&mut model, HashOperation::Expire(5, names(&["a", "b"])), 0);
        let shown = run(&mut model, HashOperation::Fields, 5);
        assert_eq!((shown.reply, shown.wrote), (bulks(vec![]), false));
        let removed = run(&mut model, HashOperation::Remove(names(&["a"])), 5);
        assert_eq!((removed.reply, removed.wrote), (Value::Integer(0), true));
        assert_eq!(model.content().len(), 1);
        model.expire(5, &Content::new());
        assert_eq!((model.content().len(), model.position()), (0, 4));
        assert_eq!(run(&mut model, HashOperation::Len, 5).shows, 4, "it shows that they were removed");
    }

    #[test]
    fn fields_are_shown_in_any_order() {
        let field = |value: &str| Field { value: value.into(), expire_at_ms: None };
        let fields: Fields = [(b"a".to_vec(), field("1")), (b"b".to_vec(), field("2"))].into();
        let given = bulks(names(&["b", "2", "a", "1"]));
        assert_eq!(pairs(&fields, &given), given);
        assert_ne!(pairs(&fields, &bulks(names(&["b", "1", "a", "2"]))), bulks(names(&["b", "1", "a", "2"])));
    }
}
