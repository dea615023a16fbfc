//! The effects of commands on sets in the model.

use std::{collections::BTreeSet, rc::Rc};

use wire::Value;

use super::{
    Key, Model,
    collections::{bulks, collection, count},
    stored::Stored,
};
use crate::SetOperation;

impl Model {
    /// Runs an operation. `given` is the server's reply: the members chosen by SPOP, and the order of
    /// members.
    pub(super) fn operate_set(
        &mut self,
        key: Key,
        operation: &SetOperation,
        now_ms: u64,
        given: &Value,
    ) -> Value {
        match operation {
            SetOperation::Move(destination, member) => {
                let destination = (key.0, destination.clone());
                return self.move_member(key, destination, member, now_ms);
            }
            SetOperation::StoreUnion(sources) | SetOperation::StoreDifference(sources) => {
                let adds = matches!(operation, SetOperation::StoreUnion(_));
                return self.store_sets(key, sources, adds, now_ms);
            }
            _ => {}
        }
        let mut set = collection!(self.live(&key, now_ms), Set);
        let members = Rc::make_mut(&mut set);
        let reply = match operation {
            SetOperation::Add(added) => {
                count(added.iter().filter(|member| members.insert(member.to_vec())).count())
            }
            SetOperation::Remove(removed) => {
                self.remove_if_expired(&key, now_ms);
                count(removed.iter().filter(|member| members.remove(*member)).count())
            }
            SetOperation::Pop(wanted) => {
                let wanted = members.len().min(*wanted);
                let chosen = some_of(members, wanted, given);
                chosen.iter().for_each(|member| _ = members.remove(member));
                bulks(chosen)
            }
            SetOperation::Members => bulks(some_of(members, members.len(), given)),
            _ => unreachable!("answered above: {operation:?}"),
        };
        self.put_back(key, Stored::Set(set), now_ms);
        reply
    }

    fn move_member(&mut self, from: Key, to: Key, member: &[u8], now_ms: u64) -> Value {
        let mut source = collection!(self.live(&from, now_ms), Set);
        if source.is_empty() {
            return count(0);
        }
        let mut destination = collection!(self.live(&to, now_ms), Set);
        let is_member = source.contains(member);
        if is_member && from != to {
            Rc::make_mut(&mut source).remove(member);
            Rc::make_mut(&mut destination).insert(member.to_vec());
            self.put_back(from, Stored::Set(source), now_ms);
            self.put_back(to, Stored::Set(destination), now_ms);
        }
        count(is_member.into())
    }

    fn store_sets(&mut self, key: Key, sources: &[Vec<u8>], adds: bool, now_ms: u64) -> Value {
        let mut stored = BTreeSet::new();
        for (index, source) in sources.iter().enumerate() {
            let set: Rc<BTreeSet<Vec<u8>>> = collection!(self.live(&(key.0, source.clone()), now_ms), Set);
            if adds || index == 0 {
                stored.extend(set.iter().cloned());
            } else {
                stored.retain(|member| !set.contains(member));
            }
        }
        let reply = count(stored.len());
        self.store(key, Stored::Set(stored.into()), now_ms);
        reply
    }
}

/// Returns `wanted` members: those in `given`, in the same order, if they are valid; otherwise any members.
fn some_of(members: &BTreeSet<Vec<u8>>, wanted: usize, given: &Value) -> Vec<Vec<u8>> {
    let given = match given {
        Value::Array(given) => given.as_slice(),
        _ => &[],
    };
    let chosen = |value: &Value| match value {
        Value::Bulk(member) if members.contains(member) => Some(member.clone()),
        _ => None,
    };
    let chosen: Vec<_> = given.iter().filter_map(chosen).collect();
    let distinct: BTreeSet<_> = chosen.iter().collect();
    if chosen.len() == wanted && distinct.len() == wanted {
        chosen
    } else {
        members.iter().take(wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, ModelSession, Operation};

    fn words(text: &str) -> Vec<Vec<u8>> {
        text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_random_choice_of_the_server_is_taken_only_if_it_is_possible() {
        let members: BTreeSet<_> = words("a b c").into_iter().collect();
        let taken = |wanted, given: &str| some_of(&members, wanted, &bulks(words(given)));
        assert_eq!(taken(2, "c a"), words("c a"));
        for wrong in ["c", "c c", "c x", "c a b"] {
            assert_eq!(taken(2, wrong), words("a b"), "{wrong}");
        }
        assert_eq!(some_of(&members, 3, &Value::Null), words("a b c"));
    }

    #[test]
    fn sets_are_changed_and_combined() {
        let (mut model, mut session) = (Model::default(), ModelSession::default());
        let other = || b"other".to_vec();
        let table = [
            (SetOperation::Add(words("a b a c")), count(3), "a b c"),
            (SetOperation::Remove(words("x b")), count(1), "a c"),
            (SetOperation::Move(other(), b"a".to_vec()), count(1), "c"),
            (SetOperation::Move(other(), b"a".to_vec()), count(0), "c"),
            (SetOperation::StoreUnion(words("s other")), count(2), "a c"),
            (SetOperation::StoreDifference(words("s other")), count(1), "c"),
            (SetOperation::Pop(2), bulks(words("c")), ""),
            (SetOperation::Pop(2), bulks(vec![]), ""),
        ];
        for (operation, reply, left) in table {
            let mut run = |operation| {
                let command = Command::Collection(b"s".to_vec(), Operation::Set(operation));
                model.execute(&mut session, &command, 0, &Value::Null).reply
            };
            assert_eq!(run(operation.clone()), reply, "{operation:?}");
            assert_eq!(run(SetOperation::Members), bulks(words(left)), "{operation:?}");
        }
    }
}
