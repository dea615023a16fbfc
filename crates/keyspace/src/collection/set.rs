//! Sets: members without an order.
//!
//! What it is: the three forms of a set, the changes that effects make to them, and the view that reads each.
//! What it is not: commands on sets.
//!
//! | form | members | payload |
//! |------|---------|---------|
//! | integers | integers, up to `set_integers` | sorted, see `integers` |
//! | packed | up to `set_entries` of up to `set_value_bytes` | not sorted, see `packed` |
//! | big | any | a field map without values |
//!
//! Invariants
//! - A set goes from integers to packed or big, and from packed to big, never back.

pub(super) mod integers;
mod random;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::element::{Element, canonical_integer};
use super::field_map::{FieldMap, Put};
use super::packed::{self, Payload};
use super::{Big, PackedLimits, Rules};
use crate::apply::Applied;
use crate::effect::Items;
use crate::entry::{Entry, EntryRef};
use integers::{Integers, is_integers};

/// The payload of a set without members.
pub(super) const EMPTY: &[u8] = packed::EMPTY;

/// A set, to be read.
#[derive(Clone, Copy)]
pub struct SetView<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Integers(Integers<'a>),
    Packed(&'a [u8]),
    Big(&'a FieldMap),
}

impl Default for SetView<'_> {
    /// A set without members.
    fn default() -> Self {
        SetView(Form::Packed(EMPTY))
    }
}

impl<'a> SetView<'a> {
    #[inline]
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        SetView(match is_integers(payload) {
            true => Form::Integers(Integers::of(payload)),
            false => Form::Packed(payload),
        })
    }

    #[inline]
    pub(super) fn of_big(map: &'a FieldMap) -> Self {
        SetView(Form::Big(map))
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Integers(integers) => integers.len(),
            Form::Packed(payload) => packed::count(payload),
            Form::Big(map) => map.len(),
        }
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is a member.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match self.0 {
            Form::Integers(integers) => {
                canonical_integer(member).is_some_and(|value| integers.search(value).is_ok())
            }
            Form::Packed(payload) => packed::find(payload, member, 1).is_some(),
            Form::Big(map) => map.get(member).is_some(),
        }
    }

    /// The members in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let (integers, payload, map) = match self.0 {
            Form::Integers(integers) => (Some(integers), packed::EMPTY, None),
            Form::Packed(payload) => (None, payload, None),
            Form::Big(map) => (None, packed::EMPTY, Some(map)),
        };
        let integers = integers.into_iter().flat_map(Integers::iter).map(Element::from_integer);
        let packed = packed::iter(payload).map(|placed| placed.element);
        let big = map.into_iter().flat_map(FieldMap::iter).map(member_of);
        integers.chain(packed).chain(big)
    }

    /// Continues a scan: visits about `count` members, and returns the cursor for the next call. 0 is the
    /// start and the end. A member that is there during the whole scan is visited exactly once. A set that is
    /// not big is visited in one call.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'a>)) -> u64 {
        match self.0 {
            Form::Big(map) => map.scan(cursor, count, |entry| visit(member_of(entry))),
            _ => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// The name of the form, as OBJECT ENCODING shows it.
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Integers(_) => "intset",
            Form::Packed(_) => "listpack",
            Form::Big(_) => "hashtable",
        }
    }
}

