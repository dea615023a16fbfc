//! The `Range` header of a request (RFC 9110, section 14): one range of bytes.
//!
//! Several ranges in one request are not supported: they are ignored, as the RFC allows.

/// The requested part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// No range, or one that is not understood.
    Whole,
    /// The bytes from `from` to before `end`; at least one.
    Part {
        /// The offset of the first byte.
        from: u64,
        /// The offset after the last byte.
        end: u64,
    },
    /// The range contains no byte of the body.
    Unsatisfiable,
}

impl ByteRange {
    /// Parses the value of a `Range` header, for a body of `length` bytes.
    pub fn parse(header: Option<&str>, length: u64) -> ByteRange {
        header.and_then(|text| parse(text, length)).unwrap_or(ByteRange::Whole)
    }
}

fn parse(text: &str, length: u64) -> Option<ByteRange> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, end) = match (first, last) {
        ("", count) => (length.saturating_sub(count.parse().ok()?), length),
        (first, "") => (first.parse().ok()?, length),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (last >= first).then_some((first, last.saturating_add(1).min(length)))?
        }
    };
    Some(if from < length { ByteRange::Part { from, end } } else { ByteRange::Unsatisfiable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_body_and_unknown_forms_are_ignored() {
        let part = |from, end| ByteRange::Part { from, end };
        for (text, expected) in [
            ("bytes=0-", part(0, 100)),
            ("bytes=99-", part(99, 100)),
            ("bytes=10-19", part(10, 20)),
            ("bytes=10-1000", part(10, 100)),
            ("bytes=-5", part(95, 100)),
            ("bytes=-500", part(0, 100)),
            ("bytes=-0", ByteRange::Unsatisfiable),
            ("bytes=100-", ByteRange::Unsatisfiable),
            ("bytes=18446744073709551615-18446744073709551615", ByteRange::Unsatisfiable),
            ("bytes=20-10", ByteRange::Whole),
            ("bytes=-", ByteRange::Whole),
            ("bytes=x-5", ByteRange::Whole),
            ("bytes=0-1,5-6", ByteRange::Whole),
            ("lines=0-", ByteRange::Whole),
            ("", ByteRange::Whole),
        ] {
            assert_eq!(ByteRange::parse(Some(text), 100), expected, "{text}");
        }
        assert_eq!(ByteRange::parse(None, 100), ByteRange::Whole);
        assert_eq!(ByteRange::parse(Some("bytes=0-"), 0), ByteRange::Unsatisfiable);
    }
}
