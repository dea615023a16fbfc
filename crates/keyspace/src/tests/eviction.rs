//! Random keys and candidates for eviction.

use super::{clock, db, get, keyspace, put};
use crate::{AccessClock, AccessPolicy, Candidate, DbId, EvictionPolicy, Freed, KeyOp, Keyspace, Value};

/// Enough samples to look at every one of a handful of keys, with any seed.
const MANY: usize = 200;

fn put_at(keyspace: &Keyspace, key: &str, expire_at_ms: Option<u64>, clock: AccessClock) {
    let (db, key, value) = (DbId::ZERO, key.as_bytes(), Value::String(b""));
    let effect = KeyOp::Put { value, expire_at_ms }.on(db, key);
    keyspace.lock(keyspace.hash(key).slot()).apply(&effect, clock, &mut Freed::new());
}

/// Samples, and waits for the slots that it needs.
fn sample(
    keyspace: &Keyspace,
    seed: u64,
    samples: usize,
    policy: EvictionPolicy,
    now_ms: u64,
) -> Option<Candidate> {
    let lock = |slot| Ok::<_, std::convert::Infallible>(keyspace.lock(slot));
    let Ok(found) = keyspace.sample_for_eviction(lock, seed, samples, policy, now_ms);
    found
}

fn candidate(keyspace: &Keyspace, policy: EvictionPolicy, now_ms: u64) -> Option<String> {
    let candidate = sample(keyspace, 9, MANY, policy, now_ms)?;
    assert_eq!(candidate.hash, keyspace.hash(&candidate.key));
    Some(String::from_utf8(candidate.key).expect("the keys are text"))
}

#[test]
fn lru_takes_the_longest_idle() {
    let keyspace = keyspace();
    for (key, used_s) in [("a", 50), ("b", 20), ("c", 90)] {
        put_at(&keyspace, key, (key != "b").then_some(u64::MAX), clock(used_s * 1000));
    }
    assert_eq!(candidate(&keyspace, EvictionPolicy::AllKeysLru, 100_000).as_deref(), Some("b"));
    assert_eq!(candidate(&keyspace, EvictionPolicy::VolatileLru, 100_000).as_deref(), Some("a"));
    let hash = keyspace.hash(b"b");
    keyspace.lock(hash.slot()).touch(DbId::ZERO, &hash, b"b", clock(95_000));
    assert_eq!(candidate(&keyspace, EvictionPolicy::AllKeysLru, 100_000).as_deref(), Some("a"));
    let guard = keyspace.lock(hash.slot());
    assert_eq!(guard.get(DbId::ZERO, &hash, b"b", 0).map(|entry| entry.idle_seconds(100_000)), Some(5));
}

#[test]
fn lfu_takes_the_least_used() {
    let keyspace = keyspace();
    let lfu = AccessClock { now_ms: 0, policy: AccessPolicy::Lfu, random: 0 };
    for (key, hits) in [("a", 9), ("b", 3), ("c", 6)] {
        put_at(&keyspace, key, (key != "b").then_some(u64::MAX), lfu);
        let hash = keyspace.hash(key.as_bytes());
        (0..hits).for_each(|_| keyspace.lock(hash.slot()).touch(DbId::ZERO, &hash, key.as_bytes(), lfu));
    }
    assert_eq!(candidate(&keyspace, EvictionPolicy::AllKeysLfu, 0).as_deref(), Some("b"));
    assert_eq!(candidate(&keyspace, EvictionPolicy::VolatileLfu, 0).as_deref(), Some("c"));
    assert_eq!(EvictionPolicy::AllKeysLfu.access_policy(), AccessPolicy::Lfu);
    assert_eq!(EvictionPolicy::VolatileTtl.access_policy(), AccessPolicy::Lru);
}

#[test]
fn volatile_ttl_takes_the_nearest_deadline_and_skips_stale_ones() {
    let keyspace = keyspace();
    for (key, deadline_ms) in [("{t}a", Some(300)), ("{t}b", Some(200)), ("{t}c", Some(1)), ("d", None)] {
        put(&keyspace, DbId::ZERO, key.as_bytes(), b"", deadline_ms);
    }
    put(&keyspace, DbId::ZERO, b"{t}c", b"", Some(400));
    assert_eq!(candidate(&keyspace, EvictionPolicy::VolatileTtl, 0).as_deref(), Some("{t}b"));
    keyspace.check();
}

#[test]
fn expired_keys_go_first_under_any_policy() {
    let keyspace = keyspace();
    put_at(&keyspace, "old", None, clock(0));
    put_at(&keyspace, "expired", Some(90_000), clock(90_000));
    for policy in [EvictionPolicy::AllKeysLru, EvictionPolicy::AllKeysRandom, EvictionPolicy::VolatileRandom]
    {
        assert_eq!(candidate(&keyspace, policy, 100_000).as_deref(), Some("expired"), "{policy:?}");
    }
}

#[test]
fn nothing_is_evicted_where_nothing_may_be() {
    let keyspace = keyspace();
    assert_eq!(candidate(&keyspace, EvictionPolicy::AllKeysRandom, 0), None);
    put(&keyspace, db(5), b"k", b"", None);
    assert_eq!(candidate(&keyspace, EvictionPolicy::VolatileRandom, 0), None);
    assert_eq!(candidate(&keyspace, EvictionPolicy::NoEviction, 0), None);
    let found = sample(&keyspace, 1, 5, EvictionPolicy::AllKeysRandom, 0).expect("one key");
    assert_eq!((found.db, &found.key[..]), (db(5), &b"k"[..]));
}

#[test]
fn random_keys_are_live_keys_of_their_database_and_all_come_up() {
    let keyspace = keyspace();
    let mut out = Vec::new();
    assert!(!keyspace.random_key(DbId::ZERO, 1, 0, &mut out));
    for n in 0..50 {
        put(&keyspace, DbId::ZERO, format!("live{n}").as_bytes(), b"", None);
        put(&keyspace, DbId::ZERO, format!("gone{n}").as_bytes(), b"", Some(1));
        put(&keyspace, db(1), format!("other{n}").as_bytes(), b"", None);
    }
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..2000 {
        out.clear();
        assert!(keyspace.random_key(DbId::ZERO, seed, 5, &mut out));
        assert!(get(&keyspace, DbId::ZERO, &out, 5).is_some(), "{out:?}");
        seen.insert(out.clone());
    }
    assert_eq!(seen.len(), 50);
}

#[test]
fn a_single_live_key_among_expired_ones_is_found() {
    let keyspace = keyspace();
    (0..3000).for_each(|n| put(&keyspace, DbId::ZERO, format!("gone{n}").as_bytes(), b"", Some(1)));
    let mut out = Vec::new();
    assert!(!keyspace.random_key(DbId::ZERO, 1, 5, &mut out));
    put(&keyspace, DbId::ZERO, b"live", b"", None);
    for seed in 0..20 {
        out.clear();
        assert!(keyspace.random_key(DbId::ZERO, seed, 5, &mut out));
        assert_eq!(out, b"live");
    }
}