fn member_of(entry: EntryRef<'_>) -> Element<'_> {
    Element::from_bytes(entry.key())
}

pub(super) fn fill(entry: &mut Entry, members: Items<'_>, rules: &Rules) {
    add(entry, members, rules);
}

pub(super) fn add(entry: &mut Entry, members: Items<'_>, rules: &Rules) -> Applied {
    let form = match entry.big_mut() {
        Some(_) => Fitting::Big,
        None => fitting(entry.payload(), members, &rules.limits),
    };
    let added = match form {
        Fitting::Integers => add_integers(entry, members),
        Fitting::Packed => add_packed(entry, members),
        Fitting::Big => {
            promote(entry, rules);
            let map = members_mut(entry);
            members.iter().filter(|member| matches!(map.put(member, b"", None), Put::Added)).count()
        }
    };
    Applied { changed: added > 0, added: added as u64, ..Applied::default() }
}

/// The form that a set must have after members are added.
enum Fitting {
    Integers,
    Packed,
    Big,
}

/// The form that a set must have after these members are added. The set must not be big.
fn fitting(payload: &[u8], members: Items<'_>, limits: &PackedLimits) -> Fitting {
    let set = SetView::of_packed(payload);
    let had_integers = is_integers(payload);
    if (had_integers || set.is_empty())
        && stays_within(set, members, limits.set_integers)
        && members.iter().all(|member| canonical_integer(member).is_some())
    {
        return Fitting::Integers;
    }
    let len_max = limits.set_value_bytes as usize;
    let is_short = members.iter().all(|member| member.len() <= len_max)
        && (!had_integers || set.iter().all(|member| member.len() <= len_max));
    if is_short && stays_within(set, members, limits.set_entries) { Fitting::Packed } else { Fitting::Big }
}

/// Whether a set, after these members are added, has no more members than the limit, or no more than before.
fn stays_within(set: SetView<'_>, members: Items<'_>, limit: u32) -> bool {
    let len_max = (limit as usize).min(packed::COUNT_MAX);
    let room = len_max.saturating_sub(set.len());
    if members.len() <= room {
        return true;
    }
    // The same member may be given several times.
    let mut new = HashSet::new();
    members.iter().filter(|member| !set.contains(member)).all(|member| {
        new.insert(member);
        new.len() <= room
    })
}

fn add_integers(entry: &mut Entry, members: Items<'_>) -> usize {
    let mut values = members.iter().filter_map(canonical_integer);
    if members.len() > 1 {
        return integers::insert_all(entry, values);
    }
    values.next().map_or(0, |value| integers::insert(entry, value).into())
}

fn add_packed(entry: &mut Entry, members: Items<'_>) -> usize {
    let payload = entry.payload();
    if members.len() == 1 && !is_integers(payload) {
        return members.iter().map(|member| usize::from(add_member(entry, member))).sum();
    }
    // With several members, the payload is built first, so that the entry changes its size once.
    let mut new = match is_integers(payload) {
        true => EMPTY.to_vec(),
        false => payload.to_vec(),
    };
    if is_integers(payload) {
        SetView::of_packed(payload).iter().for_each(|member| append(&mut new, &member));
    }
    let added = members.iter().filter(|member| add_member(&mut new, member)).count();
    let old_len = payload.len();
    entry.splice(0, old_len, &[&new]);
    added
}

/// Adds a member to a packed payload. Returns whether it is new.
fn add_member(payload: &mut impl Payload, member: &[u8]) -> bool {
    let is_new = packed::find(payload.payload(), member, 1).is_none();
    if is_new {
        append(payload, member);
    }
    is_new
}

fn append(payload: &mut impl Payload, member: &[u8]) {
    let end = payload.payload().len();
    packed::insert(payload, end, &[member]);
}

pub(super) fn remove(entry: &mut Entry, members: Items<'_>) -> Applied {
    let removed = members.iter().filter(|member| remove_member(entry, member)).count();
    Applied { changed: removed > 0, removed: removed as u64, ..Applied::default() }
}

fn remove_member(entry: &mut Entry, member: &[u8]) -> bool {
    if entry.big_mut().is_some() {
        return members_mut(entry).remove(member).is_some();
    }
    if is_integers(entry.payload()) {
        return canonical_integer(member).is_some_and(|value| integers::remove(entry, value));
    }
    let found = packed::find(entry.payload(), member, 1);
    if let Some(at) = found {
        packed::remove(entry, at, 1);
    }
    found.is_some()
}

/// Makes a set big, if it is not.
fn promote(entry: &mut Entry, rules: &Rules) {
    if entry.big_mut().is_some() {
        return;
    }
    let mut map = FieldMap::new(rules.seed);
    SetView::of_packed(entry.payload()).iter().for_each(|member| {
        map.insert_new(&member, b"");
    });
    entry.promote(Big::Set(map));
}

fn members_mut(entry: &mut Entry) -> &mut FieldMap {
    match entry.big_mut() {
        Some(Big::Set(map)) => map,
        _ => unreachable!("the entry of a big set holds one"),
    }
}
