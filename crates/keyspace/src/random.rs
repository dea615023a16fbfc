//! A deterministic sequence of evenly distributed numbers from a seed (SplitMix64), and samples chosen by it.
//!
//! What it is: what sampling needs. What it is not: a source of randomness; the seed is the caller's.

/// See the module documentation.
#[derive(Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Sequence(seed)
    }

    /// The next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number below `end`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// Visits `count` of the `len` items, all if there are no more: each with the same chance, in the order in which they come.
pub(crate) fn sample<T>(
    items: impl Iterator<Item = T>,
    len: usize,
    count: usize,
    random: &mut Sequence,
    mut visit: impl FnMut(T),
) {
    // Of those that are left the chance is the share that is still wanted: exactly `count` are chosen.
    let (mut wanted, mut left) = (count.min(len), len);
    for item in items {
        if wanted == 0 {
            return;
        }
        if random.below(left) < wanted {
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
