//! Lists: elements in an order that clients decide.
//!
//! What it is: the changes that effects make to lists, and the view that reads either form.
//! What it is not: commands on lists.

use std::ops::Range;

use super::chunk::{self, Chunk, Edit, End};
use super::element::Element;
use super::long_list::{self, LongList};
use super::packed::Payload;
use super::{Big, Rules};
use crate::apply::Applied;
use crate::effect::{Items, ListEnd};
use crate::entry::Entry;
use crate::freed::Freed;

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

    /// A copy that shares the chunks of a big list (see `LongList::share`); `None` for a packed list.
    pub(crate) fn share(&self) -> Option<LongList> {
        match self.0 {
            Form::Packed(_) => None,
            Form::Long(list) => Some(list.share()),
        }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Form::Packed(chunk) => chunk.len(),
            Form::Long(list) => list.len(),
        }
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index, counted from the head.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Element<'a>> {
        match self.0 {
            Form::Packed(chunk) => chunk.get(index),
            Form::Long(list) => list.get(index),
        }
    }

    /// The elements from head to tail.
    #[inline]
    pub fn iter(&self) -> ListIter<'a> {
        self.range(0..self.len())
    }

    /// The elements with these indices, as far as they exist.
    #[inline]
    pub fn range(&self, indices: Range<usize>) -> ListIter<'a> {
        ListIter(match self.0 {
            Form::Packed(chunk) => chunk.range(indices).into(),
            Form::Long(list) => list.range(indices),
        })
    }

    /// Whether each element, from head to tail, has these bytes. Faster than comparing the elements.
    pub fn matches<'e>(
        &self,
        wanted: &'e [u8],
    ) -> impl DoubleEndedIterator<Item = bool> + ExactSizeIterator + use<'a, 'e> {
        self.iter().0.matches(wanted)
    }

    /// The name of the form, as OBJECT ENCODING shows it.
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Packed(_) => "listpack",
            Form::Long(_) => "quicklist",
        }
    }
}

/// Elements of a list in order, from either end.
#[derive(Clone)]
pub struct ListIter<'a>(long_list::Range<'a>);

impl<'a> Iterator for ListIter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        self.0.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for ListIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back()
    }
}

impl ExactSizeIterator for ListIter<'_> {}

pub(super) fn fill(entry: &mut Entry, items: Items<'_>, rules: &Rules) {
    push(entry, ListEnd::Tail, items, rules);
}

pub(super) fn push(entry: &mut Entry, end: ListEnd, items: Items<'_>, rules: &Rules) -> Applied {
    let added = items.len() as u64;
    if entry.big_mut().is_none() {
        let packed = entry.payload();
        let len = Chunk::of_packed(packed).len();
        // A list that would become too long becomes big at once, without the work of a packed edit. Integers
        // count with the bytes of their text here, so a list of integers may become big a little early.
        let fits = len + items.len() <= rules.limits.list_entries as usize
            && packed.len() + items.iter().map(<[u8]>::len).sum::<usize>()
                <= rules.limits.list_bytes as usize;
        if fits {
            let edit = match end {
                // Elements are pushed one after the other at the head, so the last one ends up first.
                ListEnd::Head if items.len() == 1 => Edit::insert(packed, 0, items.iter()),
                ListEnd::Head => {
                    let mut reversed: Vec<&[u8]> = items.iter().collect();
                    reversed.reverse();
                    Edit::insert(packed, 0, reversed)
                }
                ListEnd::Tail => Edit::insert(packed, len, items.iter()),
            };
            if is_packed_after(packed, &edit, rules) {
                apply(entry, &edit);
                return Applied { changed: added > 0, added, ..Applied::default() };
            }
        }
        promote(entry);
    }
    let list = elements_mut(entry);
    for item in items.iter() {
        match end {
            ListEnd::Head => list.push_front(item),
            ListEnd::Tail => list.push_back(item),
        }
    }
    Applied { changed: added > 0, added, ..Applied::default() }
}

