//! A deterministic generator of evenly distributed numbers: SplitMix64 (Steele, Lea, Flood: "Fast splittable
//! pseudorandom number generators", OOPSLA 2014).
//!
//! It is for numbers that need not be secret, such as samples, and for simulations that repeat. It is no
//! source of randomness: the seed is the caller's.

#![forbid(unsafe_code)]

pub mod sweep;

/// A pseudo-random generator (SplitMix64): one word of state, every seed is good, a few cycles a number.
/// It passes the usual statistical batteries and repeats after 2^64 numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    state: u64,
}

/// The step from one state to the next. It is odd, so that all 2^64 states come, and close to 2^64 divided by
/// the golden ratio, so that consecutive states differ in many bits.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: a bijection that spreads every input bit over all output bits.
pub fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Prng {
    /// A generator whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Prng { state: seed }
    }

    /// The next number, uniform over all 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number in `0..bound`. The bias is below `bound / 2^64`.
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // The high half of a 64x64 multiplication scales without a division.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into `len` items; 0 if there are none.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        ((u128::from(self.next_u64()) * len as u128) >> 64) as usize
    }

    /// `true` with a probability of `percent` in 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `buf` with random bytes.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// A new generator, whose seed is the next number of this one.
    #[must_use]
    pub fn fork(&mut self) -> Prng {
        Prng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prng_repeats_the_published_sequence() {
        // First outputs of SplitMix64 for seed 1234567, as printed by its reference implementation.
        let mut prng = Prng::new(1_234_567);
        assert_eq!(prng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(prng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_reaches_every_number_and_none_other() {
        let mut prng = Prng::new(1);
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|_| seen[prng.below(7) as usize] += 1);
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }

    #[test]
    fn chance_is_in_percent() {
        let mut prng = Prng::new(2);
        assert!((0..100).all(|_| prng.chance(100) && !prng.chance(0)));
        let hits = (0..10_000).filter(|_| prng.chance(30)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
    }

    #[test]
    fn fill_covers_odd_lengths_and_forks_differ() {
        let mut prng = Prng::new(3);
        let mut bytes = [0u8; 21];
        prng.fill(&mut bytes);
        assert!(bytes[16..].iter().any(|&byte| byte != 0));
        assert_ne!(prng.fork().next_u64(), prng.fork().next_u64());
    }
}
