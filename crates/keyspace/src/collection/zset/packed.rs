//! The packed form of sorted sets: pairs of member and score, in order, in the payload of an entry.
//!
//! What it is: reading and editing that payload. It begins with the number of members (see
//! `collection::packed`); a pair is the encoding of the member as an `Element`, then the score.
//! What it is not: aware of limits.
//! Every search here looks through the pairs from the first on.
//!
//! # Scores
//! A score that is a whole number within `i64` is stored like an element that is an integer; 0 to 127 take
//! one byte. 2^63 is stored as the largest `i64`, which rounds to 2^63 as a double. Any other score, and
//! -0.0 to keep its sign, is stored as the byte `FRACTION`, which begins no element, and the eight bytes of
//! the double, little-endian. Every score is written in exactly one encoding.
//!
//! Invariants
//! - Pairs are strictly ascending by score, then by the bytes of the member.

use std::ops;

use super::Put;
use crate::collection::element::{self, Element, Encoded};
use crate::collection::packed::{HEADER, Payload, change_count, count};

/// The first byte of a score that is not stored as an integer.
const FRACTION: u8 = 0xf8;
/// The maximum bytes of a score.
const SCORE_LEN_MAX: usize = 9;

/// Where a pair lies in its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    at: usize,
    score_at: usize,
    end: usize,
}

impl Pair {
    /// The pair at an offset; `None` at the end.
    #[inline]
    fn at(payload: &[u8], at: usize) -> Option<Pair> {
        let score_at = at + element::encoded_len(payload.get(at..).filter(|rest| !rest.is_empty())?);
        Some(Pair { at, score_at, end: score_at + score_len(&payload[score_at..]) })
    }

    #[inline]
    pub(super) fn member<'p>(&self, payload: &'p [u8]) -> Element<'p> {
        element::decode(&payload[self.at..]).0
    }

    #[inline]
    pub(super) fn score(&self, payload: &[u8]) -> f64 {
        decode_score(&payload[self.score_at..self.end])
    }

    /// Whether the pair comes after a member with this score and these bytes.
    #[inline]
    fn is_after(&self, payload: &[u8], score: f64, member: &[u8]) -> bool {
        let own = self.score(payload);
        own > score || own == score && *self.member(payload) > *member
    }
}

#[inline]
fn pairs_from(payload: &[u8], at: usize) -> impl Iterator<Item = Pair> {
    std::iter::successors(Pair::at(payload, at), |pair| Pair::at(payload, pair.end))
}

#[inline]
fn pairs(payload: &[u8]) -> impl Iterator<Item = Pair> {
    pairs_from(payload, HEADER)
}

#[inline]
pub(super) fn find(payload: &[u8], member: &[u8]) -> Option<Pair> {
    let wanted = Encoded::of(member);
    pairs(payload).find(|pair| wanted.is_at(&payload[pair.at..]))
}

/// The rank of a member and its score.
pub(super) fn rank(payload: &[u8], member: &[u8]) -> Option<(usize, f64)> {
    let wanted = Encoded::of(member);
    let found = pairs(payload).enumerate().find(|(_, pair)| wanted.is_at(&payload[pair.at..]));
    found.map(|(rank, pair)| (rank, pair.score(payload)))
}

/// How many pairs at the start satisfy `pred`.
pub(super) fn partition(payload: &[u8], pred: impl Fn(&Pair) -> bool) -> usize {
    pairs(payload).take_while(pred).count()
}

