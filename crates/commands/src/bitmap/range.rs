//! Ranges of bits: BITCOUNT, BITPOS.

use std::ops::Range;

use engine::{CommandError, Context};
use wire::{Args, number::parse_i64};

use super::bits;
use crate::string::string;

/// `BITCOUNT key [start end [BYTE | BIT]]`
pub(super) fn bitcount(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let range = match args.len() {
        2 => BitRange::WHOLE,
        4 | 5 => BitRange {
            start: integer(args.at(2))?,
            end: integer(args.at(3))?,
            bits_per_index: args.get(4).map_or(Ok(8), bits_per_index)?,
        },
        _ => return Err(CommandError::Syntax),
    };
    let count = match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => {
            let bytes = string(entry)?;
            // As in Redis, two negative numbers out of order are an empty range for BITCOUNT, but not always
            // for BITPOS: if both lie before the start of the string, `within` gives its first byte or bit.
            let is_empty = range.start < 0 && range.end < 0 && range.start > range.end;
            if is_empty { 0 } else { bits::count_ones(bytes, range.within(bytes)) }
        }
        None => 0,
    };
    cx.reply.count(count as usize);
    Ok(())
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`
pub(super) fn bitpos(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let wanted = match integer(args.at(2))? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::Text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = args.get(3).map_or(Ok(0), integer)?;
    let bits_per_index = args.get(5).map_or(Ok(8), bits_per_index)?;
    let end = args.get(4).map(integer).transpose()?;
    let range = BitRange { start, end: end.unwrap_or(-1), bits_per_index };
    let found = match cx.unit.read(cx.session.db, args.at(1)) {
        Some(entry) => {
            let bytes = string(entry)?;
            let range = range.within(bytes);
            // Without an end, zeros follow the string indefinitely, unless the range is empty.
            let beyond = (!wanted && end.is_none() && !range.is_empty()).then_some(range.end);
            bits::find(bytes, range, wanted).or(beyond)
        }
        None => (!wanted).then_some(0),
    };
    match found {
        Some(position) => cx.reply.count(position as usize),
        None => cx.reply.integer(-1),
    }
    Ok(())
}

/// A range as given by a client: inclusive; negative numbers count from the end of the string.
struct BitRange {
    start: i64,
    end: i64,
    /// The unit of the indices: 8 for bytes, 1 for bits.
    bits_per_index: u64,
}

impl BitRange {
    const WHOLE: BitRange = BitRange { start: 0, end: -1, bits_per_index: 8 };

    /// The covered bits of a string.
    fn within(&self, bytes: &[u8]) -> Range<u64> {
        let len = bytes.len() as u64 * (8 / self.bits_per_index);
        let position = |index: i64| match u64::try_from(index) {
            Ok(index) => index,
            Err(_) => len.saturating_sub(index.unsigned_abs()),
        };
        let (start, end) = (position(self.start), position(self.end).saturating_add(1).min(len));
        start.min(end) * self.bits_per_index..end * self.bits_per_index
    }
}

fn integer(text: &[u8]) -> Result<i64, CommandError> {
    parse_i64(text).ok_or(CommandError::NotAnInteger)
}

fn bits_per_index(word: &[u8]) -> Result<u64, CommandError> {
    if word.eq_ignore_ascii_case(b"bit") {
        Ok(1)
    } else if word.eq_ignore_ascii_case(b"byte") {
        Ok(8)
    } else {
        Err(CommandError::Syntax)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestServer, check};

    #[test]
    fn set_bits_are_counted() {
        check(&[
            ("BITCOUNT none", ":0"),
            ("BITCOUNT none 0 -1", ":0"),
            ("SET a foobar", "+OK"),
            ("BITCOUNT a", ":26"),
            ("BITCOUNT a 0 0", ":4"),
            ("BITCOUNT a 1 1", ":6"),
            ("BITCOUNT a 1 1 BYTE", ":6"),
            ("BITCOUNT a 5 30 bit", ":17"),
            ("BITCOUNT a 0 -1 BIT", ":26"),
            ("BITCOUNT a -8 -1 BIT", ":4"),
            ("BITCOUNT a -2 -1", ":7"),
            ("BITCOUNT a 3 3 BIT", ":0"),
            ("BITCOUNT a 9 9 BIT", ":1"),
            ("BITCOUNT a 5 2", ":0"),
            ("BITCOUNT a -1 -2", ":0"),
            ("BITCOUNT a -100 -99", ":4"),
            ("BITCOUNT a -99 -100", ":0"),
            ("BITCOUNT a 6 100", ":0"),
            ("BITCOUNT a -9223372036854775808 9223372036854775807 BIT", ":26"),
            (r#"SET e """#, "+OK"),
            ("BITCOUNT e", ":0"),
            ("BITCOUNT e 0 0 BIT", ":0"),
        ]);
    }

    #[test]
    fn bitcount_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("SET a foobar", "+OK"),
            ("BITCOUNT a 0", "-ERR syntax error"),
            ("BITCOUNT a 0 1 BIT x", "-ERR syntax error"),
            ("BITCOUNT a 0 1 foo", "-ERR syntax error"),
            ("BITCOUNT a x 1 foo", "-ERR value is not an integer or out of range"),
            ("BITCOUNT a 0 x", "-ERR value is not an integer or out of range"),
            ("BITCOUNT none 0 x", "-ERR value is not an integer or out of range"),
            ("BITCOUNT none 0", "-ERR syntax error"),
            ("BITCOUNT", "-ERR wrong number of arguments for 'bitcount' command"),
        ]);
    }

    #[test]
    fn the_first_bit_of_a_kind_is_found() {
        check(&[
            ("BITPOS none 0", ":0"),
            ("BITPOS none 1", ":-1"),
            ("BITPOS none 0 5 9", ":0"),
            (r#"SET a "\xff\xf0\x00""#, "+OK"),
            ("BITPOS a 0", ":12"),
            ("BITPOS a 1", ":0"),
            ("BITPOS a 1 2", ":-1"),
            ("BITPOS a 0 2", ":16"),
            ("BITPOS a 0 -1 -1", ":16"),
            ("BITPOS a 1 1 1", ":8"),
            ("BITPOS a 0 7 15 BIT", ":12"),
            ("BITPOS a 0 7 11 BIT", ":-1"),
            ("BITPOS a 1 7 -3 BIT", ":7"),
            ("BITPOS a 1 -1 -100 BIT", ":-1"),
            ("BITPOS a 1 -100 -200", ":0"),
            ("BITPOS a 1 2 1", ":-1"),
            ("BITPOS a 0 3", ":-1"),
            (r#"SET z "\x00\x00""#, "+OK"),
            ("BITPOS z 1", ":-1"),
            ("BITPOS z 0", ":0"),
        ]);
    }

    #[test]
    fn zeros_follow_the_string_in_a_range_without_an_end() {
        check(&[
            (r#"SET f "\xff\xff\xff""#, "+OK"),
            ("BITPOS f 0", ":24"),
            ("BITPOS f 0 1", ":24"),
            ("BITPOS f 0 -1", ":24"),
            ("BITPOS f 0 3", ":-1"),
            ("BITPOS f 0 0 -1", ":-1"),
            ("BITPOS f 0 0 1000", ":-1"),
            ("BITPOS f 0 3 23 BIT", ":-1"),
            (r#"SET e """#, "+OK"),
            ("BITPOS e 0", ":-1"),
            ("BITPOS e 1", ":-1"),
        ]);
    }

    #[test]
    fn bitpos_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("BITPOS a 2", "-ERR The bit argument must be 1 or 0."),
            ("BITPOS a x", "-ERR value is not an integer or out of range"),
            ("BITPOS a 1 x 1 foo", "-ERR value is not an integer or out of range"),
            ("BITPOS a 1 1 x foo", "-ERR syntax error"),
            ("BITPOS a 1 1 x BIT", "-ERR value is not an integer or out of range"),
            ("BITPOS a 1 1 2 BIT 3", "-ERR syntax error"),
            ("BITPOS a", "-ERR wrong number of arguments for 'bitpos' command"),
        ]);
    }

    #[test]
    fn a_bitmap_of_megabytes_is_counted_and_searched() {
        let mut server = TestServer::new();
        server.check(&[
            ("SETBIT a 80000001 1", ":0"),
            ("SETBIT a 3 1", ":0"),
            ("BITCOUNT a", ":2"),
            ("BITPOS a 1 1", ":80000001"),
            ("BITCOUNT a 4 80000001 BIT", ":1"),
            ("BITCOUNT a 4 80000000 BIT", ":0"),
        ]);
    }
}
