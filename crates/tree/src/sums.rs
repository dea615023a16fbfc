//! `Sums`: totals over the entries of a tree, so that a range is counted without reading all of it.

use std::ops::{Add, AddAssign};

use crate::TreeId;

/// Four totals over entries. The [`Measure`] defines their meaning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums(pub [u64; 4]);

/// Computes the contribution of one entry to the sums. A measure must be a pure function that never changes,
/// because its results are stored.
pub type Measure = fn(tree: TreeId, key: &[u8], value: &[u8]) -> Sums;

impl Add for Sums {
    type Output = Sums;

    fn add(mut self, other: Sums) -> Sums {
        self += other;
        self
    }
}

impl AddAssign for Sums {
    /// Wraps on overflow: a damaged file must not make the server panic, and real totals stay far below 2^64.
    fn add_assign(&mut self, other: Sums) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(more);
        }
    }
}
