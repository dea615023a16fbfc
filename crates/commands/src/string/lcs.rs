//! LCS: the longest common subsequence of two strings.
//!
//! Redis fills a table with one number for each pair of a byte of `a` and a byte of `b`. Neighbours in a row
//! of that table differ by 0 or 1, so one bit per pair suffices: whether this byte of `b` makes the longest
//! common subsequence of the prefixes one longer. Each row of bits follows from the previous one by an
//! addition, 64 pairs at a time (Crochemore et al., 2001; Hyyrö, 2004). Backtracking through the bits takes
//! the same path as through the numbers, so the matches are those of Redis.
//!
//! Strings are refused where the table of Redis would exceed its limit. That table takes 32 times the memory
//! of the bits; the limit also bounds the time.

use engine::{CommandError, Context};
use wire::{Args, number::parse_i64};

use super::string;

/// The number of cells of the table that take about as long as one element of a collection.
const CELLS_PER_ELEMENT: u64 = 64;

/// The size of a number in the table of Redis.
const REDIS_CELL_BYTES: u64 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct Options {
    len: bool,
    matches: bool,
    match_len_min: usize,
    shows_match_len: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, CommandError> {
        let mut options = Options::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"len" => options.len = true,
                b"idx" => options.matches = true,
                b"withmatchlen" => options.shows_match_len = true,
                b"minmatchlen" => {
                    let number = words.next().ok_or(CommandError::Syntax)?;
                    let number = parse_i64(number).ok_or(CommandError::NotAnInteger)?;
                    options.match_len_min = usize::try_from(number).unwrap_or(0);
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        if options.len && options.matches {
            return Err(CommandError::Text(
                "ERR If you want both the length and indexes, please just use IDX.",
            ));
        }
        Ok(options)
    }
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]`
pub(super) fn lcs(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (db, bulk_bytes_max) = (cx.db(), cx.bulk_bytes_max as u64);
    for key in args.skip(1).take(2) {
        if cx.unit.read(db, key).is_some_and(|entry| string(entry).is_err()) {
            return Err(CommandError::Text("ERR The specified keys must contain string values"));
        }
    }
    let options = Options::parse(args.skip(3))?;
    let value = |index| cx.unit.peek(db, args.at(index)).and_then(|entry| entry.string()).unwrap_or_default();
    let (a, b) = (value(1), value(2));
    let cells = (a.len() as u64 + 1).saturating_mul(b.len() as u64 + 1);
    if cells.saturating_mul(REDIS_CELL_BYTES) > bulk_bytes_max {
        return Err(CommandError::Text(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    cx.elements_max().require(usize::try_from(cells / CELLS_PER_ELEMENT).unwrap_or(usize::MAX))?;
    if options.len {
        cx.reply.count(common_len(a, b));
        return Ok(());
    }
    let matches = matches(a, b);
    if !options.matches {
        cx.reply.bulk_header(matches.iter().map(|found| found.len).sum());
        matches.iter().rev().for_each(|found| cx.reply.raw(&a[found.a..found.a + found.len]));
        cx.reply.bulk_end();
        return Ok(());
    }
    cx.reply.map(2);
    cx.reply.bulk(b"matches");
    let shown = || matches.iter().filter(|found| found.len >= options.match_len_min);
    cx.reply.array(shown().count());
    for found in shown() {
        cx.reply.array(if options.shows_match_len { 3 } else { 2 });
        for start in [found.a, found.b] {
            cx.reply.array(2);
            cx.reply.count(start);
            cx.reply.count(start + found.len - 1);
        }
        if options.shows_match_len {
            cx.reply.count(found.len);
        }
    }
    cx.reply.bulk(b"len");
    cx.reply.count(matches.iter().map(|found| found.len).sum());
    Ok(())
}

/// The positions of each byte value in a string, as one row of bits per value.
struct Positions {
    /// The length of a row, in words of 64 bits.
    words: usize,
    /// The row of each byte value, as an index into `bits` in units of rows.
    rows: [u16; 256],
    bits: Vec<u64>,
}

impl Positions {
    /// The positions in `text` of the byte values that occur in `values`.
    fn new(text: &[u8], values: &[u8]) -> Positions {
        const ABSENT: u16 = u16::MAX;
        let words = text.len().div_ceil(64);
        let mut rows = [ABSENT; 256];
        let mut count = 0;
        for &value in values {
            if rows[usize::from(value)] == ABSENT {
                rows[usize::from(value)] = count;
                count += 1;
            }
        }
        let mut bits = vec![0; usize::from(count) * words];
        for (index, &value) in text.iter().enumerate() {
            let row = rows[usize::from(value)];
            if row != ABSENT {
                bits[usize::from(row) * words + index / 64] |= 1 << (index % 64);
            }
        }
        Positions { words, rows, bits }
    }

    /// The row of one of the values.
    fn of(&self, value: u8) -> &[u64] {
        let start = usize::from(self.rows[usize::from(value)]) * self.words;
        &self.bits[start..start + self.words]
    }
}

/// Advances the row of a prefix of `a` to that of the next prefix, whose last byte occurs in `b` at
/// `positions`. A bit of a row is clear if the byte of `b` at its position makes the common subsequence
/// longer.
fn advance(row: &mut [u64], positions: &[u64]) {
    let mut carry = false;
    for (word, &occurs) in row.iter_mut().zip(positions) {
        let (sum, carries) = word.carrying_add(*word & occurs, carry);
        *word = sum | (*word & !occurs);
        carry = carries;
    }
}

/// The length of the longest common subsequence.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    let positions = Positions::new(b, a);
    let mut row = vec![u64::MAX; positions.words];
    a.iter().for_each(|&value| advance(&mut row, positions.of(value)));
    // Bits beyond the end of `b` match no byte and stay set.
    row.iter().map(|word| word.count_zeros() as usize).sum()
}

/// A run of consecutive bytes that is part of the common subsequence.
#[derive(Debug, PartialEq, Eq)]
struct Match {
    /// The start of the match in `a`.
    a: usize,
    /// The start of the match in `b`.
    b: usize,
    len: usize,
}

/// The runs of the longest common subsequence, the last one first.
fn matches(a: &[u8], b: &[u8]) -> Vec<Match> {
    let positions = Positions::new(b, a);
    let words = positions.words;
    // The rows of all prefixes of `a`, beginning with the empty one.
    let mut rows = Vec::with_capacity((a.len() + 1) * words);
    rows.resize(words, u64::MAX);
    for &value in a {
        let start = rows.len();
        rows.extend_from_within(start - words..);
        advance(&mut rows[start..], positions.of(value));
    }
    let mut matches: Vec<Match> = Vec::new();
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            match matches.last_mut() {
                Some(last) if (last.a, last.b) == (i + 1, j + 1) => {
                    *last = Match { a: i, b: j, len: last.len + 1 };
                }
                _ => matches.push(Match { a: i, b: j, len: 1 }),
            }
        } else if rows[i * words + (j - 1) / 64] >> ((j - 1) % 64) & 1 == 0 {
            // The subsequence needs this byte of `b`, so skip the byte of `a`.
            i -= 1;
        } else {
            j -= 1;
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::Protocol;

    use super::*;
    use crate::testing::{TestServer, check};

    #[test]
    fn the_longest_common_subsequence_is_found() {
        check(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b", r#""mytext""#),
            ("LCS a b LEN", ":6"),
            ("LCS b a", r#""mytext""#),
            ("LCS a a", r#""ohmytext""#),
            ("LCS a none", r#""""#),
            ("LCS none a LEN", ":0"),
            ("LCS none other", r#""""#),
            ("MSET c xyz d abc", "+OK"),
            ("LCS c d", r#""""#),
            ("SET n 12345", "+OK"),
            ("SET m 2495", "+OK"),
            ("LCS n m", r#""245""#),
        ]);
    }

    #[test]
    fn matches_are_shown_from_the_last_to_the_first() {
        let mut server = TestServer::new();
        server.check(&[
            ("MSET a ohmytext b mynewtext", "+OK"),
            ("LCS a b IDX", r#"["matches", [[[:4, :7], [:5, :8]], [[:2, :3], [:0, :1]]], "len", :6]"#),
            ("LCS a b IDX MINMATCHLEN 4", r#"["matches", [[[:4, :7], [:5, :8]]], "len", :6]"#),
            (
                "LCS a b idx withmatchlen minmatchlen -3",
                r#"["matches", [[[:4, :7], [:5, :8], :4], [[:2, :3], [:0, :1], :2]], "len", :6]"#,
            ),
            ("LCS a b IDX MINMATCHLEN 5", r#"["matches", [], "len", :6]"#),
            ("LCS a none IDX", r#"["matches", [], "len", :0]"#),
            ("LCS none other IDX", r#"["matches", [], "len", :0]"#),
            ("LCS a b LEN WITHMATCHLEN MINMATCHLEN 9", ":6"),
            ("LCS a b WITHMATCHLEN MINMATCHLEN 9", r#""mytext""#),
        ]);
        server.session.protocol = Protocol::Resp3;
        server.check(&[
            ("LCS a b IDX MINMATCHLEN 4", r#"{"matches": [[[:4, :7], [:5, :8]]], "len": :6}"#),
            ("LCS none other IDX", r#"{"matches": [], "len": :0}"#),
        ]);
    }

    #[test]
    fn lcs_refuses_the_arguments_that_redis_refuses() {
        check(&[
            ("HSET h f v", ":1"),
            ("LCS a h FOO", "-ERR The specified keys must contain string values"),
            ("LCS h a", "-ERR The specified keys must contain string values"),
            ("LCS a b LEN IDX", "-ERR If you want both the length and indexes, please just use IDX."),
            ("LCS a b FOO", "-ERR syntax error"),
            ("LCS a b MINMATCHLEN", "-ERR syntax error"),
            ("LCS a b LEN IDX FOO", "-ERR syntax error"),
            ("LCS a b MINMATCHLEN x", "-ERR value is not an integer or out of range"),
            ("LCS a", "-ERR wrong number of arguments for 'lcs' command"),
        ]);
    }

    #[test]
    fn lcs_refuses_strings_that_need_too_large_a_table() {
        let mut server = TestServer::new();
        server.bulk_bytes_max = 4 * 11 * 21;
        server.check(&[
            ("SETRANGE a 9 x", ":10"),
            ("SETRANGE b 19 x", ":20"),
            ("LCS a b LEN", ":10"),
            ("APPEND a x", ":11"),
            ("LCS a b LEN", "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"),
        ]);
    }

    /// The reference: the table of numbers, and Redis' way of backtracking through it.
    fn matches_by_numbers(a: &[u8], b: &[u8]) -> Vec<Match> {
        let mut lens = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                lens[i][j] = if a[i - 1] == b[j - 1] {
                    lens[i - 1][j - 1] + 1
                } else {
                    lens[i - 1][j].max(lens[i][j - 1])
                };
            }
        }
        let mut matches: Vec<Match> = Vec::new();
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] != b[j - 1] {
                if lens[i - 1][j] > lens[i][j - 1] {
                    i -= 1
                } else {
                    j -= 1
                }
                continue;
            }
            (i, j) = (i - 1, j - 1);
            match matches.pop() {
                Some(last) if (last.a, last.b) == (i + 1, j + 1) => {
                    matches.push(Match { a: i, b: j, len: last.len + 1 });
                }
                other => matches.extend(other.into_iter().chain([Match { a: i, b: j, len: 1 }])),
            }
        }
        matches
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let few = prop::collection::vec(b'a'..=b'c', 0..200);
        let many = prop::collection::vec(any::<u8>(), 0..200);
        prop_oneof![few, many]
    }

    proptest! {
        #[test]
        fn bits_give_the_matches_of_the_table_of_numbers(a in text(), b in text()) {
            let expected = matches_by_numbers(&a, &b);
            prop_assert_eq!(common_len(&a, &b), expected.iter().map(|found| found.len).sum::<usize>());
            prop_assert_eq!(matches(&a, &b), expected);
        }
    }
}
