//! Sets of integers: the smallest form of a set.
//!
//! What it is: the payload of a set whose members are all canonical decimal texts of integers; binary search
//! finds a member.
//! What it is not: aware of limits, nor of members that are no integers.
//!
//! # Payload
//! ```text
//! width, 1 byte | MARK, 1 byte | integer, integer, ...
//! 2, 4 or 8     | 0x80         | ascending, little-endian, each of `width` bytes
//! ```
//!
//! An added integer that needs more bytes widens all integers. When several integers are added at once, the
//! width becomes the smallest that fits all integers. A removal does not change the width. `MARK` tells this
//! form from the packed form, whose second byte is the upper byte of the count: the maximum of the count
//! keeps that byte below `MARK`.
//!
//! Invariants
//! - The integers are in ascending order, none twice, and fit the width.

use smallvec::SmallVec;

use crate::collection::element::Element;
use crate::collection::packed::{COUNT_MAX, HEADER, Payload};

/// The second byte of the payload.
const MARK: u8 = 0x80;

const _: () = assert!(COUNT_MAX < (MARK as usize) << 8);

/// The minimum width of an integer in bytes.
const WIDTH_MIN: usize = 2;

/// A set of integers, to be read.
#[derive(Clone, Copy)]
pub(super) struct Integers<'a> {
    width: usize,
    bytes: &'a [u8],
}

/// The number of integers in a payload that claims this form; `None` if it is not of this form, or has no
/// integer.
pub(crate) fn verify(payload: &[u8]) -> Option<usize> {
    let [width, MARK, bytes @ ..] = payload else { return None };
    let width: usize = (*width).into();
    let is_whole = matches!(width, WIDTH_MIN | 4 | 8) && bytes.len().is_multiple_of(width);
    (is_whole && !bytes.is_empty()).then(|| bytes.len() / width)
}

/// Whether a payload has this form.
#[inline]
pub(crate) fn is_integers(payload: &[u8]) -> bool {
    payload[1] & MARK != 0
}

impl<'a> Integers<'a> {
    /// The integers of a payload that has this form.
    #[inline]
    pub(super) fn of(payload: &'a [u8]) -> Self {
        debug_assert!(is_integers(payload));
        Integers { width: payload[0].into(), bytes: &payload[HEADER..] }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// The integer of this rank.
    #[inline]
    pub(super) fn get(&self, rank: usize) -> i64 {
        let at = rank * self.width;
        match self.width {
            2 => i16::from_le_bytes(read(self.bytes, at)).into(),
            4 => i32::from_le_bytes(read(self.bytes, at)).into(),
            _ => i64::from_le_bytes(read(self.bytes, at)),
        }
    }

    /// The rank of an integer as `Ok`; if the integer is absent, the rank that it would have as `Err`.
    pub(super) fn search(&self, wanted: i64) -> Result<usize, usize> {
        let (mut first, mut end) = (0, self.len());
        while first < end {
            let middle = first + (end - first) / 2;
            if self.get(middle) < wanted {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        if first < self.len() && self.get(first) == wanted { Ok(first) } else { Err(first) }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = i64> + use<'a> {
        (0..self.len()).map(move |rank| self.get(rank))
    }

    pub(super) fn element(&self, rank: usize) -> Element<'a> {
        Element::from_integer(self.get(rank))
    }
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a rank is below the length")
}

/// The width that an integer needs: 2, 4 or 8 bytes.
fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        WIDTH_MIN
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

/// Adds an integer to a payload that has this form or no members. Returns whether the integer is new.
pub(super) fn insert(payload: &mut impl Payload, value: i64) -> bool {
    if !is_integers(payload.payload()) {
        let width = width_of(value);
        payload.splice(0, HEADER, &[&[width as u8, MARK], &value.to_le_bytes()[..width]]);
        return true;
    }
    let set = Integers::of(payload.payload());
    let Err(rank) = set.search(value) else { return false };
    let width = set.width;
    if width_of(value) > width {
        return insert_all(payload, std::iter::once(value)) == 1;
    }
    payload.splice(HEADER + rank * width, 0, &[&value.to_le_bytes()[..width]]);
    true
}

/// As `insert`, for several integers. Returns how many are new.
pub(super) fn insert_all(payload: &mut impl Payload, values: impl Iterator<Item = i64>) -> usize {
    let old = payload.payload();
    let old_len = old.len();
    let mut all: SmallVec<[i64; 32]> = SmallVec::new();
    if is_integers(old) {
        all.extend(Integers::of(old).iter());
    }
    let len_before = all.len();
    all.extend(values);
    all.sort_unstable();
    all.dedup();
    let width = all.iter().map(|value| width_of(*value)).max().unwrap_or(WIDTH_MIN);
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::from_slice(&[width as u8, MARK]);
    all.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()[..width]));
    payload.splice(0, old_len, &[&bytes]);
    all.len() - len_before
}

/// Removes an integer. Returns whether it was there.
pub(super) fn remove(payload: &mut impl Payload, value: i64) -> bool {
    let set = Integers::of(payload.payload());
    let Ok(rank) = set.search(value) else { return false };
    let width = set.width;
    payload.splice(HEADER + rank * width, width, &[]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::packed::EMPTY;

    fn values(payload: &[u8]) -> Vec<i64> {
        Integers::of(payload).iter().collect()
    }

    #[test]
    fn integers_widen_when_one_needs_it() {
        let mut payload = EMPTY.to_vec();
        assert!(insert(&mut payload, 7));
        assert!(insert(&mut payload, -3) && !insert(&mut payload, 7));
        assert_eq!((values(&payload), payload.len()), (vec![-3, 7], HEADER + 2 * 2));
        assert!(insert(&mut payload, 40_000));
        assert_eq!((values(&payload), payload.len()), (vec![-3, 7, 40_000], HEADER + 3 * 4));
        assert_eq!(insert_all(&mut payload, [i64::MIN, 8, i64::MAX, 8, 7].into_iter()), 3);
        assert_eq!(values(&payload), [i64::MIN, -3, 7, 8, 40_000, i64::MAX]);
        assert_eq!(payload.len(), HEADER + 6 * 8);
        assert!(remove(&mut payload, 8) && !remove(&mut payload, 8) && !remove(&mut payload, 9));
        assert_eq!(values(&payload), [i64::MIN, -3, 7, 40_000, i64::MAX]);
    }

    #[test]
    fn integers_beyond_the_width_are_not_found() {
        let mut payload = EMPTY.to_vec();
        insert_all(&mut payload, [1, 2, 3].into_iter());
        let set = Integers::of(&payload);
        assert_eq!([set.search(2), set.search(0), set.search(65_537)], [Ok(1), Err(0), Err(3)]);
        assert_eq!([set.search(i64::MIN), set.search(i64::MAX)], [Err(0), Err(3)]);
    }
}
