//! The values of the model, and the content of a keyspace in the same form.
//!
//! These are the simplest structures that represent a value, independent of its form in the server. The
//! commands on them are in the modules of their types, `strings` to `hashes`.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use keyspace::{DbId, Keyspace, ScanCursor, View, slot_of};

/// A database and a key in it.
pub type Key = (DbId, Vec<u8>);

/// The entries of all databases.
pub type Content = BTreeMap<Key, Entry>;

/// The value and the deadline of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Stored,
    /// The deadline in unix milliseconds; `None` if it never expires.
    pub expire_at_ms: Option<u64>,
}

impl Entry {
    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.expire_at_ms.is_none_or(|deadline_ms| deadline_ms > now_ms)
    }

    pub(super) fn string(&self) -> Option<&Rc<[u8]>> {
        match &self.value {
            Stored::String(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// A field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The value of the field.
    pub value: Vec<u8>,
    /// The deadline in unix milliseconds; `None` if it never expires.
    pub expire_at_ms: Option<u64>,
}

impl Field {
    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.expire_at_ms.is_none_or(|deadline_ms| deadline_ms > now_ms)
    }
}

/// A value. Shared, because the model keeps all earlier states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// A string.
    String(Rc<[u8]>),
    /// A list.
    List(Rc<Vec<Vec<u8>>>),
    /// A set.
    Set(Rc<BTreeSet<Vec<u8>>>),
    /// A sorted set; all scores are integers.
    Zset(Rc<BTreeMap<Vec<u8>, i64>>),
    /// A hash.
    Hash(Rc<BTreeMap<Vec<u8>, Field>>),
}

impl Stored {
    /// Whether the value is an empty collection, which is not stored.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Stored::String(_) => false,
            Stored::List(list) => list.is_empty(),
            Stored::Set(set) => set.is_empty(),
            Stored::Zset(zset) => zset.is_empty(),
            Stored::Hash(hash) => hash.is_empty(),
        }
    }

    fn of(view: View<'_>) -> Stored {
        match view {
            View::String(bytes) => Stored::String(bytes.into()),
            View::List(list) => {
                let list: Vec<_> = list.iter().map(|element| element.to_vec()).collect();
                Stored::List(list.into())
            }
            View::Set(set) => {
                let members: BTreeSet<_> = set.iter().map(|member| member.to_vec()).collect();
                assert_eq!(members.len(), set.len(), "no member is there twice");
                Stored::Set(members.into())
            }
            View::Zset(zset) => {
                let whole = |score: f64| {
                    assert_eq!(score.fract(), 0.0, "all scores are whole");
                    score as i64
                };
                let scores: BTreeMap<_, _> =
                    zset.iter().map(|(member, score)| (member.to_vec(), whole(score))).collect();
                assert_eq!(scores.len(), zset.len(), "no member is there twice");
                Stored::Zset(scores.into())
            }
            View::Hash(hash) => {
                let field = |field: keyspace::HashField<'_>| {
                    let (value, expire_at_ms) = (field.value.to_vec(), field.expire_at_ms);
                    (field.name.to_vec(), Field { value, expire_at_ms })
                };
                let fields: BTreeMap<_, _> = hash.iter().map(field).collect();
                assert_eq!(fields.len(), hash.len(), "no field is there twice");
                Stored::Hash(fields.into())
            }
            View::Stream(_) => unreachable!("no workload makes a stream"),
        }
    }
}

/// The content of a keyspace, including expired keys.
pub fn content_of(keyspace: &Keyspace) -> Content {
    let mut content = Content::new();
    for db in DbId::all().filter(|&db| keyspace.len(db) > 0) {
        let mut keys = Vec::new();
        // With the time 0, no key counts as expired.
        let end = keyspace.scan(db, ScanCursor::START, usize::MAX, 0, &mut |key, _| keys.push(key.to_vec()));
        assert_eq!(end, ScanCursor::START, "one call scans everything");
        for key in keys {
            let slot = keyspace.lock(slot_of(&key));
            let entry = slot.get_raw(db, &keyspace.hash(&key), &key).expect("a scanned key is there");
            let entry = Entry { value: Stored::of(entry.view()), expire_at_ms: entry.expire_at_ms() };
            drop(slot);
            content.insert((db, key), entry);
        }
    }
    content
}
