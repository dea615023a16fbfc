//! Lists: elements in an order that clients decide.
//!
//! What it is: what effects do to lists, and the view that reads either form.
//! What it is not: commands on lists.

use super::Rules;
use super::chunk::{self, Chunk};
use super::element::Element;
use super::long_list::LongList;
use crate::apply::Applied;
use crate::effect::{Items, ListEnd};
use crate::entry::Entry;

/// The payload of a list without elements.
pub(super) const EMPTY: &[u8] = &chunk::EMPTY;

/// A list, to be read.
#[derive(Clone, Copy)]
pub struct ListView<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Packed(Chunk<'a>),
    Long(&'a LongList),
}

impl<'a> ListView<'a> {
    #[inline]
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        ListView(Form::Packed(Chunk::of_packed(payload)))
    }

    #[inline]
    pub(super) fn of_long(list: &'a LongList) -> Self {
        ListView(Form::Long(list))
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Packed(chunk) => chunk.len(),
            Form::Long(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements from head to tail.
    pub fn iter(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let (packed, long) = match self.0 {
            Form::Packed(chunk) => (Some(chunk.iter()), None),
            Form::Long(list) => (None, Some(list.iter())),
        };
        packed.into_iter().flatten().chain(long.into_iter().flatten())
    }
}

pub(super) fn fill(entry: &mut Entry, items: Items<'_>, rules: &Rules) {
    push(entry, ListEnd::Tail, items, rules);
}

pub(super) fn push(_entry: &mut Entry, _end: ListEnd, _items: Items<'_>, _rules: &Rules) -> Applied {
    unreachable!("lists follow")
}

pub(super) fn pop(_entry: &mut Entry, _end: ListEnd, _count: u64) -> Applied {
    unreachable!("lists follow")
}

pub(super) fn set(_entry: &mut Entry, _index: u64, _item: &[u8], _rules: &Rules) -> Applied {
    unreachable!("lists follow")
}

pub(super) fn insert(_entry: &mut Entry, _index: u64, _item: &[u8], _rules: &Rules) -> Applied {
    unreachable!("lists follow")
}

pub(super) fn remove(_entry: &mut Entry, _end: ListEnd, _count: u64, _item: &[u8]) -> Applied {
    unreachable!("lists follow")
}
