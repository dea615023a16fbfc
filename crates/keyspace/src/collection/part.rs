//! Parts: some members of a big collection, copied, in the form in which effects carry them.

use super::stream::StreamImage;
use crate::effect::{Effect, Items, ItemsBuf, KeyOp, ScoredItemsBuf};
use crate::entry::EntryRef;
use crate::id::DbId;
use crate::value::Value;

pub(crate) enum Part {
    /// Fields and values in turn, and the deadlines of the fields that have one.
    Hash(ItemsBuf, Vec<(Vec<u8>, u64)>),
    /// Members.
    Set(ItemsBuf),
    /// Members with their scores.
    Zset(ScoredItemsBuf),
    /// Entries and pending entries; the first part also has the head and the groups.
    Stream(Box<StreamImage>),
}

impl Part {
    /// A part without members, of the same type.
    pub(crate) fn none_of(&self) -> Part {
        match self {
            Part::Hash(..) => Part::Hash(ItemsBuf::new(), Vec::new()),
            Part::Set(_) => Part::Set(ItemsBuf::new()),
            Part::Zset(_) => Part::Zset(ScoredItemsBuf::new()),
            Part::Stream(_) => Part::Stream(Box::default()),
        }
    }

    /// Adds the field or member of an entry of a field map.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) {
        match self {
            Part::Hash(pairs, deadlines) => {
                pairs.push(entry.key());
                pairs.push(entry.payload());
                deadlines.extend(entry.expire_at_ms().map(|ms| (entry.key().to_vec(), ms)));
            }
            Part::Set(members) => members.push(entry.key()),
            Part::Zset(members) => members.push(super::zset::score_of(entry), entry.key()),
            Part::Stream(_) => unreachable!("a stream has no field map"),
        }
    }

    /// About the bytes that the members take in effects, without the deadlines of fields.
    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Part::Hash(items, _) | Part::Set(items) => items.size_bytes(),
            Part::Zset(members) => members.size_bytes(),
            Part::Stream(image) => image.size_bytes(),
        }
    }

    /// Whether the part has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Part::Hash(items, _) | Part::Set(items) => items.is_empty(),
            Part::Zset(members) => members.is_empty(),
            Part::Stream(image) => image.is_empty(),
        }
    }

    /// Visits the effects that add the part's content to a key. If `is_new`, the first effect creates the
    /// key.
    pub(crate) fn for_each_effect(
        &self,
        (db, key): (DbId, &[u8]),
        is_new: bool,
        expire_at_ms: Option<u64>,
        mut visit: impl FnMut(&Effect<'_>),
    ) {
        let put = |value| KeyOp::Put { value, expire_at_ms }.on(db, key);
        let effect = match self {
            Part::Hash(pairs, _) if is_new => put(Value::Hash(pairs.as_items())),
            Part::Set(members) if is_new => put(Value::Set(members.as_items())),
            Part::Zset(members) if is_new => put(Value::Zset(members.as_items())),
            Part::Hash(pairs, _) => KeyOp::HashPut { pairs: pairs.as_items() }.on(db, key),
            Part::Set(members) => KeyOp::SetAdd { members: members.as_items() }.on(db, key),
            Part::Zset(members) => KeyOp::ZsetPut { members: members.as_items() }.on(db, key),
            Part::Stream(image) => return image.for_each_effect(db, key, expire_at_ms, visit),
        };
        visit(&effect);
        let Part::Hash(_, deadlines) = self else { return };
        for (field, deadline_ms) in deadlines {
            let fields = Items::Slices(&[field]);
            visit(&KeyOp::HashSetExpiry { fields, expire_at_ms: Some(*deadline_ms) }.on(db, key));
        }
    }
}
