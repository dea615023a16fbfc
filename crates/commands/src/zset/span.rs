//! Spans: the part of a sorted set between two ends, given as ranks, scores or members.
//!
//! What it is: reading the ends as clients write them, and finding the ranks between them.
//! What it is not: the operations on the members in between.

use std::ops::Range;

use engine::CommandError;
use keyspace::ZsetView;
use wire::number::parse_i64;

/// How the ends of a span are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    /// By the bytes of members, which all have one score.
    Lex,
}

/// A span, as its two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Span<'a> {
    /// Both included; negative ranks count from the end.
    Ranks(i64, i64),
    Scores(ScoreEnd, ScoreEnd),
    Members(LexEnd<'a>, LexEnd<'a>),
}

impl<'a> Span<'a> {
    pub(super) fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Span<'a>, CommandError> {
        let rank = |text| parse_i64(text).ok_or(CommandError::NotAnInteger);
        let score = |text| ScoreEnd::parse(text).ok_or(CommandError::Text("ERR min or max is not a float"));
        let member = |text| {
            LexEnd::parse(text).ok_or(CommandError::Text("ERR min or max not valid string range item"))
        };
        Ok(match by {
            By::Rank => Span::Ranks(rank(min)?, rank(max)?),
            By::Score => Span::Scores(score(min)?, score(max)?),
            By::Lex => Span::Members(member(min)?, member(max)?),
        })
    }

    /// The ranks between the ends. `is_reverse`: given ranks count from the last member down.
    pub(super) fn ranks(&self, zset: ZsetView<'_>, is_reverse: bool) -> Range<usize> {
        let (start, end) = match *self {
            Span::Ranks(first, last) => {
                let Range { start, end } = between(first, last, zset.len());
                if is_reverse { (zset.len() - end, zset.len() - start) } else { (start, end) }
            }
            Span::Scores(min, max) => (
                zset.partition_by_score(|score| score < min.score || min.is_exclusive && score == min.score),
                zset.partition_by_score(|score| score < max.score || !max.is_exclusive && score == max.score),
            ),
            Span::Members(min, max) => (
                zset.partition_by_member(|member| match min {
                    LexEnd::Lowest => false,
                    LexEnd::Highest => true,
                    LexEnd::Including(bytes) => member < bytes,
                    LexEnd::Excluding(bytes) => member <= bytes,
                }),
                zset.partition_by_member(|member| match max {
                    LexEnd::Lowest => false,
                    LexEnd::Highest => true,
                    LexEnd::Including(bytes) => member <= bytes,
                    LexEnd::Excluding(bytes) => member < bytes,
                }),
            ),
        };
        start..end.max(start)
    }
}

/// The indices from `first` to `last`, both included and counted from the end if negative, as far as they are
/// below `len`.
fn between(first: i64, last: i64, len: usize) -> Range<usize> {
    let from_start = |index: i64| {
        let magnitude = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 { len.checked_sub(magnitude) } else { Some(magnitude) }
    };
    let start = from_start(first).unwrap_or(0).min(len);
    // A last index before the index 0 leaves nothing.
    let end = from_start(last).map_or(0, |last| last.saturating_add(1)).min(len);
    start..end.max(start)
}

/// An end given as a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ScoreEnd {
    score: f64,
    is_exclusive: bool,
}

impl ScoreEnd {
    /// Parses `1.5`, `(1.5` or `-inf`. In three points this is as loose as Redis: no text at all is 0, a zero
    /// byte ends the number, and a number that is too large is infinite.
    fn parse(text: &[u8]) -> Option<ScoreEnd> {
        let (is_exclusive, text) = match text {
            [b'(', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let score = match text {
            [] => 0.0,
            number => std::str::from_utf8(number).ok()?.parse::<f64>().ok()?,
        };
        (!score.is_nan()).then_some(ScoreEnd { score, is_exclusive })
    }
}

/// An end given as a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LexEnd<'a> {
    /// `-`: before every member.
    Lowest,
    /// `+`: after every member.
    Highest,
    /// `[member`
    Including(&'a [u8]),
    /// `(member`
    Excluding(&'a [u8]),
}

impl<'a> LexEnd<'a> {
    fn parse(text: &'a [u8]) -> Option<LexEnd<'a>> {
        match text {
            b"-" => Some(LexEnd::Lowest),
            b"+" => Some(LexEnd::Highest),
            [b'[', member @ ..] => Some(LexEnd::Including(member)),
            [b'(', member @ ..] => Some(LexEnd::Excluding(member)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_clamped_to_the_length() {
        let cases = [
            ((0, -1), 0..5),
            ((0, 2), 0..3),
            ((-2, -1), 3..5),
            ((-100, 100), 0..5),
            ((4, 4), 4..5),
            ((5, 9), 5..5),
            ((3, 1), 3..3),
            ((0, -6), 0..0),
            ((-1, -2), 4..4),
            ((i64::MIN, i64::MAX), 0..5),
            ((i64::MAX, i64::MAX), 5..5),
        ];
        for ((first, last), expected) in cases {
            assert_eq!(between(first, last, 5), expected, "{first} {last}");
        }
        assert_eq!(between(0, -1, 0), 0..0);
    }

    #[test]
    fn scores_may_be_exclusive_infinite_and_strange() {
        let end = |text: &str| ScoreEnd::parse(text.as_bytes()).map(|end| (end.score, end.is_exclusive));
        for (text, expected) in [
            ("1", Some((1.0, false))),
            ("(1.5", Some((1.5, true))),
            ("-inf", Some((f64::NEG_INFINITY, false))),
            ("(+inf", Some((f64::INFINITY, true))),
            ("Infinity", Some((f64::INFINITY, false))),
            ("1e400", Some((f64::INFINITY, false))),
            ("", Some((0.0, false))),
            ("(", Some((0.0, true))),
            (" 1", None),
            ("1\0x", Some((1.0, false))),
            ("(\0x", Some((0.0, true))),
            ("1 ", None),
            ("nan", None),
            ("((1", None),
            ("x", None),
        ] {
            assert_eq!(end(text), expected, "{text:?}");
        }
    }

    #[test]
    fn members_as_ends_say_whether_they_are_included() {
        let end = |text: &'static str| LexEnd::parse(text.as_bytes());
        assert_eq!((end("-"), end("+")), (Some(LexEnd::Lowest), Some(LexEnd::Highest)));
        assert_eq!((end("[a"), end("(a")), (Some(LexEnd::Including(b"a")), Some(LexEnd::Excluding(b"a"))));
        assert_eq!((end("["), end("(")), (Some(LexEnd::Including(b"")), Some(LexEnd::Excluding(b""))));
        for text in ["", "a", "-a", "+inf", "5"] {
            assert_eq!(end(text), None, "{text:?}");
        }
    }
}
