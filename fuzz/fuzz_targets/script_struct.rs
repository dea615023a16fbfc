//! An arbitrary format and arbitrary bytes to `struct.unpack`: no panic, and the values can be packed again
//! or are refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (format, bytes) = input.split_at(end);
    decoders::structs(format, bytes.strip_prefix(b"\n").unwrap_or(bytes));
});
