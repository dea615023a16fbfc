//! Packed payloads: a number of elements, then the elements.
//!
//! What it is: reading and editing the packed form that hashes, sets and sorted sets share.
//! What it is not: aware of the meaning of the elements, nor of limits.
//!
//! ```text
//! count, u16 little-endian | element, element, ...
//!   hash:        field, value, field, value, ...    two elements for each field
//!   set:         member, member, ...                one element for each member
//!   sorted set:  member score, member score, ...    member and score count as one element
//! ```
//!
//! Invariants
//! - The count is the number of elements that follow.

use super::element::{self, Element, Encoded};
use crate::entry::Entry;

/// Bytes before the first element.
pub(crate) const HEADER: usize = 2;

/// A payload without elements.
pub(crate) const EMPTY: &[u8] = &[0; HEADER];

/// The maximum number of elements that any limit allows in a payload.
pub(crate) const COUNT_MAX: usize = 32_000;

#[inline]
pub(crate) fn count(payload: &[u8]) -> usize {
    u16::from_le_bytes([payload[0], payload[1]]).into()
}

/// An element and where its encoding lies.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) at: usize,
    pub(crate) encoded_len: usize,
    pub(crate) element: Element<'a>,
}

impl Placed<'_> {
    /// Where the next element begins.
    pub(crate) fn end(&self) -> usize {
        self.at + self.encoded_len
    }
}

/// The elements in order.
#[inline]
pub(crate) fn iter(payload: &[u8]) -> impl Iterator<Item = Placed<'_>> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        if at == payload.len() {
            return None;
        }
        let (element, encoded_len) = element::decode(&payload[at..]);
        let placed = Placed { at, encoded_len, element };
        at += encoded_len;
        Some(placed)
    })
}

/// The element at an offset.
#[inline]
pub(crate) fn at(payload: &[u8], at: usize) -> Placed<'_> {
    let (element, encoded_len) = element::decode(&payload[at..]);
    Placed { at, encoded_len, element }
}

/// The offset of the first element that has these bytes. Only every `stride`-th element is looked at, and
/// none is decoded.
#[inline]
pub(crate) fn find(payload: &[u8], wanted: &[u8], stride: usize) -> Option<usize> {
    let wanted = Encoded::of(wanted);
    let mut at = HEADER;
    while at < payload.len() {
        if wanted.is_at(&payload[at..]) {
            return Some(at);
        }
        for _ in 0..stride {
            at += element::encoded_len(&payload[at..]);
        }
    }
    None
}

/// The offset of the element at an index below the number of elements.
pub(crate) fn offset(payload: &[u8], index: usize) -> usize {
    (0..index).fold(HEADER, |at, _| at + element::encoded_len(&payload[at..]))
}

/// A payload that can be edited: the payload of an entry, or a payload under construction.
pub(crate) trait Payload {
    fn payload(&self) -> &[u8];
    /// The payload, to be changed without changing its length.
    fn payload_mut(&mut self) -> &mut [u8];
    /// Replaces `removed` bytes at `at` by the concatenation of `inserted`.
    fn splice(&mut self, at: usize, removed: usize, inserted: &[&[u8]]);
}

impl Payload for Entry {
    #[inline]
    fn payload(&self) -> &[u8] {
        self.as_ref().payload()
    }

    #[inline]
    fn payload_mut(&mut self) -> &mut [u8] {
        Entry::payload_mut(self)
    }

    #[inline]
    fn splice(&mut self, at: usize, removed: usize, inserted: &[&[u8]]) {
        Entry::splice(self, at, removed, inserted);
    }
}

impl Payload for Vec<u8> {
    fn payload(&self) -> &[u8] {
        self
    }

    fn payload_mut(&mut self) -> &mut [u8] {
        self
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: &[&[u8]]) {
        Vec::splice(self, at..at + removed, inserted.iter().copied().flatten().copied());
    }
}

/// Inserts one or two elements at an offset.
pub(crate) fn insert(payload: &mut impl Payload, at: usize, elements: &[&[u8]]) {
    // There are at most two elements, a field and its value: members with scores are encoded elsewhere.
    let encoded =
        [elements.first(), elements.get(1)].map(|bytes| Encoded::of(bytes.copied().unwrap_or_default()));
    let [first, second] = &encoded;
    let ([first_head, first_tail], [second_head, second_tail]) = (first.parts(), second.parts());
    match elements.len() {
        1 => payload.splice(at, 0, &[first_head, first_tail]),
        2 => payload.splice(at, 0, &[first_head, first_tail, second_head, second_tail]),
        other => unreachable!("{other} elements at once"),
    }
    change_count(payload, elements.len() as isize);
}

/// Replaces the element at an offset.
pub(crate) fn replace(payload: &mut impl Payload, at: usize, bytes: &[u8]) {
    let old_len = element::encoded_len(&payload.payload()[at..]);
    let new = Encoded::of(bytes);
    let [head, tail] = new.parts();
    payload.splice(at, old_len, &[head, tail]);
}

/// Takes out `elements` elements at an offset.
pub(crate) fn remove(payload: &mut impl Payload, at: usize, elements: usize) {
    let mut end = at;
    for _ in 0..elements {
        end += element::encoded_len(&payload.payload()[end..]);
    }
    payload.splice(at, end - at, &[]);
    change_count(payload, -(elements as isize));
}

pub(crate) fn change_count(payload: &mut impl Payload, by: isize) {
    let new = count(payload.payload()).checked_add_signed(by).expect("no more is removed than there is");
    let new = u16::try_from(new).expect("limits keep payloads small");
    payload.payload_mut()[..HEADER].copy_from_slice(&new.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(payload: &[u8]) -> Vec<String> {
        iter(payload).map(|placed| String::from_utf8_lossy(&placed.element).into_owned()).collect()
    }

    #[test]
    fn elements_are_found_replaced_and_removed() {
        let mut payload = EMPTY.to_vec();
        for (field, value) in [("a", "1"), ("1", "a"), ("long enough to be a string", "70000")] {
            let end = payload.len();
            insert(&mut payload, end, &[field.as_bytes(), value.as_bytes()]);
        }
        assert_eq!(count(&payload), 6);
        assert_eq!(find(&payload, b"a", 2), Some(HEADER), "the field, not the value");
        let at = find(&payload, b"1", 2).expect("a field");
        assert_eq!((offset(&payload, 0), offset(&payload, 2)), (HEADER, at));
        let value_at = iter(&payload).find(|placed| placed.at > at).expect("its value").at;
        replace(&mut payload, value_at, b"a longer value");
        assert_eq!(texts(&payload)[2..4], ["1", "a longer value"]);
        remove(&mut payload, at, 2);
        assert_eq!(texts(&payload), ["a", "1", "long enough to be a string", "70000"]);
        assert_eq!((count(&payload), find(&payload, b"2", 2)), (4, None));
    }
}
