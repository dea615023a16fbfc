//! The addresses of the bucket arrays: one word per slot, readable without the lock of the slot, so that a
//! bucket can be prefetched.
//!
//! What it is: for each slot, an address and a length that may be out of date, for prefetching only.
//! What it is not: a way to the table. The address is never dereferenced; prefetching a stale address is
//! harmless.
//!
//! Hints exist only for database 0 and for tables of fewer than 65 536 buckets; buckets of other tables are
//! loaded when they are used.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{
    hash::KeyHash,
    id::{SLOT_COUNT, SlotId},
    table::{BUCKET_BYTES, Table, home_of, prefetch_line},
};

const ADDRESS_BITS: u32 = 48;

pub(crate) struct Hints {
    words: Box<[AtomicU64]>,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Hints { words: (0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes the address of the table of database 0. The caller holds the slot's lock.
    #[inline]
    pub(crate) fn note(&self, slot: SlotId, table: &Table) {
        let (address, buckets) = table.location();
        let fits = buckets < 1 << 16 && (address as u64) < 1 << ADDRESS_BITS;
        let word = if fits { (buckets as u64) << ADDRESS_BITS | address as u64 } else { 0 };
        let hint = &self.words[slot.index()];
        if hint.load(Relaxed) != word {
            hint.store(word, Relaxed);
        }
    }

    /// Starts loading the bucket where the key would be.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: &KeyHash) {
        let word = self.words[hash.slot().index()].load(Relaxed);
        let (address, buckets) = (word & ((1 << ADDRESS_BITS) - 1), (word >> ADDRESS_BITS) as usize);
        if buckets > 0 {
            let offset = home_of(hash.position(), buckets) * BUCKET_BYTES;
            prefetch_line((address as usize).wrapping_add(offset) as *const u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_no_address() {
        let hints = Hints::new();
        hints.note(SlotId::FIRST, &Table::new());
        assert_eq!(hints.words[0].load(Relaxed) >> ADDRESS_BITS, 0);
    }
}
