//! Walks over a map: over all of it at once, in parts between which it may change, or at random.
//!
//! What it is: the read-only iterations.
//! What it is not: lookup by field (see the parent module).
//!
//! # Why a scan sees every field exactly once
//! A field's hash never changes. A call visits all fields whose hash is in [cursor, end) and returns `end`;
//! ranges of successive calls touch and do not overlap. The depth of the segments and the number of their
//! buckets decide only where a range ends. So a field that is in the map during the whole scan falls into
//! exactly one range.

use std::collections::HashSet;

use super::FieldMap;
use crate::entry::EntryRef;
use prng::Prng;

use crate::random;
use crate::table::POSITION_END;

/// Cursors are the upper 48 bits of hashes. 48 bits are enough: a range ends at the end of an `h16` of a
/// segment, and a prefix and an `h16` have at most `DEPTH_MAX` + 16 bits. Some clients keep numbers in 53
/// bits, so that more bits could be lost.
const CURSOR_SHIFT: u32 = 16;
/// The bits of a position in a segment that come after `h16`.
const BELOW_H16: u64 = (1 << 48) - 1;

/// The maximum number of tries to find a random entry. Each try succeeds with a probability of about 2/3.
const RANDOM_TRIES: usize = 64;

/// A sample of at least a quarter (1 / `WALKED_SHARE`) of the entries is taken by a walk over all entries.
/// For a smaller sample, entries are drawn until enough different ones are found. A draw takes about as long
/// as `WALKED_SHARE` steps of a walk, and few draws repeat an entry.
const WALKED_SHARE: usize = 4;

impl FieldMap {
    /// All entries, in no useful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.segments.iter().flat_map(|segment| segment.table.entries())
    }

    /// Continues a scan: visits about `count` entries, and returns the cursor for the next call. The cursor 0
    /// is the start and the end. Any cursor is accepted; with a cursor that no call has returned, the scan
    /// continues at an arbitrary entry or ends.
    pub(crate) fn scan<'m>(&'m self, cursor: u64, count: usize, mut visit: impl FnMut(EntryRef<'m>)) -> u64 {
        if cursor > u64::MAX >> CURSOR_SHIFT {
            return 0;
        }
        let mut start = cursor << CURSOR_SHIFT;
        let mut seen = 0;
        loop {
            start = self.visit_from(start, |entry| {
                seen += 1;
                visit(entry);
            });
            if start == 0 || seen >= count.max(1) {
                return start >> CURSOR_SHIFT;
            }
        }
    }

    /// Visits all entries with a hash in a range from `start` on. The range ends where a bucket ends, rounded
    /// up to a whole `h16`, but at the end of the segment at the latest. Returns the end of the range; 0 for
    /// the last range.
    fn visit_from<'m>(&'m self, start: u64, mut visit: impl FnMut(EntryRef<'m>)) -> u64 {
        let segment = self.segment(start);
        let position = start << segment.depth();
        // The previous range may have ended where a deeper segment does, which can be between two `h16` of
        // this segment.
        let is_between = position & BELOW_H16 != 0;
        let end = segment.table.visit_from((position >> 48) as u32, |entry| {
            if !is_between || self.hasher.hash(entry.key()) >= start {
                visit(entry);
            }
        });
        if end == POSITION_END {
            return segment.end();
        }
        segment.first() | u64::from(end) << 48 >> segment.depth()
    }

    /// A random entry; `random` returns independent, evenly distributed bits. Every entry has nearly the same
    /// chance: a segment is hit in proportion to its share of the hashes, and is accepted with a probability
    /// in proportion to the density of its entries.
    pub(crate) fn random(&self, random: &mut impl FnMut() -> u64) -> Option<EntryRef<'_>> {
        // A segment with at least 3/2 of the average density is always accepted. Few segments are denser.
        let bound = self.len as u128 * 3 / 2;
        for _ in 0..RANDOM_TRIES {
            let segment = self.segment(random());
            let projected = (segment.len() as u128) << segment.depth();
            if projected > (u128::from(random()) * bound) >> 64 {
                return segment.table.random_entry(random);
            }
        }
        self.iter().next()
    }

    /// Visits `count` different entries, or all if there are no more. The choice is as even as that of
    /// `random`.
    pub(crate) fn sample<'m>(&'m self, count: usize, random: &mut Prng, mut visit: impl FnMut(EntryRef<'m>)) {
        if count >= self.len / WALKED_SHARE {
            return random::sample(self.iter(), self.len, count, random, visit);
        }
        // No entry moves during the call, so the addresses tell entries apart.
        let mut drawn = HashSet::with_capacity(count);
        while drawn.len() < count {
            let Some(entry) = self.random(&mut || random.next_u64()) else { return };
            if drawn.insert(entry.key().as_ptr()) {
                visit(entry);
            }
        }
    }
}
