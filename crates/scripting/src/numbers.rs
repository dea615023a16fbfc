//! Numbers as text in the forms of C's `printf`, and numbers as integers by the conversion of C.

use std::io::Write;

use mlua::Value;

/// Appends a number as `%.<precision>g` prints it.
pub(crate) fn append_general(value: f64, precision: usize, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    let precision = precision.max(1);
    let scientific = format!("{value:.*e}", precision - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else { return };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent >= -4 && exponent < precision as i32 {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        out.extend_from_slice(without_zeros(&format!("{value:.decimals$}")).as_bytes());
        return;
    }
    out.extend_from_slice(without_zeros(digits).as_bytes());
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Appends a number as an argument of a command, as in Redis 7.2 and later: whole numbers up to 2^62 with all
/// their digits (-0 as `0`), others in their shortest form.
pub(crate) fn append_argument(value: f64, out: &mut Vec<u8>) {
    const WHOLE_MAX: f64 = (1_i64 << 62) as f64;
    if value.abs() <= WHOLE_MAX && value.trunc() == value {
        out.extend_from_slice(itoa::Buffer::new().format(value as i64).as_bytes());
    } else if value.is_nan() && value.is_sign_negative() {
        out.extend_from_slice(b"-nan");
    } else {
        wire::double::format_double(value, out);
    }
}

/// The value of a number; `None` for other types, strings included.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// A number as an integer reply: its fraction is cut off, and NaN and numbers outside of 64 bits become
/// `i64::MIN`.
pub(crate) fn to_integer(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) { value as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(value: f64, precision: usize) -> String {
        let mut out = Vec::new();
        append_general(value, precision, &mut out);
        String::from_utf8(out).expect("digits")
    }

    #[test]
    fn numbers_print_as_in_c() {
        let table: &[(f64, usize, &str)] = &[
            (1e-17, 17, "1.0000000000000001e-17"),
            (-0.0, 17, "-0"),
            (1e300, 17, "1.0000000000000001e+300"),
            (0.1, 17, "0.10000000000000001"),
            (1e17, 17, "1e+17"),
            (1e16, 17, "10000000000000000"),
            (3.0, 14, "3"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (99_999_999_999_999.9, 14, "1e+14"),
            (123.0, 2, "1.2e+02"),
            (f64::INFINITY, 17, "inf"),
            (f64::NEG_INFINITY, 17, "-inf"),
        ];
        for &(value, precision, expected) in table {
            assert_eq!(general(value, precision), expected);
        }
    }

    #[test]
    fn arguments_are_short() {
        let table: &[(f64, &str)] = &[
            (0.1, "0.1"),
            (-0.0, "0"),
            (-3.0, "-3"),
            (1e17, "100000000000000000"),
            (123_456_789_012_345_680.0, "123456789012345680"),
            (4_611_686_018_427_387_904.0, "4611686018427387904"),
            (-4_611_686_018_427_387_904.0, "-4611686018427387904"),
            (-4_611_686_018_427_388_928.0, "-4611686018427389000"),
            (9.2e18, "9.2e+18"),
            (9_223_372_036_854_775_808.0, "9223372036854776000"),
            (12_345_678_901_234_567_000.0, "12345678901234567000"),
            (1e22, "1e+22"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (0.000_123_456_7, "1.234567e-4"),
            (5e-324, "5e-324"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "-nan"),
        ];
        for &(value, expected) in table {
            let mut out = Vec::new();
            append_argument(value, &mut out);
            assert_eq!(String::from_utf8(out).expect("digits"), expected);
        }
    }

    #[test]
    fn replies_cut_numbers() {
        let table =
            [(3.9, 3), (-3.9, -3), (1e20, i64::MIN), (-1e20, i64::MIN), (f64::NAN, i64::MIN), (0.0, 0)];
        for (value, expected) in table {
            assert_eq!(to_integer(value), expected);
        }
    }
}
