//! Cardinality from registers: the improved raw estimator of Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (2017), algorithm 6, with the constants and the rounding of Redis.

use super::sketch::{HASH_BITS_LEFT, REGISTERS};

/// The number of values of a 6-bit register.
pub(super) const VALUES: usize = 64;

/// 1 / (2 ln 2).
const ALPHA_INFINITY: f64 = 0.721_347_520_444_481_7;

/// The estimated number of different elements. `histogram` counts the registers with each value.
pub(super) fn cardinality(histogram: &[u32; VALUES]) -> u64 {
    const COUNT: f64 = REGISTERS as f64;
    let share = |value: usize| f64::from(histogram[value]) / COUNT;
    let full = COUNT * tau(1.0 - share(HASH_BITS_LEFT + 1));
    let sum = histogram[1..=HASH_BITS_LEFT].iter().rfold(full, |sum, &count| (sum + f64::from(count)) * 0.5);
    let sum = sum + COUNT * sigma(share(0));
    (ALPHA_INFINITY * COUNT * COUNT / sum).round() as u64
}

/// x + the sum of x^(2^k) * 2^(k-1) for k = 1, 2, ...
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut weight) = (x, 1.0);
    loop {
        x *= x;
        let next = sum + x * weight;
        if next == sum {
            return sum;
        }
        sum = next;
        weight += weight;
    }
}

/// (1 - x - the sum of (1 - x^(2^-k))^2 * 2^-k for k = 1, 2, ...) / 3
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut weight) = (1.0 - x, 1.0);
    loop {
        x = x.sqrt();
        weight *= 0.5;
        let next = sum - (1.0 - x) * (1.0 - x) * weight;
        if next == sum {
            return sum / 3.0;
        }
        sum = next;
    }
}
