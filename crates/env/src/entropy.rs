//! `Entropy`: random numbers from the OS, or repeatable ones from a seed.
//!
//! [`RealEntropy`] is the source of ids, seeds and hash keys; [`Prng`] is the small fast generator for
//! simulations and eviction sampling.
//! Only `RealEntropy` is fit for secrets; `Prng` and `SimEntropy` are not cryptographic.
//!
//! Invariants
//! - The same seed gives the same numbers on every machine and in every version, so failures are reported by
//!   seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers that threads may share.
pub trait Entropy: Send + Sync + 'static {
    /// A uniformly random number.
    fn random_u64(&self) -> u64;
}

/// The kernel's random numbers, fit for secrets.
#[derive(Clone, Copy, Default, Debug)]
pub struct RealEntropy;

impl Entropy for RealEntropy {
    /// # Panics
    /// If the kernel refuses random bytes, as it does only where the system call is forbidden.
    fn random_u64(&self) -> u64 {
        getrandom::u64().expect("the kernel hands out random bytes to every process")
    }
}

/// Repeatable numbers from a seed, shared by threads.
#[derive(Debug)]
pub struct SimEntropy {
    state: AtomicU64,
}

impl SimEntropy {
    /// A source whose numbers follow from `seed`; threads that share it split the sequence in the order of
    /// their calls.
    pub fn new(seed: u64) -> Self {
        SimEntropy { state: AtomicU64::new(seed) }
    }
}

impl Entropy for SimEntropy {
    fn random_u64(&self) -> u64 {
        mix(self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA))
    }
}

/// A pseudo-random generator (SplitMix64): one word of state, every seed is good, a few cycles a number.
/// It passes the usual statistical batteries and repeats after 2^64 numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    state: u64,
}

/// Odd, close to 2^64 divided by the golden ratio: consecutive states differ in many bits.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: a bijection that spreads every input bit over all output bits.
fn mix(state: u64) -> u64 {
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

    /// True `percent` times out of 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Fills `buf` with random bytes.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// An independent generator whose numbers follow from the state of this one.
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
    fn shared_and_owned_generators_agree() {
        let (shared, mut owned) = (SimEntropy::new(9), Prng::new(9));
        assert!((0..10).all(|_| shared.random_u64() == owned.next_u64()));
    }

    #[test]
    fn fill_covers_odd_lengths_and_forks_differ() {
        let mut prng = Prng::new(3);
        let mut bytes = [0u8; 21];
        prng.fill(&mut bytes);
        assert!(bytes[16..].iter().any(|&byte| byte != 0));
        assert_ne!(prng.fork().next_u64(), prng.fork().next_u64());
    }

    #[test]
    fn real_entropy_does_not_repeat() {
        assert_ne!(RealEntropy.random_u64(), RealEntropy.random_u64());
    }
}
