//! Random histories of effects on strings and collections: a replay of their encoding gives the same data,
//! with other limits of packed forms and another hash seed.

use proptest::prelude::*;

use crate::{
    AccessClock, DbId, Effect, Freed, GlobalOp, Items, KeyOp, Keyspace, ListEnd, Options, PackedLimits,
    Scope, ScoredItems, SlotId, Value, ValueBuf, slot_of,
};

/// An effect on one of a few keys, or on all, with its own bytes.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    db: u8,
    key: u8,
    items: Vec<Vec<u8>>,
    number: u8,
    deadline_ms: Option<u64>,
}

fn item() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..30u8).prop_map(|number| number.to_string().into_bytes()),
        2 => prop::collection::vec(any::<u8>(), 0..6),
        1 => (30..200usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let items = prop::collection::vec(item(), 1..6);
    let deadline = prop::option::of(1..1000u64);
    (0..64u8, 0..2u8, 0..10u8, items, any::<u8>(), deadline).prop_map(
        |(kind, db, key, items, number, deadline_ms)| Step { kind, db, key, items, number, deadline_ms },
    )
}

/// Calls `visit` with the effect of a step. The number of a key determines the type of its value, so that
/// most effects do something.
fn with_effect(step: &Step, visit: impl FnOnce(&Effect<'_>)) {
    let db = DbId::new(step.db).expect("a database");
    let name = format!("key-{}", step.key);
    let key = name.as_bytes();
    let slices: Vec<&[u8]> = step.items.iter().map(Vec::as_slice).collect();
    let items = Items::Slices(&slices);
    let pairs: Vec<&[u8]> = slices.iter().flat_map(|item| [*item, name.as_bytes()]).collect();
    let pairs = Items::Slices(&pairs);
    let scored: Vec<(f64, &[u8])> = slices
        .iter()
        .enumerate()
        .map(|(index, item)| (f64::from(step.number) / 4.0 - index as f64, *item))
        .collect();
    let members = ScoredItems::Slices(&scored);
    let (number, expire_at_ms) = (u64::from(step.number), step.deadline_ms);
    let end = if step.number.is_multiple_of(2) { ListEnd::Head } else { ListEnd::Tail };
    let put = |value| KeyOp::Put { value, expire_at_ms }.on(db, key);
    // The other key of the same type.
    let to_key = format!("key-{}", (step.key + 5) % 10);
    let effect = match (step.kind, step.key % 5) {
        (60.., _) => Effect::Move { db, key, to_db: db, to_key: to_key.as_bytes() },
        (59, _) => Effect::Move { db, key, to_db: DbId::ZERO, to_key: key },
        (0, _) => KeyOp::Delete.on(db, key),
        (1, _) => KeyOp::SetExpiry { expire_at_ms }.on(db, key),
        (2, _) if step.number < 8 => Effect::Global(GlobalOp::FlushDb { db }),
        (2, _) if step.number < 10 => Effect::Global(GlobalOp::FlushAll),
        (2, _) => Effect::Global(GlobalOp::SwapDb { a: db, b: DbId::ZERO }),
        (3..8, 0) => put(Value::String(slices[0])),
        (8..24, 0) => KeyOp::Append { suffix: slices[0] }.on(db, key),
        (_, 0) => KeyOp::SetRange { offset: number, bytes: slices[0] }.on(db, key),
        (3, 1) => put(Value::List(items)),
        (4..16, 1) => KeyOp::ListPop { end, count: number % 5 }.on(db, key),
        (16..20, 1) => KeyOp::ListSet { index: number % 8, item: slices[0] }.on(db, key),
        (20..24, 1) => KeyOp::ListInsert { index: number % 8, item: slices[0] }.on(db, key),
        (24..28, 1) => KeyOp::ListRemove { end, count: number % 3, item: slices[0] }.on(db, key),
        (_, 1) => KeyOp::ListPush { end, items }.on(db, key),
        (3, 2) => put(Value::Set(items)),
        (4..20, 2) => KeyOp::SetRemove { members: items }.on(db, key),
        (_, 2) => KeyOp::SetAdd { members: items }.on(db, key),
        (3, 3) => put(Value::Zset(members)),
        (4..16, 3) => KeyOp::ZsetRemove { members: items }.on(db, key),
        (16..20, 3) => KeyOp::ZsetRemoveRanks { first: number % 8, count: number % 3 }.on(db, key),
        (_, 3) => KeyOp::ZsetPut { members }.on(db, key),
        (3, _) => put(Value::Hash(pairs)),
        (4..16, _) => KeyOp::HashRemove { fields: items }.on(db, key),
        (16..24, _) => KeyOp::HashUpdate { pairs }.on(db, key),
        (24..36, _) => KeyOp::HashSetExpiry { fields: items, expire_at_ms }.on(db, key),
        (_, _) => KeyOp::HashPut { pairs }.on(db, key),
    };
    visit(&effect);
}

fn apply(keyspace: &Keyspace, effect: &Effect<'_>) {
    let mut freed = Freed::new();
    match effect.scope() {
        Scope::Slot(key) => {
            keyspace.lock(slot_of(key)).apply(effect, AccessClock::default(), &mut freed);
        }
        Scope::Two(from, to) => {
            let mut slots = keyspace.lock_many([from, to].map(slot_of));
            slots.apply(effect, AccessClock::default(), &mut freed);
        }
        Scope::Global => SlotId::all().for_each(|slot| {
            keyspace.lock(slot).apply(effect, AccessClock::default(), &mut freed);
        }),
    }
}

/// Small limits, so that the histories meet both forms and the change from one to the other.
const TIGHT: PackedLimits = PackedLimits {
    list_entries: 4,
    list_bytes: 64,
    set_integers: 5,
    set_entries: 4,
    set_value_bytes: 24,
    zset_entries: 4,
    zset_value_bytes: 24,
    hash_entries: 4,
    hash_value_bytes: 24,
};

proptest! {
    #[test]
    fn a_replay_has_the_same_digest(steps in prop::collection::vec(step(), 1..120)) {
        let live = Keyspace::new(Options { hash_seed: 1 });
        live.set_packed_limits(TIGHT);
        let mut log = Vec::new();
        for step in &steps {
            with_effect(step, |effect| {
                apply(&live, effect);
                effect.encode_into(&mut log);
            });
        }
        live.check();
        let replayed = Keyspace::new(Options { hash_seed: 2 });
        let mut rest = log.as_slice();
        while let Some(effect) = Effect::decode_next(&mut rest).expect("what was encoded decodes") {
            apply(&replayed, &effect);
        }
        replayed.check();
        prop_assert_eq!(live.digest(), replayed.digest());
        prop_assert_eq!(live.len(DbId::ZERO), replayed.len(DbId::ZERO));
    }
}

#[test]
fn a_score_of_zero_is_the_same_with_either_sign() {
    let with_score = |score| {
        let keyspace = Keyspace::new(Options { hash_seed: 1 });
        let value = Value::Zset(ScoredItems::Slices(&[(score, b"a")]));
        apply(&keyspace, &KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, b"k"));
        let slot = keyspace.lock(slot_of(b"k"));
        let entry = slot.get_raw(DbId::ZERO, &keyspace.hash(b"k"), b"k").expect("it was put");
        let copy = ValueBuf::of(entry);
        drop(slot);
        (copy, keyspace.digest())
    };
    assert_eq!(with_score(0.0), with_score(-0.0));
    assert_ne!(with_score(0.0).0, with_score(1.0).0);
}

