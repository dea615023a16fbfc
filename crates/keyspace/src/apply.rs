//! Applying effects: the only path by which data changes, once it is loaded (see `fill`).
//!
//! What it is: the change that each effect makes to one slot, and the bookkeeping that follows (totals,
//! expiry index, emptiness).
//! What it is not: able to fail or to decide. An effect on a value of another type than its own does nothing
//! and reports this, because effects also come from files and the network.
//!
//! Invariants
//! - A Move that is applied to one guard has both keys in the slot of that guard. `LockedSlots` applies other
//!   Moves to two guards.
//! - The data after an effect depends on nothing but the effect and the data before it. The access clock
//!   determines only access stamps; the packed limits and the seed determine only forms in memory.
//! - A global effect changes only the slot that it is applied to. It is complete when it was applied to every
//!   slot once, in any order.

mod fill;
mod relocate;

use std::mem;

use crate::access::{AccessClock, AccessStamp};
use crate::capture::Impact;
use crate::collection::{self, Rules};
use crate::effect::{Effect, GlobalOp, KeyOp};
use crate::entry::{Entry, EntryRef};
use crate::expiry::{ExpiryHeap, Item};
use crate::freed::Freed;
use crate::hash::KeyHash;
use crate::id::DbId;
use crate::libraries::LIBRARIES_SLOT;
use crate::slot::{SlotGuard, SlotState};
use crate::table::Occupied;
use crate::totals::Tally;
use crate::value::{Value, ValueType};
pub(crate) use fill::Filling;
pub(crate) use relocate::apply_move_between;

/// The result of an effect on a value of another type.
const WRONG_TYPE: Applied = Applied {
    changed: false,
    added: 0,
    updated: 0,
    removed: 0,
    len: 0,
    wrong_type: true,
    key_created: false,
    key_removed: false,
};

/// The changes that an effect has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// If `false`, the effect changed nothing and need not be logged. Some effects report `true` although the
    /// data are as before, such as a Put of the value that the key has.
    pub changed: bool,
    /// Elements, members, fields or entries that are new; of a stream also groups, consumers and pending
    /// entries.
    pub added: u64,
    /// Members that have got another score, existing fields that were set or have got another deadline,
    /// elements that were replaced; of a stream, groups and pending entries that were changed.
    pub updated: u64,
    /// Elements, members, fields or entries that are gone; of a stream also groups and pending entries.
    pub removed: u64,
    /// After an operation on a collection, the number of its elements, members, fields or entries; 0 after
    /// other effects.
    pub len: u64,
    /// Whether nothing was done because the key holds another type. In an effect from a log or snapshot this
    /// is damage.
    pub wrong_type: bool,
    /// Whether the effect created a key: for a Move, whether its destination is new.
    pub key_created: bool,
    /// Whether the effect removed the key (for a Move, the source), also if the reason is that its collection
    /// has become empty.
    pub key_removed: bool,
}

/// A key with all that a search for its entry needs.
#[derive(Clone, Copy)]
struct Target<'a> {
    db: DbId,
    hash: KeyHash,
    key: &'a [u8],
}

/// The deadlines of an entry before or after an effect.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Due {
    key_ms: Option<u64>,
    /// The time before which no field of a hash expires.
    field_ms: Option<u64>,
}

impl Due {
    #[inline]
    fn of(entry: EntryRef<'_>) -> Self {
        Due { key_ms: entry.expire_at_ms(), field_ms: entry.next_field_deadline_ms() }
    }
}

/// The deadlines of an entry before and after an effect.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Deadlines {
    old: Due,
    new: Due,
}

impl Deadlines {
    /// Whether the expiry heap must be tended: it needs a new item, or the item of the entry has become stale
    /// because the entry has no deadline any more. An entry whose deadline was postponed keeps its item.
    #[inline]
    fn needs_item(&self) -> bool {
        match (self.old.key_ms, self.new.key_ms) {
            (Some(old_ms), Some(new_ms)) => new_ms < old_ms,
            (old, new) => old != new,
        }
    }
}

