//! A set of slots that is read without locks: one bit per slot, 2 KiB.
//!
//! What it is: the index by which SCAN, sampling and expiry skip slots that have no entries for them; also
//! the set of the slots that a snapshot has captured. What it is not: exact for a reader without locks. A bit
//! is changed under the lock of its slot, except by `clear`; a reader without that lock may see an earlier
//! state of the slot.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::id::{SLOT_COUNT, SlotId};
use prng::Prng;

use crate::random::scale;

const WORDS: usize = SLOT_COUNT / 64;

/// The number of random slots that `random` tries before it counts the members.
const TRIES: usize = 8;

pub(crate) struct SlotSet {
    words: Box<[AtomicU64; WORDS]>,
}

impl SlotSet {
    pub(crate) fn new() -> Self {
        SlotSet { words: Box::new([const { AtomicU64::new(0) }; WORDS]) }
    }

    /// Adds the slot to the set, or removes it. The caller holds the slot's lock.
    #[inline]
    pub(crate) fn set(&self, slot: SlotId, member: bool) {
        let (word, bit) = (&self.words[slot.index() / 64], 1 << (slot.index() % 64));
        if (word.load(Relaxed) & bit != 0) == member {
            return;
        }
        if member {
            word.fetch_or(bit, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
        }
    }

    /// Removes all slots from the set.
    pub(crate) fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
    }

    #[inline]
    pub(crate) fn contains(&self, slot: SlotId) -> bool {
        self.words[slot.index() / 64].load(Relaxed) >> (slot.index() % 64) & 1 != 0
    }

    /// The first member at or after `from`.
    pub(crate) fn first_from(&self, from: SlotId) -> Option<SlotId> {
        let start = from.index() / 64;
        let mut bits = self.words[start].load(Relaxed) & u64::MAX << (from.index() % 64);
        let mut word = start;
        while bits == 0 {
            word += 1;
            bits = self.words.get(word)?.load(Relaxed);
        }
        SlotId::new((word * 64) as u16 + bits.trailing_zeros() as u16)
    }

    /// All members from `from` to `to`, both included, ascending.
    pub(crate) fn members(&self, from: SlotId, to: SlotId) -> impl Iterator<Item = SlotId> {
        let next = |slot: SlotId| slot.next().and_then(|next| self.first_from(next));
        std::iter::successors(self.first_from(from), move |&slot| next(slot))
            .take_while(move |&slot| slot <= to)
    }

    /// A random member; every member has the same chance.
    pub(crate) fn random(&self, sequence: &mut Prng) -> Option<SlotId> {
        for _ in 0..TRIES {
            let slot = SlotId::of_crc(sequence.next_u64() as u16);
            if self.contains(slot) {
                return Some(slot);
            }
        }
        let count = self.words.iter().map(|word| word.load(Relaxed).count_ones() as usize).sum();
        let rank = scale(sequence.next_u64() as u32, count);
        // Slots may have been removed from the set since they were counted.
        self.members(SlotId::FIRST, SlotId::LAST).nth(rank).or_else(|| self.first_from(SlotId::FIRST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u16) -> SlotId {
        SlotId::new(number).expect("in range")
    }

    #[test]
    fn members_are_found_in_order() {
        let set = SlotSet::new();
        for number in [0, 63, 64, 700, 16_383] {
            set.set(slot(number), true);
        }
        set.set(slot(700), false);
        let members = |from, to| set.members(slot(from), slot(to)).map(SlotId::get).collect::<Vec<_>>();
        assert_eq!(members(0, 16_383), [0, 63, 64, 16_383]);
        assert_eq!(members(1, 64), [63, 64]);
        assert_eq!(members(65, 16_382), [0u16; 0]);
        assert!(set.contains(slot(63)) && !set.contains(slot(700)));
    }

    #[test]
    fn random_members_are_even_and_none_come_from_an_empty_set() {
        let set = SlotSet::new();
        let mut sequence = Prng::new(7);
        assert_eq!(set.random(&mut sequence), None);
        // A search from a random start would prefer the first slot after a long gap.
        for number in [100, 101, 102, 12_000] {
            set.set(slot(number), true);
        }
        let tries = if cfg!(miri) { 40 } else { 4_000 };
        let mut hits = [0; 4];
        for _ in 0..tries {
            let found = set.random(&mut sequence).expect("there are members");
            hits[[100, 101, 102, 12_000].iter().position(|&n| n == found.get()).expect("a member")] += 1;
        }
        assert!(hits.iter().all(|&count| count > tries / 8), "{hits:?}");
    }
}
