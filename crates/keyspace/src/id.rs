//! `SlotId` and `DbId`: the slot and the database of a key.
//!
//! What it is: two small newtypes that cannot hold a value out of range.
//! What it is not: hashing (see `hash`); a `SlotId` does not know which keys belong to it.

use std::fmt;

/// Number of hash slots, as in Redis Cluster.
pub const SLOT_COUNT: usize = 16_384;

/// Number of databases (`SELECT 0..=15`).
pub const DB_COUNT: usize = 16;

/// One of the 16 384 hash slots. A thread that waits for the locks of several slots takes them in ascending
/// `SlotId` order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct SlotId(u16);

impl SlotId {
    /// The first slot.
    pub const FIRST: SlotId = SlotId(0);
    /// The last slot.
    pub const LAST: SlotId = SlotId(SLOT_COUNT as u16 - 1);

    /// The slot with this number, or `None` if it is 16 384 or more.
    #[inline]
    pub const fn new(number: u16) -> Option<Self> {
        if (number as usize) < SLOT_COUNT { Some(SlotId(number)) } else { None }
    }

    /// The slot of a CRC16: the checksum modulo 16 384.
    #[inline]
    pub(crate) const fn of_crc(crc: u16) -> Self {
        SlotId(crc % SLOT_COUNT as u16)
    }

    /// The number, 0..16384.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index, 0..16384.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The following slot, or `None` after the last.
    #[inline]
    pub const fn next(self) -> Option<Self> {
        SlotId::new(self.0 + 1)
    }

    /// All slots, ascending.
    pub fn all() -> impl DoubleEndedIterator<Item = SlotId> + ExactSizeIterator {
        (0..SLOT_COUNT as u16).map(SlotId)
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// One of the 16 databases. A key is identified by its database and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct DbId(u8);

impl DbId {
    /// Database 0.
    pub const ZERO: DbId = DbId(0);

    /// The database with this number, or `None` if it is 16 or more.
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < DB_COUNT { Some(DbId(number)) } else { None }
    }

    /// The number, 0..16.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number as an index, 0..16.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All databases, ascending.
    pub fn all() -> impl DoubleEndedIterator<Item = DbId> + ExactSizeIterator {
        (0..DB_COUNT as u8).map(DbId)
    }
}

impl fmt::Display for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(SlotId::new(16_383), Some(SlotId::LAST));
        assert_eq!(SlotId::new(16_384), None);
        assert_eq!(DbId::new(15).map(DbId::get), Some(15));
        assert_eq!(DbId::new(16), None);
    }

    #[test]
    fn slots_follow_each_other() {
        assert_eq!(SlotId::all().len(), SLOT_COUNT);
        assert_eq!(SlotId::FIRST.next(), SlotId::new(1));
        assert_eq!(SlotId::LAST.next(), None);
        assert_eq!(DbId::all().len(), DB_COUNT);
    }
}
