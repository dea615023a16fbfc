//! The expiry index of one slot: which key is due next.
//!
//! What it is: a heap of (deadline, place) items; a place is a database and a position in its table. Items
//! are not removed when a deadline changes; an item is stale if no entry at its place has the item's
//! deadline. An entry whose deadline is postponed keeps its item. When the item is due, an item with the new
//! deadline replaces it. So a deadline that is postponed again and again (sessions, counters) costs nothing
//! until the first deadline has come.
//! What it is not: the deadlines themselves, which the entries hold; nor a clock.
//!
//! Invariants (kept by `slot` and `apply`)
//! - Every entry with a deadline has an item for its place with that deadline or an earlier one, except after
//!   `expired_keys` has returned its key and before the Delete is applied.
//! - The heap of keys has at most `2 * live + SLACK` items, where `live` is the number of entries with a
//!   deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::hash::KeyHash;
use crate::id::{DbId, SlotId};

/// The number of stale items that is never worth a rebuild.
const SLACK: usize = 16;

/// The place of an entry, and the deadline that it had when the item was made. Items are ordered by deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Item {
    pub(crate) deadline_ms: u64,
    /// Database in the upper 8 bits, 24-bit position below.
    place: u32,
}

impl Item {
    pub(crate) fn new(deadline_ms: u64, db: DbId, position: u32) -> Self {
        Item { deadline_ms, place: u32::from(db.get()) << 24 | position }
    }

    pub(crate) fn db(&self) -> DbId {
        DbId::new((self.place >> 24) as u8).expect("items are made of a DbId")
    }

    /// An item for the same place with a later deadline.
    pub(crate) fn put_off(self, deadline_ms: u64) -> Self {
        Item { deadline_ms, ..self }
    }

    /// Whether both items stand for entries at the same place.
    pub(crate) fn is_at_place_of(&self, other: &Item) -> bool {
        self.place == other.place
    }

    /// The hash of the keys that the item may stand for.
    pub(crate) fn hash(&self, slot: SlotId) -> KeyHash {
        KeyHash { slot, h16: (self.place >> 8) as u16, tag: self.place as u8 }
    }
}

/// The heap of one slot, or, with items of another type, of one collection.
pub(crate) struct ExpiryHeap<T = Item> {
    items: BinaryHeap<Reverse<T>>,
}

impl<T: Ord> Default for ExpiryHeap<T> {
    fn default() -> Self {
        ExpiryHeap { items: BinaryHeap::new() }
    }
}

impl<T: Ord + Copy> ExpiryHeap<T> {
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(Reverse(item));
    }

    /// The item that is due first.
    pub(crate) fn first(&self) -> Option<T> {
        self.items.peek().map(|item| item.0)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop().map(|item| item.0)
    }

    /// The items in no useful order.
    pub(crate) fn items(&self) -> &[Reverse<T>] {
        self.items.as_slice()
    }

    /// Whether so many items are stale that the heap should be rebuilt from the `live` entries.
    pub(crate) fn is_mostly_stale(&self, live: usize) -> bool {
        self.items.len() > 2 * live + SLACK
    }

    /// A heap of these items, in linear time.
    pub(crate) fn new(items: Vec<T>) -> Self {
        ExpiryHeap { items: items.into_iter().map(Reverse).collect::<Vec<_>>().into() }
    }

    /// Bytes of memory that the items occupy.
    pub(crate) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::position;

    #[test]
    fn items_come_by_deadline_and_name_their_place() {
        let mut heap = ExpiryHeap::default();
        let db = DbId::new(15).expect("in range");
        for deadline_ms in [30, 10, 20] {
            heap.push(Item::new(deadline_ms, db, position(0xabcd, 0xef)));
        }
        assert_eq!(heap.first().map(|item| item.deadline_ms), Some(10));
        let item = heap.pop().expect("three items");
        assert_eq!((item.db(), item.hash(SlotId::LAST).position()), (db, 0xab_cdef));
        assert_eq!(heap.pop().map(|item| item.deadline_ms), Some(20));
    }

    #[test]
    fn a_heap_is_rebuilt_when_it_has_twice_the_items_it_needs() {
        let mut heap = ExpiryHeap::default();
        (0..2 * 5 + SLACK as u64).for_each(|n| heap.push(Item::new(n, DbId::ZERO, 0)));
        assert!(!heap.is_mostly_stale(5));
        heap.push(Item::new(0, DbId::ZERO, 0));
        assert!(heap.is_mostly_stale(5));
        let mut heap = ExpiryHeap::new([9, 7].map(|ms| Item::new(ms, DbId::ZERO, 0)).into());
        assert_eq!(heap.pop().map(|item| item.deadline_ms), Some(7));
    }
}
