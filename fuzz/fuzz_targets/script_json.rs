//! Arbitrary bytes to `cjson.decode`: no panic, memory in proportion to their length, and an encoded result
//! decodes again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|bytes: &[u8]| decoders::json(bytes));
