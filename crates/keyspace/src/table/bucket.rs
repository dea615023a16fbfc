//! Buckets: one cache line with seven places for entries.
//!
//! What it is: the words that name entries, their tags, and the search for a tag in all places at once.
//! What it is not: aware of homes, growth or keys (see `table`). A bucket does not own the entries to which
//! its words point.
//!
//! ```text
//! bucket, 64 bytes:  7 tags, 1 byte each | overflow counter, 1 byte | 7 words, 8 bytes each
//! word, 64 bits:     h16 (63..48) | address of the entry (47..3) | 0 (2..1) | has a deadline (0)
//! ```
//!
//! Invariants
//! - A place is free exactly when its tag is 0, and then its word is `Word::FREE`.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use crate::entry::{Entry, EntryRef};

pub(crate) const PLACES: usize = 7;

/// The value of an overflow counter whose true count is unknown. A counter that has reached this value keeps
/// it until the table is rebuilt.
const STICKY: u8 = u8::MAX;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const SEVEN_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// The top bit of every byte that is a tag, not of the overflow counter.
const PLACE_BITS: u64 = 0x0080_8080_8080_8080;

const EXPIRING: usize = 1;
const FLAG_BITS: usize = 7;
const H16_SHIFT: u32 = 48;

/// The address of an entry, with the `h16` of its key in the upper 16 bits, and in bit 0 whether the entry
/// has a deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Word(*mut u8);

impl Word {
    const FREE: Word = Word(ptr::null_mut());

    /// The word of an entry. Dropping a word does not free its entry: the owner of the word must free the
    /// entry.
    #[inline]
    pub(crate) fn new(entry: Entry, h16: u16) -> Self {
        let expiring = if entry.as_ref().expire_at_ms().is_some() { EXPIRING } else { 0 };
        Word(entry.into_raw().as_ptr().map_addr(|address| address | (h16 as usize) << H16_SHIFT | expiring))
    }

    #[inline]
    pub(crate) fn h16(self) -> u16 {
        (self.0.addr() >> H16_SHIFT) as u16
    }

    #[inline]
    pub(crate) fn is_expiring(self) -> bool {
        self.0.addr() & EXPIRING != 0
    }

    #[inline]
    pub(crate) fn address(self) -> *const u8 {
        self.0.map_addr(|address| address & ((1 << H16_SHIFT) - 1) & !FLAG_BITS)
    }

    /// Borrows the entry.
    ///
    /// # Safety
    /// The word came from `Word::new`; for `'a` its entry is neither freed nor written.
    #[inline]
    pub(crate) unsafe fn entry<'a>(self) -> EntryRef<'a> {
        // SAFETY: promised by the caller; the address belongs to an entry and so is not null.
        unsafe { EntryRef::from_raw(NonNull::new_unchecked(self.address().cast_mut())) }
    }

    /// Takes ownership of the entry.
    ///
    /// # Safety
    /// The word came from `Word::new` and is not used as a word any more.
    #[inline]
    pub(crate) unsafe fn into_entry(self) -> Entry {
        // SAFETY: promised by the caller; the address belongs to an entry and so is not null.
        unsafe { Entry::from_raw(NonNull::new_unchecked(self.address().cast_mut())) }
    }
}

