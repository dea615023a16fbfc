//! The table of tracked keys with the clients that may have cached them.
//!
//! Invariants
//! - A key is in the shard of its slot. Under the lock of a shard, only the list of tracking clients is
//!   locked.
//! - `order` holds every key of `keys` once, at the position in its entry, so that a random key can be
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

/// The number of locks of the table; many slots share one.
const SHARDS: usize = 64;

/// The ids of the clients that have read a key.
pub(super) type Readers = SmallVec<[u64; 2]>;
/// A key that is no longer tracked, and its readers.
pub(super) type Tracked = (Arc<[u8]>, Readers);

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
    fn remove(&mut self, key: &[u8]) -> Option<Tracked> {
        let (key, entry) = self.keys.remove_entry(key)?;
        self.order.swap_remove(entry.position);
        if let Some(moved) = self.order.get(entry.position) {
            self.keys.get_mut(moved).expect("every key has an entry").position = entry.position;
        }
        Some((key, entry.readers))
    }

    /// Removes a random one of the first `count` keys of `order`.
    fn remove_any(&mut self, count: usize) -> Option<Tracked> {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let place = ((self.random >> 33) as usize).checked_rem(count)?;
        let key = self.order.get(place)?.clone();
        self.remove(&key)
    }
}

/// The tracked keys and their readers, by slot.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// The number of keys in all shards.
    len: AtomicUsize,
    /// The number of pairs of key and reader.
    items: AtomicUsize,
    keys_max: AtomicUsize,
    /// Grows, so that each eviction begins at another shard.
    next_evicted: AtomicUsize,
}

impl Default for Table {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Table { shards, len: 0.into(), items: 0.into(), keys_max: 1_000_000.into(), next_evicted: 0.into() }
    }
}

impl Table {
    pub(super) fn set_keys_max(&self, keys_max: usize) {
        self.keys_max.store(keys_max, Relaxed);
    }

    fn shard(&self, slot: SlotId) -> &Mutex<Shard> {
        &self.shards[slot.index() % SHARDS]
    }

    /// Adds a reader of a key. Returns the key that was evicted to make room, and its readers. `tracks`
    /// returns whether a client still tracks: clients that no longer track are removed from the entry when
    /// the entry is full.
    pub(super) fn add(
        &self,
        slot: SlotId,
        key: &[u8],
        reader: u64,
        mut tracks: impl FnMut(&u64) -> bool,
    ) -> Option<Tracked> {
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
        self.len.fetch_add(1, Relaxed);
        if self.surplus() == 0 {
            return None;
        }
        // The new key is the last one.
        let gone = shard.remove_any(position);
        drop(shard);
        match gone {
            Some(gone) => {
                self.removed(1, gone.1.len());
                Some(gone)
            }
            None => self.evict_from((slot.index() + 1) % SHARDS, 1).pop(),
        }
    }

    /// The number of keys beyond the limit.
    fn surplus(&self) -> usize {
        match self.keys_max.load(Relaxed) {
            0 => 0,
            keys_max => self.len().saturating_sub(keys_max),
        }
    }

    /// Evicts keys beyond the limit, at most `count`, and returns them.
    pub(super) fn evict(&self, count: usize) -> Vec<Tracked> {
        match self.surplus().min(count) {
            0 => Vec::new(),
            count => self.evict_from(self.next_evicted.fetch_add(1, Relaxed) % SHARDS, count),
        }
    }

    /// Evicts `count` keys, if there are as many. Each shard, beginning with `first`, first gives up to an
    /// equal share; then any shard gives the rest.
    fn evict_from(&self, first: usize, count: usize) -> Vec<Tracked> {
        let mut gone = Vec::new();
        for share in [count.div_ceil(SHARDS), count] {
            for shard in self.shards.iter().cycle().skip(first).take(SHARDS) {
                if gone.len() == count {
                    return gone;
                }
                let mut shard = shard.lock();
                for _ in 0..share.min(count - gone.len()) {
                    let keys = shard.order.len();
                    let Some(next) = shard.remove_any(keys) else { break };
                    self.removed(1, next.1.len());
                    gone.push(next);
                }
            }
        }
        gone
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
    fn the_limit_holds_over_all_shards_and_when_it_is_lowered() {
        let table = Table::default();
        for number in 0..1000 {
            assert_eq!(add(&table, &format!("key:{number}"), 1), None);
        }
        table.set_keys_max(300);
        let (first, rest) = (table.evict(500), table.evict(500));
        assert_eq!((first.len(), rest.len(), table.len()), (500, 200, 300));
        assert!(table.evict(500).is_empty());
        table.set_keys_max(1);
        assert_eq!(table.evict(usize::MAX).len(), 299);
        // Each new key drives out the one before, in whatever shard that is.
        for number in 0..100 {
            let gone = add(&table, &format!("new:{number}"), 2).map(|(_, readers)| readers.len());
            assert_eq!((gone, table.len(), table.items()), (Some(1), 1, 1), "{number}");
        }
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
