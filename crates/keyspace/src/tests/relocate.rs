//! Tests moves of values that are too large for the model: a move copies nothing, loses nothing, and keeps
//! deadlines.

use super::{apply, db, keyspace};
use crate::{DbId, Effect, EntryRef, Items, KeyOp, Keyspace, SlotId, Value, View, slot_of};

/// Fields of the hash that is moved: far more than the packed form holds.
const FIELDS: usize = 2_000;

fn with_entry<R>(
    keyspace: &Keyspace,
    db: DbId,
    key: &[u8],
    look: impl FnOnce(EntryRef<'_>) -> R,
) -> Option<R> {
    let slot = keyspace.lock(slot_of(key));
    slot.get_raw(db, &keyspace.hash(key), key).map(look)
}

/// Puts a hash that has a deadline, one field of which expires before that deadline.
fn put_hash(keyspace: &Keyspace, key: &[u8], expire_at_ms: u64, field_expires_at_ms: u64) {
    let fields: Vec<String> = (0..FIELDS).map(|number| format!("field-{number}")).collect();
    let pairs: Vec<&[u8]> = fields.iter().flat_map(|field| [field.as_bytes(), b"value"]).collect();
    let (db, value) = (DbId::ZERO, Value::Hash(Items::Slices(&pairs)));
    apply(keyspace, &KeyOp::Put { value, expire_at_ms: Some(expire_at_ms) }.on(db, key), 0);
    let fields = Items::Slices(&pairs[..1]);
    let effect = KeyOp::HashSetExpiry { fields, expire_at_ms: Some(field_expires_at_ms) }.on(db, key);
    apply(keyspace, &effect, 0);
}

/// Where the value of a field lies in memory.
fn field_address(entry: EntryRef<'_>) -> usize {
    let View::Hash(hash) = entry.view() else { panic!("{entry:?} is no hash") };
    let field = hash.field(b"field-7").expect("the hash has this field");
    field.value.as_ptr().addr()
}

fn due(keyspace: &Keyspace, now_ms: u64) -> Vec<SlotId> {
    keyspace.due_slots(now_ms, SlotId::FIRST, SlotId::LAST).collect()
}

#[test]
fn a_big_hash_goes_along_by_its_address_with_all_its_deadlines() {
    for to_key in [&b"another slot, longer"[..], b"{from}same slot", b"tooo"] {
        let keyspace = keyspace();
        put_hash(&keyspace, b"from", 9_000, 5_000);
        put_hash(&keyspace, to_key, 3_000, 1_000);
        let (bytes, address) = (keyspace.bytes(), with_entry(&keyspace, DbId::ZERO, b"from", field_address));
        let effect = Effect::Move { db: DbId::ZERO, key: b"from", to_db: DbId::ZERO, to_key };
        apply(&keyspace, &effect, 0);
        keyspace.check();
        assert!(keyspace.bytes() < bytes, "one of two hashes is gone");
        assert_eq!((keyspace.len(DbId::ZERO), keyspace.expiring_len(DbId::ZERO)), (1, 1));
        assert_eq!(with_entry(&keyspace, DbId::ZERO, to_key, field_address), address);
        assert!(with_entry(&keyspace, DbId::ZERO, b"from", |_| ()).is_none());
        let mut fields = Vec::new();
        let slot = slot_of(to_key);
        assert!(due(&keyspace, 5_000).contains(&slot), "the field expires under the new key");
        keyspace.lock(slot).expired_fields(5_000, 10, &mut fields);
        let names: Vec<_> = fields.iter().map(|due| (&due.key[..], due.fields.len())).collect();
        assert_eq!(names, [(to_key, 1)]);
        let mut keys = Vec::new();
        keyspace.lock(slot).expired_keys(9_000, 10, &mut keys);
        assert_eq!(keys, [(DbId::ZERO, to_key.to_vec())]);
    }
}

#[test]
fn a_moved_key_is_in_its_new_database_only() {
    let keyspace = keyspace();
    put_hash(&keyspace, b"k", 9_000, 5_000);
    let address = with_entry(&keyspace, DbId::ZERO, b"k", field_address);
    apply(&keyspace, &Effect::Move { db: DbId::ZERO, key: b"k", to_db: db(7), to_key: b"k" }, 0);
    keyspace.check();
    assert_eq!((keyspace.len(DbId::ZERO), keyspace.len(db(7))), (0, 1));
    assert_eq!(with_entry(&keyspace, db(7), b"k", field_address), address);
    apply(&keyspace, &KeyOp::Delete.on(db(7), b"k"), 0);
    assert_eq!(keyspace.bytes(), 0);
    assert!(keyspace.is_empty());
}

#[test]
fn a_string_is_the_same_under_a_key_of_any_length() {
    let keyspace = keyspace();
    let value = vec![7; 100_000];
    super::put(&keyspace, DbId::ZERO, b"a", &value, Some(50));
    let names = [&b"b"[..], b"longer", &[b'x'; 300], b"short"];
    for pair in [&[&b"a"[..]][..], &names].concat().windows(2) {
        let effect = Effect::Move { db: DbId::ZERO, key: pair[0], to_db: DbId::ZERO, to_key: pair[1] };
        apply(&keyspace, &effect, 0);
        keyspace.check();
        let same = |entry: EntryRef<'_>| entry.string() == Some(&value) && entry.expire_at_ms() == Some(50);
        assert_eq!(with_entry(&keyspace, DbId::ZERO, pair[1], same), Some(true));
        assert_eq!(keyspace.len(DbId::ZERO), 1);
    }
}

#[test]
#[should_panic(expected = "a Move applied to slots that are not those of its keys")]
fn a_move_out_of_the_only_locked_slot_is_a_bug() {
    let keyspace = keyspace();
    super::put(&keyspace, DbId::ZERO, b"a", b"v", None);
    let effect = Effect::Move { db: DbId::ZERO, key: b"a", to_db: DbId::ZERO, to_key: b"b" };
    keyspace.lock(slot_of(b"a")).apply(&effect, super::clock(0), &mut crate::Freed::new());
}
