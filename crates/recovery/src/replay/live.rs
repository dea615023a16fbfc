//! Applies the log on a follower, batch after batch, while clients read.
//!
//! ```text
//! chunk of the local log, and the allowed position --> Replayer --> records up to there, in order
//! ```
//!
//! One thread suffices. Consecutive records that each have one effect, on one key, are applied in groups,
//! whose memory is prefetched together. So this thread keeps up with a leader, which also has other work.
//! With more threads, readers would see parts of atomic units.
//!
//! Invariants
//! - A record is applied atomically: all its slots are locked at once, so no client sees half of a
//!   transaction.
//! - No record beyond the allowed position is applied, and none twice: the same chunk may be passed again.

use std::{borrow::Cow, sync::Arc};

use documents::{Documents, Gates};
use keyspace::{AccessClock, Effect, Freed, Item, KeyHash, Keyspace, LockedSlots, Scope, SlotId, slot_of};
use lsn::Lsn;
use storage::{Chains, Chunk};

use super::{GROUP, Group, Observer, decode, prefetch, require_type, settings::apply_settings};
use crate::error::RecoverError;

/// Applies the chunks of a follower's log to memory.
pub struct Replayer {
    keyspace: Arc<Keyspace>,
    /// `None`: document changes are skipped.
    documents: Option<Arc<Documents>>,
    /// Whether everything but settings is skipped.
    only_settings: bool,
    chains: Chains,
    /// The last record that was applied, or stored as part of a chain.
    seen: Lsn,
    applied: Lsn,
    freed: Freed,
}

impl Replayer {
    /// Continues after a recovery that has applied everything up to `applied`, with its open `chains`.
    pub fn new(keyspace: Arc<Keyspace>, chains: Chains, applied: Lsn) -> Replayer {
        let (documents, only_settings, freed) = (None, false, Freed::new());
        Replayer { keyspace, documents, only_settings, chains, seen: applied, applied, freed }
    }

    /// The incomplete payloads at [`Replayer::applied`], for a replayer that continues there.
    pub fn into_chains(self) -> Chains {
        self.chains
    }

    /// Continues after [`recover_witness`](crate::recover::recover_witness) at `applied`: only settings are
    /// applied.
    pub fn of_witness(keyspace: Arc<Keyspace>, applied: Lsn) -> Replayer {
        Replayer { only_settings: true, ..Replayer::new(keyspace, Chains::from(applied), applied) }
    }

    /// Applies document changes to these databases.
    pub fn with_documents(self, documents: Arc<Documents>) -> Replayer {
        Replayer { documents: Some(documents), ..self }
    }

    /// The position up to which the log is applied to memory.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// A position at or before [`Replayer::applied`] from which the log is still needed: later records may
    /// continue a chain that begins there. The log must be kept from the last batch boundary at or before
    /// this position, and a snapshot taken now must begin at that boundary.
    pub fn needed_from(&self) -> Lsn {
        self.chains.first_open().unwrap_or(self.applied)
    }

    /// Memory detached since the last call, to be dropped on a thread that delays no client.
    pub fn take_freed(&mut self) -> Freed {
        std::mem::take(&mut self.freed)
    }

    /// Applies the records of the chunk that are not applied yet, up to `until`. The chunk must begin at or
    /// before [`Replayer::applied`], whose new value is returned.
    ///
    /// # Errors
    /// If a record cannot be applied. Later records are then not applied, and some earlier ones may not be
    /// either.
    ///
    /// # Panics
    /// If there is a gap before the chunk.
    pub fn apply(
        &mut self,
        chunk: &Chunk,
        until: Lsn,
        now: AccessClock,
        observer: &mut impl Observer,
    ) -> Result<Lsn, RecoverError> {
        assert!(chunk.start <= self.applied, "a gap before lsn {}", chunk.start);
        if self.only_settings {
            return self.apply_settings(chunk, until, observer);
        }
        let group = Group::new();
        let (keyspace, documents) = (&*self.keyspace, self.documents.as_deref());
        let mut pass = Pass { keyspace, documents, now, freed: &mut self.freed, group, observer };
        let seen = self.seen;
        let new = chunk.records().skip_while(|record| record.lsn <= seen);
        for record in new.take_while(|record| record.lsn <= until) {
            match self.chains.payload(&record)? {
                None => {}
                Some(Cow::Borrowed(payload)) => pass.take(record.lsn, payload)?,
                Some(Cow::Owned(payload)) => pass.apply_at_once(record.lsn, &payload)?,
            }
            self.seen = record.lsn;
        }
        pass.apply_group()?;
        self.applied = self.applied.max(until.min(chunk.end));
        Ok(self.applied)
    }

