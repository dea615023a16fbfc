//! `math.random`: each run of a script has its own seeded generator, so that its results are reproducible,
//! also in simulations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prng::{GAMMA, mix};

/// The sequence of [`prng::Prng`]. It is atomic only because functions of the machine share it; only one
/// thread uses it.
#[derive(Debug, Default)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// Starts a sequence.
    pub(crate) fn seed(&self, seed: u64) {
        self.0.store(seed, Relaxed);
    }

    fn next(&self) -> u64 {
        let state = self.0.load(Relaxed).wrapping_add(GAMMA);
        self.0.store(state, Relaxed);
        mix(state)
    }

    /// A number in [0, 1).
    pub(crate) fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// `math.random([m [, n]])`
pub(crate) fn random(source: &Random, bounds: &[f64]) -> mlua::Result<f64> {
    let fraction = source.fraction();
    let (low, high) = match *bounds {
        [] => return Ok(fraction),
        [high] => (1.0, high.floor()),
        [low, high] => (low.floor(), high.floor()),
        _ => return Err(mlua::Error::runtime("wrong number of arguments")),
    };
    if low > high || !(high - low).is_finite() {
        let at = bounds.len();
        return Err(mlua::Error::runtime(format!("bad argument #{at} to 'random' (interval is empty)")));
    }
    Ok(low + (fraction * (high - low + 1.0)).floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_has_the_same_numbers_in_every_version() {
        let source = Random::default();
        source.seed(1_234_567);
        let numbers: Vec<f64> = (0..3).map(|_| random(&source, &[1e6]).expect("an upper bound")).collect();
        assert_eq!(numbers, [350_080.0, 173_645.0, 532_208.0]);
    }

    #[test]
    fn numbers_lie_between_their_bounds() {
        let source = Random::default();
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&random(&source, &[]).expect("no bounds")));
            assert!((1.0..=6.0).contains(&random(&source, &[6.0]).expect("an upper bound")));
            assert!((-3.0..=3.0).contains(&random(&source, &[-3.0, 3.0]).expect("both bounds")));
        }
        assert!(random(&source, &[0.0]).is_err() && random(&source, &[2.0, 1.0]).is_err());
        assert!(random(&source, &[f64::NEG_INFINITY, f64::INFINITY]).is_err());
    }
}
