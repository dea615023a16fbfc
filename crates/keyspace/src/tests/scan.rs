//! The guarantee of SCAN while keys come and go and tables grow and shrink.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{db, delete, keyspace, narrow, put};
use crate::{DbId, Keyspace, ScanCursor, ValueType};

/// A key of one big slot, or of one of many small slots.
fn key(number: u32) -> Vec<u8> {
    if number.is_multiple_of(2) { format!("{{t}}{number}") } else { format!("k{number}") }.into_bytes()
}

/// Scans a database and calls `between` before every call of `Keyspace::scan`. Returns how often each key was
/// visited.
fn scan(keyspace: &Keyspace, db: DbId, count: usize, mut between: impl FnMut()) -> BTreeMap<Vec<u8>, u32> {
    let mut visits = BTreeMap::new();
    let mut cursor = ScanCursor::START;
    loop {
        between();
        cursor = keyspace.scan(db, cursor, count, 0, &mut |key, value_type| {
            assert_eq!(value_type, ValueType::String);
            *visits.entry(key.to_vec()).or_insert(0) += 1;
        });
        // A client gives back the number that it was given.
        cursor = ScanCursor::from_u64(cursor.to_u64());
        if cursor == ScanCursor::START {
            return visits;
        }
    }
}

proptest! {
    #[test]
    fn keys_that_stay_are_visited_exactly_once(
        mask in prop::sample::select(&[0x00ff_0000, 0x0000_8003, u32::MAX][..]),
        count in 1..60usize,
        stable in 0..400u32,
        churn in prop::collection::vec((any::<bool>(), 0..60u32), 1..40),
    ) {
        let keyspace = narrow(5, mask);
        (0..stable).for_each(|n| put(&keyspace, DbId::ZERO, &key(n), b"", None));
        let mut rounds = churn.iter().cycle();
        let visits = scan(&keyspace, DbId::ZERO, count, || {
            // Adds or removes many keys, so that the tables grow and shrink.
            let &(grow, amount) = rounds.next().expect("a cycle of something");
            for n in stable..stable + amount * 20 {
                if grow { put(&keyspace, DbId::ZERO, &key(n), b"", None) } else { delete(&keyspace, DbId::ZERO, &key(n)) }
            }
        });
        keyspace.check();
        for n in 0..stable {
            prop_assert_eq!(visits.get(&key(n)), Some(&1), "key {}", n);
        }
    }
}

#[test]
fn count_bounds_the_work_of_a_call() {
    let keyspace = keyspace();
    (0..2000).for_each(|n| put(&keyspace, DbId::ZERO, &key(n), b"", None));
    let mut calls = 0;
    let visits = scan(&keyspace, DbId::ZERO, 10, || calls += 1);
    assert_eq!(visits.len(), 2000);
    assert!((100..=200).contains(&calls), "{calls} calls of about ten keys");
}

#[test]
fn other_databases_are_passed_in_bounded_steps() {
    let keyspace = keyspace();
    (0..6000).for_each(|n| put(&keyspace, DbId::ZERO, &key(n * 2 + 1), b"", None));
    put(&keyspace, db(3), b"needle", b"", None);
    let mut calls = 0;
    let visits = scan(&keyspace, db(3), 10, || calls += 1);
    assert_eq!(visits.into_iter().collect::<Vec<_>>(), [(b"needle".to_vec(), 1)]);
    assert!((3..=6).contains(&calls), "{calls} calls of 1024 slots");
    calls = 0;
    assert_eq!(scan(&keyspace, db(4), 1, || calls += 1).len(), 0);
    assert!(calls <= 6, "{calls}");
}

#[test]
fn expired_keys_are_not_shown_and_any_cursor_is_accepted() {
    let keyspace = keyspace();
    put(&keyspace, DbId::ZERO, b"gone", b"", Some(5));
    put(&keyspace, DbId::ZERO, b"here", b"", Some(6));
    let mut seen = Vec::new();
    keyspace.scan(DbId::ZERO, ScanCursor::START, 100, 5, &mut |key, _| seen.push(key.to_vec()));
    assert_eq!(seen, [b"here"]);
    for cursor in [u64::MAX, 16_384 << 17, 16_383 << 17 | 0x1ffff, 70_000] {
        keyspace.scan(DbId::ZERO, ScanCursor::from_u64(cursor), 10, 5, &mut |_, _| ());
    }
}
