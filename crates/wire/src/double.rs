//! Floating-point numbers in the format of Redis 8: the fewest digits that parse to the same number.
//!
//! Integers up to 2^62 have all of their digits; numbers of moderate size have no exponent; the special
//! values are `inf`, `-inf`, `nan`.

/// Appends `value` in the format of replies, such as scores.
pub fn format_double(value: f64, out: &mut Vec<u8>) {
    if let Some(special) = special_name(value) {
        return out.extend_from_slice(special);
    }
    if let Some(integer) = exact_integer(value) {
        return out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    }
    let decimal = Shortest::of(value.abs());
    if value < 0.0 {
        out.push(b'-');
    }
    if decimal.is_everyday() {
        decimal.write_plain(out);
    } else {
        decimal.write_scientific(out);
    }
}

/// Appends `value` without an exponent, with at most [`FRACTION_DIGITS_MAX`] digits after the point: the form
/// that INCRBYFLOAT stores if its operands cannot be added exactly (see [`crate::decimal`]).
pub fn format_plain(value: f64, out: &mut Vec<u8>) {
    if let Some(special) = special_name(value) {
        return out.extend_from_slice(special);
    }
    let mut decimal = Shortest::of(value.abs());
    decimal.round_fraction(FRACTION_DIGITS_MAX);
    if decimal.count == 0 {
        return out.push(b'0');
    }
    if value < 0.0 {
        out.push(b'-');
    }
    decimal.write_plain(out);
}

/// The maximum number of digits after the point in [`format_plain`] and in the sums of [`crate::decimal`].
pub const FRACTION_DIGITS_MAX: usize = 17;

/// 2^62: the largest integer that is written with all of its digits, as Redis 8 does. Above it the fewest
/// digits are written.
const INTEGER_MAX: f64 = (1_u64 << 62) as f64;

fn special_name(value: f64) -> Option<&'static [u8]> {
    match value {
        _ if value.is_nan() => Some(b"nan"),
        f64::INFINITY => Some(b"inf"),
        f64::NEG_INFINITY => Some(b"-inf"),
        _ if value == 0.0 => Some(if value.is_sign_negative() { b"-0" } else { b"0" }),
        _ => None,
    }
}

fn exact_integer(value: f64) -> Option<i64> {
    (value.abs() <= INTEGER_MAX && value.trunc() == value).then_some(value as i64)
}

/// The shortest decimal of a positive number, `0.<digits> * 10^point`. The digits have no zeros at either
/// end.
struct Shortest {
    digits: [u8; Shortest::DIGITS_MAX],
    count: usize,
    point: i32,
}

impl Shortest {
    /// The maximum number of digits of a shortest decimal, for any `f64`.
    const DIGITS_MAX: usize = 17;

    /// The shortest decimal of a positive finite number.
    fn of(value: f64) -> Self {
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let exponent: i32 = exponent.parse().expect("ryu writes exponents as integers");
        let mut shortest =
            Self { digits: [0; Self::DIGITS_MAX], count: 0, point: whole.len() as i32 + exponent };
        for digit in whole.bytes().chain(fraction.bytes()) {
            shortest.append(digit);
        }
        shortest.trim_end();
        shortest
    }

    /// Appends a digit; leading zeros only move the point.
    fn append(&mut self, digit: u8) {
        if self.count == 0 && digit == b'0' {
            self.point -= 1;
        } else if let Some(place) = self.digits.get_mut(self.count) {
            *place = digit;
            self.count += 1;
        }
    }

    fn trim_end(&mut self) {
        while self.count > 0 && self.digits[self.count - 1] == b'0' {
            self.count -= 1;
        }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    /// Rounds half up to `places` digits after the point. No digits remain if the number rounds to zero.
    fn round_fraction(&mut self, places: usize) {
        let kept = self.point + places as i32;
        if kept >= self.count as i32 {
            return;
        }
        let kept_count = usize::try_from(kept).unwrap_or(0);
        let round_up = kept >= 0 && self.digits[kept_count] >= b'5';
        self.count = kept_count;
        if round_up {
            self.increment_last();
        }
        self.trim_end();
    }

    /// Adds one to the last kept digit; nines are dropped with a carry.
    fn increment_last(&mut self) {
        while self.count > 0 && self.digits[self.count - 1] == b'9' {
            self.count -= 1;
        }
        if self.count > 0 {
            self.digits[self.count - 1] += 1;
        } else {
            self.digits[0] = b'1';
            self.count = 1;
            self.point += 1;
        }
    }

    /// Whether Redis writes the number without an exponent. Redis does so for integers with up to 7 zeros at
    /// their end, for numbers with up to 6 digits after the point, and for all numbers from 0.001 to below
    /// 10,000.
    fn is_everyday(&self) -> bool {
        let lowest = self.point - self.count as i32;
        let magnitude = (self.point - 1).abs();
        if lowest >= 0 { magnitude < self.count as i32 + 7 } else { lowest > -7 || magnitude < 4 }
    }

    fn write_plain(&self, out: &mut Vec<u8>) {
        let digits = self.digits();
        if self.point <= 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', self.point.unsigned_abs() as usize));
            return out.extend_from_slice(digits);
        }
        let whole_digits = self.point as usize;
        if whole_digits >= digits.len() {
            out.extend_from_slice(digits);
            return out.extend(std::iter::repeat_n(b'0', whole_digits - digits.len()));
        }
        out.extend_from_slice(&digits[..whole_digits]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole_digits..]);
    }

    fn write_scientific(&self, out: &mut Vec<u8>) {
        let (first, rest) = self.digits().split_at(1);
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let exponent = self.point - 1;
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        out.extend_from_slice(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        format_double(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn plain(value: f64) -> String {
        let mut out = Vec::new();
        format_plain(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_read_as_in_redis() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (3.5, "3.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-5, "0.00001"),
            (1e-7, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (-1.5e300, "-1.5e+300"),
            (4503599627370496.0, "4503599627370496"),
            (9007199254740993.0, "9007199254740992"),
            (-1e16, "-10000000000000000"),
            (1541815603606036480.0, "1541815603606036480"),
            (4611686018427387904.0, "4611686018427387904"),
            (4611686018427388928.0, "4611686018427389000"),
            (1e19, "1e+19"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (1234567.891, "1234567.891"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(double(value), text);
        }
    }

    #[test]
    fn plain_numbers_have_no_exponent() {
        let cases = [
            (10.6, "10.6"),
            (5000.0, "5000"),
            (1e22, "10000000000000000000000"),
            (1e-17, "0.00000000000000001"),
            (4e-18, "0"),
            (-4e-18, "0"),
            (6e-18, "0.00000000000000001"),
            (0.12345678901234568, "0.12345678901234568"),
            (0.012345678901234568, "0.01234567890123457"),
            (0.09999999999999999, "0.09999999999999999"),
            (-1.25, "-1.25"),
        ];
        for (value, text) in cases {
            assert_eq!(plain(value), text);
        }
    }

    proptest! {
        #[test]
        fn doubles_read_back(value in proptest::num::f64::ANY.prop_filter("a number", |v| !v.is_nan())) {
            prop_assert_eq!(double(value).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn plain_numbers_read_back_to_seventeen_places(value in -1e12f64..1e12) {
            let read: f64 = plain(value).parse().unwrap();
            prop_assert!((read - value).abs() <= 5e-18);
        }
    }
}
