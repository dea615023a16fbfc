//! The table of tracked keys with the clients that may have cached them.
//!
//! Invariants
//! - A key is in the shard of its slot. Under the lock of a shard, only the list of tracking clients is
//!   locked.
//! - `order` holds every key of `keys` once, at the position in its entry, so that a random one can be
//!   chosen.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use keyspace::SlotId;
use parking_lot::Mutex;
use smallvec::SmallVec;

/// Locks of the table, each shared by many slots.
const SHARDS: usize = 64;

/// The ids of the clients that have read a key.
pub(super) type Readers = SmallVec<[u64; 2]>;

#[derive(Debug)]
struct Entry {
    readers: Readers,
    /// The position of the key in `order`.
    position: usize,
}

#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<Arc<[u8]>, Entry>,
    order: Vec<Arc<[u8]>>,
    /// Chooses the key to evict.
    random: u64,
}

impl Shard {
    fn remove(&mut self, key: &[u8]) -> Option<(Arc<[u8]>, Readers)> {
        let (key, entry) = self.keys.remove_entry(key)?;
        self.order.swap_remove(entry.position);
        if let Some(moved) = self.order.get(entry.position) {
            self.keys.get_mut(moved).expect("every key has an entry").position = entry.position;
        }
        Some((key, entry.readers))
    }

    /// Removes a random key, but not the one that was added last.
    fn remove_any(&mut self) -> Option<(Arc<[u8]>, Readers)> {
        let others = self.order.len().checked_sub(1).filter(|others| *others > 0)?;
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let key = self.order[(self.random >> 33) as usize % others].clone();
        self.remove(&key)
    }
}

/// The tracked keys and their readers, by slot.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// The number of keys.
    len: AtomicUsize,
    /// The number of pairs of key and reader.
    items: AtomicUsize,
    keys_max: AtomicUsize,
}

impl Default for Table {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Table { shards, len: 0.into(), items: 0.into(), keys_max: 1_000_000.into() }
    }
}

impl Table {
    pub(super) fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Relaxed);
    }

    fn shard(&self, slot: SlotId) -> &Mutex<Shard> {
        &self.shards[slot.index() % SHARDS]
    }

    /// Adds a reader of a key. Returns the key that was evicted for it, and its readers. `tracks` returns
    /// whether a client still tracks: the others are removed from the entry when the entry is full.
    pub(super) fn add(
        &self,
        slot: SlotId,
        key: &[u8],
        reader: u64,
        mut tracks: impl FnMut(&u64) -> bool,
    ) -> Option<(Arc<[u8]>, Readers)> {
        let mut shard = self.shard(slot).lock();
        if let Some(entry) = shard.keys.get_mut(key) {
            if !entry.readers.contains(&reader) {
                let before = entry.readers.len();
                if before == entry.readers.capacity() {
                    entry.readers.retain(|reader| tracks(reader));
                }
                self.items.fetch_sub(before - entry.readers.len(), Relaxed);
                entry.readers.push(reader);
                self.items.fetch_add(1, Relaxed);
            }
            return None;
        }
        let (key, position): (Arc<[u8]>, usize) = (key.into(), shard.order.len());
        shard.order.push(key.clone());
        shard.keys.insert(key, Entry { readers: SmallVec::from_slice(&[reader]), position });
        self.items.fetch_add(1, Relaxed);
        let len = self.len.fetch_add(1, Relaxed) + 1;
        let keys_max = self.keys_max.load(Relaxed);
        if keys_max == 0 || len <= keys_max {
            return None;
        }
        let gone = shard.remove_any()?;
        self.removed(1, gone.1.len());
        Some(gone)
    }

    fn removed(&self, keys: usize, items: usize) {
        self.len.fetch_sub(keys, Relaxed);
        self.items.fetch_sub(items, Relaxed);
    }

    /// Removes a key. Returns its readers.
    pub(super) fn take(&self, slot: SlotId, key: &[u8]) -> Readers {
        let Some((_, readers)) = self.shard(slot).lock().remove(key) else { return Readers::new() };
        self.removed(1, readers.len());
        readers
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.removed(shard.keys.len(), shard.keys.values().map(|entry| entry.readers.len()).sum());
            *shard = Shard { random: shard.random, ..Shard::default() };
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(super) fn items(&self) -> usize {
        self.items.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use keyspace::slot_of;
    use proptest::prelude::*;

    use super::*;

    fn add(table: &Table, key: &str, reader: u64) -> Option<(String, Vec<u64>)> {
        let gone = table.add(slot_of(key.as_bytes()), key.as_bytes(), reader, |_| true);
        gone.map(|(key, readers)| (String::from_utf8_lossy(&key).into_owned(), readers.to_vec()))
    }

    fn take(table: &Table, key: &str) -> BTreeSet<u64> {
        table.take(slot_of(key.as_bytes()), key.as_bytes()).into_iter().collect()
    }

    proptest! {
        #[test]
        fn the_table_is_a_map_from_keys_to_sets(steps in prop::collection::vec((0u8..4, 0u8..30, 1u64..6), 0..300)) {
            let (table, mut model) = (Table::default(), BTreeMap::<String, BTreeSet<u64>>::new());
            for (kind, key, reader) in steps {
                let key = format!("key:{key}");
                if kind == 0 {
                    prop_assert_eq!(take(&table, &key), model.remove(&key).unwrap_or_default());
                } else {
                    prop_assert_eq!(add(&table, &key, reader), None);
                    model.entry(key).or_default().insert(reader);
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.items(), model.values().map(BTreeSet::len).sum::<usize>());
            }
            table.clear();
            prop_assert_eq!((table.len(), table.items()), (0, 0));
        }
    }

    #[test]
    fn a_full_table_gives_up_any_key_but_the_new_one() {
        let table = Table::default();
        table.set_keys_max(10);
        let mut known = BTreeSet::new();
        // All in one slot, so in one shard.
        for number in 0..1000 {
            let key = format!("{{a}}{number}");
            let gone = add(&table, &key, 1);
            known.insert(key.clone());
            if let Some((gone, readers)) = gone {
                assert!(gone != key && readers == [1] && known.remove(&gone), "{gone}");
            }
            assert_eq!(table.len(), known.len());
            assert!(known.len() <= 10);
        }
        assert!(known.iter().any(|key| key != "{a}999" && !key.starts_with("{a}99")), "any, not the oldest");
        table.set_keys_max(0);
        assert_eq!(add(&table, "{a}x", 1), None);
    }

    #[test]
    fn readers_that_no_longer_track_are_removed() {
        let table = Table::default();
        for reader in 0..10_000 {
            table.add(slot_of(b"a"), b"a", reader, |known| known + 3 > reader);
        }
        assert!(table.items() < 10, "{}", table.items());
        assert!(take(&table, "a").contains(&9_999));
    }
}
