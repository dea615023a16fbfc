//! Replay: applies records of the log to the keyspace, in recovery and on a follower.
//!
//! ```text
//! recovery: the whole log, without readers      reader --(effects by slot)--> appliers      `split`
//! follower: the leader's committed records,     batches --> record by record, atomically    `live`
//!           while clients read
//! witness:  settings alone, in both cases                                                   `settings`
//! ```
//!
//! The module decodes records, and has [`Group`], which overlaps the cache misses of many effects. It does
//! not read the log, nor decide how far it may be applied.
//!
//! Invariants
//! - Effects of one slot are applied in log order, and the slot records the LSN of the last one.
//! - A record that does not decode is an error with its LSN, and so is one whose effect meets a value of
//!   another type. An ordinary recovery then fails as a whole; a follower applies nothing after the record,
//!   and stops.

mod live;
pub(crate) mod settings;
pub mod split;

use keyspace::{AccessClock, Applied, Effect, Freed, Item, KeyHash, Keyspace};
use lsn::Lsn;

pub use self::live::Replayer;
use crate::error::RecoverError;

/// Observes every effect that a [`Replayer`] applies; on a witness, it only learns of records. The unit type
/// ignores all.
pub trait Observer {
    /// An effect was applied; the slots of its record are locked.
    fn saw(&mut self, effect: &Effect<'_>);

    /// The record that ends at `lsn` is applied and its slots are unlocked; no later record is applied yet.
    fn after_record(&mut self, lsn: Lsn);
}

impl Observer for () {
    #[inline]
    fn saw(&mut self, _: &Effect<'_>) {}

    #[inline]
    fn after_record(&mut self, _: Lsn) {}
}

/// The maximum number of effects whose memory is prefetched together.
const GROUP: usize = 32;

/// The next item of a record.
pub fn decode<'a>(rest: &mut &'a [u8], lsn: Lsn) -> Result<Option<Item<'a>>, RecoverError> {
    Item::decode_next(rest).map_err(|reason| RecoverError::Effect { lsn, reason })
}

/// Fails if an effect of the record at `lsn` has met a value of another type: no server logs such an effect.
#[inline]
fn require_type(applied: Applied, lsn: Lsn) -> Result<(), RecoverError> {
    if applied.wrong_type { Err(RecoverError::WrongType { lsn }) } else { Ok(()) }
}

/// An effect on one key, with the key's hash.
struct Keyed<'e> {
    lsn: Lsn,
    effect: Effect<'e>,
    hash: KeyHash,
}

/// Consecutive effects, each on one key, to be applied together.
struct Group<'e> {
    keyed: [Option<Keyed<'e>>; GROUP],
    count: usize,
}

impl<'e> Group<'e> {
    fn new() -> Group<'e> {
        Group { keyed: [const { None }; GROUP], count: 0 }
    }

    fn is_full(&self) -> bool {
        self.count == GROUP
    }

    /// Adds an effect on `key`. The group must not be full.
    #[inline]
    fn push(&mut self, keyspace: &Keyspace, lsn: Lsn, effect: Effect<'e>, key: &[u8]) {
        let hash = keyspace.hash(key);
        keyspace.prefetch_slot(&hash);
        self.keyed[self.count] = Some(Keyed { lsn, effect, hash });
        self.count += 1;
    }

    /// Applies and removes all effects, after prefetching their memory.
    ///
    /// # Errors
    /// If an effect meets a value of another type. The effects after it are then removed without being
    /// applied.
    fn apply(
        &mut self,
        keyspace: &Keyspace,
        now: AccessClock,
        freed: &mut Freed,
        observer: &mut impl Observer,
    ) -> Result<(), RecoverError> {
        let group = &mut self.keyed[..std::mem::take(&mut self.count)];
        prefetch(keyspace, group.iter().flatten().map(|it| (&it.effect, &it.hash)));
        for Keyed { lsn, effect, hash } in group.iter_mut().filter_map(Option::take) {
            let mut slot = keyspace.lock(hash.slot());
            require_type(slot.apply_hashed(&effect, &hash, now, freed), lsn)?;
            slot.set_last_lsn(lsn);
            observer.saw(&effect);
            drop(slot);
            observer.after_record(lsn);
        }
        Ok(())
    }
}

/// Prefetches the memory that effects will touch. The slots must have been prefetched before.
fn prefetch<'h, 'e: 'h>(
    keyspace: &Keyspace,
    effects: impl Iterator<Item = (&'h Effect<'e>, &'h KeyHash)> + Clone,
) {
    let keyed = effects.filter_map(|(effect, hash)| Some((effect.db()?, hash)));
    keyed.clone().for_each(|(db, hash)| keyspace.prefetch_bucket(db, hash));
    keyed.for_each(|(db, hash)| keyspace.prefetch_entry(db, hash));
}
