//! Hashes: fields with values.
//!
//! What it is: the packed form (fields and values in turn, in the order in which they were added), the
//! changes that effects make to either form, and the view that reads either.
//! What it is not: commands on hashes.
//!
//! Invariants
//! - Only the big form has fields with a deadline: a hash becomes big when the first deadline is set.

mod random;

use super::element::Element;
use super::field_map::{FieldMap, Put};
use super::packed::{self, Payload};
use super::{Big, PackedLimits, Rules};
use crate::apply::Applied;
use crate::effect::Items;
use crate::entry::{Entry, EntryRef};
use crate::freed::Freed;

/// The payload of a hash without fields.
pub(super) const EMPTY: &[u8] = packed::EMPTY;

/// Elements of the packed form per field.
const STRIDE: usize = 2;

/// One field of a hash.
#[derive(Clone, Copy, Debug)]
pub struct HashField<'a> {
    /// The name of the field.
    pub name: Element<'a>,
    /// The value of the field.
    pub value: Element<'a>,
    /// Unix time in milliseconds at which the field expires; `None` if it has no deadline.
    pub expire_at_ms: Option<u64>,
}

impl<'a> HashField<'a> {
    /// Whether the field counts as absent at `now_ms`.
    #[inline]
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expire_at_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }

    fn of_entry(entry: EntryRef<'a>) -> Self {
        HashField {
            name: Element::from_bytes(entry.key()),
            value: Element::from_bytes(entry.payload()),
            expire_at_ms: entry.expire_at_ms(),
        }
    }
}

/// A hash, to be read.
#[derive(Clone, Copy)]
pub struct HashView<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Packed(&'a [u8]),
    Big(&'a FieldMap),
}

impl<'a> HashView<'a> {
    #[inline]
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        HashView(Form::Packed(payload))
    }

    #[inline]
    pub(super) fn of_big(map: &'a FieldMap) -> Self {
        HashView(Form::Big(map))
    }

    /// Number of fields, expired ones included.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Packed(payload) => packed::count(payload) / STRIDE,
            Form::Big(map) => map.len(),
        }
    }

    /// Whether the hash has no field. A stored hash always has one, which may have expired.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any field has a deadline.
    #[inline]
    pub fn has_deadlines(&self) -> bool {
        match self.0 {
            Form::Packed(_) => false,
            Form::Big(map) => map.expiring_len() > 0,
        }
    }

    /// A field, even if it has expired.
    #[inline]
    pub fn field(&self, name: &[u8]) -> Option<HashField<'a>> {
        match self.0 {
            Form::Packed(payload) => {
                let name = packed::at(payload, packed::find(payload, name, STRIDE)?);
                let value = packed::at(payload, name.end()).element;
                Some(HashField { name: name.element, value, expire_at_ms: None })
            }
            Form::Big(map) => map.get(name).map(HashField::of_entry),
        }
    }

    /// All fields, expired ones included, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = HashField<'a>> + use<'a> {
        let (payload, map) = match self.0 {
            Form::Packed(payload) => (payload, None),
            Form::Big(map) => (packed::EMPTY, Some(map)),
        };
        let mut elements = packed::iter(payload).map(|placed| placed.element);
        let packed = std::iter::from_fn(move || {
            Some(HashField { name: elements.next()?, value: elements.next()?, expire_at_ms: None })
        });
        packed.chain(map.into_iter().flat_map(FieldMap::iter).map(HashField::of_entry))
    }

    /// Continues a scan: visits about `count` fields, expired ones included, and returns the cursor for the
    /// next call; 0 is the start and the end. A field that is there during the whole scan is visited exactly
    /// once. A packed hash is visited in one call.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(HashField<'a>)) -> u64 {
        match self.0 {
            Form::Packed(_) => {
                self.iter().for_each(visit);
                0
            }
            Form::Big(map) => map.scan(cursor, count, |entry| visit(HashField::of_entry(entry))),
        }
    }

    /// The name of the form, as OBJECT ENCODING shows it.
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Packed(_) => "listpack",
            Form::Big(_) => "hashtable",
        }
    }
}

pub(super) fn fill(entry: &mut Entry, pairs: Items<'_>, rules: &Rules) {
    // There is little to free: in a new hash, only a field that is named twice replaces a value.
    put(entry, pairs, false, rules, &mut Freed::new());
}