impl SlotGuard<'_> {
    /// Applies an effect of this slot (for a Move, both keys are in this slot), or this slot's share of a
    /// global effect. Memory that would take long to free goes to `freed`.
    ///
    /// # Panics
    /// If the effect is one of another slot.
    pub fn apply(&mut self, effect: &Effect<'_>, clock: AccessClock, freed: &mut Freed) -> Applied {
        let hash = self.keyspace.hash(effect.key().unwrap_or_default());
        self.apply_hashed(effect, &hash, clock, freed)
    }

    /// Does the same as `apply`, for a caller that already has the hash of the key. Only effects on one key
    /// use `hash`. Nothing checks that `hash` is the hash of the key.
    ///
    /// # Panics
    /// - If the hash of an effect on one key, or a key of a Move, belongs to another slot.
    /// - If the effect changes a library or a setting, and this is another slot than theirs.
    #[inline]
    pub fn apply_hashed(
        &mut self,
        effect: &Effect<'_>,
        hash: &KeyHash,
        clock: AccessClock,
        freed: &mut Freed,
    ) -> Applied {
        let (db, key, op) = match *effect {
            Effect::Key { db, key, ref op } => (db, key, op),
            Effect::Move { .. } => return self.apply_move(effect, freed),
            Effect::Library { name, content } => return self.change_library(name, content),
            Effect::Setting { name, value } => return self.change_data_setting(name, value),
            Effect::Global(op) => return self.apply_global(op, freed),
        };
        assert_eq!(hash.slot(), self.slot(), "effect applied to a slot that is not its key's");
        let target = Target { db, hash: *hash, key };
        match *op {
            KeyOp::Put { value: Value::String(bytes), expire_at_ms } => {
                let create = |stamp| Entry::new(key, bytes, expire_at_ms, stamp);
                // During a capture, a new entry replaces the old one, whose bytes the capture may need.
                let replaces = self.state.capture_mut().is_some();
                let update = |entry: &mut Entry, stamp| match replaces {
                    true => Some(mem::replace(entry, create(stamp))),
                    false => entry.put(key, bytes, expire_at_ms, stamp),
                };
                self.upsert(target, clock, freed, create, update)
            }
            KeyOp::Put { value, expire_at_ms } => {
                let rules = self.keyspace.rules();
                let create = |stamp| collection::create(key, value, expire_at_ms, stamp, &rules);
                let update = |entry: &mut Entry, stamp| Some(mem::replace(entry, create(stamp)));
                self.upsert(target, clock, freed, create, update)
            }
            KeyOp::Append { suffix } => {
                let create = |stamp| Entry::new(key, suffix, None, stamp);
                let update = |entry: &mut Entry, stamp| entry.append(suffix, stamp);
                self.edit_string(target, clock, freed, create, update)
            }
            KeyOp::SetRange { offset, bytes } => {
                let create = |stamp| {
                    let mut entry = Entry::new(key, b"", None, stamp);
                    entry.set_range(offset, bytes, stamp);
                    entry
                };
                let update = |entry: &mut Entry, stamp| entry.set_range(offset, bytes, stamp);
                self.edit_string(target, clock, freed, create, update)
            }
            KeyOp::SetExpiry { expire_at_ms } => self
                .change(target, Impact::Keep, |state, target| state.set_expiry(target, expire_at_ms, freed)),
            KeyOp::Delete => self.change(target, Impact::Keep, |state, target| state.delete(target, freed)),
            _ => {
                let rules = self.keyspace.rules();
                self.change(target, Impact::Edit, |state, target| {
                    state.edit_collection(target, op, clock, freed, &rules)
                })
            }
        }
    }

    fn apply_global(&mut self, op: GlobalOp, freed: &mut Freed) -> Applied {
        match op {
            GlobalOp::FlushDb { db } => self.flush(db, freed),
            GlobalOp::FlushAll => {
                DbId::all().for_each(|db| self.flush(db, freed));
                if self.slot() == LIBRARIES_SLOT {
                    self.clear_libraries();
                    self.clear_data_settings();
                }
            }
            GlobalOp::SwapDb { a, b } => self.swap(a, b),
        }
        Applied { changed: true, ..Applied::default() }
    }

    #[inline]
    fn upsert(
        &mut self,
        target: Target<'_>,
        clock: AccessClock,
        freed: &mut Freed,
        create: impl FnOnce(AccessStamp) -> Entry,
        update: impl FnOnce(&mut Entry, AccessStamp) -> Option<Entry>,
    ) -> Applied {
        self.change(target, Impact::Keep, |state, target| {
            state.upsert(target, None, clock, freed, create, update)
        })
    }

    /// As `upsert`, but does nothing to a value that is not a string.
    #[inline]
    fn edit_string(
        &mut self,
        target: Target<'_>,
        clock: AccessClock,
        freed: &mut Freed,
        create: impl FnOnce(AccessStamp) -> Entry,
        update: impl FnOnce(&mut Entry, AccessStamp) -> Option<Entry>,
    ) -> Applied {
        let edited = Some(ValueType::String);
        self.change(target, Impact::Edit, |state, target| {
            state.upsert(target, edited, clock, freed, create, update)
        })
    }

    /// Runs a change of one entry and does the bookkeeping after it.
    #[inline]
    fn change(
        &mut self,
        target: Target<'_>,
        impact: Impact,
        run: impl FnOnce(&mut SlotState, Target<'_>) -> (Applied, Deadlines),
    ) -> Applied {
        if self.state.capture_mut().is_some() {
            self.capture_ahead(target, impact);
        }
        let before = self.state.tally(target.db);
        let (applied, deadlines) = run(&mut self.state, target);
        let after = self.state.tally(target.db);
        self.tally_changed(target.db, before, after);
        if before.bytes != after.bytes {
            self.note_buckets();
        }
        if deadlines.old != deadlines.new {
            let item = |ms| Item::new(ms, target.db, target.hash.position());
            if deadlines.needs_item() {
                self.tend_expiry(deadlines.new.key_ms.map(item));
            }
            if deadlines.old.field_ms != deadlines.new.field_ms {
                self.tend_field_expiry(deadlines.new.field_ms.map(item));
            }
        }
        if before.keys == 0 || after.keys == 0 {
            self.settle_emptiness();
        }
        applied
    }

    /// Captures a key that is about to change while its slot is being captured.
    #[cold]
    fn capture_ahead(&mut self, target: Target<'_>, impact: Impact) {
        let capture = self.state.extra.as_mut().and_then(|extra| extra.capture.take());
        let mut capture = capture.expect("a capture is in progress");
        let place = (target.db, &target.hash, target.key);
        capture.about_to_change(&mut self.state, self.keyspace, place, impact);
        self.state.extra.get_or_insert_default().capture = Some(capture);
    }

    /// Updates the hints for prefetching, because the buckets may have moved.
    #[inline]
    pub(crate) fn note_buckets(&self) {
        if let Some(table) = self.state.table(DbId::ZERO) {
            self.keyspace.hints.note(self.slot(), table);
        }
    }

    /// Adds the item, if there is one, to the expiry heap. Rebuilds the heap if too much of it is stale.
    fn tend_expiry(&mut self, item: Option<Item>) {
        let bytes_before = self.state.heap_bytes();
        if let Some(item) = item {
            self.state.extra.get_or_insert_default().heap.push(item);
        }
        if self.state.heap().is_some_and(|heap| heap.is_mostly_stale(self.state.expiring())) {
            self.state.rebuild_heap();
        }
        self.heap_bytes_changed(bytes_before);
        self.publish_next_expiry();
    }

    /// Adds the item, if there is one, to the heap of hashes with fields that expire. Rebuilds the heap if it
    /// has grown too much since the last rebuild.
    #[cold]
    fn tend_field_expiry(&mut self, item: Option<Item>) {
        let Some(item) = item else { return };
        let bytes_before = self.state.heap_bytes();
        let extra = self.state.extra.get_or_insert_default();
        extra.field_heap.push(item);
        if extra.field_heap.is_mostly_stale(extra.fields_rebuilt) {
            self.state.rebuild_field_heap();
        }
        self.heap_bytes_changed(bytes_before);
        self.publish_next_expiry();
    }

    /// Frees the memory that an empty slot does not need, and notes in the keyspace whether the slot is
    /// empty.
    fn settle_emptiness(&mut self) {
        let is_empty = self.state.is_empty();
        self.keyspace.occupied.set(self.slot(), !is_empty);
        if is_empty && self.state.extra.is_some() {
            // Tables without entries may still have reserved buckets. Their bytes leave the totals here.
            for db in DbId::all() {
                let before = self.state.tally(db);
                self.tally_changed(db, before, Tally::default());
            }
            let bytes_before = self.state.heap_bytes();
            let capture = self.state.extra.as_mut().and_then(|extra| extra.capture.take());
            self.state.clear();
            if capture.is_some() {
                self.state.extra.get_or_insert_default().capture = capture;
            }
            self.heap_bytes_changed(bytes_before);
            self.publish_next_expiry();
        }
    }

    /// Does the bookkeeping after the expiry heaps, which took `before` bytes, have changed.
    pub(crate) fn heap_bytes_changed(&self, before: u64) {
        self.keyspace.totals.change_bytes(before, self.state.heap_bytes());
    }

    fn flush(&mut self, db: DbId, freed: &mut Freed) {
        if self.state.table(db).is_none() {
            return;
        }
        let before = self.state.tally(db);
        let table = std::mem::take(self.state.table_mut(db));
        let table = match self.state.capture_mut() {
            Some(capture) => capture.detach_table(db, table, self.keyspace),
            None => Some(table),
        };
        if let Some(table) = table {
            freed.table(table);
        }
        self.tally_changed(db, before, self.state.tally(db));
        self.note_buckets();
        self.tend_expiry(None);
        self.settle_emptiness();
    }

    fn swap(&mut self, a: DbId, b: DbId) {
        if a == b || self.state.is_empty() {
            return;
        }
        let (before_a, before_b) = (self.state.tally(a), self.state.tally(b));
        let table_a = std::mem::take(self.state.table_mut(a));
        let table_b = std::mem::replace(self.state.table_mut(b), table_a);
        *self.state.table_mut(a) = table_b;
        if let Some(capture) = self.state.capture_mut() {
            capture.swap(a, b);
        }
        self.tally_changed(a, before_a, before_b);
        self.tally_changed(b, before_b, before_a);
        self.note_buckets();
        let bytes_before = self.state.heap_bytes();
        self.state.rebuild_heap();
        self.state.rebuild_field_heap();
        self.heap_bytes_changed(bytes_before);
        self.publish_next_expiry();
    }
}

