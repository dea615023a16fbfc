//! The atomic unit: the locked slots of one command, transaction or script, and the effects applied so far.
//!
//! Invariants
//! - Slots are locked in ascending order, all before the first access, and released only after the log
//!   position of the unit is taken. Only a script may add a slot later, if that needs no waiting
//!   ([`Unit::try_lock`]).
//! - Every effect that changes something, and is not undone, is encoded. The encoded effects, in their order,
//!   are the unit's one log record. Messages to durable channels stand among the effects, changes of
//!   documents behind them.
//! - Access to a key whose slot is not locked is a bug and panics.

mod databases;
mod known_keys;
mod locked;
mod locks;
mod scratch;
mod undo;
mod walk;

use std::{collections::VecDeque, sync::Arc};

use documents::{DocError, Writer};
use keyspace::{
    AccessClock, AccessStamp, Applied, DataSettings, DbId, DueFields, Effect, EntryRef, Freed, GlobalOp,
    Items, KeyHash, KeyOp, Keyspace, LIBRARIES_SLOT, Libraries, LoggedMessage, PublishedLibraries, Scope,
    SlotId, slot_of,
};
use lsn::Lsn;
use prng::Prng;
use pubsub::Kind;
use storage::Appender;

use crate::{
    EventClass, Host,
    client_tracking::ClientTracking,
    event::Events,
    interest::{Change, Interests},
    long_units::HeldSlots,
    stats::{Expired, WorkerStats},
    tracking::Invalidations,
};
pub use databases::{Databases, Named};
use known_keys::KnownKeys;
use locked::Locked;
pub use locked::Slots;
pub use locks::LockPolicy;
pub(crate) use locks::Locks;
pub(crate) use scratch::{Scratch, UnitAccess};
use undo::Undo;

/// Keys that may serve a waiter, in the order in which they were noted.
pub(crate) type ReadyKeys = VecDeque<(DbId, Box<[u8]>)>;

/// The locked slots of one command, transaction or script, and the effects applied so far.
pub struct Unit<'k> {
    keyspace: &'k Keyspace,
    locked: Locked<'k>,
    /// The locked document databases; most units have none.
    databases: Option<Box<Databases>>,
    /// The newest position seen outside the locked slots and databases.
    seen: Lsn,
    /// The hashes of the command's keys, as far as prefetching and locking have computed them.
    known: KnownKeys,
    effects: &'k mut Vec<u8>,
    freed: &'k mut Freed,
    clock: AccessClock,
    as_of_ms: u64,
    touches: bool,
    flushes_all: bool,
    /// The keys and fields that the unit has removed because their time was over.
    expired: Expired,
    /// Whether the reply repeats an earlier write; see [`Unit::note_repeated`].
    repeats: bool,
    messages: usize,
    stats: &'k WorkerStats,
    interests: &'k Arc<Interests>,
    events: &'k Events,
    ready: ReadyKeys,
    invalidations: &'k mut Invalidations,
    /// How to undo the effects since [`Unit::begin_undo`]; `None` while nothing is recorded for an undo.
    undo: Option<Box<Undo>>,
    /// The buffers of an ended undo, for reuse.
    kept_undo: &'k mut Option<Box<Undo>>,
    /// Shows the held slots to other threads, if the unit runs on a thread of its own.
    held_slots: &'k Option<Arc<HeldSlots>>,
}

