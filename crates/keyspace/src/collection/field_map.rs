//! Field maps: the hash table inside one big collection, of up to tens of millions of fields.
//!
//! What it is: fields, each with a value of bytes and maybe a deadline, by extendible hashing. A directory,
//! indexed by the upper bits of a field's hash, names small segments. A segment is a `Table` of the fields
//! whose hash starts with the segment's prefix. The fields of the whole map are in the order of their hashes,
//! which `scan` relies on.
//! What it is not: a map with a policy. Whether a field has expired does not matter here. Hashes, sets and
//! sorted sets use field maps; their rules are in their own files.
//!
//! ```text
//! hash of a field:  prefix, 0 to 32 bits | 24 bits                           | not used
//!                   names the segment    | position and tag in its `Table`   |
//! ```
//!
//! No operation moves more fields than one segment holds: a full segment splits in two, and buddies that are
//! nearly empty merge. The directory doubles and halves as a whole, but with evenly distributed hashes it
//! takes only four bytes for hundreds of fields.
//!
//! Invariants
//! - At each index, the directory has the number of the segment whose prefix the index starts with. The
//!   number of every segment is in the directory.
//! - An entry stays at its address until it is removed or its own size class changes, whatever happens to
//!   other fields: splits, merges and rebuilds move pointers only.
//! - Two buddies (segments that a split made) together hold at least `MERGED_LEN_MIN` fields.
//! - `len`, `table_bytes` and the count of expiring fields are the sums over the segments.
//! - Memory is bounded by the number of fields, even if hashes collide (`DIRECTORY_SHARE_MIN`).

mod capture;
mod deadlines;
mod hasher;
mod resize;
mod segment;
mod walk;

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;

use crate::access::AccessStamp;
use smallvec::SmallVec;

use crate::entry::{Entry, EntryRef};
use crate::table::prefetch_line;
use capture::Capture;
use deadlines::Deadlines;
use hasher::FieldHasher;
use segment::{Segment, Tally};

/// A segment with this many fields splits before another field is added. Only a segment of similar hashes may
/// grow further.
///
/// Measured with a million fields: a field takes 11.7 bytes besides its entry; getting a field takes 0.12 us
/// and putting one 0.2 us, as in a `Table` of a slot; a split takes about 20 us. With 256 or 1024, getting
/// and putting take the same times, and a field takes as much memory within 0.2 bytes. A split at 1024 takes
/// 40 us.
const SEGMENT_LEN_MAX: usize = if cfg!(miri) { 24 } else { 512 };

/// Two buddies that together have fewer fields than this merge.
const MERGED_LEN_MIN: usize = SEGMENT_LEN_MAX / 4;

/// The directory doubles only if the map has at least this many fields for each number in the directory. With
/// evenly distributed hashes, the map has more fields than that. If all hashes are equal, a segment grows
/// instead of the directory.
const DIRECTORY_SHARE_MIN: usize = if cfg!(miri) { 1 } else { 16 };

/// The maximum number of fields whose memory is fetched together.
const FETCHED_MAX: usize = 32;

/// The hash table of one big collection: fields with values, some with deadlines.
pub(crate) struct FieldMap {
    hasher: FieldHasher,
    /// Numbers of segments; the length is a power of two.
    directory: Box<[u32]>,
    segments: Vec<Segment>,
    len: usize,
    /// Bytes of the buckets and entries of all segments.
    table_bytes: usize,
    /// `Some` only while fields have deadlines.
    deadlines: Option<Box<Deadlines>>,
    /// `Some` only while the map is captured.
    capture: Option<Box<Capture>>,
}

#[cfg(not(test))]
const _: () = assert!(size_of::<FieldMap>() == 136);

/// The outcome of `FieldMap::put`.
pub(crate) enum Put {
    /// The field is new.
    Added,
    /// The field had a value. Holds the old entry if the new value needed another allocation.
    Replaced(Option<Entry>),
}

impl FieldMap {
    /// An empty map. The seed decides the order of the fields and should not be known to clients.
    pub(crate) fn new(seed: u64) -> Self {
        FieldMap {
            hasher: FieldHasher::new(seed),
            directory: Box::new([0]),
            segments: vec![Segment::whole()],
            len: 0,
            table_bytes: 0,
            deadlines: None,
            capture: None,
        }
    }

