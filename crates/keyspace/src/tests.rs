//! Tests of the whole keyspace, beside those of its parts.

mod eviction;
mod expiry;
mod model;
mod scan;
mod threads;

use crate::{AccessClock, DbId, Effect, Freed, Keyspace, Options, Value};

/// A keyspace whose positions only have these bits.
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

/// Applies an effect as a command does: with only the slots locked that it needs.
fn apply(keyspace: &Keyspace, effect: &Effect<'_>, now_ms: u64) {
    let mut freed = Freed::new();
    match effect.key() {
        Some(key) => keyspace.lock(keyspace.hash(key).slot()).apply(effect, clock(now_ms), &mut freed),
        None => keyspace.lock_all().apply(effect, clock(now_ms), &mut freed),
    };
}

fn put(keyspace: &Keyspace, db: DbId, key: &[u8], value: &[u8], expire_at_ms: Option<u64>) {
    apply(keyspace, &Effect::Put { db, key, value: Value::String(value), expire_at_ms }, 0);
}

fn delete(keyspace: &Keyspace, db: DbId, key: &[u8]) {
    apply(keyspace, &Effect::Delete { db, key }, 0);
}

fn get(keyspace: &Keyspace, db: DbId, key: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    let hash = keyspace.hash(key);
    let guard = keyspace.lock(hash.slot());
    guard.get(db, &hash, key, now_ms).and_then(|entry| entry.string()).map(<[u8]>::to_vec)
}
