//! Shared parts of the commands that choose random elements: HRANDFIELD, SRANDMEMBER, SPOP, ZRANDMEMBER.
//!
//! This module parses counts and chooses ranks. It has no source of randomness of its own (a command has
//! `Unit::seed`), and does not know the collections.

use std::collections::HashSet;

use engine::CommandError;
use prng::Prng;
use wire::number::parse_i64;

/// The maximum number of elements that one command draws with repetition, because replies are built in
/// memory. It equals the maximum number of arguments.
const DRAWN_MAX: usize = 1 << 20;

/// The maximum size of a reply with elements that are drawn with repetition.
const DRAWN_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Draws `count` different numbers below `end`, or all of them if there are fewer, in ascending order.
pub(super) fn distinct(sequence: &mut Prng, count: usize, end: usize) -> Vec<usize> {
    let count = count.min(end);
    if count > end / 8 {
        // Selection sampling: each number is taken with the probability (numbers still wanted) / (numbers
        // left).
        let mut left = count;
        return (0..end)
            .filter(|number| {
                let taken = sequence.index(end - number) < left;
                left -= usize::from(taken);
                taken
            })
            .collect();
    }
    // Floyd's sampling: draw a number up to `last`; if it is taken already, take `last` itself.
    let mut taken = HashSet::with_capacity(count);
    for last in end - count..end {
        let drawn = sequence.index(last + 1);
        if !taken.insert(drawn) {
            taken.insert(last);
        }
    }
    let mut numbers: Vec<usize> = taken.into_iter().collect();
    numbers.sort_unstable();
    numbers
}

/// Parses a count; a negative one allows repetition.
pub(super) fn parse_count(text: &[u8]) -> Result<i64, CommandError> {
    match parse_i64(text) {
        None => Err(CommandError::NotAnInteger),
        Some(i64::MIN) => Err(CommandError::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        Some(count) => Ok(count),
    }
}

/// The number of wanted elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    /// Up to this many different elements.
    Distinct(usize),
    /// Exactly this many elements, each drawn independently.
    Repeated(usize),
}

impl Drawn {
    /// Interprets a count: negative ones allow repetition.
    ///
    /// # Errors
    /// More than [`DRAWN_MAX`] elements with repetition.
    pub(super) fn of(count: i64) -> Result<Drawn, CommandError> {
        let magnitude = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        match count {
            0.. => Ok(Drawn::Distinct(magnitude)),
            _ if magnitude <= DRAWN_MAX => Ok(Drawn::Repeated(magnitude)),
            _ => Err(CommandError::Text("ERR value is out of range, at most 1048576 elements may repeat")),
        }
    }
}

impl Drawn {
    /// The estimated number of elements out of `len` that drawing visits.
    pub(super) fn work(self, len: usize) -> usize {
        match self {
            // For more than an eighth of a sorted set, [`distinct`] goes through all ranks. For a quarter or
            // more of a hash or set, all its elements are walked over. A packed hash or set is always walked
            // whole, but is short.
            Drawn::Distinct(count) => count.saturating_mul(8).min(len),
            Drawn::Repeated(count) => count,
        }
    }
}

/// Checked after each element drawn with repetition: limits the reply to [`DRAWN_BYTES_MAX`].
///
/// # Errors
/// The reply is already longer.
pub(super) fn verify_drawn_bytes(reply_bytes: usize) -> Result<(), CommandError> {
    if reply_bytes <= DRAWN_BYTES_MAX {
        Ok(())
    } else {
        Err(CommandError::Text("ERR the elements drawn are too many bytes for one reply"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_numbers_are_distinct_ascending_and_even() {
        let mut sequence = Prng::new(5);
        for (count, end) in [(0, 10), (1, 10), (3, 10), (9, 10), (10, 10), (20, 10), (5, 100), (0, 0), (1, 1)]
        {
            let mut hits = vec![0usize; end];
            for _ in 0..2000 {
                let numbers = distinct(&mut sequence, count, end);
                assert_eq!(numbers.len(), count.min(end));
                assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
                numbers.iter().for_each(|number| hits[*number] += 1);
            }
            let expected = 2000 * count.min(end) / end.max(1);
            let spread = 40 + expected / 3;
            assert!(hits.iter().all(|hits| hits.abs_diff(expected) <= spread), "{count} of {end}: {hits:?}");
        }
    }

    #[test]
    fn counts_say_whether_elements_may_repeat() {
        let drawn = |text: &str| parse_count(text.as_bytes()).and_then(Drawn::of);
        assert_eq!(drawn("5"), Ok(Drawn::Distinct(5)));
        assert_eq!(drawn("0"), Ok(Drawn::Distinct(0)));
        assert_eq!(drawn("-5"), Ok(Drawn::Repeated(5)));
        assert_eq!(drawn("9223372036854775807"), Ok(Drawn::Distinct(usize::MAX >> 1)));
        assert_eq!(drawn("x"), Err(CommandError::NotAnInteger));
        assert!(drawn("-1048576").is_ok() && drawn("-1048577").is_err());
        assert!(drawn("-9223372036854775808").is_err_and(|error| error != CommandError::NotAnInteger));
    }
}
