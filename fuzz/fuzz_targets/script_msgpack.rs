//! Arbitrary bytes to `cmsgpack.unpack`: no panic, and the unpacked values can be packed and unpacked again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use scripting::decoders;

fuzz_target!(|bytes: &[u8]| decoders::msgpack(bytes));