/// Adds a member or gives it another score.
#[inline]
pub(super) fn put(payload: &mut impl Payload, score: f64, member: &[u8]) -> Put {
    let old = payload.payload();
    let found = find(old, member);
    if found.is_some_and(|pair| pair.score(old) == score) {
        return Put::Unchanged;
    }
    let after = pairs(old).find(|pair| pair.is_after(old, score, member));
    let place = after.map_or(old.len(), |pair| pair.at);
    let new = EncodedScore::of(score);
    let Some(pair) = found else {
        let encoded = Encoded::of(member);
        let [head, tail] = encoded.parts();
        payload.splice(place, 0, &[head, tail, new.bytes()]);
        change_count(payload, 1);
        return Put::Added;
    };
    // The score is replaced in place; then the pair is moved past the pairs between its old and its new rank.
    payload.splice(pair.score_at, pair.end - pair.score_at, &[new.bytes()]);
    let end = pair.score_at + new.bytes().len();
    if place <= pair.at {
        payload.payload_mut()[place..end].rotate_right(end - pair.at);
    } else {
        let place = place - pair.end + end;
        payload.payload_mut()[pair.at..place].rotate_left(end - pair.at);
    }
    Put::Updated
}

/// Takes a member out. Returns whether it was there.
pub(super) fn remove(payload: &mut impl Payload, member: &[u8]) -> bool {
    let Some(pair) = find(payload.payload(), member) else { return false };
    payload.splice(pair.at, pair.end - pair.at, &[]);
    change_count(payload, -1);
    true
}

/// Takes the members with these ranks out. Returns the number of removed members.
pub(super) fn remove_ranks(payload: &mut impl Payload, first: usize, count: usize) -> usize {
    let old = payload.payload();
    let mut removed = 0;
    let mut range: Option<(usize, usize)> = None;
    for pair in pairs(old).skip(first).take(count) {
        range = Some((range.map_or(pair.at, |(start, _)| start), pair.end));
        removed += 1;
    }
    if let Some((start, end)) = range {
        payload.splice(start, end - start, &[]);
        change_count(payload, -(removed as isize));
    }
    removed
}

/// Members with ranks in a range.
pub(super) struct Range<'p> {
    payload: &'p [u8],
    /// Where the next pair begins.
    at: usize,
    /// The number of pairs that were not taken from either end yet.
    left: usize,
    /// The offsets of the pairs that are left. They are noted when a pair is first taken from the back,
    /// because pairs can only be found from the front.
    starts: Vec<usize>,
}

impl<'p> Range<'p> {
    #[inline]
    pub(super) fn new(payload: &'p [u8], ranks: ops::Range<usize>) -> Self {
        let ranks = ranks.start..ranks.end.min(count(payload));
        let mut at = HEADER;
        if !ranks.is_empty() {
            for _ in 0..ranks.start {
                at = Pair::at(payload, at).map_or(at, |pair| pair.end);
            }
        }
        Range { payload, at, left: ranks.len(), starts: Vec::new() }
    }
}

impl<'p> Iterator for Range<'p> {
    type Item = (Element<'p>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let pair = Pair::at(self.payload, self.at)?;
        self.at = pair.end;
        Some(pair.element(self.payload))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.starts.is_empty() {
            let pairs = pairs_from(self.payload, self.at).take(self.left);
            self.starts = pairs.map(|pair| pair.at).collect();
        }
        self.left = self.left.checked_sub(1)?;
        let pair = Pair::at(self.payload, self.starts.pop()?)?;
        Some(pair.element(self.payload))
    }
}

impl ExactSizeIterator for Range<'_> {}

/// The encoding of one score.
struct EncodedScore {
    bytes: [u8; SCORE_LEN_MAX],
    len: usize,
}

