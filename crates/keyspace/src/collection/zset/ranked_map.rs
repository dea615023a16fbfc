//! Ranked maps: the big form of sorted sets.
//!
//! What it is: a field map from member to score, and a rank tree of the same members in order. A member is
//! stored once, in its entry in the map; the tree holds the addresses of the entries.
//! What it is not: a value with limits or a packed form (see the parent module).
//!
//! Invariants
//! - Map and tree have the same members, with the same scores.
//! - The value of an entry of the map is the eight bytes of the score, so that the entry never moves.
//! - A handle is in the tree only while its entry is in the map.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::Put;
use crate::access::AccessStamp;
use crate::collection::element::Element;
use crate::collection::field_map::FieldMap;
use crate::collection::rank_tree::{Member, RankTree};
use crate::entry::{Entry, EntryRef};

pub(crate) struct RankedMap {
    scores: FieldMap,
    order: RankTree<Handle>,
}

/// The address of an entry of the map.
#[derive(Clone, Copy)]
pub(super) struct Handle(NonNull<u8>);

// SAFETY: a handle goes to another thread only with the map whose entry it points to, and only reads that
// entry.
unsafe impl Send for Handle {}

impl Handle {
    fn of(entry: EntryRef<'_>) -> Self {
        Handle(entry.address())
    }
}

impl Member for Handle {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the entry lives. Only `RankedMap` makes handles, of entries in its own map, and it lends
        // handles out no longer than it is borrowed. A handle leaves the tree before its entry leaves the
        // map. Until then, the entry does not move, because its size never changes. Only the key is read
        // here, and keys are never written.
        unsafe { EntryRef::from_raw(self.0) }.key()
    }
}

impl RankedMap {
    /// A map of these members, which are distinct and sorted by score, then by member. `seed`: see
    /// [`FieldMap::new`].
    pub(super) fn from_sorted<'m>(members: impl Iterator<Item = (Element<'m>, f64)>, seed: u64) -> Self {
        let mut scores = FieldMap::new(seed);
        let order =
            RankTree::from_sorted(members.map(|(member, score)| (score, add(&mut scores, &member, score))));
        RankedMap { scores, order }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// The members, for readers.
    pub(crate) fn scores(&self) -> &FieldMap {
        &self.scores
    }

    /// The members, for captures, which change neither members nor scores.
    pub(crate) fn scores_mut(&mut self) -> &mut FieldMap {
        &mut self.scores
    }

    /// Bytes of memory behind this structure.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.scores.bytes() + self.order.bytes()
    }

    #[inline]
    pub(super) fn order(&self) -> &RankTree<Handle> {
        &self.order
    }

    #[inline]
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(score_of)
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        let rank = self.order.rank(score, member).expect("map and tree have the same members");
        Some((rank, score))
    }

    /// As `FieldMap::scan`.
    pub(super) fn scan<'m>(&'m self, cursor: u64, count: usize, mut visit: impl FnMut(&'m [u8], f64)) -> u64 {
        self.scores.scan(cursor, count, |entry| visit(entry.key(), score_of(entry)))
    }

    /// Adds a member or gives it another score.
    pub(super) fn put(&mut self, score: f64, member: &[u8]) -> Put {
        let replace = |entry: &mut Entry| {
            let old = score_of(entry.as_ref());
            if old != score {
                entry.payload_mut().copy_from_slice(&score.to_le_bytes());
            }
            old
        };
        let Some(old) = self.scores.update(member, replace) else {
            let handle = add(&mut self.scores, member, score);
            self.order.insert(score, handle);
            return Put::Added;
        };
        if old == score {
            return Put::Unchanged;
        }
        let handle = self.order.remove(old, member).expect("map and tree have the same members");
        self.order.insert(score, handle);
        Put::Updated
    }

    /// Takes a member out. Returns whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.score(member) else { return false };
        self.order.remove(score, member);
        self.scores.remove(member);
        true
    }

    /// Takes the members with these ranks out. Returns the number of removed members.
    pub(super) fn remove_ranks(&mut self, first: usize, count: usize) -> usize {
        let count = count.min(self.len().saturating_sub(first));
        for _ in 0..count {
            let (_, handle) = self.order.remove_at(first).expect("a rank below the length");
            // The name is read from the entry itself, which is freed only after the call.
            let entry = self.scores.remove(handle.bytes());
            debug_assert!(entry.is_some(), "map and tree have the same members");
        }
        count
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.scores.check();
        self.order.check();
        assert_eq!(self.scores.len(), self.order.len());
        for (score, handle) in self.order.range(0..self.len()) {
            let entry = self.scores.get(handle.bytes()).expect("map and tree have the same members");
            assert_eq!((entry.address(), score_of(entry).to_bits()), (handle.0, score.to_bits()));
        }
    }
}

/// Adds a member that is not in the map.
fn add(scores: &mut FieldMap, member: &[u8], score: f64) -> Handle {
    let entry = Entry::new(member, &score.to_le_bytes(), None, AccessStamp::default());
    let handle = Handle::of(entry.as_ref());
    scores.insert_entry(entry);
    handle
}

#[inline]
pub(crate) fn score_of(entry: EntryRef<'_>) -> f64 {
    f64::from_le_bytes(entry.payload().try_into().expect("a score is the value of every entry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test is small enough for Miri, which checks the use of handles.
    #[test]
    fn handles_stay_valid_while_other_members_change() {
        let mut map = RankedMap::from_sorted(std::iter::empty(), 1);
        let name = |number: u32| format!("member {number}").into_bytes();
        for number in 0..120 {
            assert_eq!(map.put(f64::from(number % 7), &name(number)), Put::Added);
        }
        for number in 0..120 {
            let new = if number % 3 == 0 { Put::Unchanged } else { Put::Updated };
            assert_eq!(map.put(f64::from(number % 7 + number % 3), &name(number)), new);
        }
        map.check();
        assert!(map.remove(&name(5)) && !map.remove(&name(5)));
        assert_eq!((map.remove_ranks(10, 90), map.remove_ranks(29, 5)), (90, 0));
        map.check();
        let mut last = (f64::NEG_INFINITY, Vec::new());
        for (score, member) in map.order().range(0..map.len()) {
            let this = (score, member.bytes().to_vec());
            assert!(last < this);
            last = this;
        }
        assert_eq!((map.remove_ranks(0, 100), map.len()), (29, 0));
        map.check();
    }
}
