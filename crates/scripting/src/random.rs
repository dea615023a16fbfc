//! `math.random`: each run of a script has its own seeded generator, so that its results are reproducible,
//! also in simulations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A SplitMix64 sequence. It is atomic only because functions of the machine share it; only one thread uses
/// it.
#[derive(Debug, Default)]
pub(crate) struct Random(AtomicU64);

impl Random {
    /// Starts a sequence.
    pub(crate) fn seed(&self, seed: u64) {
        self.0.store(seed, Relaxed);
    }

    fn next(&self) -> u64 {
        let state = self.0.load(Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.store(state, Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
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
