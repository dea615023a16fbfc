//! The invariants of slots and of the keyspace, checked by walking them.
//!
//! What it is: a check for tests, for the simulation and for fuzzing. It panics if an invariant is broken.
//! What it is not: cheap.

use std::sync::atomic::Ordering::Relaxed;

use crate::expiry::Item;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::slot::{NEVER, SlotGuard};

impl SlotGuard<'_> {
    /// Walks the slot: tables, overflow counters, counts, bytes, expiry heaps.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        let (slot, keyspace) = (self.slot(), self.keyspace);
        for (db, table) in self.state.tables() {
            table.check(|key| keyspace.hash(key));
            for entry in table.entries() {
                assert_eq!(
                    keyspace.hash(entry.key()).slot(),
                    slot,
                    "{entry:?} of db {db} is in another slot"
                );
                let has_item = self.has_item(db, entry.key(), entry.expire_at_ms());
                assert!(has_item, "{entry:?} of db {db} has no expiry item");
                if let Some(deadline_ms) = entry.next_field_deadline_ms() {
                    let wanted = Item::new(deadline_ms, db, keyspace.hash(entry.key()).position());
                    let heap = self.state.field_heap().expect("a hash with field deadlines");
                    let has_item = heap.items().iter().any(|item| item.0 == wanted);
                    assert!(has_item, "{entry:?} of db {db} has no item for its fields");
                }
            }
        }
        let items = self.state.heap().map_or(0, |heap| heap.items().len());
        assert!(items <= 2 * self.state.expiring() + 16, "{items} items in the expiry heap");
        let first = self.state.heap().and_then(|heap| heap.first());
        let first_field = self.state.field_heap().and_then(|heap| heap.first());
        let first = first.into_iter().chain(first_field).min();
        let first_ms = first.map_or(NEVER, |item| item.deadline_ms);
        assert_eq!(keyspace.slot(slot).next_expiry_ms.load(Relaxed), first_ms, "next expiry of slot {slot}");
        assert_eq!(keyspace.expiring.contains(slot), first.is_some(), "slot {slot} in the expiring set");
        assert_eq!(keyspace.occupied.contains(slot), !self.is_empty(), "slot {slot} in the occupied set");
    }

    fn has_item(&self, db: DbId, key: &[u8], expire_at_ms: Option<u64>) -> bool {
        let Some(deadline_ms) = expire_at_ms else { return true };
        let position = self.keyspace.hash(key).position();
        let latest = Item::new(deadline_ms, db, position);
        let is_not_later = |item: &Item| item.is_at_place_of(&latest) && item.deadline_ms <= deadline_ms;
        self.state.heap().is_some_and(|heap| heap.items().iter().any(|item| is_not_later(&item.0)))
    }
}

impl Keyspace {
    /// Locks and walks every slot and compares the sums with the totals, which are exact meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check(&self) {
        let slots = self.lock_all();
        slots.iter().for_each(SlotGuard::check);
        for db in DbId::all() {
            let (mut keys, mut expiring) = (0, 0);
            for guard in slots.iter() {
                let tally = guard.state.tally(db);
                keys += tally.keys;
                expiring += tally.expiring;
            }
            assert_eq!((self.len(db), self.expiring_len(db)), (keys, expiring), "totals of db {db}");
        }
        let bytes: u64 = slots.iter().map(SlotGuard::bytes).sum();
        assert_eq!(self.bytes(), bytes, "total bytes");
        let occupied = self.occupied.members(SlotId::FIRST, SlotId::LAST).count();
        assert_eq!(occupied, slots.iter().filter(|guard| !guard.is_empty()).count());
    }
}
