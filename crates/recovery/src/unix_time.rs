//! Times in human-readable form: RFC 3339, or seconds since 1970.

use jiff::Timestamp;

/// Formats milliseconds since 1970 as RFC 3339.
pub fn shown(unix_ms: u64) -> String {
    let timestamp = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    timestamp.map_or_else(|| format!("{unix_ms} ms after 1970"), |timestamp| format!("{timestamp:.3}"))
}

/// Parses a time, as milliseconds since 1970: RFC 3339 with an offset, or seconds since 1970 with or without
/// a fraction.
///
/// # Errors
/// An error text if it is neither, has no time zone, or lies before 1970 or too far ahead.
pub fn parse(text: &str) -> Result<u64, String> {
    let refused = || {
        format!(
            "'{text}' is not a time: write 2026-01-31T18:30:00Z, 2026-01-31T19:30:00.5+01:00 or seconds since 1970"
        )
    };
    let unix_ms = match text.parse::<f64>() {
        Ok(seconds) => (seconds.is_finite() && seconds < 1e11).then_some((seconds * 1000.0).round() as i64),
        Err(_) => text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond),
    };
    unix_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms_and_shown_in_one() {
        for (text, unix_ms) in [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14t23:13:20.123+01:00", 1_700_000_000_123),
            ("2023-11-14 22:13:20Z", 1_700_000_000_000),
            ("1700000000", 1_700_000_000_000),
            ("1700000000.123", 1_700_000_000_123),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(unix_ms), "{text}");
        }
        assert_eq!(shown(1_700_000_000_120), "2023-11-14T22:13:20.120Z");
        assert_eq!(parse(&shown(1_700_000_000_123)), Ok(1_700_000_000_123));
        assert_eq!(shown(u64::MAX), "18446744073709551615 ms after 1970");
    }

    #[test]
    fn invalid_and_ambiguous_times_are_refused() {
        for text in ["", "yesterday", "2023-11-14", "2023-11-14T22:13:20", "-1", "inf", "NaN", "1e300"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
