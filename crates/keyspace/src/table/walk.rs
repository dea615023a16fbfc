//! Walks over a table: over all of it, in the order of positions, at random, or over all entries with one
//! position.
//!
//! What it is: the read-only iterations. What it is not: lookup by key (see the parent module).

use super::{EntryPosition, Table};
use crate::entry::EntryRef;
use crate::hash::{KeyHash, position};
use crate::random::scale;

/// One past the last `h16`: the end of a walk in the order of positions.
pub(crate) const POSITION_END: u32 = 1 << 16;

/// Tables up to this many buckets are sampled by rank instead of by trying places.
const RANKED_BUCKETS_MAX: usize = 8;

impl Table {
    /// All entries, in no useful order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.places().map(|place| self.entry(place))
    }

    /// All entries with a deadline and their 24-bit position. Reads only those entries.
    pub(crate) fn expiring_entries(&self) -> impl Iterator<Item = (u32, EntryRef<'_>)> {
        self.places()
            .filter(|&place| self.word(place).is_expiring())
            .map(|place| (self.position_of(place), self.entry(place)))
    }

    /// All entries and their 24-bit position.
    pub(crate) fn positioned_entries(&self) -> impl Iterator<Item = (u32, EntryRef<'_>)> {
        self.places().map(|place| (self.position_of(place), self.entry(place)))
    }

    /// Calls `visit` for every entry with this `h16` and tag.
    pub(crate) fn for_each_at<'t>(&'t self, hash: &KeyHash, mut visit: impl FnMut(EntryRef<'t>)) {
        self.search(hash, |entry| {
            visit(entry);
            false
        });
    }

    /// Visits all entries whose `h16` is in a range that starts at `from` (below `POSITION_END`), and returns
    /// the end of the range: the end of the bucket of `from`, rounded up to a whole `h16`. Only this end
    /// depends on the bucket count: an entry is visited exactly if its `h16` is in the range.
    pub(crate) fn visit_from<'t>(&'t self, from: u32, mut visit: impl FnMut(EntryRef<'t>)) -> u32 {
        if self.buckets.is_empty() {
            return POSITION_END;
        }
        let first = self.home(from << 8);
        let end = (self.first_position(first + 1).div_ceil(256) as u32).max(from + 1);
        let last = self.home((end << 8) - 1);
        for home in first..=last {
            self.visit_home(home, |h16, entry| {
                if (from..end).contains(&u32::from(h16)) {
                    visit(entry);
                }
            });
        }
        end
    }

    /// A random entry; every entry has the same chance. `random` returns independent, evenly distributed
    /// bits.
    pub(crate) fn random_entry(&self, random: &mut impl FnMut() -> u64) -> Option<EntryRef<'_>> {
        if self.len == 0 {
            return None;
        }
        if self.buckets.len() > RANKED_BUCKETS_MAX {
            // With a load above 1/5, this ends after a few tries; the bound is for tables with much reserved
            // room.
            for _ in 0..64 {
                let bits = random();
                let bucket = scale(bits as u32, self.buckets.len());
                let index = scale((bits >> 32) as u32, super::PLACES);
                if self.buckets[bucket].tag(index) != 0 {
                    return Some(self.entry(EntryPosition { bucket, index }));
                }
            }
        }
        let rank = scale(random() as u32, self.len as usize);
        self.places().nth(rank).map(|place| self.entry(place))
    }

    pub(super) fn places(&self) -> impl Iterator<Item = EntryPosition> {
        self.buckets
            .iter()
            .enumerate()
            .flat_map(|(bucket, line)| line.occupied().map(move |index| EntryPosition { bucket, index }))
    }

    pub(super) fn position_of(&self, place: EntryPosition) -> u32 {
        position(self.word(place).h16(), self.buckets[place.bucket].tag(place.index))
    }

    /// Calls `visit` for every entry whose home is this bucket, in whichever bucket the entry lies.
    fn visit_home<'t>(&'t self, home: usize, mut visit: impl FnMut(u16, EntryRef<'t>)) {
        let mut bucket = home;
        loop {
            let line = &self.buckets[bucket];
            for index in line.occupied() {
                let place = EntryPosition { bucket, index };
                if self.home(self.position_of(place)) == home {
                    visit(self.word(place).h16(), self.entry(place));
                }
            }
            bucket = self.after(bucket);
            if !line.has_overflow() || bucket == home {
                return;
            }
        }
    }

    /// The smallest position whose home is this bucket; 2^24 after the last bucket.
    fn first_position(&self, bucket: usize) -> u64 {
        ((bucket as u64) << 24).div_ceil(self.buckets.len() as u64)
    }
}
