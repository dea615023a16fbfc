//! Sorted sets: members ordered by score, members of one score by their bytes.
//!
//! What it is: what effects do to sorted sets, and the view that reads either form.
//! What it is not: commands on sorted sets.

use super::Rules;
use super::element::Element;
use crate::apply::Applied;
use crate::effect::{Items, ScoredItems};
use crate::entry::Entry;

/// The payload of a sorted set without members.
pub(super) const EMPTY: &[u8] = super::packed::EMPTY;

/// A sorted set, to be read.
#[derive(Clone, Copy)]
pub struct ZsetView<'a> {
    payload: &'a [u8],
}

impl<'a> ZsetView<'a> {
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        ZsetView { payload }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        super::packed::count(self.payload)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The members with their scores, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'a>, f64)> + use<'a> {
        super::packed::iter(self.payload).map(|placed| (placed.element, 0.0))
    }
}

pub(super) fn fill(entry: &mut Entry, members: ScoredItems<'_>, rules: &Rules) {
    put(entry, members, rules);
}

pub(super) fn put(_entry: &mut Entry, _members: ScoredItems<'_>, _rules: &Rules) -> Applied {
    unreachable!("sorted sets follow")
}

pub(super) fn remove(_entry: &mut Entry, _members: Items<'_>) -> Applied {
    unreachable!("sorted sets follow")
}

pub(super) fn remove_ranks(_entry: &mut Entry, _first: u64, _count: u64) -> Applied {
    unreachable!("sorted sets follow")
}
