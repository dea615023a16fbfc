//! The invariants of a map, checked by walking it.

use super::deadlines::Item;
use super::segment::Segment;
use super::{FieldMap, MERGED_LEN_MIN};
use crate::slot::NEVER;
use crate::table::BUCKET_BYTES;

impl FieldMap {
    /// Walks the map and panics at the first broken invariant.
    pub(crate) fn check(&self) {
        let (mut len, mut table_bytes, mut expiring, mut share) = (0, 0, 0, 0u128);
        let mut deepest = 0;
        for (number, segment) in self.segments.iter().enumerate() {
            let (first, last) = (segment.first(), segment.end().wrapping_sub(1));
            let slots = self.directory_index(first)..=self.directory_index(last);
            assert!(self.directory[slots].iter().all(|&slot| slot as usize == number), "part of {number}");
            segment.table.check(|field| segment.key_hash(self.hasher.hash(field)));
            for entry in segment.table.entries() {
                assert!((first..=last).contains(&self.hasher.hash(entry.key())), "{entry:?} is elsewhere");
            }
            if let Some(buddy) = segment.buddy().map(|first| self.segment(first)) {
                let is_buddy = buddy.depth() == segment.depth();
                assert!(!is_buddy || buddy.len() + segment.len() >= MERGED_LEN_MIN, "{number} is sparse");
            }
            self.check_deadlines(number);
            len += segment.len();
            table_bytes += segment.table.bytes();
            expiring += segment.table.expiring() as usize;
            share += 1u128 << (64 - segment.depth());
            deepest = deepest.max(segment.depth());
        }
        assert_eq!(share, 1 << 64, "segments cover all hashes once");
        assert_eq!(deepest, self.directory_depth(), "a larger directory than needed");
        assert_eq!((self.len, self.table_bytes, self.expiring_len()), (len, table_bytes, expiring));
        assert!(self.segments.capacity() <= 4 * self.segments.len().max(4), "room for segments");
        let entry_bytes: usize = self.iter().map(|entry| entry.allocated_bytes()).sum();
        let buckets: usize = self.segments.iter().map(|segment| segment.table.location().1).sum();
        let heap_bytes = self.deadlines.as_ref().map_or(0, |deadlines| deadlines.bytes());
        let index_bytes = self.segments.capacity() * size_of::<Segment>() + self.directory.len() * 4;
        assert_eq!(self.bytes(), entry_bytes + buckets * BUCKET_BYTES + index_bytes + heap_bytes);
        let items = self.deadlines.as_ref().map_or(0, |deadlines| deadlines.heap.items().len());
        assert!(items <= 2 * self.segments.len() + 16, "{items} items in the heap");
        assert_eq!(self.deadlines.is_some(), expiring > 0, "a heap exactly while there are deadlines");
    }

    fn check_deadlines(&self, number: usize) {
        let segment = &self.segments[number];
        let first_ms = segment.table.entries().filter_map(|entry| entry.expire_at_ms()).min();
        assert!(segment.next_deadline_ms <= first_ms.unwrap_or(NEVER), "a deadline of {number} is missed");
        if segment.next_deadline_ms != NEVER {
            let item = Item { deadline_ms: segment.next_deadline_ms, first: segment.first() };
            let deadlines = self.deadlines.as_ref().expect("there is a deadline");
            assert!(deadlines.heap.items().iter().any(|have| have.0 == item), "{item:?} is not in the heap");
        }
    }
}
