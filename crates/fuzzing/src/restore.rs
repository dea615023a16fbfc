//! Arbitrary bytes as a DUMP payload: no panic, and no string longer than the bytes justify.
//!
//! The seeds that begin with `redis-` in the corpus are payloads of Redis 7.0.15, whose compact encodings are
//! read and not written here.

use rdb::Writer;

use crate::{Outcome, Seed, rdb_values};

/// Restores the payload, and the bytes as a payload with a valid footer. A restored payload counts as
/// accepted.
///
/// # Panics
/// If a string is longer than the bytes justify.
pub fn restore(bytes: &[u8]) -> Outcome {
    let whole = rdb::restore(bytes);
    // With a valid footer the decoders of values are reached.
    let payload = rdb::dump(bytes.to_vec());
    let value = rdb::restore(&payload);
    if let Ok(rdb::Value::String(string)) = &value {
        assert!(string.len() <= bytes.len().saturating_mul(rdb::LZF_RATIO_MAX), "from {} bytes", bytes.len());
    }
    Outcome::accepted_if(whole.is_ok() || value.is_ok())
}

pub(crate) fn seeds() -> Vec<Seed> {
    let value = |name: &str| {
        let mut writer = Writer::new();
        rdb_values::write(name, &mut writer);
        writer.into_bytes()
    };
    let mut seeds: Vec<Seed> = rdb_values::NAMES.map(|name| (name, value(name))).into();
    seeds.extend([
        ("payload", rdb::dump(value("list"))),
        ("integer", b"\x00\xc1\x39\x30".to_vec()),
        // Ten bytes, nine of them by reference.
        ("compressed-string", b"\x00\xc3\x05\x0a\x00a\xe0\x00\x00".to_vec()),
        ("set-of-integers", b"\x0b\x0e\x02\0\0\0\x03\0\0\0\x01\0\x02\0\x03\0".to_vec()),
        ("refused-cut", value("hash")[..8].to_vec()),
        ("refused-huge-count", b"\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
    ]);
    seeds
}