#[test]
fn every_difference_shows_in_the_digest() {
    let put = |key: &str, value| {
        let keyspace = Keyspace::new(Options { hash_seed: 1 });
        apply(&keyspace, &KeyOp::Put { value, expire_at_ms: None }.on(DbId::ZERO, key.as_bytes()));
        keyspace
    };
    let (ab, ba) = (Items::Slices(&[b"a", b"b"]), Items::Slices(&[b"b", b"a"]));
    let different = [
        put("k", Value::String(b"ab")),
        put("l", Value::String(b"ab")),
        put("k", Value::List(ab)),
        put("k", Value::List(ba)),
        put("k", Value::Set(ab)),
        put("k", Value::Hash(ab)),
        put("k", Value::Hash(ba)),
        put("k", Value::Zset(ScoredItems::Slices(&[(1.0, b"a")]))),
        put("k", Value::Zset(ScoredItems::Slices(&[(2.0, b"a")]))),
        Keyspace::new(Options { hash_seed: 1 }),
    ];
    for (index, keyspace) in different.iter().enumerate() {
        for other in &different[..index] {
            assert_ne!(keyspace.digest(), other.digest());
        }
    }
    assert_eq!(put("k", Value::Set(ab)).digest(), put("k", Value::Set(ba)).digest());
    let expiring = put("k", Value::Set(ab));
    apply(&expiring, &KeyOp::SetExpiry { expire_at_ms: Some(5) }.on(DbId::ZERO, b"k"));
    assert_ne!(expiring.digest(), put("k", Value::Set(ab)).digest());
}
