//! `Lsn`: a position in the logical log, in bytes.
//!
//! The type is shared by every layer (log, keyspace, replies, replicas). It has a crate of its own so that
//! the pure crates need not depend on any crate that does I/O. An LSN is not a Redis replication offset, an
//! update sequence of a document database, or a file offset.
//!
//! Invariants
//! - The LSN *of a record* is the position just after its last byte: a record is durable exactly when
//!   `durable_lsn >= record_lsn`.
//! - Positions never wrap: 2^64 bytes at 1 GB/s last more than five centuries, and arithmetic that would
//!   leave this range panics.
//! - Order of the positions that a log keeps: `durable <= written <= published <= appended`.

#![forbid(unsafe_code)]

use std::fmt;

/// A byte position in the logical log. The LSN of a record is the position just after its last byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Lsn(u64);

impl Lsn {
    /// The position before the first byte of the log; also "never written" for a slot.
    pub const ZERO: Lsn = Lsn(0);
    /// Larger than every position a log can reach.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// The position `bytes` after the start of the log.
    #[inline]
    pub const fn new(bytes: u64) -> Self {
        Lsn(bytes)
    }

    /// Bytes from the start of the log.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `bytes` after this one.
    ///
    /// # Panics
    /// If the position would reach 2^64 bytes.
    #[inline]
    #[must_use]
    pub const fn advance(self, bytes: u64) -> Self {
        match self.0.checked_add(bytes) {
            Some(position) => Lsn(position),
            None => panic!("lsn overflow"),
        }
    }

    /// Bytes from `earlier` to `self`.
    ///
    /// # Panics
    /// If `earlier` is after `self`: the caller has mixed up two positions.
    #[inline]
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        match self.0.checked_sub(earlier.0) {
            Some(bytes) => bytes,
            None => panic!("lsn goes backwards"),
        }
    }

    /// The first position at or after `self` that is a multiple of `alignment`.
    ///
    /// # Panics
    /// If `alignment` is no power of two, or the position would reach 2^64 bytes.
    #[inline]
    #[must_use]
    pub const fn align_up(self, alignment: u64) -> Self {
        assert!(alignment.is_power_of_two());
        Lsn(self.advance(alignment - 1).0 & !(alignment - 1))
    }

    /// The last position at or before `self` that is a multiple of `alignment`.
    ///
    /// # Panics
    /// If `alignment` is no power of two.
    #[inline]
    #[must_use]
    pub const fn align_down(self, alignment: u64) -> Self {
        assert!(alignment.is_power_of_two());
        Lsn(self.0 & !(alignment - 1))
    }

    /// Whether the position is a multiple of `alignment` (a power of two).
    #[inline]
    pub const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & (alignment - 1) == 0
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lsn({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_in_bytes() {
        let lsn = Lsn::new(4097);
        assert_eq!(lsn.align_up(4096), Lsn::new(8192));
        assert_eq!(lsn.align_down(4096), Lsn::new(4096));
        assert_eq!(Lsn::new(4096).align_up(4096), Lsn::new(4096));
        assert_eq!(lsn.advance(3).bytes_since(lsn), 3);
        assert!(Lsn::ZERO < lsn && lsn < Lsn::MAX);
    }

    #[test]
    #[should_panic(expected = "backwards")]
    fn a_negative_distance_is_a_bug() {
        Lsn::new(1).bytes_since(Lsn::new(2));
    }
}
