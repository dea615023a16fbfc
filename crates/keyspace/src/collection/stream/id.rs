//! `StreamId`: the position of an entry in a stream.
//!
//! What it is: a time in milliseconds and a number within that millisecond. Ids are ordered by the time, then
//! by the number. What it is not: a clock. The caller that adds an entry chooses its id.

use std::fmt;

/// The id of an entry of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// Unix time in milliseconds, or another number that a client chose.
    pub ms: u64,
    /// The number among the entries of that millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id.
    pub const ZERO: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id that clients write as `ms-seq`.
    pub const fn new(ms: u64, seq: u64) -> Self {
        StreamId { ms, seq }
    }

    /// The id after this one; `None` after the last.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id before this one; `None` before the first.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_cross_from_one_millisecond_to_the_next() {
        let last_of = |ms| StreamId::new(ms, u64::MAX);
        assert_eq!(StreamId::new(5, 1).next(), Some(StreamId::new(5, 2)));
        assert_eq!(last_of(5).next(), Some(StreamId::new(6, 0)));
        assert_eq!(StreamId::new(6, 0).previous(), Some(last_of(5)));
        assert_eq!((StreamId::MAX.next(), StreamId::ZERO.previous()), (None, None));
        assert!(StreamId::new(2, 0) > last_of(1));
        assert_eq!(StreamId::new(7, 3).to_string(), "7-3");
    }
}
