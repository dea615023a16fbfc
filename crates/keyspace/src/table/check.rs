//! The invariants of a table, checked by walking it, for tests.

use super::{Table, len_max};
use crate::hash::KeyHash;

impl Table {
    /// Walks the whole table and checks its invariants.
    ///
    /// # Panics
    /// If an invariant of the table is broken.
    pub(crate) fn check(&self, hash_of: impl Fn(&[u8]) -> KeyHash) {
        let mut passed = vec![0u64; self.buckets.len()];
        let (mut len, mut expiring, mut entry_bytes) = (0, 0, 0);
        for place in self.places() {
            let entry = self.entry(place);
            let hash = hash_of(entry.key());
            assert_eq!(self.position_of(place), hash.position(), "position of {entry:?}");
            assert_eq!(self.word(place).is_expiring(), entry.expire_at_ms().is_some(), "flag of {entry:?}");
            assert!(self.find(&hash, entry.key()) == Some(place), "{entry:?} is not found where it is");
            let mut bucket = self.home(hash.position());
            while bucket != place.bucket {
                passed[bucket] += 1;
                bucket = self.after(bucket);
            }
            len += 1;
            expiring += u32::from(self.word(place).is_expiring());
            entry_bytes += entry.allocated_bytes();
        }
        for (line, passed) in self.buckets.iter().zip(passed) {
            let counted = line.overflow().map(u64::from);
            assert!(counted.is_none_or(|counted| counted == passed), "{counted:?} counted, {passed} passed");
        }
        assert_eq!((self.len, self.expiring), (len, expiring), "counts");
        assert!(self.len as usize <= len_max(self.buckets.len()), "overfull");
        assert_eq!(self.entry_bytes, entry_bytes, "bytes of entries");
    }
}
