//! Active expiry: due keys, and stale items, which do no harm.

use super::{apply, db, delete, get, keyspace, narrow, put};
use crate::{DbId, Effect, GlobalOp, Items, KeyOp, Keyspace, SlotId};

fn due(keyspace: &Keyspace, now_ms: u64) -> Vec<SlotId> {
    keyspace.due_slots(now_ms, SlotId::FIRST, SlotId::LAST).collect()
}

/// Takes and deletes due keys, as the server does. Returns the keys in the order in which they were taken.
fn expire(keyspace: &Keyspace, now_ms: u64, max: usize) -> Vec<(DbId, Vec<u8>)> {
    let mut all = Vec::new();
    for slot in due(keyspace, now_ms) {
        let mut keys = Vec::new();
        keyspace.lock(slot).expired_keys(now_ms, max, &mut keys);
        keys.iter().for_each(|(db, key)| delete(keyspace, *db, key));
        all.extend(keys);
    }
    keyspace.check();
    all
}

#[test]
fn an_expired_key_is_invisible_until_its_delete_is_applied() {
    let keyspace = keyspace();
    put(&keyspace, DbId::ZERO, b"k", b"v", Some(100));
    assert_eq!(get(&keyspace, DbId::ZERO, b"k", 99), Some(b"v".to_vec()));
    assert_eq!(get(&keyspace, DbId::ZERO, b"k", 100), None);
    let hash = keyspace.hash(b"k");
    assert!(keyspace.lock(hash.slot()).get_raw(DbId::ZERO, &hash, b"k").is_some());
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.expiring_len(DbId::ZERO)), (1, 1));
    assert_eq!((due(&keyspace, 99).len(), due(&keyspace, 100)), (0, vec![hash.slot()]));
    assert_eq!(expire(&keyspace, 100, 10), [(DbId::ZERO, b"k".to_vec())]);
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.bytes()), (0, 0));
}

#[test]
fn keys_come_by_deadline_and_no_more_than_asked_for() {
    let keyspace = keyspace();
    for (key, deadline_ms) in [("{t}c", 30), ("{t}a", 10), ("{t}d", 40), ("{t}b", 20)] {
        put(&keyspace, db(2), key.as_bytes(), b"", Some(deadline_ms));
    }
    let keys = |max| expire(&keyspace, 30, max).into_iter().map(|(_, key)| key).collect::<Vec<_>>();
    assert_eq!(keys(2), [b"{t}a", b"{t}b"]);
    assert_eq!(keys(2), [b"{t}c"]);
    assert_eq!(keys(2), [b""; 0]);
    assert_eq!(keyspace.len(db(2)), 1);
}

#[test]
fn changed_and_removed_deadlines_leave_nothing_that_is_due() {
    let keyspace = keyspace();
    for deadline_ms in 1..100 {
        put(&keyspace, DbId::ZERO, b"k", b"", Some(deadline_ms));
    }
    let set = |expire_at_ms| {
        apply(&keyspace, &KeyOp::SetExpiry { expire_at_ms }.on(DbId::ZERO, b"k"), 0);
        keyspace.check();
    };
    set(Some(500));
    set(None);
    assert_eq!(expire(&keyspace, 1000, 10), []);
    set(Some(50));
    assert_eq!(expire(&keyspace, 1000, 10).len(), 1);
}

#[test]
fn a_deadline_that_is_put_off_costs_nothing_until_its_item_is_due() {
    let keyspace = keyspace();
    let set = |key: &[u8], deadline_ms| {
        apply(&keyspace, &KeyOp::SetExpiry { expire_at_ms: Some(deadline_ms) }.on(DbId::ZERO, key), 0);
    };
    put(&keyspace, DbId::ZERO, b"{k}", b"", Some(10));
    put(&keyspace, DbId::ZERO, b"{k}other", b"", Some(25));
    let slot = keyspace.hash(b"{k}").slot();
    let items = || keyspace.lock(slot).state.heap().map_or(0, |heap| heap.items().len());
    (11..=30).for_each(|deadline_ms| set(b"{k}", deadline_ms));
    assert_eq!(items(), 2);
    assert_eq!(expire(&keyspace, 10, 10), []);
    assert_eq!((items(), due(&keyspace, 24)), (2, vec![]));
    set(b"{k}", 20);
    set(b"{k}", 40);
    assert_eq!(items(), 3, "what is due sooner needs an item");
    put(&keyspace, DbId::ZERO, b"{k}", b"new", Some(50));
    assert_eq!(expire(&keyspace, 49, 10), [(DbId::ZERO, b"{k}other".to_vec())]);
    assert_eq!(expire(&keyspace, 50, 10), [(DbId::ZERO, b"{k}".to_vec())]);
    assert_eq!(items(), 0);
}

