//! Tables: the hash table of one slot and database.
//!
//! What it is: buckets in the order of the 24-bit position (`h16`, tag) of their entries. The home of an
//! entry is `position * bucket_count / 2^24`, so any bucket count is possible and a rebuild reads no entry.
//! The order of positions is the same at every size. SCAN relies on that order. An entry whose home is full
//! lies in the next bucket with room (the first bucket follows the last), and every full bucket that it
//! passed counts it. A lookup continues in the next bucket only while that count is not zero. What it is not:
//! a map with a policy. Whether an entry has expired does not matter here.
//!
//! Invariants
//! - The table owns the entries that its words point to; every key is there at most once.
//! - The overflow counter of a bucket is the number of entries that passed it; at 255 it stays until the next
//!   rebuild.
//! - `len` counts entries, `expiring` counts entries with a deadline, `entry_bytes` is the memory of all
//!   entries. Bit 0 of a word is set exactly if its entry has a deadline.
//! - The number of entries is at most `len_max` of the bucket count. A removal that leaves fewer than
//!   `len_min` entries rebuilds the table with fewer buckets; an empty table then has no buckets.

#![allow(unsafe_code)]

mod bucket;
mod check;
mod prefetch;
mod walk;

use std::mem::ManuallyDrop;

use crate::access::{AccessClock, AccessStamp};
use crate::entry::{Entry, EntryRef, size_class};
use crate::hash::{KeyHash, position};
use bucket::{Bucket, PLACES, Word};
pub(crate) use prefetch::prefetch_line;
pub(crate) use walk::POSITION_END;

pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();

/// `drain` prefetches the entries of the bucket this many buckets ahead.
const DRAIN_AHEAD: usize = 2;

/// The hash table of one slot and database, which owns the entries.
pub(crate) struct Table {
    buckets: Box<[Bucket]>,
    len: u32,
    expiring: u32,
    entry_bytes: usize,
}

// SAFETY: a table owns its entries, which are `Send`.
unsafe impl Send for Table {}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