    fn apply_settings(
        &mut self,
        chunk: &Chunk,
        until: Lsn,
        observer: &mut impl Observer,
    ) -> Result<Lsn, RecoverError> {
        let seen = self.seen;
        let new = chunk.records().skip_while(|record| record.lsn <= seen);
        for record in new.take_while(|record| record.lsn <= until) {
            apply_settings(&self.keyspace, &record)?;
            self.seen = record.lsn;
            observer.after_record(record.lsn);
        }
        self.applied = self.applied.max(until.min(chunk.end));
        Ok(self.applied)
    }
}

/// The application of the records of one chunk.
struct Pass<'k, 'c, 'o, O> {
    keyspace: &'k Keyspace,
    documents: Option<&'k Documents>,
    now: AccessClock,
    freed: &'k mut Freed,
    group: Group<'c>,
    observer: &'o mut O,
}

impl<'k, 'c, O: Observer> Pass<'k, 'c, '_, O> {
    /// Takes a record: adds it to the group if it is one effect on one key, else applies it.
    fn take(&mut self, lsn: Lsn, payload: &'c [u8]) -> Result<(), RecoverError> {
        let mut rest = payload;
        match decode(&mut rest, lsn)? {
            Some(Item::Effect(effect))
                if rest.is_empty()
                    && let Some(key) = effect.key() =>
            {
                if self.group.is_full() {
                    self.apply_group()?;
                }
                self.group.push(self.keyspace, lsn, effect, key);
                Ok(())
            }
            Some(_) => self.apply_at_once(lsn, payload),
            None => Ok(()),
        }
    }

    fn apply_group(&mut self) -> Result<(), RecoverError> {
        self.group.apply(self.keyspace, self.now, self.freed, self.observer)
    }

    /// Applies the group and then the record, under the locks of all its slots.
    fn apply_at_once(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), RecoverError> {
        self.apply_group()?;
        let (mut effects, mut changes, mut rest) = (Vec::new(), Vec::new(), payload);
        while let Some(item) = decode(&mut rest, lsn)? {
            match item {
                Item::Effect(effect) => {
                    effects.push((effect, effect.key().map(|key| self.keyspace.hash(key))));
                }
                Item::Documents(change) => changes.push(change),
                Item::Message(_) => {}
            }
        }
        self.prefetch(&effects);
        let failed = |reason| RecoverError::Documents { lsn, reason };
        // Database gates before slots, in the same order as units.
        let mut gates = match self.documents {
            Some(documents) if !changes.is_empty() => documents.gates(&changes).map_err(failed)?,
            _ => Gates::default(),
        };
        let mut slots = self.lock(&effects);
        let moves = effects.iter().filter_map(|(effect, _)| match effect.scope() {
            Scope::Two(from, to) => Some((slot_of(from), slot_of(to))),
            _ => None,
        });
        // The captures come before any effect, because a slot is captured as of the end of a record.
        slots.capture_before_moves(&moves.collect::<Vec<_>>());
        for (effect, hash) in &effects {
            let applied = match hash {
                Some(hash) => slots.apply_hashed(effect, hash, self.now, self.freed),
                None => slots.apply(effect, self.now, self.freed),
            };
            require_type(applied, lsn)?;
            self.observer.saw(effect);
        }
        slots.iter_mut().for_each(|slot| slot.set_last_lsn(lsn));
        if let Some(documents) = self.documents {
            let mut changes = changes.into_iter();
            changes.try_for_each(|change| documents.apply_within(&mut gates, change, lsn)).map_err(failed)?;
        }
        drop((slots, gates));
        self.observer.after_record(lsn);
        Ok(())
    }

    fn prefetch(&self, effects: &[(Effect<'_>, Option<KeyHash>)]) {
        for group in effects.chunks(GROUP) {
            let hashed = group.iter().filter_map(|(effect, hash)| Some((effect, hash.as_ref()?)));
            hashed.clone().for_each(|(_, hash)| self.keyspace.prefetch_slot(hash));
            prefetch(self.keyspace, hashed);
        }
    }

    /// Locks the slots of all effects together; every slot if an effect changes whole databases.
    fn lock(&self, effects: &[(Effect<'_>, Option<KeyHash>)]) -> LockedSlots<'k> {
        let mut slots: Vec<SlotId> = Vec::with_capacity(effects.len());
        for (effect, hash) in effects {
            match (effect.scope(), hash) {
                (Scope::Slot(_), Some(hash)) => slots.push(hash.slot()),
                (Scope::Slot(key), None) => slots.push(slot_of(key)),
                (Scope::Two(from, to), _) => slots.extend([from, to].map(slot_of)),
                (Scope::Global, _) => return self.keyspace.lock_all(),
            }
        }
        self.keyspace.lock_many(slots)
    }
}

#[cfg(test)]
mod tests;
