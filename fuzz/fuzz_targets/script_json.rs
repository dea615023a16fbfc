//! Any bytes to `cjson.decode`: no panic, no more memory than they are long, and what was encoded again decodes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|bytes: &[u8]| decoders::json(bytes));
