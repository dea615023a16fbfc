//! `Entropy`: random numbers from the OS, or repeatable ones from a seed.
//!
//! Only [`RealEntropy`] is fit for secrets; [`SimEntropy`] and the small fast generator [`prng::Prng`] are
//! not cryptographic.
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
        prng::mix(self.state.fetch_add(prng::GAMMA, Ordering::Relaxed).wrapping_add(prng::GAMMA))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_and_owned_generators_agree() {
        let (shared, mut owned) = (SimEntropy::new(9), prng::Prng::new(9));
        assert!((0..10).all(|_| shared.random_u64() == owned.next_u64()));
    }

    #[test]
    fn real_entropy_does_not_repeat() {
        assert_ne!(RealEntropy.random_u64(), RealEntropy.random_u64());
    }
}
