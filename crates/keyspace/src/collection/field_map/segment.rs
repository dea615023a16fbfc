//! Segments: the fields whose hashes start with the same bits.
//!
//! What it is: a table, the prefix that its fields share, and the time at which the first of them may expire.
//! What it is not: aware of other segments (see `resize`).
//!
//! Invariants
//! - The hash of every field starts with the `depth` bits that `first` starts with.
//! - No deadline is before `next_deadline_ms` (`NEVER` if there is none), except those of fields that were
//!   listed as due and are to be removed.

use crate::entry::{Entry, EntryRef};
use crate::hash::KeyHash;
use crate::id::SlotId;
use crate::slot::NEVER;
use crate::table::{Occupied, Table};

/// The maximum length of a prefix in bits: a cursor of `scan` has room for 32 bits of the prefix and 16 bits
/// of the position.
pub(super) const DEPTH_MAX: u32 = 32;

/// The fields whose hashes start with the same bits.
pub(super) struct Segment {
    pub(super) table: Table,
    /// The time before which no field expires, except fields that were listed as due.
    pub(super) next_deadline_ms: u64,
    /// Upper half of the smallest hash that belongs to the segment; the lower half is 0.
    first: u32,
    depth: u8,
}

/// The contribution of a segment to its map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) len: usize,
    pub(super) bytes: usize,
    pub(super) expiring: usize,
    pub(super) next_deadline_ms: u64,
}

impl Segment {
    /// The segment of all hashes.
    pub(super) fn whole() -> Self {
        Segment::new(0, 0)
    }

    fn new(first: u64, depth: u32) -> Self {
        debug_assert!(depth <= DEPTH_MAX);
        Segment {
            table: Table::new(),
            next_deadline_ms: NEVER,
            first: (first >> 32) as u32,
            depth: depth as u8,
        }
    }

    /// The smallest hash that belongs to the segment.
    #[inline]
    pub(super) fn first(&self) -> u64 {
        u64::from(self.first) << 32
    }

    /// The smallest hash of the segment after this one; 0 if this is the last.
    pub(super) fn end(&self) -> u64 {
        self.first().wrapping_add(1 << 63 >> self.depth << 1)
    }

    /// The length of the prefix in bits.
    #[inline]
    pub(super) fn depth(&self) -> u32 {
        self.depth.into()
    }

    /// The smallest hash of the buddy, which is the other half of the split that made this segment; `None` if
    /// this segment is the whole map.
    pub(super) fn buddy(&self) -> Option<u64> {
        (self.depth > 0).then(|| self.first() ^ 1 << (64 - self.depth))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len() as usize
    }

    #[inline]
    pub(super) fn tally(&self) -> Tally {
        Tally {
            len: self.len(),
            bytes: self.table.bytes(),
            expiring: self.table.expiring() as usize,
            next_deadline_ms: self.next_deadline_ms,
        }
    }

    /// The part of a hash that the table uses: the 24 bits after the prefix.
    #[inline]
    pub(super) fn key_hash(&self, hash: u64) -> KeyHash {
        let position = hash << self.depth >> 40;
        KeyHash { slot: SlotId::FIRST, h16: (position >> 8) as u16, tag: (position as u8).max(1) }
    }

    #[inline]
    pub(super) fn get(&self, hash: u64, field: &[u8]) -> Option<EntryRef<'_>> {
        self.table.get(&self.key_hash(hash), field)
    }

    /// Adds an entry with this hash whose field is not here.
    pub(super) fn insert(&mut self, hash: u64, entry: Entry) {
        self.note_deadline(entry.as_ref().expire_at_ms());
        self.table.insert(&self.key_hash(hash), entry);
    }

    pub(super) fn update<R>(
        &mut self,
        hash: u64,
        field: &[u8],
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let mut occupied = self.table.get_mut(&self.key_hash(hash), field)?;
        let result = occupied.update(change);
        let expire_at_ms = occupied.entry().expire_at_ms();
        self.note_deadline(expire_at_ms);
        Some(result)
    }

    pub(super) fn remove(&mut self, hash: u64, field: &[u8]) -> Option<Entry> {
        let removed = self.table.get_mut(&self.key_hash(hash), field).map(Occupied::remove);
        self.note_deadline(None);
        removed
    }

    /// Splits the segment by the bit after the prefix: keeps the fields whose hash has a 0 there, and returns
    /// a segment of the others.
    pub(super) fn split(&mut self, hash_of: impl Fn(&[u8]) -> u64) -> Segment {
        let depth = self.depth() + 1;
        let mut lower = Segment::new(self.first(), depth);
        let mut upper = Segment::new(self.first() | 1 << (64 - depth), depth);
        for half in [&mut lower, &mut upper] {
            half.table.reserve(self.len() / 2);
        }
        self.table.drain(|entry| {
            let hash = hash_of(entry.as_ref().key());
            let half = if hash < upper.first() { &mut lower } else { &mut upper };
            half.insert(hash, entry);
        });
        *self = lower;
        upper
    }

    /// Undoes a split: takes all fields of the buddy, and shortens the prefix by one bit.
    pub(super) fn merge(&mut self, mut buddy: Segment, hash_of: impl Fn(&[u8]) -> u64) {
        debug_assert_eq!(self.buddy(), Some(buddy.first()));
        let mut whole = Segment::new(self.first().min(buddy.first()), self.depth() - 1);
        whole.table.reserve(self.len() + buddy.len());
        for table in [&mut self.table, &mut buddy.table] {
            table.drain(|entry| whole.insert(hash_of(entry.as_ref().key()), entry));
        }
        *self = whole;
    }

    /// Appends fields that are due, until `fields` has `end` elements. Returns the first deadline of the
    /// fields that were not appended, `NEVER` if none has one.
    pub(super) fn list_due(&self, now_ms: u64, end: usize, fields: &mut Vec<Vec<u8>>) -> u64 {
        let mut first_ms = NEVER;
        for (_, entry) in self.table.expiring_entries() {
            if entry.is_expired(now_ms) && fields.len() < end {
                fields.push(entry.key().to_vec());
            } else {
                first_ms = entry.expire_at_ms().map_or(first_ms, |deadline_ms| deadline_ms.min(first_ms));
            }
        }
        first_ms
    }

    /// Updates `next_deadline_ms` after a change of a field that now has this deadline; `None` if the field
    /// has no deadline or is gone.
    #[inline]
    fn note_deadline(&mut self, expire_at_ms: Option<u64>) {
        match expire_at_ms {
            Some(deadline_ms) => self.next_deadline_ms = self.next_deadline_ms.min(deadline_ms),
            None if self.table.expiring() == 0 => self.next_deadline_ms = NEVER,
            None => {}
        }
    }
}
