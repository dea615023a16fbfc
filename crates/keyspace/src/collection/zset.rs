//! Sorted sets: members ordered by score, members of one score by their bytes.
//!
//! What it is: the changes that effects make to sorted sets, and the view that reads either form.
//! What it is not: commands on sorted sets.
//!
//! Invariants
//! - A score is never NaN. 0.0 and -0.0 are one score: a zero keeps its sign when its member is given the
//!   other zero.
//! - A rank is the number of members before a member, in either form.

mod packed;
mod ranked_map;

#[cfg(test)]
mod tests;

use std::ops;

use super::element::Element;
use super::{Big, Rules, rank_tree};
use crate::apply::Applied;
use crate::effect::{Items, ScoredItems};
use crate::entry::Entry;
use packed::Pair;
pub(super) use packed::checked_score_len;
use ranked_map::Handle;
pub(crate) use ranked_map::{RankedMap, score_of};

/// The payload of a sorted set without members.
pub(super) const EMPTY: &[u8] = super::packed::EMPTY;

/// A sorted set, to be read.
#[derive(Clone, Copy)]
pub struct ZsetView<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Packed(&'a [u8]),
    Big(&'a RankedMap),
}

impl<'a> ZsetView<'a> {
    #[inline]
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        ZsetView(Form::Packed(payload))
    }

    #[inline]
    pub(super) fn of_big(map: &'a RankedMap) -> Self {
        ZsetView(Form::Big(map))
    }

    /// The name that OBJECT ENCODING replies.
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Packed(_) => "listpack",
            Form::Big(_) => "skiplist",
        }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Packed(payload) => super::packed::count(payload),
            Form::Big(map) => map.len(),
        }
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The members with their scores, in order.
    #[inline]
    pub fn iter(&self) -> ZsetRange<'a> {
        self.range(0..self.len())
    }

    /// The members with these ranks, from either end. Ranks past the last member are ignored.
    #[inline]
    pub fn range(&self, ranks: ops::Range<usize>) -> ZsetRange<'a> {
        ZsetRange(match self.0 {
            Form::Packed(payload) => Ends::Packed(packed::Range::new(payload, ranks)),
            Form::Big(map) => Ends::Big(map.order().range(ranks)),
        })
    }

    /// The score of a member.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.0 {
            Form::Packed(payload) => packed::find(payload, member).map(|pair| pair.score(payload)),
            Form::Big(map) => map.score(member),
        }
    }

    /// The rank of a member and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match self.0 {
            Form::Packed(payload) => packed::rank(payload, member),
            Form::Big(map) => map.rank(member),
        }
    }

    /// The member with this rank.
    pub fn get(&self, rank: usize) -> Option<(Element<'a>, f64)> {
        self.range(rank..rank + 1).next()
    }

    /// How many members at the start have a score that satisfies `pred`, which is true up to some score and
    /// false above it.
    pub fn partition_by_score(&self, pred: impl Fn(f64) -> bool) -> usize {
        match self.0 {
            Form::Packed(payload) => packed::partition(payload, |pair| pred(pair.score(payload))),
            Form::Big(map) => map.order().partition_by_score(pred),
        }
    }

    /// How many members at the start satisfy `pred`, which is true up to some member and false after it. This
    /// is of use only if all members have the same score, and so are in the order of their bytes.
    pub fn partition_by_member(&self, pred: impl Fn(&[u8]) -> bool) -> usize {
        match self.0 {
            Form::Packed(payload) => packed::partition(payload, |pair| pred(&pair.member(payload))),
            Form::Big(map) => {
                map.order().partition_point(|_, member| pred(rank_tree::Member::bytes(&member)))
            }
        }
    }

    /// Continues a scan: visits about `count` members, and returns the cursor for the next call. 0 is the
    /// start and the end. A packed sorted set is visited in one call.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'a>, f64)) -> u64 {
        match self.0 {
            Form::Packed(_) => {
                self.iter().for_each(|(member, score)| visit(member, score));
                0
            }
            Form::Big(map) => map.scan(cursor, count, |member, score| {
                visit(Element::from_bytes(member), score);
            }),
        }
    }
}

