//! Locking the slots of a unit, and what was learned on the way.

use keyspace::{DbId, KeyHash, Keyspace, LockedSlots, SlotGuard, SlotId};
use wire::Args;

use super::{
    databases::Databases,
    known_keys::KnownKeys,
    locked::{Locked, Slots},
};
use crate::{Host, Keys};

/// A command with more keys than this fetches the memory of so many ahead: about what the nearest caches hold.
const FETCHED_KEYS_MAX: usize = 256;

/// How long a command waits for slots: for ever, unless a script has them that keeps the server busy.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'h>(pub(crate) &'h dyn Host);

impl Patience<'_> {
    fn lasts(self) -> bool {
        !self.0.scripts().is_busy(self.0.monotonic_us())
    }

    /// Locks a slot; `None`: a script has it and keeps the server busy.
    #[inline]
    fn lock(self, keyspace: &Keyspace, slot: SlotId) -> Option<SlotGuard<'_>> {
        keyspace.try_lock(slot).or_else(|| self.lock_contended(keyspace, slot))
    }

    #[cold]
    fn lock_contended(self, keyspace: &Keyspace, slot: SlotId) -> Option<SlotGuard<'_>> {
        keyspace.lock_while(slot, || self.lasts())
    }

    /// Locks slots, ascending and each once.
    fn lock_several(self, keyspace: &Keyspace, slots: impl Iterator<Item = SlotId>) -> Option<Locked<'_>> {
        let mut locked = LockedSlots::none();
        for slot in slots {
            locked.add(self.lock(keyspace, slot)?);
        }
        Some(Locked::Many(Box::new(locked)))
    }

    /// Locks slots in any order, some more than once.
    fn lock_these(self, keyspace: &Keyspace, mut slots: Slots) -> Option<Locked<'_>> {
        match slots[..] {
            [] => Some(Locked::None),
            [slot] => self.lock(keyspace, slot).map(Locked::One),
            _ => {
                slots.sort_unstable();
                slots.dedup();
                self.lock_several(keyspace, slots.into_iter())
            }
        }
    }
}

/// Locked slots, for [`Unit::new`](super::Unit::new).
pub(crate) struct Locks<'k> {
    pub(super) locked: Locked<'k>,
    pub(super) known: KnownKeys,
    pub(super) databases: Option<Box<Databases>>,
}

impl<'k> Locks<'k> {
    /// Locks the slot of the only key. `hash` is its hash, if it is known. `None`, here and in the others: patience has ended.
    #[inline]
    pub(crate) fn one(
        keyspace: &'k Keyspace,
        key: &[u8],
        hash: Option<KeyHash>,
        patience: Patience<'_>,
    ) -> Option<Locks<'k>> {
        let hash = hash.unwrap_or_else(|| keyspace.hash(key));
        let locked = Locked::One(patience.lock(keyspace, hash.slot())?);
        Some(Locks { locked, known: KnownKeys::one(key, hash), databases: None })
    }

    /// Locks the slots of the keys among `args`, after their memory was asked for. `hash` is that of the key at
    /// [`Keys::first`], if it is known; `db` the database where most of them are.
    pub(crate) fn keys(
        keyspace: &'k Keyspace,
        keys: Keys,
        args: Args<'_>,
        hash: Option<KeyHash>,
        db: DbId,
        patience: Patience<'_>,
    ) -> Option<Locks<'k>> {
        let first = keys.first().zip(hash);
        let mut known = KnownKeys::default();
        let mut slots = Slots::new();
        keys.for_each(args, |index| {
            let hash = match first {
                Some((first, hash)) if first == index => hash,
                _ => keyspace.hash(args.at(index)),
            };
            keyspace.prefetch_slot(&hash);
            known.push(args.at(index), hash);
            slots.push(hash.slot());
        });
        if slots.len() > 1 {
            let fetched = || known.hashes().take(FETCHED_KEYS_MAX);
            fetched().for_each(|hash| keyspace.prefetch_bucket(db, hash));
            fetched().for_each(|hash| keyspace.prefetch_entry(db, hash));
        }
        Some(Locks { locked: patience.lock_these(keyspace, slots)?, known, databases: None })
    }

    /// Locks the slots of a transaction, in any order and some more than once.
    pub(crate) fn of_transaction(
        keyspace: &'k Keyspace,
        slots: Slots,
        patience: Patience<'_>,
    ) -> Option<Locks<'k>> {
        Some(patience.lock_these(keyspace, slots)?.into())
    }

    /// Locks slots, in any order and some more than once.
    pub(crate) fn slots(keyspace: &'k Keyspace, slots: Slots) -> Locks<'k> {
        Locked::these(keyspace, slots).into()
    }

    /// Locks one slot, for changes of the server's own, which are tried again if somebody keeps it for long: `None`.
    pub(crate) fn slot(keyspace: &'k Keyspace, slot: SlotId) -> Option<Locks<'k>> {
        Some(Locked::One(keyspace.lock_while(slot, || false)?).into())
    }

    /// With databases that were locked before.
    #[inline]
    pub(crate) fn with_databases(self, databases: Option<Box<Databases>>) -> Locks<'k> {
        Locks { databases, ..self }
    }

    /// Locks every slot.
    pub(crate) fn all(keyspace: &'k Keyspace, patience: Patience<'_>) -> Option<Locks<'k>> {
        Some(patience.lock_several(keyspace, SlotId::all())?.into())
    }
}

impl<'k> From<Locked<'k>> for Locks<'k> {
    fn from(locked: Locked<'k>) -> Self {
        Locks { locked, known: KnownKeys::default(), databases: None }
    }
}
