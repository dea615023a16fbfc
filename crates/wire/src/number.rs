//! Strict decimal numbers, as Redis accepts them in requests and stored strings.
//!
//! An integer has exactly one accepted spelling: no sign except a leading `-`, no leading zero, no `-0`, no
//! space. So the text of an integer can be stored as a number and restored byte for byte. Floating-point
//! numbers have many spellings; they are accepted as by `strtod`, except for spaces, `nan`, hexadecimal
//! digits and numbers out of range.
//!
//! No function of this module allocates memory. The parsers return `None` for text that is not such a number.

/// The maximum bytes of a text that [`parse_f64`] accepts.
pub const FLOAT_TEXT_BYTES_MAX: usize = 5 * 1024;

/// The number of digits of the largest `u64` (18446744073709551615).
const U64_DIGITS_MAX: usize = 20;

/// Every number of at most this many digits fits into a `u64` and an `i64`.
const SAFE_DIGITS: usize = 18;

/// Parses a canonical signed integer: `0`, or an optional `-` and digits of which the first is not `0`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => match parse_u64(digits)? {
            0 => None,
            magnitude => 0i64.checked_sub_unsigned(magnitude),
        },
        digits => i64::try_from(parse_u64(digits)?).ok(),
    }
}

/// Parses a canonical unsigned integer: `0`, or digits of which the first is not `0`.
#[inline]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    match digits {
        [digit @ b'0'..=b'9'] => Some(u64::from(digit - b'0')),
        [b'1'..=b'9', ..] if digits.len() <= SAFE_DIGITS => {
            digits.iter().try_fold(0, |value, &byte| Some(value * 10 + digit_value(byte)?))
        }
        [b'1'..=b'9', ..] if digits.len() <= U64_DIGITS_MAX => digits
            .iter()
            .try_fold(0u64, |value, &byte| value.checked_mul(10)?.checked_add(digit_value(byte)?)),
        _ => None,
    }
}

#[inline]
fn digit_value(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

/// Whether `text` is the canonical spelling of an `i64`, so that storing the number instead of the bytes
/// loses nothing.
#[inline]
pub fn is_canonical_i64(text: &[u8]) -> bool {
    parse_i64(text).is_some()
}

/// Parses a text that is a floating-point number. `inf` and `infinity` are accepted in upper and lower case,
/// `nan` is not.
///
/// Numbers too large for an `f64`, and nonzero numbers that round to zero, are refused like text that is not
/// a number.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if text.len() > FLOAT_TEXT_BYTES_MAX {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let overflowed = value.is_infinite() && text.iter().any(u8::is_ascii_digit);
    let underflowed = value == 0.0 && mantissa(text).iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (!value.is_nan() && !overflowed && !underflowed).then_some(value)
}

/// The part of a number before its exponent.
fn mantissa(text: &[u8]) -> &[u8] {
    text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers_have_one_spelling() {
        let refused: [&[u8]; 14] = [
            b"", b"-", b"+1", b"01", b"00", b"-0", b"-01", b" 1", b"1 ", b"1.0", b"0x1", b"1e3", b"--1",
            b"1\0",
        ];
        for text in refused {
            assert_eq!(parse_i64(text), None, "{text:?}");
            assert!(!is_canonical_i64(text), "{text:?}");
        }
        for (text, value) in [("0", 0), ("9", 9), ("-1", -1), ("10", 10)] {
            assert_eq!(parse_i64(text.as_bytes()), Some(value));
        }
    }

    #[test]
    fn the_ends_of_the_ranges_fit_and_nothing_beyond_does() {
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"99999999999999999999"), None);
        assert_eq!(parse_u64(b"100000000000000000000"), None);
    }

    #[test]
    fn floats_are_read_as_strtod_does_without_its_laxness() {
        let accepted = [
            ("3.0e3", 3000.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-0", 0.0),
            ("0e999", 0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e308", 1e308),
            ("5e-324", 5e-324),
        ];
        for (text, value) in accepted {
            assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "", " 1", "1 ", "1\n", "nan", "NaN", "1e309", "-1e309", "1e-400", "0x10", ".", "e5", "1,5",
            "1__0",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_f64(b"\xff"), None);
        assert_eq!(parse_f64(&[b'1'; FLOAT_TEXT_BYTES_MAX + 1]), None);
    }

    proptest! {
        #[test]
        fn every_integer_reads_back(value: i64, unsigned: u64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(parse_u64(unsigned.to_string().as_bytes()), Some(unsigned));
        }

        #[test]
        fn only_the_canonical_text_of_a_number_is_accepted(text in "-?[0-9]{0,21}") {
            let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), expected);
        }

        #[test]
        fn every_finite_float_reads_back(value in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL) {
            prop_assert_eq!(parse_f64(format!("{value:e}").as_bytes()), Some(value));
        }
    }
}
