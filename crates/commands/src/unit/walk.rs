//! Walks over keys that a command does not name.
//!
//! Invariants
//! - A walk locks one slot at a time, or finds all of them locked: a command that names no key but is not alone in its unit
//!   (SCAN between MULTI and EXEC) has every slot. A unit with some slots would wait for itself.

use keyspace::{DbId, LockedSlots, ScanCursor, SlotGuard, SlotId, ValueType};

use super::{Unit, locked::Locked};

impl<'k> Unit<'k> {
    /// The slots to walk, if they are locked.
    fn all_slots(&self) -> Option<&LockedSlots<'k>> {
        match &self.locked {
            Locked::Many(slots) if slots.is_all() => Some(slots),
            Locked::None => None,
            _ => panic!("a walk needs all slots or none"),
        }
    }

    /// See [`Keyspace::scan`].
    pub fn scan(
        &self,
        db: DbId,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueType),
    ) -> ScanCursor {
        match self.all_slots() {
            Some(slots) => slots.scan(db, cursor, count, self.as_of_ms(), visit),
            None => self.keyspace.scan(db, cursor, count, self.as_of_ms(), visit),
        }
    }

    /// Looks at one slot.
    pub fn with_slot<R>(&self, slot: SlotId, look: impl FnOnce(&SlotGuard<'_>) -> R) -> R {
        match self.all_slots() {
            Some(slots) => look(slots.get(slot).expect("every slot is locked")),
            None => look(&self.keyspace.lock(slot)),
        }
    }

    /// See [`Keyspace::random_key`].
    pub fn random_key(&mut self, db: DbId, out: &mut Vec<u8>) -> bool {
        let (seed, as_of_ms) = (self.seed(), self.as_of_ms());
        match self.all_slots() {
            Some(slots) => slots.random_key(db, seed, as_of_ms, out),
            None => self.keyspace.random_key(db, seed, as_of_ms, out),
        }
    }
}