/// The place of an entry in the table. Only valid while the table is borrowed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EntryPosition {
    bucket: usize,
    index: usize,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { buckets: Box::default(), len: 0, expiring: 0, entry_bytes: 0 }
    }

    /// Number of entries, expired ones included.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Number of entries with a deadline.
    #[inline]
    pub(crate) fn expiring(&self) -> u32 {
        self.expiring
    }

    /// Bytes of memory: the buckets and the entries.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bucket_bytes() + self.entry_bytes
    }

    pub(crate) fn bucket_bytes(&self) -> usize {
        self.buckets.len() * BUCKET_BYTES
    }

    /// Address and number of the buckets.
    #[inline]
    pub(crate) fn location(&self) -> (usize, usize) {
        (self.buckets.as_ptr().addr(), self.buckets.len())
    }

    /// Starts loading the bucket where the key would be.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: &KeyHash) {
        if !self.buckets.is_empty() {
            prefetch_line(&self.buckets[home_of(hash.position(), self.buckets.len())]);
        }
    }

    /// Starts loading the first two lines of the entry that probably is the key's.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: &KeyHash) {
        let found = self.search(hash, |_| true);
        if let Some(place) = found {
            let address = self.word(place).address();
            prefetch_line(address);
            prefetch_line(address.wrapping_add(64));
        }
    }

    #[inline]
    pub(crate) fn get(&self, hash: &KeyHash, key: &[u8]) -> Option<EntryRef<'_>> {
        self.find(hash, key).map(|place| self.entry(place))
    }

    /// The entry of the key, to be changed or removed.
    #[inline]
    pub(crate) fn get_mut(&mut self, hash: &KeyHash, key: &[u8]) -> Option<Occupied<'_>> {
        let place = self.find(hash, key)?;
        Some(Occupied { table: self, place })
    }

    /// Adds an entry. `hash` is the hash of its key, which must not be in the table.
    pub(crate) fn insert(&mut self, hash: &KeyHash, entry: Entry) {
        debug_assert!(self.get(hash, entry.as_ref().key()).is_none());
        if self.len as usize >= len_max(self.buckets.len()) {
            self.rebuild(count_for(self.len as usize + 1));
        }
        self.entry_bytes += entry.as_ref().allocated_bytes();
        let word = Word::new(entry, hash.h16);
        self.len += 1;
        self.expiring += u32::from(word.is_expiring());
        self.place_word(hash.tag, word);
    }

    /// Makes room for this many more entries.
    pub(crate) fn reserve(&mut self, additional: usize) {
        let wanted = self.len as usize + additional;
        if wanted > len_max(self.buckets.len()) {
            self.rebuild(count_for(wanted));
        }
    }

    /// Puts a word into the first bucket with room, starting at its home. A bucket has room, because the
    /// table has more places than entries.
    #[inline]
    fn place_word(&mut self, tag: u8, word: Word) {
        let mut index = self.home(position(word.h16(), tag));
        loop {
            let bucket = &mut self.buckets[index];
            if let Some(place) = bucket.free_place() {
                return bucket.set(place, tag, word);
            }
            bucket.add_overflow();
            index = self.after(index);
        }
    }

    /// Moves all words to an array of `bucket_count` buckets. Reads no entry.
    #[cold]
    fn rebuild(&mut self, bucket_count: usize) {
        let fresh = vec![Bucket::EMPTY; bucket_count].into_boxed_slice();
        let old = std::mem::replace(&mut self.buckets, fresh);
        for bucket in &old {
            for place in bucket.occupied() {
                self.place_word(bucket.tag(place), bucket.word(place));
            }
        }
    }

    /// Takes the entry at `place` out.
    fn remove(&mut self, place: EntryPosition) -> Entry {
        let bucket = &mut self.buckets[place.bucket];
        let (tag, word) = (bucket.tag(place.index), bucket.word(place.index));
        bucket.clear(place.index);
        let mut passed = self.home(position(word.h16(), tag));
        while passed != place.bucket {
            self.buckets[passed].remove_overflow();
            passed = self.after(passed);
        }
        self.len -= 1;
        self.expiring -= u32::from(word.is_expiring());
        if (self.len as usize) < len_min(self.buckets.len()) {
            self.rebuild(count_for(self.len as usize * 2));
        }
        // SAFETY: the word was in the table, which owned its entry, and now it is gone from there.
        let entry = unsafe { word.into_entry() };
        self.entry_bytes -= entry.as_ref().allocated_bytes();
        entry
    }

    /// Takes all entries out, in the order of their buckets, and passes them to `take`. If `take` panics, the
    /// entries that are left leak.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Entry)) {
        let buckets = std::mem::take(&mut self.buckets);
        (self.len, self.expiring, self.entry_bytes) = (0, 0, 0);
        for (index, bucket) in buckets.iter().enumerate() {
            if let Some(ahead) = buckets.get(index + DRAIN_AHEAD) {
                ahead.occupied().for_each(|place| prefetch_line(ahead.word(place).address()));
            }
            for place in bucket.occupied() {
                // SAFETY: the table owned the entry; its buckets were taken and are not used after this.
                take(unsafe { bucket.word(place).into_entry() });
            }
        }
    }

    #[inline]
    fn find(&self, hash: &KeyHash, key: &[u8]) -> Option<EntryPosition> {
        self.search(hash, |entry| entry.key() == key)
    }

    /// The first place with the hash's tag and `h16` whose entry is accepted.
    #[inline]
    fn search<'t>(
        &'t self,
        hash: &KeyHash,
        mut accept: impl FnMut(EntryRef<'t>) -> bool,
    ) -> Option<EntryPosition> {
        if self.buckets.is_empty() {
            return None;
        }
        let home = self.home(hash.position());
        let mut bucket = home;
        loop {
            let line = &self.buckets[bucket];
            for index in line.matching(hash.tag) {
                let place = EntryPosition { bucket, index };
                if line.word(index).h16() == hash.h16 && accept(self.entry(place)) {
                    return Some(place);
                }
            }
            bucket = self.after(bucket);
            if !line.has_overflow() || bucket == home {
                return None;
            }
        }
    }

    #[inline]
    fn word(&self, place: EntryPosition) -> Word {
        self.buckets[place.bucket].word(place.index)
    }

    #[inline]
    fn entry(&self, place: EntryPosition) -> EntryRef<'_> {
        // SAFETY: an `EntryPosition` is only made for an occupied place, whose word came from `Word::new`;
        // the table owns the entries and changes or frees them only when borrowed exclusively.
        unsafe { self.word(place).entry() }
    }

    /// The bucket where an entry at this position belongs.
    #[inline]
    fn home(&self, position: u32) -> usize {
        home_of(position, self.buckets.len())
    }

    /// The bucket after this one; after the last bucket, the first one.
    #[inline]
    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            for place in bucket.occupied() {
                // SAFETY: the table owns the entry and is not used after this.
                drop(unsafe { bucket.word(place).into_entry() });
            }
        }
    }
}

