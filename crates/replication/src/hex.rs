//! Ids and chain values in lower-case hexadecimal of fixed width.

/// Formats 16 bytes as 32 digits.
pub(crate) fn of_bytes(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// Parses 32 digits; `None` for anything else.
pub(crate) fn parse_bytes(text: &[u8]) -> Option<[u8; 16]> {
    Some(parse(text, 32)?.to_be_bytes())
}

/// Formats a number as 16 digits.
pub(crate) fn of_u64(number: u64) -> String {
    format!("{number:016x}")
}

/// Parses 16 digits; `None` for anything else.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    parse(text, 16)?.try_into().ok()
}

fn parse(text: &[u8], digits: usize) -> Option<u128> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.iter().all(is_digit) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8 * 15);
        assert_eq!(of_bytes(&bytes), "000f1e2d3c4b5a69788796a5b4c3d2e1");
        assert_eq!(parse_bytes(of_bytes(&bytes).as_bytes()), Some(bytes));
        assert_eq!(parse_u64(of_u64(u64::MAX - 1).as_bytes()), Some(u64::MAX - 1));
        for wrong in [
            "",
            "12",
            "00000001",
            "000000000000000G",
            "000000000000000A",
            "+000000000000001",
            "000000000000001 ",
        ] {
            assert_eq!(parse_u64(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
