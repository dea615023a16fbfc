//! Numbers of bytes with the units of Redis: powers of 1024 (`kb`, `mb`, `gb`) and of 1000 (`k`, `m`, `g`).

/// Parses a number of bytes, with a unit or without. `None` for any other text, and above 2^64 - 1.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &lower[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_the_units_of_redis() {
        for (text, bytes) in
            [("0", 0), ("10", 10), ("1k", 1000), ("1KB", 1024), ("3mb", 3 << 20), ("1g", 1_000_000_000)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "kb", "-1", "1.5gb", "1tb", "99999999999gb"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