impl SlotState {
    /// Changes the entry of a key with `update`, or creates it with `create`. `edited` is the only type of
    /// value that `update` can change; `None` if it replaces any value.
    #[inline]
    fn upsert(
        &mut self,
        target: Target<'_>,
        edited: Option<ValueType>,
        clock: AccessClock,
        freed: &mut Freed,
        create: impl FnOnce(AccessStamp) -> Entry,
        update: impl FnOnce(&mut Entry, AccessStamp) -> Option<Entry>,
    ) -> (Applied, Deadlines) {
        let mut applied = Applied { changed: true, ..Applied::default() };
        let table = self.table_mut(target.db);
        let Some(mut occupied) = table.get_mut(&target.hash, target.key) else {
            let entry = create(clock.initial());
            let new = Due::of(entry.as_ref());
            table.insert(&target.hash, entry);
            applied.key_created = true;
            return (applied, Deadlines { old: Due::default(), new });
        };
        if edited.is_some_and(|edited| occupied.entry().value_type() != edited) {
            return (WRONG_TYPE, Deadlines::default());
        }
        let old = Due::of(occupied.entry());
        let stamp = clock.touched(occupied.entry().stamp());
        let replaced = occupied.update(|entry| update(entry, stamp));
        let new = Due::of(occupied.entry());
        if let Some(entry) = replaced {
            self.retire(target.db, entry, freed);
        }
        (applied, Deadlines { old, new })
    }

