//! Tables against a model, with hashes from spread out to all equal.

use std::collections::{BTreeMap, btree_map};

use proptest::prelude::*;

use super::*;
use crate::access::AccessStamp;
use crate::hash::KeyHasher;

/// Masks of positions: all entries at one position; in few buckets with equal tags; at few positions; spread
/// out.
const MASKS: [u32; 4] = [0, 0x00ff_0000, 0x0000_8003, u32::MAX];

fn hasher(position_mask: u32) -> KeyHasher {
    let mut hasher = KeyHasher::new(1);
    hasher.position_mask = position_mask;
    hasher
}

fn key(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn entry(key: &[u8], expire_at_ms: Option<u64>) -> Entry {
    Entry::new(key, key, expire_at_ms, AccessStamp::default())
}

/// A table of the keys with these numbers.
fn filled(hasher: &KeyHasher, numbers: impl Iterator<Item = u32>) -> Table {
    let mut table = Table::new();
    for number in numbers {
        let key = key(number);
        table.insert(&hasher.hash(&key), entry(&key, None));
    }
    table
}

fn remove(table: &mut Table, hasher: &KeyHasher, key: &[u8]) -> bool {
    table.get_mut(&hasher.hash(key), key).map(Occupied::remove).is_some()
}

#[test]
fn an_empty_table_has_nothing_and_takes_nothing() {
    let hasher = hasher(u32::MAX);
    let mut table = Table::new();
    assert_eq!((table.len(), table.bytes()), (0, 0));
    assert!(table.get(&hasher.hash(b"k"), b"k").is_none());
    assert!(!remove(&mut table, &hasher, b"k"));
    assert_eq!(table.visit_from(0, |_| unreachable!()), POSITION_END);
    table.prefetch_entry(&hasher.hash(b"k"));
}

#[test]
fn growth_and_shrinkage_keep_the_load_and_give_everything_back() {
    let hasher = hasher(u32::MAX);
    let count = if cfg!(miri) { 150 } else { 20_000 };
    let mut table = Table::new();
    let mut rebuilds = 0;
    for number in 0..count {
        let (key, buckets) = (key(number), table.buckets.len());
        table.insert(&hasher.hash(&key), entry(&key, None));
        rebuilds += usize::from(table.buckets.len() != buckets);
        assert!(table.buckets.len() <= 1 || table.len as usize * 100 / (table.buckets.len() * PLACES) >= 57);
    }
    table.check(|key| hasher.hash(key));
    assert!(rebuilds < 60, "{rebuilds}");
    for number in 0..count {
        assert!(remove(&mut table, &hasher, &key(number)), "{number}");
        assert!(table.len as usize >= len_min(table.buckets.len()) || table.buckets.is_empty());
    }
    assert_eq!((table.len(), table.bytes()), (0, 0));
}

#[test]
fn equal_positions_overflow_through_many_buckets_and_stick() {
    let hasher = hasher(0);
    let count = if cfg!(miri) { 270 } else { 600 };
    let mut table = filled(&hasher, 0..count);
    table.check(|key| hasher.hash(key));
    assert!(table.buckets.iter().any(|bucket| bucket.overflow().is_none()), "some counters are stuck");
    for number in (0..count).step_by(2) {
        assert!(remove(&mut table, &hasher, &key(number)));
    }
    table.check(|key| hasher.hash(key));
    assert!((0..count).all(|n| table.get(&hasher.hash(&key(n)), &key(n)).is_some() == (n % 2 == 1)));
}

#[test]
fn a_reserved_table_does_not_rebuild_while_it_fills() {
    let hasher = hasher(u32::MAX);
    let mut table = Table::new();
    table.reserve(100);
    let buckets = table.buckets.len();
    (0..100).map(key).for_each(|key| table.insert(&hasher.hash(&key), entry(&key, None)));
    assert_eq!(table.buckets.len(), buckets);
}

#[test]
fn an_update_that_moves_the_entry_is_found_again() {
    let hasher = hasher(u32::MAX);
    let mut table = filled(&hasher, 0..20);
    let (hash, key) = (hasher.hash(b"key:3"), b"key:3");
    let bytes = table.bytes();
    let value = [9; 500];
    let mut occupied = table.get_mut(&hash, key).expect("present");
    let stamp = AccessStamp::default();
    let replaced = occupied.update(|entry| entry.put(key, &value, Some(1), stamp));
    assert!(replaced.is_some());
    assert_eq!(table.get(&hash, key).and_then(|entry| entry.string()), Some(&value[..]));
    assert_eq!((table.expiring(), table.bytes() - bytes), (1, 640 - 32));
    table.check(|key| hasher.hash(key));
}

#[test]
fn a_panic_during_an_update_leaves_a_whole_table() {
    let hasher = hasher(u32::MAX);
    let mut table = filled(&hasher, 0..3);
    let hash = hasher.hash(b"key:1");
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut occupied = table.get_mut(&hash, b"key:1").expect("present");
        occupied.update(|entry| {
            entry.set_expiry(Some(77));
            panic!("after the entry moved");
        });
    }));
    assert!(unwound.is_err());
    assert_eq!(table.get(&hash, b"key:1").and_then(|entry| entry.expire_at_ms()), Some(77));
    table.check(|key| hasher.hash(key));
}