/// Members with their scores, in order; in reverse order with `rev`.
pub struct ZsetRange<'a>(Ends<'a>);

enum Ends<'a> {
    Packed(packed::Range<'a>),
    Big(rank_tree::Range<'a, Handle>),
}

impl<'a> Iterator for ZsetRange<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ends::Packed(range) => range.next(),
            Ends::Big(range) => range.next().map(element),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Ends::Packed(range) => range.size_hint(),
            Ends::Big(range) => range.size_hint(),
        }
    }
}

impl DoubleEndedIterator for ZsetRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ends::Packed(range) => range.next_back(),
            Ends::Big(range) => range.next_back().map(element),
        }
    }
}

impl ExactSizeIterator for ZsetRange<'_> {}

#[inline]
fn element((score, member): (f64, &Handle)) -> (Element<'_>, f64) {
    (Element::from_bytes(rank_tree::Member::bytes(member)), score)
}

/// The outcome of putting one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Put {
    Added,
    Updated,
    Unchanged,
}

pub(super) fn fill(entry: &mut Entry, members: ScoredItems<'_>, rules: &Rules) {
    if members.len() > rules.limits.zset_entries as usize {
        promote(entry, rules);
    }
    put(entry, members, rules);
}

#[inline]
pub(super) fn put(entry: &mut Entry, members: ScoredItems<'_>, rules: &Rules) -> Applied {
    let mut applied = Applied::default();
    for (score, member) in members.iter() {
        if outgrows(entry, member, rules) {
            promote(entry, rules);
        }
        let put = match map_mut(entry) {
            Some(map) => map.put(score, member),
            None => packed::put(entry, score, member),
        };
        match put {
            Put::Added => applied.added += 1,
            Put::Updated => applied.updated += 1,
            Put::Unchanged => {}
        }
    }
    applied.changed = applied.added + applied.updated > 0;
    applied
}

pub(super) fn remove(entry: &mut Entry, members: Items<'_>) -> Applied {
    let removed = members
        .iter()
        .filter(|member| match map_mut(entry) {
            Some(map) => map.remove(member),
            None => packed::remove(entry, member),
        })
        .count();
    gone(removed)
}

pub(super) fn remove_ranks(entry: &mut Entry, first: u64, count: u64) -> Applied {
    // No sorted set is so long that clamping a number changes its meaning.
    let [first, count] = [first, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    gone(match map_mut(entry) {
        Some(map) => map.remove_ranks(first, count),
        None => packed::remove_ranks(entry, first, count),
    })
}

fn gone(removed: usize) -> Applied {
    Applied { changed: removed > 0, removed: removed as u64, ..Applied::default() }
}

/// The big form, if the sorted set has it.
#[inline]
fn map_mut(entry: &mut Entry) -> Option<&mut RankedMap> {
    match entry.big_mut()? {
        Big::Zset(map) => Some(map),
        _ => unreachable!("a sorted set has the big form of sorted sets"),
    }
}

/// Whether a member, unless it is there already, takes a packed sorted set over a limit.
#[inline]
fn outgrows(entry: &Entry, member: &[u8], rules: &Rules) -> bool {
    let entry = entry.as_ref();
    if entry.is_big() {
        return false;
    }
    let (payload, limits) = (entry.payload(), &rules.limits);
    let entries_max = (limits.zset_entries as usize).min(super::packed::COUNT_MAX);
    let is_over =
        super::packed::count(payload) >= entries_max || member.len() > limits.zset_value_bytes as usize;
    is_over && packed::find(payload, member).is_none()
}

#[cold]
fn promote(entry: &mut Entry, rules: &Rules) {
    let members = packed::Range::new(entry.as_ref().payload(), 0..usize::MAX);
    let map = RankedMap::from_sorted(members, rules.seed);
    entry.promote(Big::Zset(map));
}

impl Pair {
    fn element<'p>(&self, payload: &'p [u8]) -> (Element<'p>, f64) {
        (self.member(payload), self.score(payload))
    }
}
