//! Parsing of ids and ranges of ids.

use std::ops::RangeInclusive;

use engine::CommandError;
use keyspace::StreamId;

/// The maximum length of an id as text.
const TEXT_BYTES_MAX: usize = 127;

const INVALID: CommandError =
    CommandError::Text("ERR Invalid stream ID specified as stream command argument");

/// Parses `ms` or `ms-seq`. The parameter `seq` is the sequence number of an id without one.
pub(super) fn parse_id(text: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    let (ms, own) = split(text)?;
    let seq = own.map_or(Some(seq), parse_number).ok_or(INVALID)?;
    Ok(StreamId { ms: parse_number(ms).ok_or(INVALID)?, seq })
}

/// Parses an id, or `-` for the lowest and `+` for the highest id.
pub(super) fn parse_bound(text: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::ZERO),
        b"+" => Ok(StreamId::MAX),
        _ => parse_id(text, seq),
    }
}

/// Parses the start of a range; `(` excludes the id.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match exclusive(text) {
        Some(text) => {
            parse_id(text, 0)?.next().ok_or(CommandError::Text("ERR invalid start ID for the interval"))
        }
        None => parse_bound(text, 0),
    }
}

/// Parses the end of a range; `(` excludes the id.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match exclusive(text) {
        Some(text) => {
            let end = parse_id(text, u64::MAX)?.previous();
            end.ok_or(CommandError::Text("ERR invalid end ID for the interval"))
        }
        None => parse_bound(text, u64::MAX),
    }
}

pub(super) fn parse_range(start: &[u8], end: &[u8]) -> Result<RangeInclusive<StreamId>, CommandError> {
    Ok(parse_start(start)?..=parse_end(end)?)
}

fn exclusive(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"(").filter(|rest| !rest.is_empty())
}

/// The id argument of XADD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewId {
    /// `*`: an id of the current time, or the id after the last id if the clock is not ahead of the last id.
    Next,
    /// `ms-*`: the next id in the given millisecond.
    NextOf(u64),
    /// An explicit id.
    Given(StreamId),
}

impl NewId {
    pub(super) fn parse(text: &[u8]) -> Result<NewId, CommandError> {
        match split(text)? {
            (b"*", None) => Ok(NewId::Next),
            (ms, Some(b"*")) => parse_number(ms).map(NewId::NextOf).ok_or(INVALID),
            _ => parse_id(text, 0).map(NewId::Given),
        }
    }

    /// The id of a new entry in a stream whose last id is `last`.
    pub(super) fn after(self, last: StreamId, now_ms: u64) -> Result<StreamId, CommandError> {
        const TOO_LOW: CommandError = CommandError::Text(
            "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        );
        let next = match self {
            NewId::Next if now_ms > last.ms => Some(StreamId { ms: now_ms, seq: 0 }),
            NewId::Next => last.next(),
            NewId::NextOf(ms) if ms == last.ms => last.seq.checked_add(1).map(|seq| StreamId { ms, seq }),
            NewId::NextOf(ms) => Some(StreamId { ms, seq: 0 }),
            NewId::Given(id) => Some(id),
        };
        next.filter(|&id| id > last).ok_or(TOO_LOW)
    }
}

fn split(text: &[u8]) -> Result<(&[u8], Option<&[u8]>), CommandError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(INVALID);
    }
    Ok(match text.iter().position(|&byte| byte == b'-') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    })
}

/// Parses decimal digits; leading zeros are allowed.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let value = u64::from(digit.checked_sub(b'0').filter(|value| *value <= 9)?);
        number.checked_mul(10)?.checked_add(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_part_or_two() {
        let id = StreamId::new;
        for (text, expected) in [
            ("5", Some(id(5, 7))),
            ("5-6", Some(id(5, 6))),
            ("05-00", Some(id(5, 0))),
            ("18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("5-", None),
            ("-5", None),
            ("5--6", None),
            ("5-6-7", None),
            ("5-x", None),
            ("5-*", None),
            ("*", None),
        ] {
            assert_eq!(parse_id(text.as_bytes(), 7).ok(), expected, "{text}");
        }
    }

    #[test]
    fn bounds_may_be_open() {
        let (start, end) =
            (|text: &str| parse_start(text.as_bytes()), |text: &str| parse_end(text.as_bytes()));
        assert_eq!((start("-"), end("+")), (Ok(StreamId::ZERO), Ok(StreamId::MAX)));
        assert_eq!((start("5"), end("5")), (Ok(StreamId::new(5, 0)), Ok(StreamId::new(5, u64::MAX))));
        assert_eq!((start("(5-3"), end("(5-3")), (Ok(StreamId::new(5, 4)), Ok(StreamId::new(5, 2))));
        assert!(start("(+").is_err() && start("(").is_err() && end("(0-0").is_err());
        assert!(start("(18446744073709551615-18446744073709551615").is_err());
    }

    #[test]
    fn a_new_id_is_above_the_last_one() {
        let after = |new: &str, last| NewId::parse(new.as_bytes()).and_then(|new| new.after(last, 100)).ok();
        let id = StreamId::new;
        for (new, last, expected) in [
            ("*", id(99, 9), Some(id(100, 0))),
            ("*", id(100, 9), Some(id(100, 10))),
            ("*", id(200, u64::MAX), Some(id(201, 0))),
            ("*", StreamId::MAX, None),
            ("5-*", id(5, 3), Some(id(5, 4))),
            ("6-*", id(5, 3), Some(id(6, 0))),
            ("4-*", id(5, 3), None),
            ("0-*", StreamId::ZERO, Some(id(0, 1))),
            ("5-*", id(5, u64::MAX), None),
            ("5-4", id(5, 3), Some(id(5, 4))),
            ("5-3", id(5, 3), None),
        ] {
            assert_eq!(after(new, last), expected, "{new} after {last}");
        }
    }
}
