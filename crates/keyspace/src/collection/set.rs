//! Sets: members without an order.
//!
//! What it is: what effects do to sets, and the view that reads either form.
//! What it is not: commands on sets.

use super::Rules;
use super::element::Element;
use crate::apply::Applied;
use crate::effect::Items;
use crate::entry::Entry;

/// The payload of a set without members.
pub(super) const EMPTY: &[u8] = super::packed::EMPTY;

/// A set, to be read.
#[derive(Clone, Copy)]
pub struct SetView<'a> {
    payload: &'a [u8],
}

impl<'a> SetView<'a> {
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        SetView { payload }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        super::packed::count(self.payload)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The members in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        super::packed::iter(self.payload).map(|placed| placed.element)
    }
}

pub(super) fn fill(entry: &mut Entry, members: Items<'_>, rules: &Rules) {
    add(entry, members, rules);
}

pub(super) fn add(_entry: &mut Entry, _members: Items<'_>, _rules: &Rules) -> Applied {
    unreachable!("sets follow")
}

pub(super) fn remove(_entry: &mut Entry, _members: Items<'_>) -> Applied {
    unreachable!("sets follow")
}
