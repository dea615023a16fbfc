//! Replay: what records of the log do to the keyspace, in recovery and on a replica.
//!
//! ```text
//! recovery: all of the log, nobody reads           reader --(effects by slot)--> appliers              `split`
//! replica:  what the leader has committed,         batches --> record by record, each at once          `live`
//!           while clients read
//! ```
//!
//! What it is: the decoding of records, and [`Group`], which hides the cache misses of many effects behind each other.
//! What it is not: the log, nor who decides how far it may be applied.
//!
//! Invariants
//! - Effects of one slot are applied in log order, and the slot knows the LSN of the last one.
//! - A record that does not decode changes nothing: it is told, with its LSN.

mod live;
pub mod split;

use keyspace::{AccessClock, Effect, Freed, Item, KeyHash, Keyspace};
use lsn::Lsn;

pub use self::live::{Replayed, Replayer};
use crate::recover::RecoverError;

/// Effects whose memory is fetched together.
const GROUP: usize = 32;

/// The next item of a record.
pub fn decode<'a>(rest: &mut &'a [u8], lsn: Lsn) -> Result<Option<Item<'a>>, RecoverError> {
    Item::decode_next(rest).map_err(|reason| RecoverError::Effect { lsn, reason })
}

/// An effect on one key, and where it goes.
struct Keyed<'e> {
    lsn: Lsn,
    effect: Effect<'e>,
    hash: KeyHash,
}

/// Effects that follow each other, each on one key, to be applied soon.
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

    /// Adds an effect, on this key, to a group that is not full.
    #[inline]
    fn push(&mut self, keyspace: &Keyspace, lsn: Lsn, effect: Effect<'e>, key: &[u8]) {
        let hash = keyspace.hash(key);
        keyspace.prefetch_slot(&hash);
        self.keyed[self.count] = Some(Keyed { lsn, effect, hash });
        self.count += 1;
    }

    /// Applies and forgets them, after fetching the memory of all. `applied` is called under the lock of the slot.
    fn apply(
        &mut self,
        keyspace: &Keyspace,
        now: AccessClock,
        freed: &mut Freed,
        applied: &mut impl FnMut(&Effect<'_>),
    ) {
        let group = &mut self.keyed[..std::mem::take(&mut self.count)];
        prefetch(keyspace, group.iter().flatten().map(|it| (&it.effect, &it.hash)));
        for Keyed { lsn, effect, hash } in group.iter_mut().filter_map(Option::take) {
            let mut slot = keyspace.lock(hash.slot());
            slot.apply_hashed(&effect, &hash, now, freed);
            slot.set_last_lsn(lsn);
            applied(&effect);
        }
    }
}

/// Fetches the memory that effects on keys will touch, whose slots were fetched before.
fn prefetch<'h, 'e: 'h>(
    keyspace: &Keyspace,
    effects: impl Iterator<Item = (&'h Effect<'e>, &'h KeyHash)> + Clone,
) {
    let keyed = effects.filter_map(|(effect, hash)| Some((effect.db()?, hash)));
    keyed.clone().for_each(|(db, hash)| keyspace.prefetch_bucket(db, hash));
    keyed.for_each(|(db, hash)| keyspace.prefetch_entry(db, hash));
}
