//! Counting and finding bits in bytes.
//!
//! All ranges here must lie within the bytes; ranges of clients are interpreted in `range`.

use std::ops::Range;

/// The number of set bits in a range.
pub(super) fn count_ones(bytes: &[u8], range: Range<u64>) -> u64 {
    let covered = covered(bytes, &range);
    let (Some(first), Some(last)) = (covered.first(), covered.last()) else { return 0 };
    let before = first & !(0xFF >> (range.start % 8));
    // The bits of the last byte beyond the range: none if the range ends with the byte.
    let behind = last & !(0xFF << ((8 - range.end % 8) % 8));
    ones(covered) - u64::from(before.count_ones() + behind.count_ones())
}

/// Finds the first bit in a range that is set (`value`) or clear (`!value`).
pub(super) fn find(bytes: &[u8], range: Range<u64>, value: bool) -> Option<u64> {
    // A clear bit is a set bit of the complement.
    let flip = if value { 0x00 } else { 0xFF };
    let (&first, rest) = covered(bytes, &range).split_first()?;
    let start = range.start / 8;
    let first = (first ^ flip) & (0xFF >> (range.start % 8));
    let found = if first != 0 {
        start * 8 + u64::from(first.leading_zeros())
    } else {
        let idle = [flip; 8];
        let words = rest.as_chunks().0.iter().take_while(|&&word: &&[u8; 8]| word == idle).count();
        let skipped = words * 8;
        let index = skipped + rest[skipped..].iter().position(|&byte| byte != flip)?;
        (start + 1 + index as u64) * 8 + u64::from((rest[index] ^ flip).leading_zeros())
    };
    (found < range.end).then_some(found)
}

/// The bytes that contain the range.
fn covered<'b>(bytes: &'b [u8], range: &Range<u64>) -> &'b [u8] {
    if range.is_empty() {
        return &[];
    }
    &bytes[(range.start / 8) as usize..range.end.div_ceil(8) as usize]
}

/// The number of set bits, counted 8 bytes at a time.
fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let in_words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let in_rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    in_words + in_rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bit(bytes: &[u8], index: u64) -> bool {
        bytes[(index / 8) as usize] & (0x80 >> (index % 8)) != 0
    }

    /// Bytes with long runs of equal bits, and a range in them.
    fn bytes_and_range() -> impl Strategy<Value = (Vec<u8>, Range<u64>)> {
        let byte = prop_oneof![4 => Just(0x00), 4 => Just(0xFF), 1 => any::<u8>()];
        let stretch = (byte, 1..40usize).prop_map(|(byte, len)| vec![byte; len]);
        let bytes = prop::collection::vec(stretch, 0..6).prop_map(|stretches| stretches.concat());
        bytes.prop_flat_map(|bytes| {
            let bits = bytes.len() as u64 * 8;
            let range = (0..=bits, 0..=bits).prop_map(|(a, b)| a.min(b)..a.max(b));
            (Just(bytes), range)
        })
    }

    proptest! {
        #[test]
        fn ranges_are_counted_and_searched_as_bit_by_bit((bytes, range) in bytes_and_range()) {
            let set = range.clone().filter(|&index| bit(&bytes, index)).count() as u64;
            prop_assert_eq!(count_ones(&bytes, range.clone()), set);
            for value in [false, true] {
                let expected = range.clone().find(|&index| bit(&bytes, index) == value);
                prop_assert_eq!(find(&bytes, range.clone(), value), expected);
            }
        }
    }
}
