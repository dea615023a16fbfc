//! Slots: the unit of locking, snapshot and loading.
//!
//! What it is: one cache line per slot with its lock, its last LSN and the table of database 0; and
//! `SlotGuard`, a locked slot. What it is not: the code that applies effects (see `apply`), nor aware of
//! other slots.
//!
//! Invariants
//! - A thread that holds the lock of a slot waits only for slots with a higher `SlotId`, so two threads never
//!   wait for each other. `Keyspace::try_lock` does not wait, so it may lock any slot.
//! - `last_lsn` never goes back.
//! - In an unlocked slot, `next_expiry_ms` is the deadline of the first item of the expiry heaps, `u64::MAX`
//!   if there is none. The field is written under the lock and read without the lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lsn::Lsn;
use parking_lot::{Mutex, MutexGuard};

use crate::access::{AccessClock, AccessStamp};
use crate::capture::SlotCapture;
use crate::entry::EntryRef;
use crate::expiry::{ExpiryHeap, Item};
use crate::hash::KeyHash;
use crate::id::{DB_COUNT, DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::libraries::LIBRARIES_SLOT;
use crate::table::Table;
use crate::totals::{Tally, Uncounted};

/// `next_expiry_ms` of a slot without items in its expiry heaps.
pub(crate) const NEVER: u64 = u64::MAX;

/// One slot: a cache line.
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) state: Mutex<SlotState>,
    pub(crate) next_expiry_ms: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    pub(crate) fn new() -> Self {
        let state = SlotState { last_lsn: Lsn::ZERO, table: Table::new(), extra: None };
        Slot { state: Mutex::new(state), next_expiry_ms: AtomicU64::new(NEVER) }
    }
}

/// The data that the lock of a slot protects.
pub(crate) struct SlotState {
    pub(crate) last_lsn: Lsn,
    /// The table of database 0.
    table: Table,
    pub(crate) extra: Option<Box<Extra>>,
}

/// The parts of the state that most slots do not need.
#[derive(Default)]
pub(crate) struct Extra {
    /// The tables of databases 1..=15.
    tables: Option<Box<[Table; DB_COUNT - 1]>>,
    /// The expiry heap of keys: which key is due next.
    pub(crate) heap: ExpiryHeap,
    /// The expiry heap of fields: which hash has the field that is due next.
    pub(crate) field_heap: ExpiryHeap,
    /// The number of items of `field_heap` after its last rebuild.
    pub(crate) fields_rebuilt: usize,
    /// The capture of this slot, while it is being captured.
    pub(crate) capture: Option<Box<SlotCapture>>,
}

impl SlotState {
    /// The table of a database; `None` if none was made. Database 0 always has one.
    #[inline]
    pub(crate) fn table(&self, db: DbId) -> Option<&Table> {
        if db == DbId::ZERO {
            return Some(&self.table);
        }
        Some(&self.extra.as_ref()?.tables.as_ref()?[db.index() - 1])
    }

