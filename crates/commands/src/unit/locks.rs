//! Locking the slots of a unit, and what was learned on the way.

use keyspace::{DbId, KeyHash, Keyspace, SlotId};
use wire::Args;

use super::{
    known_keys::KnownKeys,
    locked::{Locked, Slots},
};
use crate::Keys;

/// A command with more keys than this fetches the memory of so many ahead: about what the nearest caches hold.
const FETCHED_KEYS_MAX: usize = 256;

/// Locked slots, for [`Unit::new`](super::Unit::new).
pub(crate) struct Locks<'k> {
    pub(super) locked: Locked<'k>,
    pub(super) known: KnownKeys,
}

impl<'k> Locks<'k> {
    /// Locks the slot of the only key. `hash` is its hash, if it is known.
    #[inline]
    pub(crate) fn one(keyspace: &'k Keyspace, key: &[u8], hash: Option<KeyHash>) -> Locks<'k> {
        let hash = hash.unwrap_or_else(|| keyspace.hash(key));
        Locks { locked: Locked::One(keyspace.lock(hash.slot())), known: KnownKeys::one(key, hash) }
    }

    /// Locks the slots of the keys among `args`, after their memory was asked for. `hash` is that of the key at
    /// [`Keys::first`], if it is known; `db` the database where most of them are.
    pub(crate) fn keys(
        keyspace: &'k Keyspace,
        keys: Keys,
        args: Args<'_>,
        hash: Option<KeyHash>,
        db: DbId,
    ) -> Locks<'k> {
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
        Locks { locked: Locked::these(keyspace, slots), known }
    }

    /// Locks slots, in any order and some more than once.
    pub(crate) fn slots(keyspace: &'k Keyspace, slots: Slots) -> Locks<'k> {
        Locked::these(keyspace, slots).into()
    }

    /// Locks one slot, for changes of the server's own.
    pub(crate) fn slot(keyspace: &'k Keyspace, slot: SlotId) -> Locks<'k> {
        Locked::One(keyspace.lock(slot)).into()
    }

    /// Locks every slot.
    pub(crate) fn all(keyspace: &'k Keyspace) -> Locks<'k> {
        Locked::Many(Box::new(keyspace.lock_all())).into()
    }
}

impl<'k> From<Locked<'k>> for Locks<'k> {
    fn from(locked: Locked<'k>) -> Self {
        Locks { locked, known: KnownKeys::default() }
    }
}
