//! Lists against a deque, in both forms and when they change from one form to the other.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::{
    AccessClock, Applied, DbId, Effect, Freed, Items, KeyOp, Keyspace, ListEnd, Options, PackedLimits,
    ValueBuf, View,
};

const KEY: &[u8] = b"list";

/// An operation on the list; indices and counts are taken modulo sensible bounds.
#[derive(Clone, Debug)]
enum Step {
    Push(ListEnd, Vec<Vec<u8>>),
    Pop(ListEnd, u8),
    Set(u8, Vec<u8>),
    Insert(u8, Vec<u8>),
    Remove(ListEnd, u8, Vec<u8>),
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0..4u8).prop_map(|number| vec![b'0' + number]),
        prop::collection::vec(any::<u8>(), 0..12),
        (100..400usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn end() -> impl Strategy<Value = ListEnd> {
    prop_oneof![Just(ListEnd::Head), Just(ListEnd::Tail)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (end(), prop::collection::vec(element(), 1..4)).prop_map(|(end, items)| Step::Push(end, items)),
        2 => (end(), 0..4u8).prop_map(|(end, count)| Step::Pop(end, count)),
        1 => (any::<u8>(), element()).prop_map(|(index, item)| Step::Set(index, item)),
        1 => (any::<u8>(), element()).prop_map(|(index, item)| Step::Insert(index, item)),
        1 => (end(), 0..3u8, element()).prop_map(|(end, count, item)| Step::Remove(end, count, item)),
    ]
}

struct World {
    keyspace: Keyspace,
    model: VecDeque<Vec<u8>>,
}

impl World {
    fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        let mut freed = Freed::new();
        let slot = self.keyspace.hash(KEY).slot();
        self.keyspace.lock(slot).apply(effect, AccessClock::default(), &mut freed)
    }

    fn step(&mut self, step: &Step) {
        let (db, key, len) = (DbId::ZERO, KEY, self.model.len());
        match step {
            Step::Push(end, items) => {
                let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
                let items_of = Items::Slices(&slices);
                let applied = self.apply(&KeyOp::ListPush { end: *end, items: items_of }.on(db, key));
                assert_eq!((applied.added, applied.key_created), (items.len() as u64, len == 0));
                for item in items.iter().cloned() {
                    match end {
                        ListEnd::Head => self.model.push_front(item),
                        ListEnd::Tail => self.model.push_back(item),
                    }
                }
            }
            Step::Pop(end, count) => {
                let count = usize::from(*count).min(len);
                let applied = self.apply(&KeyOp::ListPop { end: *end, count: count as u64 }.on(db, key));
                assert_eq!(applied.removed, count as u64);
                assert_eq!(applied.key_removed, len > 0 && count == len);
                match end {
                    ListEnd::Head => drop(self.model.drain(..count)),
                    ListEnd::Tail => self.model.truncate(len - count),
                }
            }
            Step::Set(index, item) => {
                let index = usize::from(*index) % (len + 1);
                let applied = self.apply(&KeyOp::ListSet { index: index as u64, item }.on(db, key));
                assert_eq!(applied.changed, index < len);
                if index < len {
                    self.model[index] = item.clone();
                }
            }
            Step::Insert(index, item) => {
                let index = usize::from(*index) % (len + 1);
                let applied = self.apply(&KeyOp::ListInsert { index: index as u64, item }.on(db, key));
                assert_eq!(applied.changed, len > 0, "an absent list has no place to insert at");
                if len > 0 {
                    self.model.insert(index, item.clone());
                }
            }
            Step::Remove(end, count, item) => {
                let limit = if *count == 0 { len } else { usize::from(*count) };
                let mut wanted: Vec<usize> = (0..len).filter(|index| self.model[*index] == *item).collect();
                if *end == ListEnd::Tail {
                    wanted.reverse();
                }
                wanted.truncate(limit);
                wanted.sort_unstable();
                let effect = KeyOp::ListRemove { end: *end, count: (*count).into(), item }.on(db, key);
                assert_eq!(self.apply(&effect).removed, wanted.len() as u64);
                wanted.iter().rev().for_each(|index| drop(self.model.remove(*index)));
            }
        }
    }

    fn check(&self) {
        let hash = self.keyspace.hash(KEY);
        let slot = self.keyspace.lock(hash.slot());
        slot.check();
        let Some(entry) = slot.get_raw(DbId::ZERO, &hash, KEY) else {
            return assert!(self.model.is_empty());
        };
        let View::List(list) = entry.view() else { panic!("a list") };
        let elements: Vec<Vec<u8>> = list.iter().map(|element| element.to_vec()).collect();
        assert_eq!(elements, self.model.iter().cloned().collect::<Vec<_>>());
        let backwards: Vec<Vec<u8>> = list.iter().rev().map(|element| element.to_vec()).collect();
        assert!(backwards.iter().eq(self.model.iter().rev()));
        for (index, expected) in self.model.iter().enumerate() {
            assert_eq!(list.get(index).as_deref(), Some(expected.as_slice()));
        }
        assert_eq!(list.get(self.model.len()), None);
        assert_eq!(ValueBuf::of(entry).as_value().value_type(), crate::ValueType::List);
    }
}

proptest! {
    #[test]
    fn lists_are_deques(steps in prop::collection::vec(step(), 1..60), list_entries in 2..40u32, list_bytes in 10..2000u32) {
        let keyspace = Keyspace::new(Options { hash_seed: 3 });
        keyspace.set_packed_limits(PackedLimits { list_entries, list_bytes, ..PackedLimits::DEFAULT });
        let mut world = World { keyspace, model: VecDeque::new() };
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.keyspace.check();
    }
}

#[test]
fn a_list_becomes_long_when_a_limit_is_passed() {
    let keyspace = Keyspace::new(Options { hash_seed: 3 });
    let mut world = World { keyspace, model: VecDeque::new() };
    let encoding = |world: &World| {
        let hash = world.keyspace.hash(KEY);
        let slot = world.keyspace.lock(hash.slot());
        match slot.get_raw(DbId::ZERO, &hash, KEY).map(|entry| entry.view()) {
            Some(View::List(list)) => list.encoding(),
            _ => panic!("a list"),
        }
    };
    world.step(&Step::Push(ListEnd::Tail, vec![vec![b'x'; 8000]]));
    assert_eq!(encoding(&world), "listpack");
    world.step(&Step::Push(ListEnd::Tail, vec![vec![b'x'; 200]]));
    assert_eq!(encoding(&world), "quicklist");
    world.check();
}