    /// Frees an entry that is no longer at its key, or keeps it for a capture that still reads it.
    #[inline]
    fn retire(&mut self, db: DbId, entry: Entry, freed: &mut Freed) {
        match self.capture_mut() {
            Some(capture) if capture.needs(db, &entry) => capture.detach(db, entry),
            _ => freed.entry(entry),
        }
    }

    fn edit_collection(
        &mut self,
        target: Target<'_>,
        op: &KeyOp<'_>,
        clock: AccessClock,
        freed: &mut Freed,
        rules: &Rules,
    ) -> (Applied, Deadlines) {
        let (value_type, creates) = collection::edited_type(op).expect("an operation on a collection");
        if !creates && self.table(target.db).is_none() {
            return Default::default();
        }
        let table = self.table_mut(target.db);
        let Some(mut occupied) = table.get_mut(&target.hash, target.key) else {
            if !creates {
                return Default::default();
            }
            let mut entry = collection::empty(value_type, target.key, None, clock.initial());
            let mut applied = collection::edit(&mut entry, op, rules, freed);
            applied.len = entry.as_ref().view().len() as u64;
            if applied.changed && !entry.as_ref().view().is_gone() {
                applied.key_created = true;
                table.insert(&target.hash, entry);
            }
            // A new hash has no field with a deadline: a separate effect sets the deadlines of fields.
            return (applied, Deadlines::default());
        };
        if occupied.entry().value_type() != value_type {
            return (WRONG_TYPE, Deadlines::default());
        }
        let old = Due::of(occupied.entry());
        occupied.touch(clock);
        let mut applied = occupied.update(|entry| collection::edit(entry, op, rules, freed));
        applied.len = occupied.entry().view().len() as u64;
        if !occupied.entry().view().is_gone() {
            let new = Due::of(occupied.entry());
            return (applied, Deadlines { old, new });
        }
        let entry = occupied.remove();
        self.retire(target.db, entry, freed);
        applied.key_removed = true;
        (applied, Deadlines { old, new: Due::default() })
    }

