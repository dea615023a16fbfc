//! The timeout of blocking commands.

use engine::CommandError;
use wire::number::parse_f64;

/// Parses a timeout in seconds into milliseconds, rounded up; `None` for 0, which waits for ever. Whole
/// numbers may be hexadecimal (`0x1F`), as in Redis.
pub(super) fn parse_timeout_ms(seconds: &[u8]) -> Result<Option<u64>, CommandError> {
    /// The largest timeout: with the current unix milliseconds added, it still fits in 63 bits.
    const MS_MAX: f64 = i64::MAX as f64 / 2.0;
    const OUT_OF_RANGE: CommandError = CommandError::Text("ERR timeout is out of range");
    let seconds = match parse_f64(seconds).or_else(|| parse_hexadecimal(seconds)) {
        Some(seconds) => seconds,
        None if is_beyond_doubles(seconds) => return Err(OUT_OF_RANGE),
        None => return Err(CommandError::Text("ERR timeout is not a float or out of range")),
    };
    let ms = (seconds * 1000.0).ceil();
    if ms > MS_MAX {
        return Err(OUT_OF_RANGE);
    }
    if ms < 0.0 {
        return Err(CommandError::Text("ERR timeout is negative"));
    }
    Ok((ms > 0.0).then_some(ms as u64))
}

fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let value = |digit: char| digit.to_digit(16).map(f64::from);
    (!digits.is_empty()).then_some(())?;
    digits.chars().try_fold(0.0, |number, digit| Some(number * 16.0 + value(digit)?))
}

/// Whether this is a positive number that is too large for a double.
fn is_beyond_doubles(text: &[u8]) -> bool {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number == Some(f64::INFINITY) && text.iter().any(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_fractions_and_zero_is_for_ever() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("0.1", Some(100)),
            ("0.0001", Some(1)),
            ("0", None),
            ("-0", None),
            ("1e3", Some(1_000_000)),
            ("0x1F", Some(31_000)),
        ] {
            assert_eq!(parse_timeout_ms(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_timeouts_are_refused() {
        for (text, expected) in [
            ("x", "ERR timeout is not a float or out of range"),
            ("", "ERR timeout is not a float or out of range"),
            ("1e400", "ERR timeout is out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
            ("-1", "ERR timeout is negative"),
            ("-inf", "ERR timeout is negative"),
            ("inf", "ERR timeout is out of range"),
            ("0x7FFFFFFFFFFFFF", "ERR timeout is out of range"),
            ("0x", "ERR timeout is not a float or out of range"),
            ("0x1.8", "ERR timeout is not a float or out of range"),
            ("9223372036854775807", "ERR timeout is out of range"),
        ] {
            assert_eq!(parse_timeout_ms(text.as_bytes()), Err(CommandError::Text(expected)), "{text}");
        }
    }
}