/// Sets fields. Unless `keeps_expiry` is set, the fields lose their deadlines.
pub(super) fn put(
    entry: &mut Entry,
    pairs: Items<'_>,
    keeps_expiry: bool,
    rules: &Rules,
    freed: &mut Freed,
) -> Applied {
    let mut applied = Applied::default();
    if entry.big_mut().is_none() {
        if fits(entry.payload(), pairs, &rules.limits) {
            put_packed(entry, pairs, &mut applied);
            return applied;
        }
        promote(entry, rules);
    }
    let map = fields_mut(entry);
    for (name, value) in pairs.pairs() {
        let deadline_ms =
            if keeps_expiry { map.get(name).and_then(|entry| entry.expire_at_ms()) } else { None };
        match map.put(name, value, deadline_ms) {
            Put::Added => applied.added += 1,
            Put::Replaced(old) => {
                applied.updated += 1;
                old.into_iter().for_each(|entry| freed.entry(entry));
            }
        }
    }
    applied.changed = applied.added + applied.updated > 0;
    applied
}

/// Whether a packed hash may stay packed when these fields are set.
fn fits(payload: &[u8], pairs: Items<'_>, limits: &PackedLimits) -> bool {
    let len = packed::count(payload) / STRIDE;
    let len_max = (limits.hash_entries as usize).min(packed::COUNT_MAX / STRIDE);
    let is_new = |(name, _): &(&[u8], _)| packed::find(payload, name, STRIDE).is_none();
    pairs.iter().all(|item| item.len() <= limits.hash_value_bytes as usize)
        && (len + pairs.len() / STRIDE <= len_max || len + pairs.pairs().filter(is_new).count() <= len_max)
}

fn put_packed(entry: &mut Entry, pairs: Items<'_>, applied: &mut Applied) {
    if pairs.len() == STRIDE {
        return pairs.pairs().for_each(|(name, value)| put_field(entry, name, value, applied));
    }
    // With several fields, the payload is built first, so that the entry changes its size once.
    let mut payload = entry.payload().to_vec();
    pairs.pairs().for_each(|(name, value)| put_field(&mut payload, name, value, applied));
    let old_len = entry.payload().len();
    entry.splice(0, old_len, &[&payload]);
}

fn put_field(payload: &mut impl Payload, name: &[u8], value: &[u8], applied: &mut Applied) {
    match packed::find(payload.payload(), name, STRIDE) {
        Some(at) => {
            let value_at = packed::at(payload.payload(), at).end();
            packed::replace(payload, value_at, value);
            applied.updated += 1;
        }
        None => {
            let end = payload.payload().len();
            packed::insert(payload, end, &[name, value]);
            applied.added += 1;
        }
    }
    applied.changed = true;
}

pub(super) fn remove(entry: &mut Entry, fields: Items<'_>) -> Applied {
    let mut removed = 0;
    for name in fields.iter() {
        let found = match entry.big_mut() {
            Some(Big::Hash(map)) => map.remove(name).is_some(),
            Some(_) => unreachable!("the entry of a hash holds a hash"),
            None => {
                let found = packed::find(entry.payload(), name, STRIDE);
                if let Some(at) = found {
                    packed::remove(entry, at, STRIDE);
                }
                found.is_some()
            }
        };
        removed += u64::from(found);
    }
    Applied { changed: removed > 0, removed, ..Applied::default() }
}

/// Sets or removes the deadline of the fields that are there.
pub(super) fn set_expiry(
    entry: &mut Entry,
    fields: Items<'_>,
    expire_at_ms: Option<u64>,
    rules: &Rules,
) -> Applied {
    if entry.big_mut().is_none() {
        if expire_at_ms.is_none() {
            return Applied::default();
        }
        promote(entry, rules);
    }
    let map = fields_mut(entry);
    let mut updated = 0;
    for name in fields.iter() {
        let set = |field: &mut Entry| {
            let differs = field.as_ref().expire_at_ms() != expire_at_ms;
            if differs {
                drop(field.set_expiry(expire_at_ms));
            }
            differs
        };
        updated += u64::from(map.update(name, set) == Some(true));
    }
    Applied { changed: updated > 0, updated, ..Applied::default() }
}

/// Makes a packed hash big.
fn promote(entry: &mut Entry, rules: &Rules) {
    let mut map = FieldMap::new(rules.seed);
    HashView::of_packed(entry.payload()).iter().for_each(|field| {
        map.insert_new(&field.name, &field.value);
    });
    entry.promote(Big::Hash(map));
}

fn fields_mut(entry: &mut Entry) -> &mut FieldMap {
    match entry.big_mut() {
        Some(Big::Hash(map)) => map,
        _ => unreachable!("the entry of a big hash holds one"),
    }
}
