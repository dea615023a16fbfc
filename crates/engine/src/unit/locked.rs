//! The slots that a unit has locked: none, one or many.

use keyspace::{DbId, Keyspace, LockedSlots, SlotGuard, SlotId};
use lsn::Lsn;
use smallvec::SmallVec;

pub(super) enum Locked<'k> {
    /// No slot.
    None,
    /// One slot, mostly that of the only key.
    One(SlotGuard<'k>),
    /// Several slots, or all. Boxed: most units have one slot.
    Many(Box<LockedSlots<'k>>),
}

/// Slots to lock; most units have few.
pub type Slots = SmallVec<[SlotId; 16]>;

impl<'k> Locked<'k> {
    /// Locks one more slot, unless another unit holds it. Returns whether the slot is locked.
    pub(super) fn try_add(&mut self, keyspace: &'k Keyspace, slot: SlotId) -> bool {
        if self.has(slot) {
            return true;
        }
        let Some(guard) = keyspace.try_lock(slot) else { return false };
        *self = match std::mem::replace(self, Locked::None) {
            Locked::None => Locked::One(guard),
            Locked::One(only) => {
                let mut slots = LockedSlots::of(only);
                slots.add(guard);
                Locked::Many(Box::new(slots))
            }
            Locked::Many(mut slots) => {
                slots.add(guard);
                Locked::Many(slots)
            }
        };
        true
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(SlotId)) {
        match self {
            Locked::None => {}
            Locked::One(only) => visit(only.slot()),
            Locked::Many(slots) => slots.iter().for_each(|guard| visit(guard.slot())),
        }
    }

    pub(super) fn is_all(&self) -> bool {
        matches!(self, Locked::Many(slots) if slots.is_all())
    }

    #[inline]
    fn find(&self, wanted: SlotId) -> Option<&SlotGuard<'k>> {
        match self {
            Locked::One(slot) if slot.slot() == wanted => Some(slot),
            Locked::Many(slots) => slots.get(wanted),
            _ => None,
        }
    }

    pub(super) fn has(&self, slot: SlotId) -> bool {
        self.find(slot).is_some()
    }

    #[inline]
    pub(super) fn slot(&self, wanted: SlotId) -> &SlotGuard<'k> {
        self.find(wanted).expect("the slots of all keys of a command are locked")
    }

    #[inline]
    pub(super) fn slot_mut(&mut self, wanted: SlotId) -> &mut SlotGuard<'k> {
        let found = match self {
            Locked::One(slot) if slot.slot() == wanted => Some(slot),
            Locked::Many(slots) => slots.get_mut(wanted),
            _ => None,
        };
        found.expect("the slots of all keys of a command are locked")
    }

    pub(super) fn uncounted_keys(&self, db: DbId) -> i64 {
        match self {
            Locked::None => 0,
            Locked::One(slot) => slot.uncounted_keys(db),
            Locked::Many(slots) => slots.uncounted_keys(db),
        }
    }

    #[inline]
    pub(super) fn last_lsn(&self) -> Lsn {
        match self {
            Locked::None => Lsn::ZERO,
            Locked::One(slot) => slot.last_lsn(),
            Locked::Many(slots) => slots.last_lsn(),
        }
    }

    #[inline]
    pub(super) fn set_last_lsn(&mut self, lsn: Lsn) {
        match self {
            Locked::None => {}
            Locked::One(slot) => slot.set_last_lsn(lsn),
            Locked::Many(slots) => slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn)),
        }
    }
}
