//! Sums of decimal numbers given as text, for INCRBYFLOAT and HINCRBYFLOAT.
//!
//! Redis adds in 80-bit floating point and shows 17 digits after the point, so that 0.1 + 0.2 is 0.3 and not
//! 0.30000000000000004. Here, operands below 10^20 are added exactly, in units of 10^-17. The sums equal the
//! sums of Redis where 80 bits are enough, and are exact where they are not. Digits of an operand below
//! 10^-17 are rounded. If an operand is 10^20 or more, or has more than 37 significant digits or an exponent
//! beyond 10,000, both are added as `f64`.
//!
//! The result has no exponent, no zeros at the end of its fraction, and no `-0`.

use crate::double::{FRACTION_DIGITS_MAX, format_plain};
use crate::number::parse_f64;

/// Why two numbers cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// An operand is not a number; see [`parse_f64`].
    #[error("value is not a valid float")]
    NotAFloat,
    /// The sum is infinite, or infinities cancel each other out.
    #[error("increment would produce NaN or Infinity")]
    NotFinite,
}

/// Appends the sum of two numbers to `out`.
///
/// # Errors
/// [`AddError`]; then nothing is appended.
pub fn add(left: &[u8], right: &[u8], out: &mut Vec<u8>) -> Result<(), AddError> {
    let (left_float, right_float) = (parse_f64(left), parse_f64(right));
    let sum_float = left_float.ok_or(AddError::NotAFloat)? + right_float.ok_or(AddError::NotAFloat)?;
    if !sum_float.is_finite() {
        return Err(AddError::NotFinite);
    }
    match (parse_fixed(left), parse_fixed(right)) {
        (Some(left), Some(right)) => format_fixed(left + right, out),
        // Adding 0.0 turns -0.0 into 0.0, so that no sign is written, as in Redis.
        _ => format_plain(sum_float + 0.0, out),
    }
    Ok(())
}

/// The number 1, in units of 10^-17.
const ONE: i128 = 10i128.pow(FRACTION_DIGITS_MAX as u32);

/// The maximum number of digits of a fixed-point number: 20 before the point and 17 after it. The sum of two
/// such numbers fits in 127 bits.
const DIGITS_MAX: usize = 20 + FRACTION_DIGITS_MAX;

