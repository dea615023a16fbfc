//! Parts: some members of a big collection, copied, in the form in which effects carry them.

use crate::effect::{Effect, Items, ItemsBuf, ScoredItemsBuf};
use crate::entry::EntryRef;
use crate::id::DbId;
use crate::value::Value;

/// See the module documentation.
pub(crate) enum Part {
    /// Fields and values in turn, and the deadlines of those that have one.
    Hash(ItemsBuf, Vec<(Vec<u8>, u64)>),
    /// Members.
    Set(ItemsBuf),
    /// Members with their scores.
    Zset(ScoredItemsBuf),
}

impl Part {
    /// A part without members, of the same type.
    pub(crate) fn none_of(&self) -> Part {
        match self {
            Part::Hash(..) => Part::Hash(ItemsBuf::new(), Vec::new()),
            Part::Set(_) => Part::Set(ItemsBuf::new()),
            Part::Zset(_) => Part::Zset(ScoredItemsBuf::new()),
        }
    }

    /// Adds what an entry of a field map stands for.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) {
        match self {
            Part::Hash(pairs, deadlines) => {
                pairs.push(entry.key());
                pairs.push(entry.payload());
                deadlines.extend(entry.expire_at_ms().map(|ms| (entry.key().to_vec(), ms)));
            }
            Part::Set(members) => members.push(entry.key()),
            Part::Zset(members) => members.push(super::zset::score_of(entry), entry.key()),
        }
    }

    /// Bytes that its effects take, but for a few.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Part::Hash(items, _) | Part::Set(items) => items.size_bytes(),
            Part::Zset(members) => members.size_bytes(),
        }
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Part::Hash(items, _) | Part::Set(items) => items.is_empty(),
            Part::Zset(members) => members.is_empty(),
        }
    }

    /// The effect that creates a key with these members.
    pub(crate) fn put<'a>(&'a self, db: DbId, key: &'a [u8], expire_at_ms: Option<u64>) -> Effect<'a> {
        let value = match self {
            Part::Hash(pairs, _) => Value::Hash(pairs.as_items()),
            Part::Set(members) => Value::Set(members.as_items()),
            Part::Zset(members) => Value::Zset(members.as_items()),
        };
        Effect::Put { db, key, value, expire_at_ms }
    }

    /// The effect that adds these members.
    pub(crate) fn add_to<'a>(&'a self, db: DbId, key: &'a [u8]) -> Effect<'a> {
        match self {
            Part::Hash(pairs, _) => Effect::HashPut { db, key, pairs: pairs.as_items() },
            Part::Set(members) => Effect::SetAdd { db, key, members: members.as_items() },
            Part::Zset(members) => Effect::ZsetPut { db, key, members: members.as_items() },
        }
    }

    /// The effects that set the deadlines of fields.
    pub(crate) fn for_each_deadline(&self, db: DbId, key: &[u8], mut visit: impl FnMut(&Effect<'_>)) {
        let Part::Hash(_, deadlines) = self else { return };
        for (field, deadline_ms) in deadlines {
            let fields = Items::Slices(&[field]);
            visit(&Effect::HashSetExpiry { db, key, fields, expire_at_ms: Some(*deadline_ms) });
        }
    }
}