    /// The table of a database, which is made if there is none.
    #[inline]
    pub(crate) fn table_mut(&mut self, db: DbId) -> &mut Table {
        if db == DbId::ZERO {
            return &mut self.table;
        }
        let tables = &mut self.extra.get_or_insert_default().tables;
        &mut tables.get_or_insert_default()[db.index() - 1]
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (DbId, &Table)> {
        DbId::all().filter_map(|db| Some((db, self.table(db)?)))
    }

    /// The contribution of a database of this slot to the totals, without the expiry heaps.
    #[inline]
    pub(crate) fn tally(&self, db: DbId) -> Tally {
        self.table(db).map_or_else(Tally::default, |table| Tally {
            keys: table.len().into(),
            expiring: table.expiring().into(),
            bytes: table.bytes() as u64,
        })
    }

    /// The capture of this slot, if one is in progress.
    #[inline]
    pub(crate) fn capture_mut(&mut self) -> Option<&mut SlotCapture> {
        self.extra.as_mut()?.capture.as_deref_mut()
    }

    pub(crate) fn heap(&self) -> Option<&ExpiryHeap> {
        self.extra.as_ref().map(|extra| &extra.heap)
    }

    pub(crate) fn field_heap(&self) -> Option<&ExpiryHeap> {
        self.extra.as_ref().map(|extra| &extra.field_heap)
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.extra.as_ref().map_or(0, |extra| (extra.heap.bytes() + extra.field_heap.bytes()) as u64)
    }

    /// Number of entries with a deadline, in all databases.
    pub(crate) fn expiring(&self) -> usize {
        let others = self.extra.as_ref().and_then(|extra| extra.tables.as_ref());
        let others = others.map_or(0, |tables| tables.iter().map(|table| table.expiring() as usize).sum());
        self.table.expiring() as usize + others
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables().all(|(_, table)| table.len() == 0)
    }

    /// Visits the entries at the item's place that have the item's deadline; none if the item is stale. If
    /// entries there have later deadlines, returns an item with the earliest of these, because those entries
    /// may have no other item.
    pub(crate) fn for_each_due<'s>(
        &'s self,
        item: Item,
        slot: SlotId,
        mut visit: impl FnMut(EntryRef<'s>),
    ) -> Option<Item> {
        let mut later_ms = None;
        self.table(item.db())?.for_each_at(&item.hash(slot), |entry| match entry.expire_at_ms() {
            Some(deadline_ms) if deadline_ms == item.deadline_ms => visit(entry),
            Some(deadline_ms) if deadline_ms > item.deadline_ms => {
                later_ms = Some(later_ms.map_or(deadline_ms, |first: u64| first.min(deadline_ms)));
            }
            _ => {}
        });
        later_ms.map(|deadline_ms| item.put_off(deadline_ms))
    }
}

/// Fields of one hash that are due.
#[derive(Debug)]
pub struct DueFields {
    /// Database of the hash.
    pub db: DbId,
    /// The key of the hash.
    pub key: Vec<u8>,
    /// The fields.
    pub fields: Vec<Vec<u8>>,
}

/// A locked slot. Unlocks when dropped.
pub struct SlotGuard<'k> {
    pub(crate) state: MutexGuard<'k, SlotState>,
    pub(crate) keyspace: &'k Keyspace,
    slot: SlotId,
    uncounted: Uncounted,
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.keyspace.totals.count(&self.uncounted);
    }
}

impl<'k> SlotGuard<'k> {
    pub(crate) fn new(keyspace: &'k Keyspace, slot: SlotId, state: MutexGuard<'k, SlotState>) -> Self {
        SlotGuard { state, keyspace, slot, uncounted: Uncounted::default() }
    }

    /// Does the bookkeeping after a database of the slot went from `before` to `after`.
    #[inline]
    pub(crate) fn tally_changed(&mut self, db: DbId, before: Tally, after: Tally) {
        self.keyspace.totals.change_bytes(before.bytes, after.bytes);
        self.uncounted.note(db, before, after);
    }

    /// How many keys the database has gained in this slot under this guard; negative if it has lost keys.
    /// [`Keyspace::len`] counts the change only when the slot is unlocked.
    pub fn uncounted_keys(&self, db: DbId) -> i64 {
        self.uncounted.keys(db) as i64
    }

    /// The slot that is locked.
    #[inline]
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// The LSN that [`SlotGuard::set_last_lsn`] has noted last, maybe of a record that did not change the
    /// slot. `Lsn::ZERO` if none was noted; `Lsn::MAX` if a record cannot be written.
    #[inline]
    pub fn last_lsn(&self) -> Lsn {
        self.state.last_lsn
    }

    /// Notes the LSN of a record whose effects are applied under this lock, here or in slots that are locked
    /// together with this one. In [`LIBRARIES_SLOT`], shows the changes of libraries and settings to all
    /// readers.
    ///
    /// # Panics
    /// If the LSN is below the LSN that was noted last: memory and log would disagree on the order.
    #[inline]
    pub fn set_last_lsn(&mut self, lsn: Lsn) {
        assert!(lsn >= self.state.last_lsn, "slot {}: lsn {lsn} after {}", self.slot, self.state.last_lsn);
        self.state.last_lsn = lsn;
        if self.slot == LIBRARIES_SLOT {
            self.publish_libraries();
            self.publish_data_settings();
        }
    }

