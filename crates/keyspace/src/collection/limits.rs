//! Packed limits: the sizes up to which collections stay in their packed form.
//!
//! What it is: the settings `*-max-listpack-*` and `set-max-intset-entries`, as numbers.
//! What it is not: part of the data. Replaying a log under other limits gives the same values in other forms.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How large a packed collection may be. A hash field with its value is one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedLimits {
    /// The maximum number of elements of a packed list.
    pub list_entries: u32,
    /// The maximum bytes of a packed list as it lies in memory.
    pub list_bytes: u32,
    /// The maximum number of members of a set of integers in packed form.
    pub set_integers: u32,
    /// The maximum number of members of a packed set that is not stored as integers.
    pub set_entries: u32,
    /// The maximum bytes of a member of a packed set.
    pub set_value_bytes: u32,
    /// The maximum number of members of a packed sorted set.
    pub zset_entries: u32,
    /// The maximum bytes of a member of a packed sorted set.
    pub zset_value_bytes: u32,
    /// The maximum number of fields of a packed hash.
    pub hash_entries: u32,
    /// The maximum bytes of a field or a value of a packed hash.
    pub hash_value_bytes: u32,
}

impl PackedLimits {
    /// The defaults of Redis 7.2.
    pub const DEFAULT: PackedLimits = PackedLimits {
        list_entries: u32::MAX,
        list_bytes: 8192,
        set_integers: 512,
        set_entries: 128,
        set_value_bytes: 64,
        zset_entries: 128,
        zset_value_bytes: 64,
        hash_entries: 512,
        hash_value_bytes: 64,
    };

    fn to_array(self) -> [u32; 9] {
        let PackedLimits {
            list_entries,
            list_bytes,
            set_integers,
            set_entries,
            set_value_bytes,
            zset_entries,
            zset_value_bytes,
            hash_entries,
            hash_value_bytes,
        } = self;
        [
            list_entries,
            list_bytes,
            set_integers,
            set_entries,
            set_value_bytes,
            zset_entries,
            zset_value_bytes,
            hash_entries,
            hash_value_bytes,
        ]
    }
}

/// The limits in force, read by every edit without a lock.
pub(crate) struct SharedLimits([AtomicU32; 9]);

impl SharedLimits {
    pub(crate) fn new(limits: PackedLimits) -> Self {
        SharedLimits(limits.to_array().map(AtomicU32::new))
    }

    pub(crate) fn store(&self, limits: PackedLimits) {
        self.0.iter().zip(limits.to_array()).for_each(|(shared, value)| shared.store(value, Relaxed));
    }

    #[inline]
    pub(crate) fn load(&self) -> PackedLimits {
        let at = |index: usize| self.0[index].load(Relaxed);
        PackedLimits {
            list_entries: at(0),
            list_bytes: at(1),
            set_integers: at(2),
            set_entries: at(3),
            set_value_bytes: at(4),
            zset_entries: at(5),
            zset_value_bytes: at(6),
            hash_entries: at(7),
            hash_value_bytes: at(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_limits_are_loaded_unchanged() {
        let mut limits = PackedLimits::DEFAULT;
        limits.hash_value_bytes = 1;
        limits.list_entries = 2;
        let shared = SharedLimits::new(PackedLimits::DEFAULT);
        assert_eq!(shared.load(), PackedLimits::DEFAULT);
        shared.store(limits);
        assert_eq!(shared.load(), limits);
    }
}
