//! Any format and any bytes to `struct.unpack`: no panic, and what was read is packed again or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (format, bytes) = input.split_at(end);
    decoders::structs(format, bytes.strip_prefix(b"\n").unwrap_or(bytes));
});