/// Reads a number, rounded to units of 10^-17. `None` if the number is 10^20 or more, infinite, or written
/// with more than [`DIGITS_MAX`] significant digits or an exponent beyond 10,000.
fn parse_fixed(text: &[u8]) -> Option<i128> {
    let (negative, magnitude) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mantissa_end = magnitude.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match mantissa_end {
        Some(end) => (&magnitude[..end], parse_exponent(&magnitude[end + 1..])?),
        None => (magnitude, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let fraction_digits = mantissa.len().saturating_sub(point + 1);
    let mut value = 0i128;
    let mut digits = 0;
    for byte in mantissa.iter().filter(|byte| **byte != b'.') {
        if !byte.is_ascii_digit() {
            return None;
        }
        digits += usize::from(value != 0 || *byte != b'0');
        if digits > DIGITS_MAX {
            return None;
        }
        value = value * 10 + i128::from(byte - b'0');
    }
    let shift = i32::try_from(FRACTION_DIGITS_MAX).ok()? + exponent - i32::try_from(fraction_digits).ok()?;
    let value = shift_decimal(value, digits, shift)?;
    Some(if negative { -value } else { value })
}

/// The exponent after `e`; `None` if it is malformed or its magnitude exceeds 10,000.
fn parse_exponent(text: &[u8]) -> Option<i32> {
    let exponent: i32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (exponent.unsigned_abs() <= 10_000).then_some(exponent)
}

/// `value * 10^shift`, rounded half up, where `value` has `digits` digits; `None` if the result has more than
/// `DIGITS_MAX` digits.
fn shift_decimal(value: i128, digits: usize, shift: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    let power = 10i128.checked_pow(shift.unsigned_abs());
    if shift < 0 {
        // If the power does not fit, no value reaches half of it.
        return Some(power.map_or(0, |power| (value + power / 2) / power));
    }
    let power = power?;
    (digits + shift as usize <= DIGITS_MAX).then(|| value * power)
}

fn format_fixed(value: i128, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    out.extend_from_slice(buffer.format(value.unsigned_abs() / ONE.unsigned_abs()).as_bytes());
    let fraction = value.unsigned_abs() % ONE.unsigned_abs();
    if fraction == 0 {
        return;
    }
    // An additional leading digit keeps the zeros after the point. The point then replaces that digit.
    let point = out.len();
    out.extend_from_slice(buffer.format(fraction + ONE.unsigned_abs()).as_bytes());
    out[point] = b'.';
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(left: &str, right: &str) -> Result<String, AddError> {
        let mut out = Vec::new();
        add(left.as_bytes(), right.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn sums_are_decimal() {
        let cases = [
            ("0.1", "0.2", "0.3"),
            ("1", "-1.1", "-0.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "1.1", "4.1"),
            ("17179869184", "1.5", "17179869185.5"),
            ("-0", "0", "0"),
            ("-0.5", "0.5", "0"),
            ("1e-17", "0", "0.00000000000000001"),
            ("-1e-17", "0", "-0.00000000000000001"),
            ("1e-18", "1", "1"),
            ("99999999999999999999.5", "0.5", "100000000000000000000"),
            ("-9223372036854775808", "1e-20", "-9223372036854775808"),
            ("9223372036854775807", "1e-300", "9223372036854775807"),
            ("0.123456789012345678", "0", "0.12345678901234568"),
            ("1e22", "1", "10000000000000000000000"),
            ("+.5", "5.", "5.5"),
            ("00.10", "1e0", "1.1"),
            ("0e-2147483648", "1", "1"),
        ];
        for (left, right, expected) in cases {
            assert_eq!(sum(left, right).as_deref(), Ok(expected), "{left} + {right}");
        }
    }

    #[test]
    fn invalid_sums_are_errors_and_write_nothing() {
        for (left, right, error) in [
            ("abc", "1", AddError::NotAFloat),
            ("1", " 1", AddError::NotAFloat),
            ("", "1", AddError::NotAFloat),
            ("nan", "1", AddError::NotAFloat),
            ("-1e400000", "1", AddError::NotAFloat),
            ("inf", "1", AddError::NotFinite),
            ("inf", "-inf", AddError::NotFinite),
            ("1.7e308", "1.7e308", AddError::NotFinite),
        ] {
            assert_eq!(sum(left, right), Err(error), "{left} + {right}");
        }
    }

    proptest! {
        #[test]
        fn fixed_point_sums_are_exact(left in -1_000_000_000_000i64..1_000_000_000_000, right in -1_000_000_000_000i64..1_000_000_000_000) {
            let text = |value: i64| format!("{}{}.{:06}", if value < 0 { "-" } else { "" }, value.abs() / 1_000_000, value.abs() % 1_000_000);
            let mut expected = Vec::new();
            format_fixed(i128::from(left + right) * (ONE / 1_000_000), &mut expected);
            prop_assert_eq!(sum(&text(left), &text(right)).unwrap().into_bytes(), expected);
        }

        #[test]
        fn a_sum_with_zero_is_the_same_number(value in proptest::num::f64::NORMAL.prop_filter("shown", |v| v.abs() > 1e-3)) {
            let shown = sum(&format!("{value:e}"), "0").unwrap();
            prop_assert!((shown.parse::<f64>().unwrap() - value).abs() <= value.abs() * 1e-13);
        }

        #[test]
        fn no_text_panics(left in "[-+0-9.eE]{0,50}", right in "[-+0-9.eE]{0,50}") {
            let _ = sum(&left, &right);
        }
    }
}
