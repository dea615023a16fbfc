//! Cursors and options of SCAN, HSCAN, SSCAN and ZSCAN: parsing and filtering. The walks over the data are in
//! the modules of these commands.

use engine::CommandError;
use keyspace::ValueType;
use wire::{Args, glob, number::parse_i64};

/// The default of COUNT.
const COUNT_DEFAULT: usize = 10;

/// The collection that is scanned; some options belong to one kind only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanTarget {
    /// The keys of a database: TYPE is allowed.
    Keys,
    /// The fields of a hash: NOVALUES is allowed.
    Fields,
    /// The members of a set.
    Members,
    /// The members of a sorted set: NOSCORES is allowed.
    ScoredMembers,
}

/// Reads a cursor as loosely as Redis does since 7.2: white space, a sign and leading zeros may precede it. A
/// negative number in canonical form, such as `-5`, is refused; in other forms, such as `-05`, it wraps.
///
/// # Errors
/// The text has another form, or the number does not fit into 64 bits.
pub(super) fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    if parse_i64(text).is_some_and(|number| number < 0) {
        return Err(CommandError::InvalidCursor);
    }
    // Rust's white space has no vertical tab.
    let start = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let (negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(CommandError::InvalidCursor);
    }
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    let number = number.ok_or(CommandError::InvalidCursor)?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

#[derive(Debug)]
pub(super) struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
    /// The approximate number of keys or elements to visit.
    pub(super) count: usize,
    /// Whether the reply of HSCAN has only fields, without values.
    pub(super) no_values: bool,
    /// Whether the reply of ZSCAN has only members, without scores.
    pub(super) no_scores: bool,
}

impl<'a> ScanOptions<'a> {
    /// Parses the words after the cursor.
    ///
    /// # Errors
    /// An option is unknown, belongs to another command or lacks its value, or the count is invalid.
    pub(super) fn parse(words: Args<'a>, target: ScanTarget) -> Result<ScanOptions<'a>, CommandError> {
        let mut options = ScanOptions {
            pattern: None,
            type_name: None,
            count: COUNT_DEFAULT,
            no_values: false,
            no_scores: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"novalues") {
                if target != ScanTarget::Fields {
                    return Err(CommandError::Text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
                continue;
            }
            if word.eq_ignore_ascii_case(b"noscores") {
                if target != ScanTarget::ScoredMembers {
                    return Err(CommandError::Text("ERR NOSCORES option can only be used in ZSCAN"));
                }
                options.no_scores = true;
                continue;
            }
            let value = words.next().ok_or(CommandError::Syntax)?;
            if word.eq_ignore_ascii_case(b"count") {
                let count = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(CommandError::Syntax)?;
            } else if word.eq_ignore_ascii_case(b"match") {
                options.pattern = (value != b"*").then_some(value);
            } else if word.eq_ignore_ascii_case(b"type") && target == ScanTarget::Keys {
                options.type_name = Some(value);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether a key or an element with this name matches the pattern.
    #[inline]
    pub(super) fn accepts(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }

    /// Whether keys of this type match. A TYPE that does not exist matches nothing.
    pub(super) fn accepts_type(&self, value_type: ValueType) -> bool {
        self.type_name.is_none_or(|name| name.eq_ignore_ascii_case(value_type.name().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_redis_does() {
        let cursor = |text: &str| parse_cursor(text.as_bytes()).ok();
        for (text, expected) in [
            ("", None),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-1", None),
            ("-01", Some(u64::MAX)),
            ("-0", Some(0)),
            ("-9223372036854775808", None),
            ("-9223372036854775809", Some(9_223_372_036_854_775_807)),
            ("-18446744073709551616", None),
            (" 1", Some(1)),
            ("\x0b\t\r\n -1", Some(u64::MAX)),
            ("1 ", None),
            (" ", None),
            ("+ 1", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            ("+", None),
            ("--1", None),
            ("1x", None),
        ] {
            assert_eq!(cursor(text), expected, "{text:?}");
        }
    }
}