#[test]
fn random_entries_are_even() {
    let hasher = hasher(u32::MAX);
    for count in [3, 200] {
        let table = filled(&hasher, 0..count);
        let mut sequence = prng::Prng::new(3);
        let mut hits = BTreeMap::<Vec<u8>, u32>::new();
        let tries = if cfg!(miri) { 5 } else { 100 };
        for _ in 0..count * tries {
            let entry = table.random_entry(&mut || sequence.next_u64()).expect("not empty");
            *hits.entry(entry.key().to_vec()).or_default() += 1;
        }
        if !cfg!(miri) {
            assert_eq!(hits.len(), count as usize);
            assert!(hits.values().all(|&hits| (50..180).contains(&hits)), "{hits:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, Option<u64>),
    Remove(u32),
    SetExpiry(u32, Option<u64>),
    Reserve(usize),
}

fn step(keys: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..keys, any::<Option<u64>>()).prop_map(|(key, expiry)| Step::Insert(key, expiry)),
        4 => (0..keys).prop_map(Step::Remove),
        1 => (0..keys, any::<Option<u64>>()).prop_map(|(key, expiry)| Step::SetExpiry(key, expiry)),
        1 => (0..60usize).prop_map(Step::Reserve),
    ]
}

fn run(step: &Step, table: &mut Table, model: &mut BTreeMap<Vec<u8>, Option<u64>>, hasher: &KeyHasher) {
    match *step {
        Step::Insert(number, expire_at_ms) => {
            if let btree_map::Entry::Vacant(vacant) = model.entry(key(number)) {
                let key = vacant.key();
                table.insert(&hasher.hash(key), entry(key, expire_at_ms));
                vacant.insert(expire_at_ms);
            }
        }
        Step::Remove(number) => {
            let removed = remove(table, hasher, &key(number));
            assert_eq!(removed, model.remove(&key(number)).is_some());
        }
        Step::SetExpiry(number, expire_at_ms) => {
            let key = key(number);
            let occupied = table.get_mut(&hasher.hash(&key), &key);
            assert_eq!(occupied.is_some(), model.contains_key(&key));
            if let Some(mut occupied) = occupied {
                occupied.update(|entry| entry.set_expiry(expire_at_ms));
                model.insert(key, expire_at_ms);
            }
        }
        Step::Reserve(additional) => table.reserve(additional),
    }
}

proptest! {
    #[test]
    fn a_table_is_a_map(
        mask in prop::sample::select(&MASKS[..]),
        steps in prop::collection::vec(step(90), 0..if cfg!(miri) { 60 } else { 400 }),
    ) {
        let hasher = hasher(mask);
        let (mut table, mut model) = (Table::new(), BTreeMap::new());
        for step in &steps {
            run(step, &mut table, &mut model, &hasher);
        }
        table.check(|key| hasher.hash(key));
        let content: BTreeMap<_, _> =
            table.entries().map(|entry| (entry.key().to_vec(), entry.expire_at_ms())).collect();
        prop_assert_eq!(&content, &model);
        prop_assert_eq!(table.len() as usize, model.len());
        for (key, expire_at_ms) in &model {
            let mut found = Vec::new();
            table.for_each_at(&hasher.hash(key), |entry| found.push(entry.key().to_vec()));
            prop_assert!(found.contains(key));
            prop_assert_eq!(table.get(&hasher.hash(key), key).map(|e| e.expire_at_ms()), Some(*expire_at_ms));
        }
        let expiring = table.expiring_entries().inspect(|(position, entry)| {
            assert_eq!(*position, hasher.hash(entry.key()).position());
        });
        prop_assert_eq!(expiring.count(), model.values().flatten().count());
    }

    #[test]
    fn ranges_of_positions_cover_every_entry_once_in_order(
        mask in prop::sample::select(&MASKS[..]),
        count in 0..if cfg!(miri) { 40u32 } else { 2000 },
    ) {
        let hasher = hasher(mask);
        let table = filled(&hasher, 0..count);
        let (mut position, mut seen) = (0, BTreeMap::new());
        while position < POSITION_END {
            let start = position;
            let mut visited = Vec::new();
            position = table.visit_from(start, |entry| visited.push(entry.key().to_vec()));
            prop_assert!(position > start);
            for key in visited {
                prop_assert!((start..position).contains(&u32::from(hasher.hash(&key).h16)));
                *seen.entry(key).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(seen.len(), count as usize);
        prop_assert!(seen.values().all(|&visits| visits == 1));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many entries")]
fn more_buckets_than_values_of_h16_still_work() {
    let hasher = hasher(u32::MAX);
    let count = 500_000;
    let table = filled(&hasher, 0..count);
    assert!(table.buckets.len() > 1 << 16);
    assert!((0..count).step_by(997).all(|n| table.get(&hasher.hash(&key(n)), &key(n)).is_some()));
    let (mut position, mut seen) = (0, 0);
    while position < POSITION_END {
        position = table.visit_from(position, |_| seen += 1);
    }
    assert_eq!(seen, count);
}
