//! A deterministic sequence of evenly distributed numbers from a seed (SplitMix64).
//!
//! What it is: what sampling needs. What it is not: a source of randomness; the seed is the caller's.

pub(crate) struct Sequence(u64);

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        Sequence(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}

/// A number below `end` from 32 evenly distributed bits; 0 if `end` is 0.
#[inline]
pub(crate) fn scale(random: u32, end: usize) -> usize {
    ((u64::from(random) * end as u64) >> 32) as usize
}
