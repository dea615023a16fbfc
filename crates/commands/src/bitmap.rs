//! Bitmaps: strings as arrays of bits and of small integers.
//!
//! The commands work on single bits, ranges of bits and bit fields of strings. Bit 0 is the highest bit of
//! the first byte; bits beyond the end of a string are 0. Bitmaps are no type of their own: every string is a
//! bitmap.
//!
//! Arguments are checked before the key is looked up, as in Redis 7.2; Redis 7.0 ignores the range of
//! BITCOUNT and BITPOS if the key is absent.
//!
//! A SET of BITFIELD that saturates a signed field stores the smallest number if the wanted one is too small.
//! In Redis, numbers below about -2^63 + 2^(bits - 1) overflow internally, and the largest number is stored.
//!
//! Invariants
//! - The log gets the bytes that change, except for BITOP, whose result is logged whole.
//! - No string grows beyond `bulk_bytes_max`. Redis lets BITFIELD exceed it by up to 8 bytes.

mod bit;
mod bits;
mod field;
mod integer;
mod operation;
mod range;
mod rows;

use engine::CommandError;
pub(crate) use rows::ROWS;
use wire::number::parse_i64;

const OFFSET: CommandError = CommandError::Text("ERR bit offset is not an integer or out of range");

/// Parses the offset of a bit or a field, given in units of `scale` bits; returns it in bits. It must lie
/// within the longest possible string, `bulk_bytes_max`.
fn bit_offset(text: &[u8], scale: u32, bulk_bytes_max: usize) -> Result<u64, CommandError> {
    let number = parse_i64(text).ok_or(OFFSET)?;
    let offset = u64::try_from(number).ok().and_then(|number| number.checked_mul(scale.into()));
    offset.filter(|offset| offset / 8 < bulk_bytes_max as u64).ok_or(OFFSET)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn other_types_are_refused() {
        const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(&[
            ("HSET h f v", ":1"),
            ("SETBIT h 0 1", WRONG_TYPE),
            ("SETBIT h 0 2", "-ERR bit is not an integer or out of range"),
            ("GETBIT h 0", WRONG_TYPE),
            ("BITCOUNT h", WRONG_TYPE),
            ("BITCOUNT h 1 0", WRONG_TYPE),
            ("BITPOS h 1", WRONG_TYPE),
            ("BITOP OR r none h", WRONG_TYPE),
            ("BITFIELD h", WRONG_TYPE),
            ("BITFIELD h GET u8 0", WRONG_TYPE),
            ("BITFIELD h SET u8 0 1", WRONG_TYPE),
            ("BITFIELD_RO h GET u8 0", WRONG_TYPE),
            ("SET s x", "+OK"),
            ("BITOP NOT h s", ":1"),
            ("GET h", r#""\x87""#),
        ]);
    }
}