impl EncodedScore {
    #[inline]
    fn of(score: f64) -> Self {
        let mut bytes = [FRACTION; SCORE_LEN_MAX];
        let Some(integer) = exact_integer(score) else {
            bytes[1..].copy_from_slice(&score.to_le_bytes());
            return EncodedScore { bytes, len: SCORE_LEN_MAX };
        };
        let encoded = Encoded::of_integer(integer);
        let [head, _] = encoded.parts();
        bytes[..head.len()].copy_from_slice(head);
        EncodedScore { bytes, len: head.len() }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The integer that, converted to a double, has exactly the bits of this score; `None` if there is none.
#[inline]
fn exact_integer(score: f64) -> Option<i64> {
    let integer = score as i64;
    ((integer as f64).to_bits() == score.to_bits()).then_some(integer)
}

#[inline]
fn score_len(encoded: &[u8]) -> usize {
    if encoded[0] == FRACTION { SCORE_LEN_MAX } else { element::encoded_len(encoded) }
}

/// Does the same as [`score_len`], for untrusted bytes. `None` unless the bytes begin with a complete score.
pub(crate) fn checked_score_len(encoded: &[u8]) -> Option<usize> {
    if let [FRACTION, rest @ ..] = encoded {
        let bytes = rest.first_chunk()?;
        return (!f64::from_le_bytes(*bytes).is_nan()).then_some(SCORE_LEN_MAX);
    }
    let len = element::checked_len(encoded)?.encoded_len;
    element::decode_integer(encoded).map(|_| len)
}

#[inline]
fn decode_score(encoded: &[u8]) -> f64 {
    if let [FRACTION, bytes @ ..] = encoded {
        return f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    element::decode_integer(encoded).expect("other scores are integers") as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_integers_take_one_byte_and_everything_keeps_its_bits() {
        let cases = [
            (0.0, 1),
            (127.0, 1),
            (128.0, 2),
            (-1.0, 3),
            (70_000.0, 4),
            (1_700_000_000_000.0, 7),
            (9_007_199_254_740_993.0, 9),
            (9_223_372_036_854_775_808.0, 9),
            (-0.0, 9),
            (0.5, 9),
            (f64::INFINITY, 9),
            (f64::NEG_INFINITY, 9),
            (1e300, 9),
        ];
        for (score, len) in cases {
            let encoded = EncodedScore::of(score);
            assert_eq!((encoded.len, score_len(encoded.bytes())), (len, len), "{score}");
            assert_eq!(decode_score(encoded.bytes()).to_bits(), score.to_bits(), "{score}");
        }
    }

    proptest! {
        #[test]
        fn every_encoded_score_is_decoded(score in any::<f64>().prop_filter("a number", |score| !score.is_nan())) {
            let encoded = EncodedScore::of(score);
            prop_assert_eq!(decode_score(encoded.bytes()).to_bits(), score.to_bits());
        }
    }

    #[test]
    fn a_new_score_takes_the_member_past_its_neighbours() {
        let mut payload = super::super::EMPTY.to_vec();
        for (score, member) in [(3.0, "c"), (1.0, "a"), (2.0, "b"), (2.0, "10"), (2.0, "9")] {
            assert_eq!(put(&mut payload, score, member.as_bytes()), Put::Added);
        }
        let names = |payload: &[u8]| {
            let members = Range::new(payload, 0..9).map(|(member, _)| member.escape_ascii().to_string());
            members.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&payload), "a 10 9 b c");
        assert_eq!(put(&mut payload, 2.5, b"a"), Put::Updated);
        assert_eq!(names(&payload), "10 9 b a c");
        assert_eq!(put(&mut payload, -7.0, b"c"), Put::Updated);
        assert_eq!(names(&payload), "c 10 9 b a");
        assert_eq!(put(&mut payload, 2.25, b"a"), Put::Updated);
        assert_eq!(names(&payload), "c 10 9 b a");
        assert_eq!(put(&mut payload, 2.25, b"a"), Put::Unchanged);
        assert_eq!((remove_ranks(&mut payload, 1, 2), remove_ranks(&mut payload, 3, 1)), (2, 0));
        assert_eq!((names(&payload), count(&payload)), ("c b a".to_string(), 3));
        assert!(remove(&mut payload, b"b") && !remove(&mut payload, b"b"));
        let backwards: Vec<_> = Range::new(&payload, 0..2).rev().map(|(_, score)| score).collect();
        assert_eq!(backwards, [2.25, -7.0]);
    }
}
