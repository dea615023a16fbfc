//! `math.random` and `math.randomseed`, with the same numbers as in Redis, which are the numbers of POSIX'
//! `lrand48`. The caller seeds each run of a script, so that a simulation repeats its results.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mlua::Error;

use crate::numbers::to_integer;

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const STATE_BITS: u32 = 48;
/// The lowest bits of a seeded state.
const SEEDED: u64 = 0x330E;
/// The largest number that `lrand48` can draw. As in Redis, a drawn number is taken modulo this and divided
/// by it.
const DRAWN_MAX: u64 = i32::MAX as u64;

/// A linear congruential generator of 48 bits. The state is atomic only because functions of the machine
/// share it; only one thread uses it.
#[derive(Debug, Default)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// Starts the sequence of numbers that `seed` determines.
    pub(crate) fn seed(&self, seed: u32) {
        self.0.store(u64::from(seed) << 16 | SEEDED, Relaxed);
    }

    /// Starts the sequence of `math.randomseed(seed)`, which converts its seed to an `int` of C.
    pub(crate) fn seed_with(&self, seed: f64) {
        self.seed(to_int(seed).cast_unsigned());
    }

    /// The next number of the sequence, in [0, 1).
    pub(crate) fn fraction(&self) -> f64 {
        let state = self.0.load(Relaxed).wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let state = state & ((1 << STATE_BITS) - 1);
        self.0.store(state, Relaxed);
        ((state >> 17) % DRAWN_MAX) as f64 / DRAWN_MAX as f64
    }
}

/// A number as an `int` of C, as Lua 5.1 converts it: the lowest bits of the integer.
fn to_int(value: f64) -> i32 {
    to_integer(value) as i32
}

/// `math.random([m [, n]])`: a number in [0, 1), an integer from 1 to `m`, or an integer from `m` to `n`.
pub(crate) fn random(source: &Random, bounds: &[f64]) -> mlua::Result<f64> {
    let fraction = source.fraction();
    let (low, high) = match *bounds {
        [] => return Ok(fraction),
        [high] => (1, to_int(high)),
        [low, high] => (to_int(low), to_int(high)),
        _ => return Err(Error::runtime("wrong number of arguments")),
    };
    if low > high {
        let at = bounds.len();
        return Err(Error::runtime(format!("bad argument #{at} to 'random' (interval is empty)")));
    }
    Ok((fraction * (f64::from(high) - f64::from(low) + 1.0)).floor() + f64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: f64, bounds: &[f64]) -> Vec<f64> {
        let source = Random::default();
        source.seed_with(seed);
        (0..3).map(|_| random(&source, bounds).expect("bounds")).collect()
    }

    #[test]
    fn a_seed_gives_the_numbers_of_redis() {
        assert_eq!(drawn(0.0, &[1e6]), [170_829.0, 749_902.0, 96_372.0]);
        assert_eq!(drawn(5.0, &[1000.0])[..2], [525.0, 273.0]);
        assert_eq!(drawn(-5.7, &[1000.0])[..2], [817.0, 227.0]);
        assert_eq!(drawn(1e18, &[1000.0])[..2], [287.0, 313.0]);
        for infinite in [f64::INFINITY, f64::NAN, 9.3e18, -9.3e18] {
            assert_eq!(drawn(infinite, &[1e5])[0], 17_083.0, "{infinite}");
        }
        assert_eq!(drawn(4_294_967_301.0, &[1e5])[0], 52_484.0, "the lowest 32 bits");
        assert_eq!(drawn(-1.0, &[1e5])[0], 30_003.0);
        assert_eq!(drawn(2_147_483_648.0, &[1e5])[0], 67_083.0);
    }

    #[test]
    fn numbers_lie_between_their_bounds() {
        let source = Random::default();
        let (lowest, highest) = (f64::from(i32::MIN), f64::from(i32::MAX));
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&random(&source, &[]).expect("no bounds")));
            assert!((1.0..=6.0).contains(&random(&source, &[6.0]).expect("an upper bound")));
            assert!((-3.0..=3.0).contains(&random(&source, &[-3.0, 3.0]).expect("both bounds")));
            assert!((lowest..=highest).contains(&random(&source, &[lowest, highest]).expect("both bounds")));
        }
        assert!(random(&source, &[0.0]).is_err() && random(&source, &[2.0, 1.0]).is_err());
        assert!(random(&source, &[1e300]).is_err() && random(&source, &[1.0, 2.0, 3.0]).is_err());
    }
}
