//! Parts of strings: APPEND, STRLEN, GETRANGE, SETRANGE.
//!
//! Growing is logged as what was added, never as the whole value.

use std::ops::Range;

use keyspace::Effect;
use wire::{Args, number::parse_i64};

use super::string;
use crate::{CommandError, Context};

/// `APPEND key value`
pub(super) fn append(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, suffix) = (cx.db(), args.at(1), args.at(2));
    let (exists, len) = string_len(cx, key)?;
    let grown_len = len + suffix.len();
    // What the client sent is within its own limit.
    if exists && grown_len > cx.bulk_bytes_max {
        return Err(CommandError::StringTooLong);
    }
    // An absent key comes into being even if nothing is added.
    if !exists || !suffix.is_empty() {
        cx.apply(&Effect::Append { db, key, suffix });
    }
    cx.reply.count(grown_len);
    Ok(())
}

/// Whether a key that is about to change exists, and the length of its string.
fn string_len(cx: &mut Context<'_, '_>, key: &[u8]) -> Result<(bool, usize), CommandError> {
    let db = cx.db();
    match cx.unit.get(db, key) {
        Some(entry) => Ok((true, string(entry)?.len())),
        None => Ok((false, 0)),
    }
}

/// `STRLEN key`
pub(super) fn strlen(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let len = match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => string(entry)?.len(),
        None => 0,
    };
    cx.reply.count(len);
    Ok(())
}

/// `GETRANGE key start end`
pub(super) fn getrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let start = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let end = parse_i64(args.at(3)).ok_or(CommandError::NotAnInteger)?;
    let value = match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => string(entry)?,
        None => b"",
    };
    cx.reply.bulk(&value[clamp(start, end, value.len())]);
    Ok(())
}

/// The bytes from `start` to `end` (included; negative numbers count from the end of the string) of a string of `len`
/// bytes. As in Redis, an end before the first byte is the first byte, unless both numbers are negative and out of order.
fn clamp(start: i64, end: i64, len: usize) -> Range<usize> {
    if len == 0 || (start < 0 && end < 0 && start > end) {
        return 0..0;
    }
    let len_signed = i64::try_from(len).unwrap_or(i64::MAX);
    let position = |index: i64| if index < 0 { index.saturating_add(len_signed).max(0) } else { index };
    let (start, end) = (position(start), position(end).min(len_signed - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// `SETRANGE key offset value`
pub(super) fn setrange(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, key, bytes) = (cx.db(), args.at(1), args.at(3));
    let offset = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::OffsetOutOfRange)?;
    let (_, len) = string_len(cx, key)?;
    if bytes.is_empty() {
        cx.reply.count(len);
        return Ok(());
    }
    // Neither number reaches 2^63.
    let end = offset + bytes.len() as u64;
    if end > cx.bulk_bytes_max as u64 {
        return Err(CommandError::StringTooLong);
    }
    cx.apply(&Effect::SetRange { db, key, offset, bytes });
    cx.reply.count(len.max(end as usize));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::clamp;

    #[test]
    fn ranges_are_clamped_as_redis_does() {
        let cases = [
            ((0, -1), 0..3),
            ((0, 0), 0..1),
            ((1, 100), 1..3),
            ((-2, -1), 1..3),
            ((-100, 1), 0..2),
            ((0, -100), 0..1),
            ((-100, -100), 0..1),
            ((-1, -2), 0..0),
            ((2, 1), 0..0),
            ((3, 5), 0..0),
            ((i64::MIN, i64::MAX), 0..3),
            ((i64::MAX, i64::MIN), 0..0),
        ];
        for ((start, end), expected) in cases {
            assert_eq!(clamp(start, end, 3), expected, "{start} {end}");
        }
        assert_eq!(clamp(0, -1, 0), 0..0);
    }
}
