//! Splitting and merging segments, doubling and halving the directory.
//!
//! What it is: how a map keeps its segments small and few. What it is not: concerned with their content.

use super::segment::{DEPTH_MAX, Segment};
use super::{DIRECTORY_SHARE_MIN, FieldMap, MERGED_LEN_MIN, SEGMENT_LEN_MAX};

impl FieldMap {
    /// Splits the segment of the hash if one more field would be too many. A call splits once only. If the
    /// hashes are alike, the segment may still be full; the next field then splits it again.
    #[inline]
    pub(super) fn split_if_full(&mut self, hash: u64) {
        let number = self.number_of(hash);
        if self.segments[number].len() >= SEGMENT_LEN_MAX {
            self.split(number);
        }
    }

    #[cold]
    fn split(&mut self, number: usize) {
        let depth = self.segments[number].depth();
        if depth == self.directory_depth() {
            if depth == DEPTH_MAX || self.directory.len() * DIRECTORY_SHARE_MIN > self.len {
                return;
            }
            self.directory = self.directory.iter().flat_map(|&number| [number, number]).collect();
        }
        self.capture_ahead(number);
        let lower = &mut self.segments[number];
        let bytes = lower.table.bytes();
        let upper = lower.split(|field| self.hasher.hash(field));
        self.table_bytes = self.table_bytes + lower.table.bytes() + upper.table.bytes() - bytes;
        self.segments.push(upper);
        self.enter(self.segments.len() - 1);
        self.note_first_deadline(number);
        self.note_first_deadline(self.segments.len() - 1);
    }

    /// Merges the segment of the hash with its buddy as long as both together have few fields.
    #[inline]
    pub(super) fn merge_where_sparse(&mut self, hash: u64) {
        while self.segment(hash).len() < MERGED_LEN_MIN && self.merge(hash) {}
    }

    /// Merges the segment of the hash with its buddy once, if both together have few fields. Returns whether
    /// the two were merged.
    fn merge(&mut self, hash: u64) -> bool {
        let number = self.number_of(hash);
        let segment = &self.segments[number];
        let Some(buddy_first) = segment.buddy() else { return false };
        let buddy_number = self.number_of(buddy_first);
        let buddy = &self.segments[buddy_number];
        let depth = segment.depth();
        if buddy.depth() != depth || segment.len() + buddy.len() >= MERGED_LEN_MIN {
            return false;
        }
        self.capture_ahead(number);
        self.capture_ahead(buddy_number);
        let buddy = self.take_segment(buddy_number);
        let number = if number == self.segments.len() { buddy_number } else { number };
        let segment = &mut self.segments[number];
        let bytes = segment.table.bytes() + buddy.table.bytes();
        segment.merge(buddy, |field| self.hasher.hash(field));
        self.table_bytes = self.table_bytes + segment.table.bytes() - bytes;
        self.enter(number);
        self.note_first_deadline(number);
        if depth == self.directory_depth() {
            self.halve_directory();
        }
        true
    }

    /// Takes a segment out; the last segment gets its number.
    fn take_segment(&mut self, number: usize) -> Segment {
        let taken = self.segments.swap_remove(number);
        if number < self.segments.len() {
            self.enter(number);
        }
        if self.segments.len() < self.segments.capacity() / 4 {
            self.segments.shrink_to(self.segments.len() * 2);
        }
        taken
    }

    /// Halves the directory if every segment has a prefix shorter than an index of the directory.
    fn halve_directory(&mut self) {
        let (pairs, _) = self.directory.as_chunks::<2>();
        if pairs.iter().all(|[lower, upper]| lower == upper) {
            self.directory = pairs.iter().map(|[number, _]| *number).collect();
        }
    }

    /// Writes the number of a segment into its part of the directory.
    fn enter(&mut self, number: usize) {
        let segment = &self.segments[number];
        let start = self.directory_index(segment.first());
        let count = 1 << (self.directory_depth() - segment.depth());
        let number = u32::try_from(number).expect("memory holds fewer than 2^32 segments");
        self.directory[start..start + count].fill(number);
    }
}
