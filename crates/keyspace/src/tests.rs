//! Tests of the whole keyspace, beside those of its parts.

mod collections;
mod eviction;
mod expiry;
mod model;
mod relocate;
mod scan;
mod threads;
mod wrong_type;

use crate::{
    AccessClock, DbId, Effect, Freed, GlobalOp, IndexBytes, KeyOp, Keyspace, Options, Scope, SlotId, Value,
    slot_of,
};

/// A keyspace in which positions of keys have only these bits.
fn narrow(hash_seed: u64, position_mask: u32) -> Keyspace {
    let mut keyspace = Keyspace::new(Options { hash_seed });
    keyspace.hasher.position_mask = position_mask;
    keyspace
}

fn keyspace() -> Keyspace {
    narrow(11, u32::MAX)
}

fn db(number: u8) -> DbId {
    DbId::new(number).expect("a test uses databases 0..16")
}

fn clock(now_ms: u64) -> AccessClock {
    AccessClock { now_ms, ..AccessClock::default() }
}

/// Applies an effect as a command does: locks only the slots that the effect touches.
fn apply(keyspace: &Keyspace, effect: &Effect<'_>, now_ms: u64) {
    let mut freed = Freed::new();
    let clock = clock(now_ms);
    match effect.scope() {
        Scope::Slot(key) => keyspace.lock(slot_of(key)).apply(effect, clock, &mut freed),
        Scope::Two(from, to) => keyspace.lock_many([from, to].map(slot_of)).apply(effect, clock, &mut freed),
        Scope::Global => keyspace.lock_all().apply(effect, clock, &mut freed),
    };
}

fn put(keyspace: &Keyspace, db: DbId, key: &[u8], value: &[u8], expire_at_ms: Option<u64>) {
    apply(keyspace, &KeyOp::Put { value: Value::String(value), expire_at_ms }.on(db, key), 0);
}

fn delete(keyspace: &Keyspace, db: DbId, key: &[u8]) {
    apply(keyspace, &KeyOp::Delete.on(db, key), 0);
}

fn get(keyspace: &Keyspace, db: DbId, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    let hash = keyspace.hash(key);
    let guard = keyspace.lock(hash.slot());
    guard.get(db, &hash, key, now_ms).and_then(|entry| entry.string()).map(<[u8]>::to_vec)
}

#[test]
fn index_bytes_are_all_bytes_beside_entries() {
    let keyspace = keyspace();
    assert_eq!(keyspace.index_bytes(), IndexBytes::default());
    for number in 0..500u32 {
        let expire_at_ms = (number % 3 == 0).then_some(5_000);
        put(&keyspace, db((number % 2) as u8), &number.to_be_bytes(), b"value", expire_at_ms);
    }
    let index = keyspace.index_bytes();
    let entries: usize = SlotId::all()
        .map(|slot| {
            let slot = keyspace.lock(slot);
            DbId::all().flat_map(|db| slot.entries(db)).map(|entry| entry.allocated_bytes()).sum::<usize>()
        })
        .sum();
    assert_eq!(index.tables.iter().sum::<u64>() + index.expiry + entries as u64, keyspace.bytes());
    assert!(index.tables[0] > 0 && index.tables[1] > 0 && index.tables[2] == 0 && index.expiry > 0);
}

#[test]
fn keys_count_when_their_slot_is_unlocked() {
    let (keyspace, mut freed) = (keyspace(), Freed::new());
    put(&keyspace, db(0), b"{a}kept", b"1", None);
    let effect = |key, expire_at_ms| KeyOp::Put { value: Value::String(b"1"), expire_at_ms }.on(db(0), key);
    let counts = || (keyspace.len(db(0)), keyspace.len(db(1)), keyspace.expiring_len(db(0)));
    let mut slots = keyspace.lock_all();
    slots.apply(&effect(b"{a}new", Some(9)), clock(0), &mut freed);
    slots.apply(&effect(b"{b}new", None), clock(0), &mut freed);
    assert_eq!((counts(), slots.uncounted_keys(db(0))), ((1, 0, 0), 2));
    slots.apply(&KeyOp::Delete.on(db(0), b"{b}new"), clock(0), &mut freed);
    slots.apply(&Effect::Global(GlobalOp::SwapDb { a: db(0), b: db(1) }), clock(0), &mut freed);
    assert_eq!((slots.uncounted_keys(db(0)), slots.uncounted_keys(db(1))), (-1, 2));
    slots.apply(&Effect::Global(GlobalOp::SwapDb { a: db(0), b: db(1) }), clock(0), &mut freed);
    assert_eq!((counts(), slots.uncounted_keys(db(0))), ((1, 0, 0), 1));
    drop(slots);
    assert_eq!(counts(), (2, 0, 1));
}