/// An entry in a table, borrowed exclusively.
pub(crate) struct Occupied<'t> {
    table: &'t mut Table,
    place: EntryPosition,
}

impl<'t> Occupied<'t> {
    #[inline]
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        self.table.entry(self.place)
    }

    /// The entry, for as long as the table is borrowed.
    #[inline]
    pub(crate) fn into_entry_ref(self) -> EntryRef<'t> {
        self.table.entry(self.place)
    }

    /// Notes an access. Writes the stamp only if it changes.
    #[inline]
    pub(crate) fn touch(&mut self, clock: AccessClock) {
        let old = self.entry().stamp();
        let new = clock.touched(old);
        if new != old {
            // SAFETY: the word refers to a live entry, which is given back at once: setting its stamp does
            // not move it.
            let entry = unsafe { self.table.word(self.place).into_entry() };
            ManuallyDrop::new(entry).set_stamp(new);
        }
    }

    pub(crate) fn set_stamp(&mut self, stamp: AccessStamp) {
        // SAFETY: as in `touch`.
        let entry = unsafe { self.table.word(self.place).into_entry() };
        ManuallyDrop::new(entry).set_stamp(stamp);
    }

    /// Changes the entry, which may move to another allocation or gain or lose its deadline. Its key stays.
    #[inline]
    pub(crate) fn update<R>(&mut self, change: impl FnOnce(&mut Entry) -> R) -> R {
        let word = self.table.word(self.place);
        self.table.entry_bytes -= self.entry().allocated_bytes();
        // SAFETY: the word refers to a live entry. The word is not used until `WriteBack` has replaced it,
        // also on unwinding.
        let entry = ManuallyDrop::new(unsafe { word.into_entry() });
        let mut borrowed = WriteBack { occupied: self, old: word, entry };
        change(&mut borrowed.entry)
    }

    /// Takes the entry out of the table.
    pub(crate) fn remove(self) -> Entry {
        self.table.remove(self.place)
    }
}

/// An entry that was taken out for a change. Dropping this puts the entry back into its place.
struct WriteBack<'o, 't> {
    occupied: &'o mut Occupied<'t>,
    old: Word,
    entry: ManuallyDrop<Entry>,
}

impl Drop for WriteBack<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the entry is taken once: this is the drop.
        let entry = unsafe { ManuallyDrop::take(&mut self.entry) };
        let Occupied { table, place } = &mut *self.occupied;
        table.entry_bytes += entry.as_ref().allocated_bytes();
        let new = Word::new(entry, self.old.h16());
        if new == self.old {
            return;
        }
        table.expiring += u32::from(new.is_expiring());
        table.expiring -= u32::from(self.old.is_expiring());
        table.buckets[place.bucket].replace_word(place.index, new);
    }
}

/// The index of the bucket, out of `buckets`, to which an entry at this position belongs. Buckets are in the
/// order of positions.
#[inline]
pub(crate) fn home_of(position: u32, buckets: usize) -> usize {
    ((u64::from(position) * buckets as u64) >> 24) as usize
}

/// The maximum number of entries in this many buckets: all places if there is one bucket, otherwise a load of
/// 7/8.
#[inline]
fn len_max(bucket_count: usize) -> usize {
    if bucket_count == 1 { PLACES } else { bucket_count * PLACES * 7 / 8 }
}

/// The minimum number of entries in this many buckets: a load of 1/5, but at least one entry.
#[inline]
fn len_min(bucket_count: usize) -> usize {
    (bucket_count * PLACES / 5).max(1)
}

/// The number of buckets for `len` entries. The array of buckets fills a size class, so an insertion into a
/// full table of four buckets or more enlarges it by a quarter at most.
fn count_for(len: usize) -> usize {
    let bucket_count = match len {
        0 => return 0,
        1..=PLACES => 1,
        _ => (len * 8).div_ceil(PLACES * 7),
    };
    size_class(bucket_count * BUCKET_BYTES) / BUCKET_BYTES
}

#[cfg(test)]
mod tests;
