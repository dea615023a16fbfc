//! HOTKEYS: the most used keys, from a sample of the commands.
//!
//! This module has one sketch per worker. The hash of a key chooses one of [`SETS`] sets. Each set has a few
//! counters and runs the Space-Saving algorithm: a key without a counter takes over the smallest counter. The
//! count of that counter so far becomes its doubt, the part that may belong to other keys. Only the count
//! without the doubt is reported. Counts and the time they cover are halved together, so that old samples
//! lose weight. The sketch is not exact. A key is certain to have a counter if it makes up more than a
//! quarter of the accesses of its set, which is about one in 256 of all accesses.
//!
//! Invariants
//! - `count - doubt` never exceeds the sampled accesses of the key, `count` never falls below them (before
//!   halving).
//! - The counts of all counters sum up to the samples of all keys of at most [`KEY_BYTES_MAX`] bytes (before
//!   halving).

use keyspace::{DbId, KeyHash};

/// The number of sets of counters; a power of two.
const SETS: usize = 64;
/// The number of keys that one set can tell apart.
const COUNTERS_PER_SET: usize = 4;
/// The number of keys that one worker can tell apart.
pub const COUNTERS: usize = SETS * COUNTERS_PER_SET;
/// The size in bytes above which keys are counted in the total only.
const KEY_BYTES_MAX: usize = 1 << 10;
/// The interval after which counts are halved, in milliseconds.
const HALVED_EVERY_MS: u64 = 10_000;
/// The shortest time over which rates are estimated, in milliseconds.
const COVERED_MS_MIN: u64 = 1000;

/// One counter. It has no key before its first sample.
#[derive(Debug, Clone, Default)]
struct Counter {
    /// The database and hash of the key that has the counter.
    of: Option<(DbId, KeyHash)>,
    count: u64,
    doubt: u64,
    /// The key that has the counter. A key that takes the counter over is stored here without a new
    /// allocation.
    key: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// The counters, set by set; empty before the first sample.
    counters: Vec<Counter>,
    /// Samples, of keys with and without a counter; halved with the counts.
    total: u64,
    /// The time over which counts were gathered; halved with the counts.
    covered_ms: u64,
    /// The end of `covered_ms`; 0 before the first use of the sketch.
    at_ms: u64,
}

/// A key and its accesses per second.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// The database that has the key.
    pub db: DbId,
    /// The name of the key, at most 1 KiB long.
    pub key: Box<[u8]>,
    /// The sampled accesses per second, or an estimate of all accesses that is scaled up from the samples.
    pub per_s: f64,
}

impl HotKeys {
    /// Counts a sampled access to a key. `uses` is the number of keys of the sampled command: the access
    /// counts that many times, because one key was chosen to stand for all.
    pub fn sampled(&mut self, db: DbId, hash: KeyHash, key: &[u8], uses: u64, now_ms: u64) {
        self.fade(now_ms);
        self.total += uses;
        if key.len() > KEY_BYTES_MAX {
            return;
        }
        if self.counters.is_empty() {
            self.counters.resize_with(COUNTERS, Counter::default);
        }
        // The upper bits of the hash, which are independent of the slot: keys with the same hash tag spread
        // too.
        let set = (hash.position() as usize * SETS) >> 24;
        let set = &mut self.counters[set * COUNTERS_PER_SET..][..COUNTERS_PER_SET];
        if let Some(known) = set.iter_mut().find(|it| it.of == Some((db, hash)) && it.key == key) {
            known.count += uses;
        } else if let Some(least) = set.iter_mut().min_by_key(|it| it.count) {
            least.of = Some((db, hash));
            least.doubt = least.count;
            least.count += uses;
            least.key.clear();
            least.key.extend_from_slice(key);
        }
    }

    /// Halves the counts once per elapsed [`HALVED_EVERY_MS`].
    fn fade(&mut self, now_ms: u64) {
        if self.at_ms == 0 {
            self.at_ms = now_ms;
        }
        let mut elapsed_ms = now_ms.saturating_sub(self.at_ms);
        while elapsed_ms >= HALVED_EVERY_MS {
            if self.total == 0 {
                // All counts are 0: the sketch begins anew, and one period without samples counts as covered.
                *self = HotKeys { covered_ms: HALVED_EVERY_MS, at_ms: now_ms, ..HotKeys::default() };
                return;
            }
            elapsed_ms -= HALVED_EVERY_MS;
            self.at_ms += HALVED_EVERY_MS;
            self.covered_ms = (self.covered_ms + HALVED_EVERY_MS) / 2;
            self.total /= 2;
            for counter in &mut self.counters {
                counter.count /= 2;
                counter.doubt /= 2;
            }
        }
    }

