//! Parts of strings: APPEND, STRLEN, GETRANGE, SETRANGE.
//!
//! APPEND and SETRANGE log the bytes that the client has sent, not the whole value.

use std::ops::Range;

use engine::{CommandError, Context, EventClass};
use keyspace::KeyOp;
use wire::{Args, number::parse_i64};

use super::string;

/// `APPEND key value`
pub(super) fn append(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (key, suffix) = (args.at(1), args.at(2));
    let (exists, len) = string_len(cx, key)?;
    let grown_len = len + suffix.len();
    // A value at an absent key needs no check, as in SET and as in Redis: the protocol limits an argument of
    // a client. An argument of a script has another limit (`COMMAND_BYTES_MAX` of `scripting`).
    if exists && grown_len > cx.bulk_bytes_max {
        return Err(CommandError::StringTooLong);
    }
    // An absent key is created even if nothing is appended.
    if !exists || !suffix.is_empty() {
        cx.apply(key, KeyOp::Append { suffix });
    }
    cx.notify(EventClass::STRING, "append", key);
    cx.reply.count(grown_len);
    Ok(())
}

/// Whether the key exists, and the length of its string; for commands that change it.
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

/// The bytes from `start` to `end` (included; negative numbers count from the end of the string) of a string
/// of `len` bytes. As in Redis, an end before the first byte is the first byte, unless both numbers are
/// negative and out of order.
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
    let (key, bytes) = (args.at(1), args.at(3));
    let offset = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::OffsetOutOfRange)?;
    let (_, len) = string_len(cx, key)?;
    if bytes.is_empty() {
        cx.reply.count(len);
        return Ok(());
    }
    // Cannot overflow: neither number reaches 2^63.
    let end = offset + bytes.len() as u64;
    if end > cx.bulk_bytes_max as u64 {
        return Err(CommandError::StringTooLong);
    }
    cx.apply(key, KeyOp::SetRange { offset, bytes });
    cx.notify(EventClass::STRING, "setrange", key);
    cx.reply.count(len.max(end as usize));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::clamp;
    use crate::testing::{TestServer, check};

    #[test]
    fn append_adds_and_creates() {
        check(&[
            ("APPEND a foo", ":3"),
            ("APPEND a bar", ":6"),
            ("GET a", r#""foobar""#),
            (r#"APPEND a "\x00\xff""#, ":8"),
            (r#"APPEND a """#, ":8"),
            ("GET a", r#""foobar\x00\xff""#),
            (r#"APPEND b """#, ":0"),
            ("EXISTS b", ":1"),
            ("SET c 12 PX 10", "+OK"),
            ("APPEND c 3", ":3"),
            ("PTTL c", ":10"),
            ("INCR c", ":124"),
            ("after 10", ""),
            ("APPEND c new", ":3"),
            ("GET c", r#""new""#),
            ("PTTL c", ":-1"),
            ("APPEND a", "-ERR wrong number of arguments for 'append' command"),
        ]);
    }

    #[test]
    fn strings_grow_through_every_size() {
        let mut server = TestServer::new();
        let mut expected = Vec::new();
        for round in 0..60u8 {
            let piece = vec![round; 1 + usize::from(round) * 40];
            expected.extend_from_slice(&piece);
            assert_eq!(server.run_args(&[b"APPEND", b"k", &piece]), format!(":{}", expected.len()));
        }
        assert_eq!(server.content()[&(0, b"k".to_vec())].0.as_value(), keyspace::Value::String(&expected));
        server.assert_replays();
    }

    #[test]
    fn strlen_counts_bytes() {
        check(&[
            ("STRLEN a", ":0"),
            (r#"SET a "\x00\xff\xff""#, "+OK"),
            ("STRLEN a", ":3"),
            ("SET a 1 PX 1", "+OK"),
            ("after 1", ""),
            ("STRLEN a", ":0"),
            ("STRLEN", "-ERR wrong number of arguments for 'strlen' command"),
        ]);
    }

    #[test]
    fn getrange_and_its_old_name_show_parts() {
        check(&[
            ("GETRANGE a 0 -1", r#""""#),
            ("SET a Hello", "+OK"),
            ("GETRANGE a 1 3", r#""ell""#),
            ("SUBSTR a -3 -1", r#""llo""#),
            ("GETRANGE a 0 -100", r#""H""#),
            ("GETRANGE a 5 10", r#""""#),
            ("GETRANGE a -9223372036854775808 9223372036854775807", r#""Hello""#),
            ("GETRANGE a x 1", "-ERR value is not an integer or out of range"),
            ("GETRANGE none 0 x", "-ERR value is not an integer or out of range"),
            (r#"SET a """#, "+OK"),
            ("GETRANGE a 0 0", r#""""#),
            ("GETRANGE a 0", "-ERR wrong number of arguments for 'getrange' command"),
            ("SUBSTR a 0", "-ERR wrong number of arguments for 'substr' command"),
        ]);
    }

    #[test]
    fn setrange_overwrites_and_pads() {
        check(&[
            ("SETRANGE a 3 bar", ":6"),
            ("GET a", r#""\x00\x00\x00bar""#),
            ("SETRANGE a 0 foo", ":6"),
            ("SETRANGE a 5 zoo", ":8"),
            ("GET a", r#""foobazoo""#),
            (r#"SETRANGE a 100 """#, ":8"),
            (r#"SETRANGE none 9223372036854775807 """#, ":0"),
            ("EXISTS none", ":0"),
            ("SET b 12345 PX 10", "+OK"),
            ("SETRANGE b 1 x", ":5"),
            ("PTTL b", ":10"),
            ("after 10", ""),
            ("SETRANGE b 1 x", ":2"),
            ("GET b", r#""\x00x""#),
            ("PTTL b", ":-1"),
            ("SETRANGE a -1 x", "-ERR offset is out of range"),
            ("SETRANGE a x x", "-ERR value is not an integer or out of range"),
            ("SETRANGE a 0", "-ERR wrong number of arguments for 'setrange' command"),
        ]);
    }

    #[test]
    fn no_string_grows_beyond_the_limit() {
        const TOO_LONG: &str = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        let mut server = TestServer::new();
        server.check(&[
            ("SETRANGE n 536870912 x", TOO_LONG),
            ("SETRANGE n 536870911 xy", TOO_LONG),
            ("SETRANGE n 9223372036854775807 x", TOO_LONG),
            ("EXISTS n", ":0"),
        ]);
        server.bulk_bytes_max = 10;
        server.check(&[
            ("SET a 12345678", "+OK"),
            ("APPEND a 90", ":10"),
            ("APPEND a 1", TOO_LONG),
            (r#"APPEND a """#, ":10"),
            ("SETRANGE a 9 x", ":10"),
            ("SETRANGE a 10 x", TOO_LONG),
            ("SETRANGE a 9 xy", TOO_LONG),
            ("GET a", r#""123456789x""#),
        ]);
    }

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
