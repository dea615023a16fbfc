//! `Freed`: memory that an effect detached and that is not to be freed under a slot's lock.
//!
//! What it is: a bag into which `apply` puts large values, large parts of collections and whole tables.
//! Dropping the bag frees their memory. The bag may be sent to another thread first. An empty bag allocates
//! nothing.
//! What it is not: needed for correctness.

use crate::collection::Big;
use crate::entry::Entry;
use crate::table::Table;

/// Entries, and parts of collections, of at least this many bytes go into the bag; smaller ones are freed at
/// once.
const LAZY_BYTES_MIN: usize = 64 << 10;

/// Memory that effects detached. Dropping it frees the memory.
#[derive(Default)]
pub struct Freed {
    entries: Vec<Entry>,
    bigs: Vec<Big>,
    tables: Vec<Table>,
}

impl Freed {
    /// An empty bag.
    pub const fn new() -> Self {
        Freed { entries: Vec::new(), bigs: Vec::new(), tables: Vec::new() }
    }

    /// Whether there is nothing to free.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.bigs.is_empty() && self.tables.is_empty()
    }

    /// The number of values, parts of collections and tables in the bag.
    pub fn len(&self) -> usize {
        self.entries.len() + self.bigs.len() + self.tables.len()
    }

    /// Frees an entry below `LAZY_BYTES_MIN` at once; keeps a larger entry in the bag.
    #[inline]
    pub(crate) fn entry(&mut self, entry: Entry) {
        if entry.as_ref().allocated_bytes() >= LAZY_BYTES_MIN {
            self.entries.push(entry);
        }
    }

    /// Frees a part of a collection below `LAZY_BYTES_MIN` at once; keeps a larger part in the bag.
    pub(crate) fn big(&mut self, big: Big) {
        if big.bytes() >= LAZY_BYTES_MIN {
            self.bigs.push(big);
        }
    }

    pub(crate) fn table(&mut self, table: Table) {
        if table.len() > 0 {
            self.tables.push(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessStamp;

    #[test]
    fn only_big_entries_are_freed_later() {
        let entry = |len| Entry::new(b"k", &vec![0; len], None, AccessStamp::default());
        let mut freed = Freed::new();
        freed.entry(entry(40 << 10));
        freed.table(Table::new());
        assert!(freed.is_empty());
        freed.entry(entry(64 << 10));
        assert!(!freed.is_empty());
        fn is_send<T: Send>(_: &T) {}
        is_send(&freed);
    }
}
