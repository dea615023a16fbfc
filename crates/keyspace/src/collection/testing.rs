//! Helpers of the tests of collections.

use proptest::prelude::*;

use super::chunk::End;

/// Texts that look like an `i64`, but are not its canonical form.
const LOOKALIKES: &[&str] =
    &["", "-", "-0", "+1", "007", "1.0", "9223372036854775808", "-9223372036854775809"];

/// Elements of up to `len_max` bytes: integers of all sizes, texts that look like integers, and other
/// strings.
pub(crate) fn element(len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (any::<i64>(), 0u32..64).prop_map(|(value, shift)| (value >> shift).to_string().into_bytes()),
        1 => prop::sample::select(LOOKALIKES).prop_map(|text| text.as_bytes().to_vec()),
        3 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0..=len_max, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
    ]
}

/// Elements that are often equal.
pub(crate) fn twin() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(&["a", "7", "07"][..]).prop_map(|text| text.as_bytes().to_vec())
}

/// Either end of a list.
pub(crate) fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}
