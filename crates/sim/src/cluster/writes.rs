//! The writes of clients of a cluster: a few keys, records with one or several effects, some large values.

use env::Prng;
use keyspace::{DbId, Effect, GlobalOp, KeyOp, Value};

/// The number of keys that writes choose from, besides [`NUMBER_KEY`].
pub(crate) const KEYS: u64 = 8;
/// The key that every write sets to its number.
pub(crate) const NUMBER_KEY: &[u8] = b"number";

pub(crate) fn key(index: u64) -> Vec<u8> {
    format!("key-{index}").into_bytes()
}

/// Calls `visit` with the effects of a write.
pub(crate) fn write(number: u64, prng: &mut Prng, mut visit: impl FnMut(&Effect<'_>)) {
    let db = DbId::ZERO;
    if prng.below(300) == 0 {
        visit(&Effect::Global(GlobalOp::FlushAll));
    }
    for _ in 0..prng.below(4) {
        let key = key(prng.below(KEYS));
        // Values of 20,000 bytes are split into several parts in the log.
        let bytes = [10, 10, 10, 300, 3_000, 3_000, 20_000][prng.below(7) as usize];
        let text = vec![prng.next_u64() as u8; bytes];
        visit(&match prng.below(10) {
            0 => KeyOp::Delete.on(db, &key),
            1..3 => KeyOp::Append { suffix: &text[..10] }.on(db, &key),
            _ => KeyOp::Put { value: Value::String(&text), expire_at_ms: None }.on(db, &key),
        });
    }
    let value = Value::String(&number.to_be_bytes());
    visit(&KeyOp::Put { value, expire_at_ms: None }.on(db, NUMBER_KEY));
}
