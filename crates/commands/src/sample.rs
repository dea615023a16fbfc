//! What commands that choose elements at random have in common: HRANDFIELD, SRANDMEMBER, SPOP, ZRANDMEMBER.
//!
//! What it is: how many are wanted, and choices among ranks.
//! What it is not: a source of randomness (a command has `Unit::seed`), nor aware of what has the ranks.

use std::collections::HashSet;

use engine::CommandError;
use keyspace::Sequence;
use wire::number::parse_i64;

/// Most elements that are drawn with repetition: replies are built in memory, and these are as many as a command can name.
const DRAWN_MAX: usize = 1 << 20;

/// Most bytes of a reply that elements are drawn into with repetition.
const DRAWN_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// `count` different numbers below `end`, or all if there are fewer, in ascending order.
pub(super) fn distinct(sequence: &mut Sequence, count: usize, end: usize) -> Vec<usize> {
    let count = count.min(end);
    if count > end / 8 {
        // Each number is taken with the probability that is left.
        let mut left = count;
        return (0..end)
            .filter(|number| {
                let taken = sequence.below(end - number) < left;
                left -= usize::from(taken);
                taken
            })
            .collect();
    }
    // One number for each of the last `count`: itself, if the one that was drawn up to it is taken already.
    let mut taken = HashSet::with_capacity(count);
    for last in end - count..end {
        let drawn = sequence.below(last + 1);
        if !taken.insert(drawn) {
            taken.insert(last);
        }
    }
    let mut numbers: Vec<usize> = taken.into_iter().collect();
    numbers.sort_unstable();
    numbers
}

/// Reads a count, of which a negative one allows repetition.
pub(super) fn parse_count(text: &[u8]) -> Result<i64, CommandError> {
    match parse_i64(text) {
        None => Err(CommandError::NotAnInteger),
        Some(i64::MIN) => Err(CommandError::Text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        Some(count) => Ok(count),
    }
}

/// How many elements are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    /// Up to so many different ones.
    Distinct(usize),
    /// So many, each of them any.
    Repeated(usize),
}

impl Drawn {
    /// What a count means.
    ///
    /// # Errors
    /// If more are wanted, with repetition, than a reply holds.
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
    /// For how many elements out of `len` something is done.
    pub(super) fn work(self, len: usize) -> usize {
        match self {
            // Where many are wanted, all are walked over.
            Drawn::Distinct(count) => count.saturating_mul(8).min(len),
            Drawn::Repeated(count) => count,
        }
    }
}

/// For each element drawn with repetition: that the reply, now so many bytes long, has not become too long.
///
/// # Errors
/// If it has.
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
        let mut sequence = Sequence::new(5);
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
