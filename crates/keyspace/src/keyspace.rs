//! `Keyspace`: all slots.
//!
//! What it is: the owner of the slots and of what can be read about them without a lock; hashing, locking,
//! prefetching. What it is not: a place where data changes (see `apply`), nor anything that does I/O or knows
//! the time.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use smallvec::SmallVec;

use crate::capture::EarlySlots;
use crate::collection::{PackedLimits, Rules, SharedLimits};
use crate::data_settings::DataSettingsShelf;
use crate::hash::{KeyHash, KeyHasher};
use crate::hints::Hints;
use crate::id::{DB_COUNT, DbId, SLOT_COUNT, SlotId};
use crate::libraries::Shelf;
use crate::locked::LockedSlots;
use crate::slot::{Slot, SlotGuard};
use crate::slot_set::SlotSet;
use crate::table::prefetch_line;
use crate::totals::Totals;

/// How a keyspace is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seeds the positions of keys in the tables, and of members and fields in big collections. Random in a
    /// server, so that no client can choose keys that collide.
    pub hash_seed: u64,
}

/// Bytes of the memory by which entries are found, without the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexBytes {
    /// The buckets of the tables of each database.
    pub tables: [u64; DB_COUNT],
    /// The expiry indexes of all databases.
    pub expiry: u64,
}

/// All keys of all databases. Shared by all threads.
pub struct Keyspace {
    pub(crate) slots: Box<[Slot]>,
    pub(crate) hasher: KeyHasher,
    pub(crate) totals: Totals,
    /// Slots with at least one entry.
    pub(crate) occupied: SlotSet,
    /// Slots with at least one item in their expiry heaps.
    pub(crate) expiring: SlotSet,
    /// Slots whose moment was taken for a snapshot (see `capture`), until `forget_captured`.
    pub(crate) captured: SlotSet,
    /// The slots of `captured` that the walk of the snapshot has not reached.
    pub(crate) early: EarlySlots,
    /// Where the buckets of database 0 of each slot lie, for prefetching.
    pub(crate) hints: Hints,
    pub(crate) shelf: Shelf,
    pub(crate) data_settings: DataSettingsShelf,
    packed_limits: SharedLimits,
    collection_seed: u64,
}

impl Keyspace {
    /// An empty keyspace.
    pub fn new(options: Options) -> Self {
        Keyspace {
            slots: (0..SLOT_COUNT).map(|_| Slot::new()).collect(),
            hasher: KeyHasher::new(options.hash_seed),
            totals: Totals::new(),
            occupied: SlotSet::new(),
            expiring: SlotSet::new(),
            captured: SlotSet::new(),
            early: EarlySlots::default(),
            hints: Hints::new(),
            shelf: Shelf::new(),
            data_settings: DataSettingsShelf::default(),
            packed_limits: SharedLimits::new(PackedLimits::DEFAULT),
            collection_seed: options.hash_seed,
        }
    }

    /// Sets the sizes up to which collections stay packed. A collection changes its form only when it is
    /// edited.
    pub fn set_packed_limits(&self, limits: PackedLimits) {
        self.packed_limits.store(limits);
    }

    /// The limits and the seed that edits of collections depend on.
    #[inline]
    pub(crate) fn rules(&self) -> Rules {
        Rules { limits: self.packed_limits.load(), seed: self.collection_seed }
    }

    /// Bytes of the slots and of the hints for prefetching, nearly all that an empty keyspace takes; not part
    /// of [`Keyspace::bytes`].
    pub const FIXED_BYTES: u64 = (SLOT_COUNT * (size_of::<Slot>() + size_of::<u64>())) as u64;

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// First stage of prefetching a key: starts loading its slot.
    #[inline]
    pub fn prefetch_slot(&self, hash: &KeyHash) {
        prefetch_line(self.slot(hash.slot()));
    }

    /// Second stage: starts loading the bucket of the key, without reading the slot. Does nothing except in
    /// database 0.
    #[inline]
    pub fn prefetch_bucket(&self, db: DbId, hash: &KeyHash) {
        if db == DbId::ZERO {
            self.hints.prefetch_bucket(hash);
        }
    }

    /// Third stage, when the bucket is probably loaded: starts loading the first two lines of the entry. Does
    /// nothing if the slot is locked, or if no key with this hash is there.
    #[inline]
    pub fn prefetch_entry(&self, db: DbId, hash: &KeyHash) {
        if let Some(state) = self.slot(hash.slot()).state.try_lock()
            && let Some(table) = state.table(db)
        {
            table.prefetch_entry(hash);
        }
    }

