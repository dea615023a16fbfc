//! Any bytes to `cmsgpack.unpack`: no panic, and what came of them is packed and unpacked again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|bytes: &[u8]| decoders::msgpack(bytes));