pub(super) fn pop(entry: &mut Entry, end: ListEnd, count: u64, freed: &mut Freed) -> Applied {
    let len = entry.as_ref().view().len();
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(len);
    if entry.big_mut().is_none() {
        let range = match end {
            ListEnd::Head => 0..count,
            ListEnd::Tail => len - count..len,
        };
        let edit = Edit::remove(entry.payload(), range);
        apply(entry, &edit);
    } else {
        let list = elements_mut(entry);
        let detached = match end {
            ListEnd::Head => list.pop_front(count),
            ListEnd::Tail => list.pop_back(count),
        };
        detached.into_iter().for_each(|list| freed.big(Big::List(list)));
    }
    Applied { changed: count > 0, removed: count as u64, ..Applied::default() }
}

pub(super) fn set(entry: &mut Entry, index: u64, item: &[u8], rules: &Rules) -> Applied {
    let Some(index) = index_below(index, entry.as_ref().view().len()) else { return Applied::default() };
    let make_packed = |packed: &[u8]| Edit::set(packed, index, item);
    change(entry, rules, make_packed, |list| list.set(index, item));
    Applied { changed: true, updated: 1, ..Applied::default() }
}

pub(super) fn insert(entry: &mut Entry, index: u64, item: &[u8], rules: &Rules) -> Applied {
    let Some(index) = index_below(index, entry.as_ref().view().len() + 1) else { return Applied::default() };
    let make_packed = |packed: &[u8]| Edit::insert(packed, index, [item]);
    change(entry, rules, make_packed, |list| list.insert(index, item));
    Applied { changed: true, added: 1, ..Applied::default() }
}

pub(super) fn remove(entry: &mut Entry, from: ListEnd, count: u64, item: &[u8]) -> Applied {
    let limit = if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let from = match from {
        ListEnd::Head => End::Front,
        ListEnd::Tail => End::Back,
    };
    let removed = if entry.big_mut().is_some() {
        elements_mut(entry).remove_matches(item, limit, from)
    } else {
        let len = Chunk::of_packed(entry.payload()).len();
        Edit::remove_matches(entry.payload(), item, limit, from).map_or(0, |edit| {
            apply(entry, &edit);
            len - edit.len
        })
    };
    Applied { changed: removed > 0, removed: removed as u64, ..Applied::default() }
}

fn index_below(index: u64, end: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|index| *index < end)
}

/// Makes an edit of one element, in the packed form if the list may stay packed.
fn change(
    entry: &mut Entry,
    rules: &Rules,
    packed: impl FnOnce(&[u8]) -> Edit,
    long: impl FnOnce(&mut LongList),
) {
    if entry.big_mut().is_none() {
        let edit = packed(entry.payload());
        if is_packed_after(entry.payload(), &edit, rules) {
            return apply(entry, &edit);
        }
        promote(entry);
    }
    long(elements_mut(entry));
}

/// Whether a packed list may stay packed after an edit.
#[inline]
fn is_packed_after(packed: &[u8], edit: &Edit, rules: &Rules) -> bool {
    edit.len <= (rules.limits.list_entries as usize).min(chunk::LEN_MAX)
        && edit.packed_len_after(packed.len()) <= rules.limits.list_bytes as usize
}

/// Applies an edit to a packed list.
#[inline]
fn apply(entry: &mut Entry, edit: &Edit) {
    entry.splice(edit.offset, edit.removed_len, &[&edit.inserted]);
    edit.write_len(entry.payload_mut());
}

/// Makes a packed list long.
fn promote(entry: &mut Entry) {
    let list = LongList::from_packed(entry.payload());
    entry.promote(Big::List(list));
}

fn elements_mut(entry: &mut Entry) -> &mut LongList {
    match entry.big_mut() {
        Some(Big::List(list)) => list,
        _ => unreachable!("the entry of a long list holds one"),
    }
}

#[cfg(test)]
mod tests;
