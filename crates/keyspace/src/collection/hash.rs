//! Hashes: fields with values.
//!
//! What it is: the packed form (fields and values in turn, in the order in which they were added) and the view that reads
//! either form.
//! What it is not: commands on hashes.

use super::element::Element;
use super::{Rules, packed};
use crate::apply::Applied;
use crate::effect::Items;
use crate::entry::Entry;

/// The payload of a hash without fields.
pub(super) const EMPTY: &[u8] = packed::EMPTY;

/// One field of a hash.
#[derive(Clone, Copy, Debug)]
pub struct HashField<'a> {
    /// Its name.
    pub name: Element<'a>,
    /// Its value.
    pub value: Element<'a>,
    /// Unix time in milliseconds at which it expires.
    pub expire_at_ms: Option<u64>,
}

/// A hash, to be read.
#[derive(Clone, Copy)]
pub struct HashView<'a> {
    payload: &'a [u8],
}

impl<'a> HashView<'a> {
    pub(super) fn of_packed(payload: &'a [u8]) -> Self {
        HashView { payload }
    }

    /// Number of fields, expired ones included.
    #[inline]
    pub fn len(&self) -> usize {
        packed::count(self.payload) / 2
    }

    /// Whether it has no field.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All fields, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = HashField<'a>> + use<'a> {
        let mut elements = packed::iter(self.payload).map(|placed| placed.element);
        std::iter::from_fn(move || {
            Some(HashField { name: elements.next()?, value: elements.next()?, expire_at_ms: None })
        })
    }
}

pub(super) fn fill(entry: &mut Entry, pairs: Items<'_>, rules: &Rules) {
    put(entry, pairs, false, rules);
}

pub(super) fn put(_entry: &mut Entry, _pairs: Items<'_>, _keeps_expiry: bool, _rules: &Rules) -> Applied {
    unreachable!("hashes follow")
}

pub(super) fn remove(_entry: &mut Entry, _fields: Items<'_>) -> Applied {
    unreachable!("hashes follow")
}

pub(super) fn set_expiry(
    _entry: &mut Entry,
    _fields: Items<'_>,
    _expire_at_ms: Option<u64>,
    _rules: &Rules,
) -> Applied {
    unreachable!("hashes follow")
}
