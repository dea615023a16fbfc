//! Walks over keys that a command does not name.
//!
//! Invariants
//! - A walk locks one slot at a time, or finds all slots locked. A command that walks but is not alone in
//!   its unit (SCAN between MULTI and EXEC) has every slot locked: with some slots locked, the walk would
//!   deadlock with its own unit.
//! - A walk waits for a long unit no longer than other commands do. After that the walk is given up, and is
//!   retried from where it began.

use keyspace::{DbId, LockedSlots, ScanCursor, SlotGuard, SlotId, ValueType};

use super::{LockPolicy, Unit, locked::Locked};
use crate::error::LockContended;

impl<'k> Unit<'k> {
    /// The locked slots, if all are locked; `None` if none is.
    fn all_slots(&self) -> Option<&LockedSlots<'k>> {
        match &self.locked {
            Locked::Many(slots) if slots.is_all() => Some(slots),
            Locked::None => None,
            _ => panic!("a walk needs all slots or none"),
        }
    }

    /// Visits keys of a database from a cursor on: see [`Keyspace::scan`](keyspace::Keyspace::scan).
    ///
    /// # Errors
    /// A long unit holds a slot. The same error applies to the other methods.
    pub fn scan(
        &self,
        policy: LockPolicy<'_>,
        db: DbId,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueType),
    ) -> Result<ScanCursor, LockContended> {
        let lock = |slot| policy.lock(self.keyspace, slot);
        match self.all_slots() {
            Some(slots) => Ok(slots.scan(db, cursor, count, self.as_of_ms(), visit)),
            None => self.keyspace.scan_locking(lock, db, cursor, count, self.as_of_ms(), visit),
        }
    }

    /// Calls `look` with one slot.
    pub fn with_slot<R>(
        &self,
        policy: LockPolicy<'_>,
        slot: SlotId,
        look: impl FnOnce(&SlotGuard<'_>) -> R,
    ) -> Result<R, LockContended> {
        match self.all_slots() {
            Some(slots) => Ok(look(slots.get(slot).expect("every slot is locked"))),
            None => Ok(look(&policy.lock(self.keyspace, slot)?)),
        }
    }

    /// Picks a random key of a database: see [`Keyspace::random_key`](keyspace::Keyspace::random_key).
    pub fn random_key(
        &mut self,
        policy: LockPolicy<'_>,
        db: DbId,
        out: &mut Vec<u8>,
    ) -> Result<bool, LockContended> {
        if self.keys_len(db) == 0 {
            return Ok(false);
        }
        let (seed, as_of_ms) = (self.seed(), self.as_of_ms());
        let lock = |slot| policy.lock(self.keyspace, slot);
        match self.all_slots() {
            Some(slots) => Ok(slots.random_key(db, seed, as_of_ms, out)),
            None => self.keyspace.random_key_locking(lock, db, seed, as_of_ms, out),
        }
    }
}
