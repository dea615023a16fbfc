//! `Sums`: what a tree adds up over its entries, so that a range is counted without reading it.

use std::ops::{Add, AddAssign};

use crate::TreeId;

/// Four numbers, added up over entries. What they count is up to the [`Measure`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sums(pub [u64; 4]);

/// What one entry counts for: the same for the same bytes, always, because it is stored.
pub type Measure = fn(tree: TreeId, key: &[u8], value: &[u8]) -> Sums;

impl Add for Sums {
    type Output = Sums;

    fn add(mut self, other: Sums) -> Sums {
        self += other;
        self
    }
}

impl AddAssign for Sums {
    /// Wraps: what a damaged file claims must not stop the server, and nothing real comes near.
    fn add_assign(&mut self, other: Sums) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.wrapping_add(more);
        }
    }
}
