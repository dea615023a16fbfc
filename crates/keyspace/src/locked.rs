//! Several locked slots.
//!
//! What it is: guards that are held together, in ascending order.
//! What it is not: a transaction. Nothing is undone here.

use lsn::Lsn;
use smallvec::SmallVec;

use crate::access::AccessClock;
use crate::apply::{Applied, apply_move_between};
use crate::effect::{Effect, Scope};
use crate::freed::Freed;
use crate::hash::{KeyHash, slot_of};
use crate::id::{DbId, SLOT_COUNT, SlotId};
use crate::keyspace::Keyspace;
use crate::slot::SlotGuard;

const NOT_LOCKED: &str = "a slot of the effect is not locked";

/// Slots that are locked together, kept in ascending order. Dropping this unlocks them.
pub struct LockedSlots<'k> {
    guards: SmallVec<[SlotGuard<'k>; 4]>,
}

impl<'k> LockedSlots<'k> {
    pub(crate) fn new(guards: SmallVec<[SlotGuard<'k>; 4]>) -> Self {
        debug_assert!(guards.is_sorted_by_key(SlotGuard::slot));
        LockedSlots { guards }
    }

    /// One locked slot, to which others can be [added](LockedSlots::add).
    pub fn of(guard: SlotGuard<'k>) -> Self {
        LockedSlots { guards: smallvec::smallvec![guard] }
    }

    /// No locked slot yet; slots can be [added](LockedSlots::add).
    pub fn none() -> Self {
        LockedSlots { guards: SmallVec::new() }
    }

    /// Adds a locked slot, which must not be among these slots.
    pub fn add(&mut self, guard: SlotGuard<'k>) {
        let at = self.guards.partition_point(|other| other.slot() < guard.slot());
        self.guards.insert(at, guard);
    }

    /// The guard of a slot, if the slot is among these.
    #[inline]
    pub fn get(&self, slot: SlotId) -> Option<&SlotGuard<'k>> {
        self.position(slot).map(|index| &self.guards[index])
    }

    /// The guard of a slot, if the slot is among these.
    #[inline]
    pub fn get_mut(&mut self, slot: SlotId) -> Option<&mut SlotGuard<'k>> {
        self.position(slot).map(|index| &mut self.guards[index])
    }

    /// The guards, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SlotGuard<'k>> {
        self.guards.iter()
    }

    /// The guards, ascending.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut SlotGuard<'k>> {
        self.guards.iter_mut()
    }

    /// Whether every slot is locked, as global effects need it.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.guards.len() == SLOT_COUNT
    }

    /// Applies an effect to the slot of its key, a Move to the slots of both keys, or a global effect to all
    /// slots.
    ///
    /// # Panics
    /// If a slot of the effect is not locked.
    pub fn apply(&mut self, effect: &Effect<'_>, clock: AccessClock, freed: &mut Freed) -> Applied {
        match effect.scope() {
            Scope::Slot(key) => {
                let hash = self.keyspace().hash(key);
                self.apply_hashed(effect, &hash, clock, freed)
            }
            Scope::Two(key, to_key) => {
                let [from, to] = [key, to_key].map(|key| self.position(slot_of(key)).expect(NOT_LOCKED));
                match self.guards.get_disjoint_mut([from, to]) {
                    Ok([from, to]) => apply_move_between(from, to, effect, freed),
                    Err(_) => self.guards[from].apply(effect, clock, freed),
                }
            }
            Scope::Global => {
                assert!(self.is_all(), "a global effect needs every slot locked");
                let mut applied = Applied::default();
                for guard in &mut self.guards {
                    applied = guard.apply(effect, clock, freed);
                }
                applied
            }
        }
    }

    /// Does the same as `SlotGuard::apply_hashed`, on the slot of the hash.
    ///
    /// # Panics
    /// If the slot of the hash is not locked.
    pub fn apply_hashed(
        &mut self,
        effect: &Effect<'_>,
        hash: &KeyHash,
        clock: AccessClock,
        freed: &mut Freed,
    ) -> Applied {
        let guard = self.get_mut(hash.slot()).expect(NOT_LOCKED);
        guard.apply_hashed(effect, hash, clock, freed)
    }

    /// The largest `last_lsn` of these slots; `Lsn::ZERO` for no slots.
    pub fn last_lsn(&self) -> Lsn {
        self.guards.iter().map(SlotGuard::last_lsn).max().unwrap_or(Lsn::ZERO)
    }

    /// The sum of [`SlotGuard::uncounted_keys`] of these slots.
    pub fn uncounted_keys(&self, db: DbId) -> i64 {
        self.guards.iter().map(|guard| guard.uncounted_keys(db)).sum()
    }

    /// The keyspace whose slots these are. Panics if no slot is locked.
    pub(crate) fn keyspace(&self) -> &'k Keyspace {
        self.guards.first().expect("no slot is locked").keyspace
    }

    /// The guard of a slot. Panics if the slot is not among these.
    pub(crate) fn expect(&self, slot: SlotId) -> &SlotGuard<'k> {
        self.get(slot).expect("the slot is not locked")
    }

    #[inline]
    fn position(&self, slot: SlotId) -> Option<usize> {
        if self.is_all() {
            return Some(slot.index());
        }
        self.guards.binary_search_by_key(&slot, SlotGuard::slot).ok()
    }
}
