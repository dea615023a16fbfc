//! SCAN: walking a database in small steps while it changes.
//!
//! What it is: a walk in the order of (slot, `h16`). It locks one slot at a time, or gets all slots locked by
//! the caller; its only state is the cursor. What it is not: a snapshot. Keys that are added or removed
//! during the scan may or may not be seen.
//!
//! # Why every key is seen exactly once
//! A key's slot and `h16` never change while the keyspace lives. A call visits, under the lock of the slot,
//! *all* entries whose `h16` is in [position, end), and returns a cursor to `end`; ranges of successive calls
//! touch and do not overlap. The bucket of an entry, the number of buckets, and whether the table grew or
//! shrank between calls decide only how large the next range is. So a key that is present during the whole
//! scan falls into exactly one range and is visited exactly once, as long as databases are not swapped.

use std::borrow::Borrow;
use std::convert::Infallible;

use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::locked::LockedSlots;
use crate::slot::SlotGuard;
use crate::table::POSITION_END;
use crate::value::ValueType;

/// Bits of a cursor that hold the position inside a slot.
const POSITION_BITS: u32 = 17;

/// The position at which a scan continues: slot << 17 | `h16`. Zero is both the start and the end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ScanCursor(u64);

impl ScanCursor {
    /// The cursor that starts a scan; the last call of a scan returns it, too.
    pub const START: ScanCursor = ScanCursor(0);

    /// The cursor that a client sent. Any number is accepted; with a number that no call has returned, the
    /// scan continues at an arbitrary position or ends.
    pub const fn from_u64(cursor: u64) -> Self {
        ScanCursor(cursor)
    }

    /// The cursor as clients see it.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    fn at(slot: SlotId, position: u32) -> Self {
        ScanCursor(u64::from(slot.get()) << POSITION_BITS | u64::from(position))
    }

    /// Slot and position, or `None` if the cursor is past the last slot.
    fn parts(self) -> Option<(SlotId, u32)> {
        let slot = SlotId::new(u16::try_from(self.0 >> POSITION_BITS).ok()?)?;
        Some((slot, (self.0 & ((1 << POSITION_BITS) - 1)) as u32))
    }
}

impl Keyspace {
    /// Continues a scan of `db`: visits keys that are not expired until about `count` entries were looked at.
    /// Returns the cursor at which to continue, or `ScanCursor::START` at the end. A call also ends after
    /// `max(8 * count, 1024)` slots with keys, so that it stays short when these keys are in other databases.
    /// `visit` runs under the lock of a slot, and must not lock another slot.
    pub fn scan(
        &self,
        db: DbId,
        cursor: ScanCursor,
        count: usize,
        now_ms: u64,
        visit: &mut dyn FnMut(&[u8], ValueType),
    ) -> ScanCursor {
        let lock = |slot| Ok::<_, Infallible>(self.lock(slot));
        let Ok(cursor) = self.scan_locking(lock, db, cursor, count, now_ms, visit);
        cursor
    }

    /// Does the same as [`Keyspace::scan`], with slots locked by `lock`.
    ///
    /// # Errors
    /// The error that `lock` returns for a slot.
    pub fn scan_locking<'k, G: Borrow<SlotGuard<'k>>, E>(
        &self,
        lock: impl Fn(SlotId) -> Result<G, E>,
        db: DbId,
        cursor: ScanCursor,
        count: usize,
        now_ms: u64,
        visit: &mut dyn FnMut(&[u8], ValueType),
    ) -> Result<ScanCursor, E> {
        let Some((first, first_position)) = cursor.parts() else { return Ok(ScanCursor::START) };
        let mut position = first_position;
        let (mut seen, mut slots_left) = (0, count.saturating_mul(8).max(1024));
        for slot in self.occupied.members(first, SlotId::LAST) {
            if slot != first {
                position = 0;
            }
            if seen >= count.max(1) || slots_left == 0 {
                return Ok(ScanCursor::at(slot, position));
            }
            slots_left -= 1;
            let guard = lock(slot)?;
            let Some(table) = guard.borrow().state.table(db) else { continue };
            while position < POSITION_END {
                position = table.visit_from(position, |entry| {
                    seen += 1;
                    if !entry.is_expired(now_ms) {
                        visit(entry.key(), entry.value_type());
                    }
                });
                if seen >= count.max(1) && position < POSITION_END {
                    return Ok(ScanCursor::at(slot, position));
                }
            }
        }
        Ok(ScanCursor::START)
    }
}

impl LockedSlots<'_> {
    /// Does the same as `Keyspace::scan`, but locks nothing: the caller holds the locks of all slots.
    ///
    /// # Panics
    /// If a slot is not locked.
    pub fn scan(
        &self,
        db: DbId,
        cursor: ScanCursor,
        count: usize,
        now_ms: u64,
        visit: &mut dyn FnMut(&[u8], ValueType),
    ) -> ScanCursor {
        let locked = |slot| Ok::<_, Infallible>(self.expect(slot));
        let Ok(cursor) = self.keyspace().scan_locking(locked, db, cursor, count, now_ms, visit);
        cursor
    }
}