#[test]
fn keys_that_were_put_off_come_in_order_and_once_if_all_is_due_at_once() {
    for keyspace in [keyspace(), narrow(1, 0)] {
        for n in 0..20 {
            let key = format!("{{t}}{n}");
            put(&keyspace, DbId::ZERO, key.as_bytes(), b"", Some(10 + n % 3));
            put(&keyspace, DbId::ZERO, key.as_bytes(), b"", Some(100 - n));
        }
        assert_eq!(expire(&keyspace, 80, usize::MAX), []);
        let keys = expire(&keyspace, 200, usize::MAX);
        let expected = (0..20).rev().map(|n| (DbId::ZERO, format!("{{t}}{n}").into_bytes()));
        assert_eq!(keys, expected.collect::<Vec<_>>());
    }
}

#[test]
fn keys_at_one_position_with_one_deadline_all_come_once() {
    let keyspace = narrow(1, 0);
    for n in 0..40 {
        put(&keyspace, DbId::ZERO, format!("{{t}}{n}").as_bytes(), b"", Some(7));
        put(&keyspace, DbId::ZERO, format!("{{t}}later{n}").as_bytes(), b"", Some(8));
    }
    let mut keys = expire(&keyspace, 7, usize::MAX);
    keys.dedup();
    assert_eq!(keys.len(), 40);
    assert!(keys.iter().all(|(_, key)| !key.starts_with(b"{t}later")));
}

#[test]
fn swapping_databases_takes_deadlines_along() {
    let keyspace = keyspace();
    put(&keyspace, DbId::ZERO, b"k", b"zero", Some(10));
    put(&keyspace, db(1), b"k", b"one", Some(20));
    apply(&keyspace, &Effect::Global(GlobalOp::SwapDb { a: DbId::ZERO, b: db(1) }), 0);
    keyspace.check();
    assert_eq!(get(&keyspace, DbId::ZERO, b"k", 0), Some(b"one".to_vec()));
    assert_eq!(expire(&keyspace, 10, 10), [(db(1), b"k".to_vec())]);
    assert_eq!(expire(&keyspace, 20, 10), [(DbId::ZERO, b"k".to_vec())]);
}

#[test]
fn hashes_at_one_place_whose_fields_expire_are_counted() {
    // All keys of a slot have one position, so an item of the index stands for all of them.
    let keyspace = narrow(11, 0);
    for number in 0..4 {
        let key = format!("{{t}}{number}");
        for (field, deadline_ms) in [(&b"first"[..], 10), (b"later", 20 + number)] {
            let pairs = Items::Slices(&[field, b"value"]);
            apply(&keyspace, &KeyOp::HashPut { pairs }.on(DbId::ZERO, key.as_bytes()), 0);
            let fields = Items::Slices(&[field]);
            let expiry = KeyOp::HashSetExpiry { fields, expire_at_ms: Some(deadline_ms) };
            apply(&keyspace, &expiry.on(DbId::ZERO, key.as_bytes()), 0);
        }
    }
    keyspace.check();
    for (now_ms, expected) in [(10, 4), (20, 1), (22, 2), (30, 1)] {
        let mut listed = Vec::new();
        for slot in due(&keyspace, now_ms) {
            keyspace.lock(slot).expired_fields(now_ms, 10, &mut listed);
        }
        keyspace.check();
        assert_eq!(listed.iter().map(|due| due.fields.len()).sum::<usize>(), expected, "at {now_ms}");
        for due in &listed {
            let fields: Vec<&[u8]> = due.fields.iter().map(Vec::as_slice).collect();
            let removed = KeyOp::HashRemove { fields: Items::Slices(&fields) };
            apply(&keyspace, &removed.on(due.db, &due.key), now_ms);
        }
        keyspace.check();
    }
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.bytes()), (0, 0));
}