    /// The entry of the key, unless it has expired. `hash` is the hash of the key, which belongs to this
    /// slot.
    #[inline]
    pub fn get(&self, db: DbId, hash: &KeyHash, key: &[u8], now_ms: u64) -> Option<EntryRef<'_>> {
        self.get_raw(db, hash, key).filter(|entry| !entry.is_expired(now_ms))
    }

    /// The entry of the key, even if it has expired and waits for its Delete.
    #[inline]
    pub fn get_raw(&self, db: DbId, hash: &KeyHash, key: &[u8]) -> Option<EntryRef<'_>> {
        debug_assert_eq!(hash.slot(), self.slot);
        self.state.table(db)?.get(hash, key)
    }

    /// Does the same as `get` at the clock's time, and notes the access, both with one lookup.
    #[inline]
    pub fn get_and_touch(
        &mut self,
        db: DbId,
        hash: &KeyHash,
        key: &[u8],
        clock: AccessClock,
    ) -> Option<EntryRef<'_>> {
        debug_assert_eq!(hash.slot(), self.slot);
        self.state.table(db)?;
        let mut occupied = self.state.table_mut(db).get_mut(hash, key)?;
        if occupied.entry().is_expired(clock.now_ms) {
            return None;
        }
        occupied.touch(clock);
        Some(occupied.into_entry_ref())
    }

    /// Notes an access to the key, if it exists.
    #[inline]
    pub fn touch(&mut self, db: DbId, hash: &KeyHash, key: &[u8], clock: AccessClock) {
        self.get_and_touch(db, hash, key, clock);
    }

    /// Replaces the access stamp of the key, if it exists.
    pub fn set_stamp(&mut self, db: DbId, hash: &KeyHash, key: &[u8], stamp: AccessStamp) {
        debug_assert_eq!(hash.slot(), self.slot);
        if self.state.table(db).is_some()
            && let Some(mut occupied) = self.state.table_mut(db).get_mut(hash, key)
        {
            occupied.set_stamp(stamp);
        }
    }

    /// Whether the expiry index has something due. If this is `false`, [`SlotGuard::expired_keys`] and
    /// [`SlotGuard::expired_fields`] find nothing.
    #[inline]
    pub fn has_due(&self, now_ms: u64) -> bool {
        self.keyspace.slot(self.slot).next_expiry_ms.load(Relaxed) <= now_ms
    }

    /// All entries of a database in this slot, expired ones included, in no useful order.
    pub fn entries(&self, db: DbId) -> impl Iterator<Item = EntryRef<'_>> {
        self.state.table(db).into_iter().flat_map(Table::entries)
    }

    /// Number of entries of a database in this slot, expired ones included.
    #[inline]
    pub fn len(&self, db: DbId) -> usize {
        self.state.table(db).map_or(0, |table| table.len() as usize)
    }

    /// Whether no database has an entry in this slot.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Bytes of memory of this slot: buckets, entries, expiry index.
    pub fn bytes(&self) -> u64 {
        let tables: usize = self.state.tables().map(|(_, table)| table.bytes()).sum();
        tables as u64 + self.state.heap_bytes()
    }

    /// Makes room for this many more entries, before they are loaded.
    pub fn reserve(&mut self, db: DbId, additional: usize) {
        if additional == 0 {
            return;
        }
        let before = self.state.tally(db);
        self.state.table_mut(db).reserve(additional);
        self.tally_changed(db, before, self.state.tally(db));
        self.note_buckets();
    }

    /// Takes due keys out of the expiry index, earliest first, until about `max` keys were added to `out` or
    /// no other key is due. The caller logs and applies a Delete for each under this guard; a key that is not
    /// deleted still counts as absent, but may never be returned here again.
    pub fn expired_keys(&mut self, now_ms: u64, max: usize, out: &mut Vec<(DbId, Vec<u8>)>) {
        let end = out.len().saturating_add(max);
        let mut last = None;
        while out.len() < end
            && let Some(item) = self.first_item()
            && item.deadline_ms <= now_ms
        {
            self.pop_item();
            // Equal items follow each other. The first of several equal items has found all entries for
            // which the others stand.
            if last != Some(item) {
                let visit = |entry: EntryRef<'_>| out.push((item.db(), entry.key().to_vec()));
                let later = self.state.for_each_due(item, self.slot, visit);
                self.push_later(later);
            }
            last = Some(item);
        }
        self.publish_next_expiry();
    }

    /// Takes due fields of hashes out of the expiry index, hash by hash; the hash with the earliest deadline
    /// comes first. Ends when `max` fields were added to `out`, or when no other field is due. The caller
    /// logs and applies a HashRemove for each hash under this guard; a field that is not removed still counts
    /// as absent, but may never be returned here again.
    pub fn expired_fields(&mut self, now_ms: u64, max: usize, out: &mut Vec<DueFields>) {
        let mut left = max;
        while left > 0
            && let Some(item) = self.first_field_item()
            && item.deadline_ms <= now_ms
        {
            self.pop_field_item();
            let mut keys = Vec::new();
            if let Some(table) = self.state.table(item.db()) {
                table.for_each_at(&item.hash(self.slot), |entry| {
                    if entry.next_field_deadline_ms() == Some(item.deadline_ms) {
                        keys.push(entry.key().to_vec());
                    }
                });
            }
            for key in keys {
                let mut fields = Vec::new();
                self.list_expired_fields(item, &key, now_ms, left, &mut fields);
                left = left.saturating_sub(fields.len());
                if !fields.is_empty() {
                    out.push(DueFields { db: item.db(), key, fields });
                }
            }
        }
        self.publish_next_expiry();
    }

    /// Lists due fields of one hash, and adds an item for the hash's next deadline to the heap.
    fn list_expired_fields(
        &mut self,
        item: Item,
        key: &[u8],
        now_ms: u64,
        max: usize,
        fields: &mut Vec<Vec<u8>>,
    ) {
        let (hash, db) = (self.keyspace.hash(key), item.db());
        let (before, heap_bytes_before) = (self.state.tally(db), self.state.heap_bytes());
        let Some(mut occupied) = self.state.table_mut(db).get_mut(&hash, key) else { return };
        occupied.update(|entry| entry.list_expired_fields(now_ms, max, fields));
        let next = occupied.entry().next_field_deadline_ms();
        if let Some(deadline_ms) = next {
            let item = Item::new(deadline_ms, db, hash.position());
            self.state.extra.get_or_insert_default().field_heap.push(item);
        }
        // The hash has an expiry index of its own, whose size may have changed, too.
        self.tally_changed(db, before, self.state.tally(db));
        self.heap_bytes_changed(heap_bytes_before);
    }

    /// The entry that expires next, in any database.
    pub(crate) fn next_due(&mut self) -> Option<(DbId, EntryRef<'_>)> {
        let item = loop {
            let item = self.first_item()?;
            let mut is_stale = true;
            let later = self.state.for_each_due(item, self.slot, |_| is_stale = false);
            if !is_stale {
                break item;
            }
            self.pop_item();
            self.push_later(later);
            self.publish_next_expiry();
        };
        let mut found = None;
        self.state.for_each_due(item, self.slot, |entry| found = Some((item.db(), entry)));
        found
    }

    fn first_item(&self) -> Option<Item> {
        self.state.heap()?.first()
    }

    fn pop_item(&mut self) {
        if let Some(extra) = &mut self.state.extra {
            extra.heap.pop();
        }
    }

    /// Pushes an item for the entries at the place of a popped item that are due later, if there are any.
    fn push_later(&mut self, later: Option<Item>) {
        if let (Some(extra), Some(later)) = (&mut self.state.extra, later) {
            extra.heap.push(later);
        }
    }

    fn first_field_item(&self) -> Option<Item> {
        self.state.field_heap()?.first()
    }

    fn pop_field_item(&mut self) {
        if let Some(extra) = &mut self.state.extra {
            extra.field_heap.pop();
        }
    }

    /// Shows other threads the next deadline of the expiry heaps, and whether the heaps have an item.
    pub(crate) fn publish_next_expiry(&self) {
        let first = self.first_item().into_iter().chain(self.first_field_item()).min();
        let next_ms = first.map_or(NEVER, |item| item.deadline_ms);
        self.keyspace.slot(self.slot).next_expiry_ms.store(next_ms, Relaxed);
        self.keyspace.expiring.set(self.slot, first.is_some());
    }
}
