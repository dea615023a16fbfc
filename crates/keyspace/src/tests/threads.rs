//! Threads that meet: nothing is lost, nothing deadlocks, the totals add up.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{clock, get, keyspace, put};
use crate::{DbId, Effect, Freed, GlobalOp, KeyOp, Keyspace, ScanCursor, SlotId, Value};

/// How long a test waits for another thread before it fails.
const PATIENCE: Duration = Duration::from_secs(60);
const THREADS: u32 = 4;
const ROUNDS: u32 = if cfg!(miri) { 20 } else { 4_000 };

/// The work of one thread: it adds keys of its own and removes most of them, and appends single bytes to keys
/// of all threads.
fn work(keyspace: &Keyspace, thread: u32) {
    let mut freed = Freed::new();
    for round in 0..ROUNDS {
        let own = format!("own:{thread}:{}", round % 500).into_bytes();
        let shared = format!("{{shared}}:{}", round % 7).into_bytes();
        let hash = keyspace.hash(&own);
        keyspace.prefetch_bucket(DbId::ZERO, &hash);
        keyspace.prefetch_entry(DbId::ZERO, &hash);
        let effect = if round % 3 == 2 {
            KeyOp::Delete.on(DbId::ZERO, &own)
        } else {
            KeyOp::Put { value: Value::String(&own), expire_at_ms: None }.on(DbId::ZERO, &own)
        };
        keyspace.lock(hash.slot()).apply_hashed(&effect, &hash, clock(0), &mut freed);
        append_to_two(keyspace, &shared, round);
        if round % 512 == 0 {
            keyspace.scan(DbId::ZERO, ScanCursor::START, 100, 0, &mut |_, _| ());
        }
    }
}

/// Appends to a shared key and to a counter under both locks. The slots are passed to `lock_many` in an order
/// that differs from call to call.
fn append_to_two(keyspace: &Keyspace, shared: &[u8], round: u32) {
    let counter = format!("counter:{}", round % 5).into_bytes();
    let mut slots = [keyspace.hash(shared).slot(), keyspace.hash(&counter).slot()];
    slots.rotate_left(round as usize % 2);
    let mut locked = keyspace.lock_many(slots);
    for key in [shared, &counter] {
        locked.apply(&KeyOp::Append { suffix: b"+" }.on(DbId::ZERO, key), clock(0), &mut Freed::new());
    }
}

#[test]
fn concurrent_changes_add_up() {
    let keyspace = keyspace();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || work(keyspace, thread));
        }
    });
    keyspace.check();
    let total = |name: &str, count: u32| -> usize {
        let keys = (0..count).map(|n| format!("{name}:{n}").into_bytes());
        keys.map(|key| get(&keyspace, DbId::ZERO, &key, 0).map_or(0, |value| value.len())).sum()
    };
    let appended = (THREADS * ROUNDS) as usize;
    assert_eq!((total("{shared}", 7), total("counter", 5)), (appended, appended));
    let mut freed = Freed::new();
    keyspace.lock_all().apply(&Effect::Global(GlobalOp::FlushAll), clock(0), &mut freed);
    assert!(!freed.is_empty());
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.bytes()), (0, 0));
    keyspace.check();
}

#[test]
fn prefetching_a_locked_slot_does_not_wait() {
    let keyspace = Arc::new(keyspace());
    let hash = keyspace.hash(b"k");
    put(&keyspace, DbId::ZERO, b"k", b"v", None);
    let guard = keyspace.lock(hash.slot());
    let (done, is_done) = mpsc::channel();
    let prefetching = keyspace.clone();
    // This is not a scoped thread: a scoped thread that waits forever would keep the failed test from ending.
    std::thread::spawn(move || {
        prefetching.prefetch_slot(&hash);
        prefetching.prefetch_bucket(DbId::ZERO, &hash);
        prefetching.prefetch_entry(DbId::ZERO, &hash);
        prefetching.prefetch_members(DbId::ZERO, &hash, b"k", [&b"m"[..]].into_iter());
        done.send(()).expect("the test listens");
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(()), "prefetching waits for the lock");
    drop(guard);
    assert_eq!(get(&keyspace, DbId::ZERO, b"k", 0).as_deref(), Some(&b"v"[..]));
}

#[test]
fn several_locked_slots_are_each_locked_once() {
    let keyspace = keyspace();
    let slot = |number| SlotId::new(number).expect("in range");
    let mut locked = keyspace.lock_many([slot(9), slot(3), slot(9)]);
    assert_eq!(locked.iter().map(|guard| guard.slot().get()).collect::<Vec<_>>(), [3, 9]);
    assert!(locked.get(slot(4)).is_none() && !locked.is_all());
    locked.get_mut(slot(3)).expect("locked").set_last_lsn(lsn::Lsn::new(70));
    assert_eq!(locked.last_lsn(), lsn::Lsn::new(70));
    drop(locked);
    assert_eq!(keyspace.lock(slot(3)).last_lsn(), lsn::Lsn::new(70));
    assert!(keyspace.lock_all().is_all());
}

#[test]
#[should_panic(expected = "lsn 5 after 6")]
fn an_lsn_that_goes_back_is_a_bug() {
    let keyspace = keyspace();
    let mut guard = keyspace.lock(SlotId::FIRST);
    guard.set_last_lsn(lsn::Lsn::new(6));
    guard.set_last_lsn(lsn::Lsn::new(5));
}
