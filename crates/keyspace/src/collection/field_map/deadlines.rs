//! Deadlines of fields: which segment has a field that is due next.
//!
//! What it is: a heap of (deadline, segment) items. Each segment knows a time before which none of its fields
//! expires; the heap orders the segments, so it has one item for hundreds of fields. Items are not removed
//! when that time changes; an item is stale if its segment has another time now. What it is not: the
//! deadlines themselves, which the entries hold; nor a clock.
//!
//! Invariants
//! - There is a heap exactly while fields have deadlines.
//! - Every segment whose `next_deadline_ms` is not `NEVER` has an item with that deadline.
//! - There are at most `2 * segments + SLACK` items (see `expiry`), also after segments were merged.

use super::FieldMap;
use super::segment::{Segment, Tally};
use crate::expiry::ExpiryHeap;
use crate::slot::NEVER;

/// The maximum number of items that one call of `expired_fields` takes. Each item costs a walk through one
/// segment, so this limit keeps the call short.
const ITEMS_MAX: usize = 8;

/// A segment, and the deadline that it had when the item was made. Items are ordered by deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Item {
    pub(super) deadline_ms: u64,
    /// The first hash of the segment.
    pub(super) first: u64,
}

impl Item {
    fn of(segment: &Segment) -> Option<Self> {
        let (deadline_ms, first) = (segment.next_deadline_ms, segment.first());
        (deadline_ms != NEVER).then_some(Item { deadline_ms, first })
    }
}

/// The deadlines of a map as a whole; present only while fields have deadlines.
#[derive(Default)]
pub(super) struct Deadlines {
    pub(super) heap: ExpiryHeap<Item>,
    /// Number of fields with a deadline.
    pub(super) expiring: usize,
}

impl Deadlines {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Deadlines>() + self.heap.bytes()
    }
}

impl FieldMap {
    /// Number of fields with a deadline.
    #[inline]
    pub(crate) fn expiring_len(&self) -> usize {
        self.deadlines.as_ref().map_or(0, |deadlines| deadlines.expiring)
    }

    /// The time before which no field expires, except fields that `expired_fields` has listed; `None` only if
    /// no other field has a deadline. The time may be too early. If so, `expired_fields` corrects the time
    /// once it has come.
    #[inline]
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        Some(self.deadlines.as_ref()?.heap.first()?.deadline_ms)
    }

    /// Appends up to `max` fields that are due. The caller removes them: a field that stays may not be listed
    /// again. As long as `next_deadline_ms` is due, more fields may be due, even if this call lists none.
    pub(crate) fn expired_fields(&mut self, now_ms: u64, max: usize, fields: &mut Vec<Vec<u8>>) {
        let end = fields.len().saturating_add(max);
        for _ in 0..ITEMS_MAX {
            if fields.len() >= end || self.next_deadline_ms().is_none_or(|first_ms| first_ms > now_ms) {
                return;
            }
            let item = self.deadlines.as_mut().and_then(|deadlines| deadlines.heap.pop());
            let Some(item) = item else { return };
            let number = self.number_of(item.first);
            let segment = &mut self.segments[number];
            if Item::of(segment) != Some(item) {
                continue;
            }
            segment.next_deadline_ms = segment.list_due(now_ms, end, fields);
            self.note_first_deadline(number);
        }
    }

    /// Counts and notes deadlines after a change of the segment.
    #[inline]
    pub(super) fn tend_deadlines(&mut self, number: usize, before: Tally, after: Tally) {
        if before.expiring != after.expiring {
            let deadlines = self.deadlines.get_or_insert_default();
            deadlines.expiring = deadlines.expiring + after.expiring - before.expiring;
            if deadlines.expiring == 0 {
                self.deadlines = None;
            }
        }
        if before.next_deadline_ms != after.next_deadline_ms {
            self.note_first_deadline(number);
        }
    }

    /// Adds an item for the segment to the heap, if the segment has deadlines, and makes the heap anew if it
    /// has become too large.
    pub(super) fn note_first_deadline(&mut self, number: usize) {
        let Some(deadlines) = &mut self.deadlines else { return };
        if let Some(item) = Item::of(&self.segments[number]) {
            deadlines.heap.push(item);
        }
        if deadlines.heap.is_mostly_stale(self.segments.len()) {
            deadlines.heap = ExpiryHeap::new(self.segments.iter().filter_map(Item::of).collect());
        }
    }
}
