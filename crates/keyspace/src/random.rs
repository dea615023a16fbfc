//! Samples of items, chosen by a generator of random numbers.

use prng::Prng;

/// Visits `count` of the `len` items, or all if there are no more. Every item has the same chance. The chosen
/// items are visited in the order of `items`.
pub(crate) fn sample<T>(
    items: impl Iterator<Item = T>,
    len: usize,
    count: usize,
    random: &mut Prng,
    mut visit: impl FnMut(T),
) {
    // An item is chosen with the chance (still wanted / still left), so that exactly `count` are chosen.
    let (mut wanted, mut left) = (count.min(len), len);
    for item in items {
        if wanted == 0 {
            return;
        }
        if random.index(left) < wanted {
            visit(item);
            wanted -= 1;
        }
        left -= 1;
    }
}

/// A number below `end` from 32 evenly distributed bits; 0 if `end` is 0.
#[inline]
pub(crate) fn scale(random: u32, end: usize) -> usize {
    ((u64::from(random) * end as u64) >> 32) as usize
}