impl<'k> Unit<'k> {
    /// Builds a unit of locked slots. Inlined, because a unit is large and is then built in place.
    #[inline(always)]
    pub(crate) fn new(
        keyspace: &'k Keyspace,
        locks: Locks<'k>,
        scratch: &'k mut Scratch,
        UnitAccess { clock, as_of_ms, touches }: UnitAccess,
    ) -> Unit<'k> {
        let Scratch { effects, freed, undo, stats, interests, events, invalidations, held_slots } = scratch;
        debug_assert!(effects.is_empty());
        Unit {
            keyspace,
            locked: locks.locked,
            databases: locks.databases,
            seen: Lsn::ZERO,
            known: locks.known,
            effects,
            freed,
            clock,
            as_of_ms,
            touches,
            flushes_all: false,
            expired: Expired::default(),
            repeats: false,
            messages: 0,
            stats,
            interests,
            events,
            ready: VecDeque::new(),
            invalidations,
            undo: None,
            kept_undo: undo,
            held_slots,
        }
    }

    /// Adds a message to a durable channel to the record.
    pub fn log_message(&mut self, channel: &[u8], payload: &[u8]) {
        LoggedMessage { channel, payload }.encode_into(self.effects);
        self.messages += 1;
    }

    /// The number of messages in the record so far.
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// A document database that the unit has locked, for changes.
    ///
    /// # Errors
    /// [`DocError::NoDatabase`] if the unit has locked none with this name; or the database cannot be read.
    pub fn documents(&mut self, name: &str) -> Result<&mut Writer, DocError> {
        self.databases.as_mut().ok_or(DocError::NoDatabase)?.writer(name)
    }

    /// Whether the unit has locked document databases.
    pub fn has_documents(&self) -> bool {
        self.databases.is_some()
    }

    /// Raises the gate of the reply, which shows data of records up to `lsn`.
    pub fn note_seen(&mut self, lsn: Lsn) {
        self.seen = self.seen.max(lsn);
    }

    /// Notes that the reply repeats the reply of an earlier write: it waits for the disk as if this unit had
    /// written.
    pub fn note_repeated(&mut self) {
        self.repeats = true;
    }

    /// Notes a message, to be published after the unit. `is_logged` says that the message is in the record of
    /// the unit too, because its channel is durable.
    pub fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8], is_logged: bool) {
        self.events.note_message(kind, channel, payload, is_logged);
    }

    /// Sets the classes of events that are noted from now on, also within this round.
    pub fn want_events(&self, classes: EventClass) {
        self.events.want(classes);
    }

    /// Continues with another command, whose only key is in a locked slot.
    #[inline]
    pub(crate) fn turn_to(&mut self, key: &[u8], hash: KeyHash) {
        debug_assert!(self.locked.has(hash.slot()));
        self.known = KnownKeys::one(key, hash);
    }

    /// Forgets the hashes of the command's keys: its arguments may be freed.
    #[inline]
    pub fn forget_keys(&mut self) {
        self.known.clear();
    }

    /// Prepares a key of a command inside the unit: hashes it once, unless its hash is given, and locks its
    /// slot unless another unit holds it. Returns whether the slot is locked.
    pub fn try_lock_key(&mut self, key: &[u8], hash: Option<KeyHash>) -> bool {
        let hash = hash.unwrap_or_else(|| self.keyspace.hash(key));
        self.known.push(key, hash);
        self.try_lock(hash.slot())
    }

    /// The time of the command, unix milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    /// Deadlines up to this time count as expired: the present time, or 0 for an import source, because only
    /// the server that it copies knows which keys have expired (CLIENT IMPORT-SOURCE).
    #[inline]
    pub fn as_of_ms(&self) -> u64 {
        self.as_of_ms
    }

    /// The hash of a key. For a key of the command the hash is known already, if the command uses its keys in
    /// order.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.known.hash(key).unwrap_or_else(|| self.keyspace.hash(key))
    }

    /// A random number, for the choices of a command. Each call draws another one.
    pub fn seed(&mut self) -> u64 {
        self.clock.random = Prng::new(self.clock.random.into()).next_u64() as u32;
        self.clock.random.into()
    }

    /// As [`Unit::get`], for a command that reads the key: counts as a hit or a miss.
    #[inline]
    pub fn read(&mut self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let (stats, events) = (self.stats, self.events);
        let entry = self.get(db, key);
        looked_up(stats, events, db, key, entry.is_some());
        entry
    }

    /// As [`Unit::peek`], for a command that reads properties of the key but not its value: counts as a hit
    /// or a miss.
    #[inline]
    pub fn inspect(&self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.peek(db, key);
        looked_up(self.stats, self.events, db, key, entry.is_some());
        entry
    }

    /// As [`Unit::inspect`], without the `keymiss` event.
    pub fn inspect_silently(&self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.peek(db, key);
        self.stats.looked_up(entry.is_some());
        entry
    }

    /// Renews the access stamp of a key even for a CLIENT NO-TOUCH client; counts as a hit or a miss. Returns
    /// whether the key exists.
    pub fn touch(&mut self, db: DbId, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let (clock, as_of_ms) = (self.clock, self.as_of_ms);
        let slot = self.locked.slot_mut(hash.slot());
        // A key whose deadline has passed is there for an import source; its stamp stays as it is.
        let found = slot.get_and_touch(db, &hash, key, clock).is_some()
            || slot.get(db, &hash, key, as_of_ms).is_some();
        looked_up(self.stats, self.events, db, key, found);
        found
    }

    /// Replaces the access stamp of a key, if the key exists. The change is not logged.
    pub fn set_stamp(&mut self, db: DbId, key: &[u8], stamp: AccessStamp) {
        let hash = self.hash(key);
        self.locked.slot_mut(hash.slot()).set_stamp(db, &hash, key, stamp);
    }

    /// The entry of a key; `None` if absent or expired. Renews the access stamp, unless the reads of this
    /// unit leave stamps alone (CLIENT NO-TOUCH, import sources, units of the server).
    #[inline]
    pub fn get(&mut self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hash(key);
        let (clock, as_of_ms, touches) = (self.clock, self.as_of_ms, self.touches);
        let slot = self.locked.slot_mut(hash.slot());
        if touches { slot.get_and_touch(db, &hash, key, clock) } else { slot.get(db, &hash, key, as_of_ms) }
    }

    /// The entry of a key, its access stamp left alone; `None` if absent or expired.
    #[inline]
    pub fn peek(&self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hash(key);
        self.locked.slot(hash.slot()).get(db, &hash, key, self.as_of_ms)
    }

    /// As [`Unit::peek`], but finds also a key that has expired and is not removed yet.
    pub fn peek_expired(&self, db: DbId, key: &[u8]) -> Option<EntryRef<'_>> {
        let hash = self.hash(key);
        self.locked.slot(hash.slot()).get_raw(db, &hash, key)
    }

    /// The number of keys of a database, including the changes of this unit.
    pub fn keys_len(&self, db: DbId) -> u64 {
        self.keyspace.len(db).saturating_add_signed(self.locked.uncounted_keys(db))
    }

    /// Whether the key exists and has not expired. Does not count as an access.
    #[inline]
    pub fn exists(&self, db: DbId, key: &[u8]) -> bool {
        self.peek(db, key).is_some()
    }

    /// Notes an event; see [`Context::notify`](crate::Context::notify).
    #[inline]
    pub fn notify(&self, class: EventClass, name: &'static str, db: DbId, key: &[u8]) {
        self.events.note(class, name, db, key);
    }

    /// Makes a change: in memory now, in the log with the unit's record. An effect that changes nothing is
    /// not logged.
    ///
    /// An expired key that is changed (not replaced or removed) is removed first, so that replay does not
    /// depend on the time.
    #[inline]
    pub fn apply(&mut self, effect: &Effect<'_>) -> Applied {
        if let Effect::Key { db, key, ref op } = *effect
            && self.has_expired(db, key)
        {
            self.expired.keys += 1;
            if !matches!(op, KeyOp::Put { .. } | KeyOp::Delete) {
                self.apply_alone(&KeyOp::Delete.on(db, key));
            }
        }
        self.apply_alone(effect)
    }

    /// Whether a key in the slot of `key`, or a field of a hash there, may have expired. `false` is certain,
    /// and cheap to find out.
    #[inline]
    pub fn has_due(&self, key: &[u8]) -> bool {
        self.locked.slot(self.hash(key).slot()).has_due(self.as_of_ms)
    }

    /// Whether a key has expired and is not removed yet.
    #[inline]
    fn has_expired(&self, db: DbId, key: &[u8]) -> bool {
        let hash = self.hash(key);
        let slot = self.locked.slot(hash.slot());
        slot.has_due(self.as_of_ms)
            && slot.get_raw(db, &hash, key).is_some_and(|entry| entry.is_expired(self.as_of_ms))
    }

    /// Counts fields of hashes that a command has removed because their time was over.
    pub fn count_expired_fields(&mut self, fields: u64) {
        self.expired.fields += fields;
    }

    #[inline]
    fn apply_alone(&mut self, effect: &Effect<'_>) -> Applied {
        if self.interests.any() || self.events.wants(EventClass::EXPIRED.or(EventClass::NEW)) {
            return self.apply_observed(effect);
        }
        self.change(effect)
    }

    /// As [`Unit::change`], with reports to interested clients.
    #[cold]
    fn apply_observed(&mut self, effect: &Effect<'_>) -> Applied {
        let (db, key) = match *effect {
            Effect::Key { db, key, .. } => (db, key),
            Effect::Move { to_db, to_key, .. } => (to_db, to_key),
            // No client waits for libraries or settings, and no client caches them.
            Effect::Library { .. } | Effect::Setting { .. } => return self.change(effect),
            Effect::Global(op) => return self.apply_global_observed(op),
        };
        let (hash, as_of_ms) = (self.hash(key), self.as_of_ms);
        let entry = self.locked.slot(hash.slot()).get_raw(db, &hash, key);
        let was_expired = entry.is_some_and(|entry| entry.is_expired(as_of_ms));
        let applied = self.change(effect);
        if !applied.changed {
            return applied;
        }
        let expires = was_expired && matches!(effect, Effect::Key { op: KeyOp::Delete, .. });
        if self.interests.any() {
            if applied.key_created || !effect.keeps_entries() {
                let change = if expires { Change::Expired } else { Change::Value };
                self.report(hash.slot(), db, key, change);
            }
            if let Effect::Move { db, key, .. } = *effect {
                self.report(slot_of(key), db, key, Change::Value);
            }
            self.interests.made_ready(effect, |db, key| note_ready(&mut self.ready, db, key));
        }
        if was_expired {
            self.events.note(EventClass::EXPIRED, "expired", db, key);
        }
        if applied.key_created || (was_expired && !expires) {
            self.events.note(EventClass::NEW, "new", db, key);
        }
        applied
    }

    fn apply_global_observed(&mut self, op: GlobalOp) -> Applied {
        self.interests.report_global(op, |db, key| self.exists(db, key));
        self.interests.tracking().all_changed(self.invalidations);
        let applied = self.change(&Effect::Global(op));
        self.interests.made_ready(&Effect::Global(op), |db, key| note_ready(&mut self.ready, db, key));
        applied
    }

    fn report(&mut self, slot: SlotId, db: DbId, key: &[u8], change: Change) {
        self.interests.report(slot, db, key, change);
        self.interests.tracking().changed(slot, key, self.invalidations);
    }

    pub(crate) fn note_ready(&mut self, db: DbId, key: &[u8]) {
        note_ready(&mut self.ready, db, key);
    }

    /// Whether there are keys for [`Unit::take_ready`].
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next key that may serve a waiter. Keys come in the order in which they were noted.
    pub(crate) fn take_ready(&mut self) -> Option<(DbId, Box<[u8]>)> {
        self.ready.pop_front()
    }

    /// The libraries of functions, including the changes of this unit.
    pub fn libraries(&mut self) -> Arc<Libraries> {
        if self.locked.has(LIBRARIES_SLOT) {
            return self.locked.slot(LIBRARIES_SLOT).libraries();
        }
        let PublishedLibraries { libraries, lsn, .. } = self.keyspace.libraries();
        self.note_seen(lsn);
        libraries
    }

    /// The settings that belong to the data, including the changes of this unit.
    pub fn data_settings(&mut self) -> Arc<DataSettings> {
        if self.locked.has(LIBRARIES_SLOT) {
            return self.locked.slot(LIBRARIES_SLOT).data_settings();
        }
        self.keyspace.data_settings()
    }

    /// Whether the unit has locked this slot.
    pub fn has_locked(&self, slot: SlotId) -> bool {
        self.locked.has(slot)
    }

    /// Locks one more slot for a unit that cannot know its slots in advance, unless another unit holds it:
    /// waiting for it could deadlock. Returns whether the slot is locked.
    pub fn try_lock(&mut self, slot: SlotId) -> bool {
        let is_locked = self.locked.try_add(self.keyspace, slot);
        if is_locked && let Some(held) = self.held_slots {
            held.add(slot);
        }
        is_locked
    }

    /// Shows the locked slots to other threads, if the unit runs on a thread of its own.
    #[inline]
    pub(crate) fn show_held_slots(&self) {
        if let Some(held) = self.held_slots {
            self.locked.for_each(|slot| held.add(slot));
        }
    }

    /// Whether the unit has locked all slots.
    pub fn has_locked_all(&self) -> bool {
        self.locked.is_all()
    }

    #[inline]
    fn change(&mut self, effect: &Effect<'_>) -> Applied {
        if self.undo.is_some() {
            self.note_undo(effect);
        }
        let applied = self.make(effect);
        if applied.changed {
            effect.encode_into(self.effects);
        }
        applied
    }

    #[inline]
    fn make(&mut self, effect: &Effect<'_>) -> Applied {
        let clock = self.clock;
        match effect.scope() {
            Scope::Slot(key) => {
                let hash = self.hash(key);
                self.locked.slot_mut(hash.slot()).apply_hashed(effect, &hash, clock, self.freed)
            }
            Scope::Two(..) => match &mut self.locked {
                Locked::One(slot) => slot.apply(effect, clock, self.freed),
                Locked::Many(slots) => slots.apply(effect, clock, self.freed),
                Locked::None => panic!("the slots of all keys of a command are locked"),
            },
            Scope::Global => {
                self.flushes_all |= matches!(effect, Effect::Global(GlobalOp::FlushAll));
                // This is done even if nobody tracks now: the table may hold keys that were read by clients
                // which no longer track.
                self.interests.tracking().forget_all();
                match &mut self.locked {
                    Locked::Many(slots) => slots.apply(effect, clock, self.freed),
                    _ => panic!("a global effect needs every slot locked"),
                }
            }
        }
    }

    /// Removes about `max` expired keys of the locked slot at most, and about `max` expired fields of hashes.
    /// Returns the number of keys removed for their own deadline.
    pub(crate) fn remove_due(&mut self, max: usize) -> usize {
        let (mut due, mut due_fields) = (Vec::new(), Vec::new());
        match &mut self.locked {
            Locked::One(slot) => {
                slot.expired_keys(self.clock.now_ms, max, &mut due);
                slot.expired_fields(self.clock.now_ms, max, &mut due_fields);
            }
            _ => panic!("expiry works on one slot at a time"),
        }
        for (db, key) in &due {
            self.apply_alone(&KeyOp::Delete.on(*db, key));
        }
        for DueFields { db, key, fields } in &due_fields {
            let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
            let applied =
                self.apply_alone(&KeyOp::HashRemove { fields: Items::Slices(&fields) }.on(*db, key));
            self.expired.fields += applied.removed;
            self.notify(EventClass::HASH, "hexpired", *db, key);
            if applied.key_removed {
                self.notify(EventClass::GENERIC, "del", *db, key);
            }
        }
        self.expired.keys += due.len() as u64;
        due.len()
    }

    /// Whether the unit's record holds anything yet. Changes of documents do not count: the commit adds them.
    #[inline]
    pub fn changed(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The size of the unit's record so far, in bytes, without the changes of documents.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        self.effects.len()
    }

    /// The notices of the worker.
    pub fn events(&self) -> &'k Events {
        self.events
    }

    /// The counters of the worker.
    pub fn stats(&self) -> &'k WorkerStats {
        self.stats
    }

    /// The registry of clients that watch, await or track keys.
    pub fn interests(&self) -> &'k Arc<Interests> {
        self.interests
    }

    /// Remembers that a tracking client has read a key, whose slot is locked.
    pub fn remember(&mut self, tracking: &ClientTracking, key: &[u8]) {
        tracking.read(slot_of(key), key, self.invalidations);
    }

    /// Whether the unit has removed every key (FLUSHALL).
    #[inline]
    pub(crate) fn flushes_all(&self) -> bool {
        self.flushes_all
    }

    /// Ends the unit: takes its position in the log while its slots are locked, unlocks them, fills the
    /// record. Returns the newest position that the unit saw or wrote ([`Lsn::MAX`] if the log has failed),
    /// and whether it wrote or repeats an earlier write. `flushing` is given if the unit has removed every
    /// key: this host learns the position while all slots are still locked.
    ///
    /// Takes `self` by reference: a unit is large, and moving it costs more than the commit.
    #[inline]
    pub fn commit(&mut self, appender: Option<&mut Appender>, flushing: Option<&Host>) -> (Lsn, bool) {
        let Unit { effects, locked, messages, databases, .. } = self;
        let mut databases = databases.take();
        self.stats.expired(self.expired);
        if let Some(databases) = &mut databases {
            databases.encode_into(effects);
        }
        if effects.is_empty() {
            let seen_of_databases = databases.map_or(Lsn::ZERO, |it| it.seen());
            let seen = locked.last_lsn().max(self.seen).max(seen_of_databases);
            *locked = Locked::None;
            return (seen, self.repeats);
        }
        let appender = appender.expect("no write while loading");
        // A large record reaches the log in parts, and no part may lie before `dead_before`.
        let flushing = flushing.map(|host| (host, appender.log().written_lsn().min(appender.durable_lsn())));
        let Ok(pending) = appender.reserve_marked(effects, *messages > 0) else {
            // The memory is ahead of a log that has failed: no reply that shows it may ever leave.
            locked.set_last_lsn(Lsn::MAX);
            *locked = Locked::None;
            return (Lsn::MAX, true);
        };
        let lsn = pending.lsn();
        if let Some((host, dead_before)) = flushing {
            host.persistence.flushing_all(lsn, dead_before);
        }
        locked.set_last_lsn(lsn);
        if let Some(databases) = databases {
            databases.commit(lsn);
        }
        *locked = Locked::None;
        pending.publish();
        (lsn, true)
    }
}

pub(crate) fn note_ready(ready: &mut ReadyKeys, db: DbId, key: &[u8]) {
    if ready.back().is_none_or(|(last_db, last)| (*last_db, &**last) != (db, key)) {
        ready.push_back((db, key.into()));
    }
}

/// Counts a hit or a miss, and notes a `keymiss` event.
#[inline]
fn looked_up(stats: &WorkerStats, events: &Events, db: DbId, key: &[u8], found: bool) {
    stats.looked_up(found);
    if !found {
        events.note(EventClass::KEY_MISS, "keymiss", db, key);
    }
}