    fn set_expiry(
        &mut self,
        target: Target<'_>,
        expire_at_ms: Option<u64>,
        freed: &mut Freed,
    ) -> (Applied, Deadlines) {
        if self.table(target.db).is_none() {
            return Default::default();
        }
        let Some(mut occupied) = self.table_mut(target.db).get_mut(&target.hash, target.key) else {
            return Default::default();
        };
        let old = Due::of(occupied.entry());
        if let Some(entry) = occupied.update(|entry| entry.set_expiry(expire_at_ms)) {
            freed.entry(entry);
        }
        let applied = Applied { changed: true, ..Applied::default() };
        (applied, Deadlines { old, new: Due { key_ms: expire_at_ms, ..old } })
    }

    fn delete(&mut self, target: Target<'_>, freed: &mut Freed) -> (Applied, Deadlines) {
        let Some(entry) = self.remove(target) else { return Default::default() };
        let old = Due::of(entry.as_ref());
        self.retire(target.db, entry, freed);
        let applied = Applied { changed: true, key_removed: true, ..Applied::default() };
        (applied, Deadlines { old, new: Due::default() })
    }

    fn remove(&mut self, target: Target<'_>) -> Option<Entry> {
        self.table(target.db)?;
        self.table_mut(target.db).get_mut(&target.hash, target.key).map(Occupied::remove)
    }

    /// Makes the expiry heap anew from the entries.
    fn rebuild_heap(&mut self) {
        let tables = self.tables().filter(|(_, table)| table.expiring() > 0);
        let entries = tables.flat_map(|(db, table)| {
            table.expiring_entries().map(move |(position, entry)| (db, position, entry.expire_at_ms()))
        });
        let items = entries.filter_map(|(db, position, ms)| Some(Item::new(ms?, db, position))).collect();
        if let Some(extra) = &mut self.extra {
            extra.heap = ExpiryHeap::new(items);
        }
    }

    /// Rebuilds, from the entries, the heap with the deadlines of the fields of hashes.
    fn rebuild_field_heap(&mut self) {
        let items: Vec<Item> = self
            .tables()
            .flat_map(|(db, table)| {
                table.positioned_entries().map(move |(position, entry)| (db, position, entry))
            })
            .filter_map(|(db, position, entry)| {
                Some(Item::new(entry.next_field_deadline_ms()?, db, position))
            })
            .collect();
        if let Some(extra) = &mut self.extra {
            extra.fields_rebuilt = items.len();
            extra.field_heap = ExpiryHeap::new(items);
        }
    }

    /// Returns the slot to the state of a new slot, except that it keeps its LSN.
    fn clear(&mut self) {
        *self.table_mut(DbId::ZERO) = Default::default();
        self.extra = None;
    }
}
