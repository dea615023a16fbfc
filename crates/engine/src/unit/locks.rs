//! Locking the slots of a unit; keeps the key hashes that it computes.

use std::time::Duration;

use keyspace::{DbId, KeyHash, Keyspace, LockedSlots, SlotGuard, SlotId};
use wire::Args;

use super::{
    databases::Databases,
    known_keys::KnownKeys,
    locked::{Locked, Slots},
};
use crate::{Host, Keys, error::LockContended};

/// The maximum number of keys whose memory is prefetched before locking: about as many as the nearest caches
/// hold.
const FETCHED_KEYS_MAX: usize = 256;

/// How long a command waits for a slot between two checks whether a long unit holds it.
const LOCK_PATIENCE: Duration = Duration::from_millis(1);

/// How long a command waits in line for a slot of a long unit, when it is its turn (see
/// [`Scripts::may_wait`]).
///
/// [`Scripts::may_wait`]: crate::Scripts::may_wait
const TURN_PATIENCE: Duration = Duration::from_micros(250);

/// How long a command waits for a slot before it gets BUSY, in case a short unit has the slot by now.
const BUSY_PATIENCE: Duration = Duration::from_micros(20);

/// How a command waits for slots: without limit, unless a long unit holds one of them.
#[derive(Clone, Copy)]
pub struct LockPolicy<'h>(pub &'h Host);

impl LockPolicy<'_> {
    /// Locks a slot, unless a long unit holds it.
    #[inline]
    pub fn lock(self, keyspace: &Keyspace, slot: SlotId) -> Result<SlotGuard<'_>, LockContended> {
        keyspace.try_lock(slot).map_or_else(|| self.lock_contended(keyspace, slot), Ok)
    }

    #[cold]
    fn lock_contended(self, keyspace: &Keyspace, slot: SlotId) -> Result<SlotGuard<'_>, LockContended> {
        let scripts = &self.0.scripts;
        loop {
            let now_us = self.0.monotonic_us();
            if let Some(taken) = scripts.hold_up(slot, now_us) {
                let patience = match taken {
                    _ if scripts.may_wait(now_us) => TURN_PATIENCE,
                    LockContended::Busy => BUSY_PATIENCE,
                    LockContended::Later(_) => Duration::ZERO,
                };
                return keyspace.try_lock_for(slot, patience).ok_or(taken);
            }
            if let Some(guard) = keyspace.try_lock_for(slot, LOCK_PATIENCE) {
                return Ok(guard);
            }
        }
    }

    /// Locks these slots, which must ascend without duplicates.
    fn lock_several(
        self,
        keyspace: &Keyspace,
        slots: impl Iterator<Item = SlotId>,
    ) -> Result<Locked<'_>, LockContended> {
        let mut locked = LockedSlots::none();
        for slot in slots {
            locked.add(self.lock(keyspace, slot)?);
        }
        Ok(Locked::Many(Box::new(locked)))
    }

    /// Locks slots in any order, possibly with duplicates.
    fn lock_these(self, keyspace: &Keyspace, mut slots: Slots) -> Result<Locked<'_>, LockContended> {
        match slots[..] {
            [] => Ok(Locked::None),
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
    /// Locks the slot of the only key. `hash` is the hash of the key, if it is known.
    ///
    /// # Errors
    /// A long unit holds the slot. The same error applies to the other constructors with a policy.
    #[inline]
    pub fn one(
        keyspace: &'k Keyspace,
        key: &[u8],
        hash: Option<KeyHash>,
        policy: LockPolicy<'_>,
    ) -> Result<Locks<'k>, LockContended> {
        let hash = hash.unwrap_or_else(|| keyspace.hash(key));
        let locked = Locked::One(policy.lock(keyspace, hash.slot())?);
        Ok(Locks { locked, known: KnownKeys::one(key, hash), databases: None })
    }

    /// Locks the slots of the keys among `args`, after prefetching their memory. `hash` is the hash of the
    /// key at [`Keys::first`], if it is known; `db` is the database with most of the keys.
    pub fn keys(
        keyspace: &'k Keyspace,
        keys: Keys,
        args: Args<'_>,
        hash: Option<KeyHash>,
        db: DbId,
        policy: LockPolicy<'_>,
    ) -> Result<Locks<'k>, LockContended> {
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
        Ok(Locks { locked: policy.lock_these(keyspace, slots)?, known, databases: None })
    }

    /// Locks slots, in any order and possibly with duplicates.
    pub fn slots(
        keyspace: &'k Keyspace,
        slots: Slots,
        policy: LockPolicy<'_>,
    ) -> Result<Locks<'k>, LockContended> {
        Ok(policy.lock_these(keyspace, slots)?.into())
    }

    pub fn slot(
        keyspace: &'k Keyspace,
        slot: SlotId,
        policy: LockPolicy<'_>,
    ) -> Result<Locks<'k>, LockContended> {
        Ok(Locked::One(policy.lock(keyspace, slot)?).into())
    }

    /// Locks a slot as the thread that applies the log does: waits for the slot, even if a long unit holds
    /// it.
    pub fn awaited(keyspace: &'k Keyspace, slot: SlotId) -> Locks<'k> {
        Locked::One(keyspace.lock(slot)).into()
    }

    /// Adds databases, which were locked before the slots.
    #[inline]
    pub(crate) fn with_databases(self, databases: Option<Box<Databases>>) -> Locks<'k> {
        Locks { databases, ..self }
    }

    pub fn all(keyspace: &'k Keyspace, policy: LockPolicy<'_>) -> Result<Locks<'k>, LockContended> {
        Ok(policy.lock_several(keyspace, SlotId::all())?.into())
    }
}

impl<'k> From<Locked<'k>> for Locks<'k> {
    fn from(locked: Locked<'k>) -> Self {
        Locks { locked, known: KnownKeys::default(), databases: None }
    }
}