    /// Number of fields, expired ones included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory behind this structure: entries, buckets, segments, directory, deadlines.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let deadlines = self.deadlines.as_ref().map_or(0, |deadlines| deadlines.bytes());
        let segments = self.segments.capacity() * size_of::<Segment>();
        self.table_bytes + segments + size_of_val(&*self.directory) + deadlines
    }

    /// The entry of the field: its key is the field.
    #[inline]
    pub(crate) fn get(&self, field: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hasher.hash(field);
        self.segment(hash).get(hash, field)
    }

    /// Starts loading the entries of the first [`FETCHED_MAX`] of these fields, level by level of the
    /// structure: the cache misses of one level then overlap.
    pub(crate) fn prefetch<'f>(&self, fields: impl Iterator<Item = &'f [u8]>) {
        let hashes: SmallVec<[u64; FETCHED_MAX]> =
            fields.take(FETCHED_MAX).map(|field| self.hasher.hash(field)).collect();
        let segments = || hashes.iter().map(|&hash| (hash, self.segment(hash)));
        segments().for_each(|(_, segment)| prefetch_line(segment));
        segments().for_each(|(hash, segment)| segment.table.prefetch_bucket(&segment.key_hash(hash)));
        segments().for_each(|(hash, segment)| segment.table.prefetch_entry(&segment.key_hash(hash)));
    }

    /// Sets the value and the deadline of the field. If the field exists and its entry keeps its size class,
    /// the entry is changed in place.
    pub(crate) fn put(&mut self, field: &[u8], value: &[u8], expire_at_ms: Option<u64>) -> Put {
        let hash = self.hasher.hash(field);
        let stamp = AccessStamp::default();
        let put = |entry: &mut Entry| entry.put(field, value, expire_at_ms, stamp);
        match self.change(hash, |segment| segment.update(hash, field, put)) {
            Some(old) => Put::Replaced(old),
            None => {
                self.insert(hash, Entry::new(field, value, expire_at_ms, stamp));
                Put::Added
            }
        }
    }

    /// Adds a field that is not in the map.
    pub(crate) fn insert_new(&mut self, field: &[u8], value: &[u8]) -> EntryRef<'_> {
        let hash = self.hasher.hash(field);
        self.insert(hash, Entry::new(field, value, None, AccessStamp::default()));
        self.segment(hash).get(hash, field).expect("inserted above")
    }

    /// Adds an entry whose key is a field that is not in the map.
    pub(crate) fn insert_entry(&mut self, entry: Entry) {
        let hash = self.hasher.hash(entry.as_ref().key());
        self.insert(hash, entry);
    }

    /// Runs `change` on the entry of the field, whose key it must not change; `None` if there is no such
    /// field.
    pub(crate) fn update<R>(&mut self, field: &[u8], change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let hash = self.hasher.hash(field);
        self.change(hash, |segment| segment.update(hash, field, change))
    }

    /// Takes the field out.
    pub(crate) fn remove(&mut self, field: &[u8]) -> Option<Entry> {
        let hash = self.hasher.hash(field);
        let removed = self.change(hash, |segment| segment.remove(hash, field))?;
        self.merge_where_sparse(hash);
        Some(removed)
    }

    fn insert(&mut self, hash: u64, entry: Entry) {
        self.split_if_full(hash);
        self.change(hash, |segment| segment.insert(hash, entry));
    }

    /// Runs a change of the segment that the hash belongs to and does the bookkeeping after it.
    #[inline]
    fn change<R>(&mut self, hash: u64, run: impl FnOnce(&mut Segment) -> R) -> R {
        let number = self.number_of(hash);
        self.capture_ahead(number);
        let segment = &mut self.segments[number];
        let before = segment.tally();
        let result = run(segment);
        let after = segment.tally();
        if after != before {
            self.count(before, after);
            self.tend_deadlines(number, before, after);
        }
        result
    }

    #[inline]
    fn count(&mut self, before: Tally, after: Tally) {
        self.len = self.len + after.len - before.len;
        self.table_bytes = self.table_bytes + after.bytes - before.bytes;
    }

    #[inline]
    fn segment(&self, hash: u64) -> &Segment {
        &self.segments[self.number_of(hash)]
    }

    /// The number of the segment that the hash belongs to.
    #[inline]
    fn number_of(&self, hash: u64) -> usize {
        self.directory[self.directory_index(hash)] as usize
    }

    #[inline]
    fn directory_index(&self, hash: u64) -> usize {
        // The shift is made in two steps, because a directory of one number needs a shift by 64 bits, which
        // overflows in one step.
        (hash >> 1 >> (63 - self.directory_depth())) as usize
    }

    /// How many bits of a hash index the directory.
    #[inline]
    fn directory_depth(&self) -> u32 {
        self.directory.len().trailing_zeros()
    }
}