    /// Starts loading the first of these members or fields, if the key holds a big hash, set or sorted set.
    /// Does nothing if the slot is locked.
    pub fn prefetch_members<'m>(
        &self,
        db: DbId,
        hash: &KeyHash,
        key: &[u8],
        members: impl Iterator<Item = &'m [u8]>,
    ) {
        if let Some(state) = self.slot(hash.slot()).state.try_lock()
            && let Some(table) = state.table(db)
            && let Some(entry) = table.get(hash, key)
        {
            entry.prefetch_members(members);
        }
    }

    /// Whether a Move from one slot to another may be logged now. The caller holds the locks of both slots. A
    /// Move may not be logged while a snapshot has captured the destination but not the source, because the
    /// value would then be missing from the snapshot. A follower has no choice: see
    /// [`LockedSlots::capture_before_moves`].
    pub fn may_move(&self, from: SlotId, to: SlotId) -> bool {
        self.captured.contains(from) || !self.captured.contains(to)
    }

    /// Locks a slot. To lock several slots, use `lock_many`, or lock in ascending order: any other order can
    /// deadlock.
    #[inline]
    pub fn lock(&self, slot: SlotId) -> SlotGuard<'_> {
        SlotGuard::new(self, slot, self.slot(slot).state.lock())
    }

    /// Locks a slot, unless it is locked already. The call never waits, so slots may be locked in any order.
    pub fn try_lock(&self, slot: SlotId) -> Option<SlotGuard<'_>> {
        Some(SlotGuard::new(self, slot, self.slot(slot).state.try_lock()?))
    }

    /// Locks a slot, unless another thread keeps it locked for longer than `patience`. Several slots must be
    /// locked in ascending order.
    pub fn try_lock_for(&self, slot: SlotId, patience: Duration) -> Option<SlotGuard<'_>> {
        Some(SlotGuard::new(self, slot, self.slot(slot).state.try_lock_for(patience)?))
    }

    /// Locks these slots, each once, in ascending order.
    pub fn lock_many(&self, slots: impl IntoIterator<Item = SlotId>) -> LockedSlots<'_> {
        let mut slots: SmallVec<[SlotId; 16]> = slots.into_iter().collect();
        slots.sort_unstable();
        slots.dedup();
        LockedSlots::new(slots.into_iter().map(|slot| self.lock(slot)).collect())
    }

    /// Locks every slot, in ascending order.
    pub fn lock_all(&self) -> LockedSlots<'_> {
        LockedSlots::new(SlotId::all().map(|slot| self.lock(slot)).collect())
    }

    /// Number of keys of a database, expired ones included. Takes no lock; exact while no thread writes.
    pub fn len(&self, db: DbId) -> u64 {
        self.totals.keys(db)
    }

    /// Whether no database has a key. Takes no lock; exact while no thread writes.
    pub fn is_empty(&self) -> bool {
        self.occupied.first_from(SlotId::FIRST).is_none()
    }

    /// Number of keys of a database that have a deadline. Takes no lock; exact while no thread writes.
    pub fn expiring_len(&self, db: DbId) -> u64 {
        self.totals.expiring(db)
    }

    /// Bytes of memory of all keys: buckets, entries, expiry indexes; not the fixed size of the keyspace
    /// itself (about 1 MiB). Takes no lock; exact while no thread writes.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes()
    }

    /// The part of [`Keyspace::bytes`] that is not entries. Skips locked slots, so it never waits.
    pub fn index_bytes(&self) -> IndexBytes {
        let mut sum = IndexBytes::default();
        for slot in &self.slots {
            let Some(state) = slot.state.try_lock() else { continue };
            for (db, table) in state.tables() {
                sum.tables[db.index()] += table.bucket_bytes() as u64;
            }
            sum.expiry += state.heap_bytes();
        }
        sum
    }

    /// The slots from `from` to `to`, both included, whose expiry index has something due. Takes no lock, so
    /// a slot may have changed by the time it is locked.
    pub fn due_slots(&self, now_ms: u64, from: SlotId, to: SlotId) -> impl Iterator<Item = SlotId> {
        self.expiring
            .members(from, to)
            .filter(move |&slot| self.slot(slot).next_expiry_ms.load(Relaxed) <= now_ms)
    }

    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.index()]
    }
}
