//! Arbitrary bytes as a DUMP payload: no panic, and no more memory than the bytes justify.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = rdb::restore(bytes);
    // With a valid footer the decoders of values are reached.
    let payload = rdb::dump(bytes.to_vec());
    if let Ok(rdb::Value::String(string)) = rdb::restore(&payload) {
        assert!(string.len() <= bytes.len().saturating_mul(rdb::LZF_RATIO_MAX), "from {} bytes", bytes.len());
    }
});
