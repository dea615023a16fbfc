//! Ids and chain values in lower-case hexadecimal of fixed width: each value has one text.

/// Parses 32 digits; `None` for anything else.
pub(crate) fn parse_bytes(text: &[u8]) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

pub(crate) fn of_u64(number: u64) -> String {
    format!("{number:016x}")
}

/// Parses 16 digits; `None` for anything else.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    if text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8 * 15);
        assert_eq!(hex::encode(bytes), "000f1e2d3c4b5a69788796a5b4c3d2e1");
        assert_eq!(parse_bytes(hex::encode(bytes).as_bytes()), Some(bytes));
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