    /// The rate of each key, counted without the doubts, and the rate of the samples of all keys; both per
    /// second.
    pub fn rates(&mut self, now_ms: u64) -> (Vec<HotKey>, f64) {
        self.fade(now_ms);
        let covered_ms = self.covered_ms + now_ms.saturating_sub(self.at_ms);
        let seconds = covered_ms.max(COVERED_MS_MIN) as f64 / 1000.0;
        let certain = self.counters.iter().filter(|counter| counter.count > counter.doubt);
        let rates = certain.filter_map(|counter| {
            let (db, _) = counter.of?;
            let per_s = (counter.count - counter.doubt) as f64 / seconds;
            Some(HotKey { db, key: counter.key.as_slice().into(), per_s })
        });
        (rates.collect(), self.total as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use keyspace::{Keyspace, Options};
    use proptest::prelude::*;

    use super::*;

    const START_MS: u64 = 1_700_000_000_000;

    struct Sampled {
        keyspace: Keyspace,
        sketch: HotKeys,
    }

    impl Sampled {
        fn new() -> Sampled {
            Sampled { keyspace: Keyspace::new(Options { hash_seed: 1 }), sketch: HotKeys::default() }
        }

        fn sample(&mut self, key: &str, now_ms: u64) {
            let hash = self.keyspace.hash(key.as_bytes());
            self.sketch.sampled(DbId::ZERO, hash, key.as_bytes(), 1, now_ms);
        }

        fn rate(&mut self, key: &str, now_ms: u64) -> f64 {
            let (keys, _) = self.sketch.rates(now_ms);
            keys.iter().find(|hot| *hot.key == *key.as_bytes()).map_or(0.0, |hot| hot.per_s)
        }
    }

    #[test]
    fn a_steady_rate_is_estimated_at_any_time() {
        let mut sampled = Sampled::new();
        for step in 0..3_500u64 {
            // 50 samples per second of one key, 50 of many others.
            let now_ms = START_MS + step * 20;
            sampled.sample("hot", now_ms);
            sampled.sample(&format!("cold:{step}"), now_ms);
            if step > 200 && step % 61 == 0 {
                let rate = sampled.rate("hot", now_ms);
                assert!((45.0..52.0).contains(&rate), "step {step}: {rate}");
                let (_, total) = sampled.sketch.rates(now_ms);
                assert!((95.0..105.0).contains(&total), "step {step}: {total}");
            }
        }
    }

    #[test]
    fn old_rates_decay() {
        let mut sampled = Sampled::new();
        (0..10_000).for_each(|step| sampled.sample("old", START_MS + step));
        (0..10_000).for_each(|step| sampled.sample("new", START_MS + 30_000 + step));
        let now_ms = START_MS + 40_000;
        let (old, new) = (sampled.rate("old", now_ms), sampled.rate("new", now_ms));
        assert!(new > 4.0 * old && old > 0.0, "{old} {new}");
        assert_eq!(sampled.sketch.rates(START_MS + 10_000_000), (vec![], 0.0));
        sampled.sample("again", START_MS + 10_000_000);
        assert_eq!(sampled.sketch.rates(START_MS + 10_000_000).0.len(), 1);
    }

    #[test]
    fn long_keys_are_only_counted() {
        let mut sampled = Sampled::new();
        sampled.sample(&"x".repeat(KEY_BYTES_MAX + 1), START_MS);
        sampled.sample(&"x".repeat(KEY_BYTES_MAX), START_MS);
        let (keys, total) = sampled.sketch.rates(START_MS);
        assert_eq!((keys.len(), total), (1, 2.0));
    }

    proptest! {
        #[test]
        fn estimated_counts_bound_the_true_counts(keys in prop::collection::vec((0u32..400, 1u64..4), 0..4000)) {
            let mut sampled = Sampled::new();
            let mut truth: HashMap<String, u64> = HashMap::new();
            for (key, uses) in &keys {
                // Seven keys occur often.
                let key = format!("{}", if key % 3 == 0 { key % 7 } else { *key });
                let hash = sampled.keyspace.hash(key.as_bytes());
                sampled.sketch.sampled(DbId::ZERO, hash, key.as_bytes(), *uses, START_MS);
                *truth.entry(key).or_default() += uses;
            }
            let total = keys.iter().map(|(_, uses)| uses).sum::<u64>();
            let counters = &sampled.sketch.counters;
            prop_assert_eq!(counters.iter().map(|counter| counter.count).sum::<u64>(), total);
            for counter in counters.iter().filter(|counter| counter.count > 0) {
                let count = truth[std::str::from_utf8(&counter.key).unwrap()];
                prop_assert!(counter.count - counter.doubt <= count && count <= counter.count);
            }
            for (key, count) in &truth {
                let hash = sampled.keyspace.hash(key.as_bytes());
                let set = &counters[((hash.position() as usize * SETS) >> 24) * COUNTERS_PER_SET..][..COUNTERS_PER_SET];
                let in_set = set.iter().map(|counter| counter.count).sum::<u64>();
                let found = set.iter().any(|counter| *counter.key == *key.as_bytes());
                prop_assert!(found || *count <= in_set / COUNTERS_PER_SET as u64, "{} {}", key, count);
            }
        }
    }
}