/// Seven places and the number of entries that passed this bucket because it was full.
///
/// The type does not demand the alignment of a cache line: mimalloc places sizes that are multiples of 64 on
/// multiples of 64 anyway. If an alignment is demanded, mimalloc adds it to the size, which leads to the next
/// size class (17 % more memory with 48 buckets). With another allocator, a bucket may lie across two cache
/// lines, which is slower but correct.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Bucket {
    /// Seven tags, then the overflow counter.
    meta: [u8; 8],
    words: [Word; PLACES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    pub(crate) const EMPTY: Bucket = Bucket { meta: [0; 8], words: [Word::FREE; PLACES] };

    #[inline]
    pub(crate) fn word(&self, place: usize) -> Word {
        self.words[place]
    }

    #[inline]
    pub(crate) fn tag(&self, place: usize) -> u8 {
        self.meta[place]
    }

    /// The places whose tag is `tag` (not 0), ascending.
    #[inline]
    pub(crate) fn matching(&self, tag: u8) -> Places {
        Places(zero_bytes(self.meta_bits() ^ (u64::from(tag) * LOW_BITS)) & PLACE_BITS)
    }

    /// The places that hold an entry, ascending.
    #[inline]
    pub(crate) fn occupied(&self) -> Places {
        Places(!zero_bytes(self.meta_bits()) & PLACE_BITS)
    }

    #[inline]
    pub(crate) fn free_place(&self) -> Option<usize> {
        Places(zero_bytes(self.meta_bits()) & PLACE_BITS).next()
    }

    #[inline]
    pub(crate) fn set(&mut self, place: usize, tag: u8, word: Word) {
        debug_assert!(tag != 0 && place < PLACES);
        self.meta[place] = tag;
        self.words[place] = word;
    }

    #[inline]
    pub(crate) fn replace_word(&mut self, place: usize, word: Word) {
        debug_assert!(self.meta[place] != 0);
        self.words[place] = word;
    }

    #[inline]
    pub(crate) fn clear(&mut self, place: usize) {
        self.meta[place] = 0;
        self.words[place] = Word::FREE;
    }

    /// Whether entries may have passed this bucket.
    #[inline]
    pub(crate) fn has_overflow(&self) -> bool {
        self.meta[PLACES] != 0
    }

    /// The number of entries that have passed this bucket; `None` if it is no longer known.
    pub(crate) fn overflow(&self) -> Option<u8> {
        (self.meta[PLACES] != STICKY).then_some(self.meta[PLACES])
    }

    #[inline]
    pub(crate) fn add_overflow(&mut self) {
        self.meta[PLACES] = self.meta[PLACES].saturating_add(1);
    }

    #[inline]
    pub(crate) fn remove_overflow(&mut self) {
        if self.meta[PLACES] != STICKY {
            self.meta[PLACES] -= 1;
        }
    }

    #[inline]
    fn meta_bits(&self) -> u64 {
        u64::from_le_bytes(self.meta)
    }
}

/// Finds the zero bytes of `bits`: the result has the top bit of each zero byte, and no other bit. The result
/// is exact: no byte influences another.
#[inline]
fn zero_bytes(bits: u64) -> u64 {
    !(((bits & SEVEN_BITS) + SEVEN_BITS) | bits | SEVEN_BITS)
}

/// Places of one bucket: the top bit of byte `n` stands for place `n`.
#[derive(Clone, Copy)]
pub(crate) struct Places(u64);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0 - 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessStamp;

    #[test]
    fn every_tag_is_found_exactly_where_it_is() {
        // An inexact search for zero bytes in a word would be wrong for tag 1 or 0x80 beside a 0.
        let tags = [1u8, 0, 1, 0x80, 0, 0xff, 0x81];
        let mut bucket = Bucket::EMPTY;
        bucket.meta[..PLACES].copy_from_slice(&tags);
        for tag in 1..=255u8 {
            bucket.meta[PLACES] = tag;
            let expected: Vec<usize> = (0..PLACES).filter(|&place| tags[place] == tag).collect();
            assert_eq!(bucket.matching(tag).collect::<Vec<_>>(), expected, "tag {tag}");
        }
        assert_eq!(bucket.occupied().collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
        assert_eq!(bucket.free_place(), Some(1));
    }

    #[test]
    fn a_full_overflow_counter_sticks() {
        let mut bucket = Bucket::EMPTY;
        bucket.add_overflow();
        bucket.remove_overflow();
        assert!(!bucket.has_overflow());
        (0..300).for_each(|_| bucket.add_overflow());
        (0..300).for_each(|_| bucket.remove_overflow());
        assert!(bucket.has_overflow());
        assert_eq!(bucket.overflow(), None);
    }

    #[test]
    fn a_word_gives_back_all_that_it_was_made_of() {
        let entry = Entry::new(b"key", b"value", Some(7), AccessStamp::default());
        let word = Word::new(entry, 0xffff);
        assert_eq!((word.h16(), word.is_expiring()), (0xffff, true));
        // SAFETY: the word was made two lines above and is not used afterwards.
        let entry = unsafe { word.into_entry() };
        assert_eq!(entry.as_ref().key(), b"key");
    }
}
