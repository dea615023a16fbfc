//! Loading: a [`Loader`] fills slots from the stream of a capture.

use lsn::Lsn;

use super::row::{self, Row};
use super::{HEAD, HEAD_BYTES};
use crate::access::AccessClock;
use crate::apply::Filling;
use crate::collection::PackedLimits;
use crate::collection::verify::Fit;
use crate::effect::{Effect, EffectError, Scope};
use crate::freed::Freed;
use crate::hash::KeyHash;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::libraries::LIBRARIES_SLOT;
use crate::slot::SlotGuard;

/// Why a stream cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// Bytes that are neither a row nor an effect.
    #[error("the bytes after slot {slot} are not a change of data: {reason}")]
    Effect {
        /// The slot to which the change should belong.
        slot: SlotId,
        /// A description of the damage.
        reason: EffectError,
    },
    /// The stream does not begin with the head of a slot.
    #[error("it does not begin with a slot")]
    NoSlot,
    /// There is no slot of this number.
    #[error("slot {0} does not exist")]
    UnknownSlot(u16),
    /// A slot comes twice in the stream, or it was not empty before.
    #[error("slot {0} is in use already")]
    SlotInUse(SlotId),
    /// A row or an effect of a key of another slot, a Move, or an effect on all slots.
    #[error("a key that follows slot {0} belongs to another one")]
    ForeignKey(SlotId),
    /// A row whose payload is no value of its type, or an effect on a key with a value of another type.
    #[error("a value in slot {0} is none of its type")]
    Payload(SlotId),
    /// A row of a key that is there already.
    #[error("a key comes twice in slot {0}")]
    KeyInUse(SlotId),
    /// The stream ends inside an effect, a row or a head.
    #[error("it ends in the middle of slot {0}")]
    CutShort(SlotId),
}

/// Loads one stream, piece by piece. The slots in it must be empty before.
pub struct Loader<'k> {
    keyspace: &'k Keyspace,
    clock: AccessClock,
    freed: Freed,
    slot: Option<SlotId>,
    /// The beginning of a head, a row or an effect that the last piece has cut.
    carried: Vec<u8>,
    keys: u64,
}

impl<'k> Loader<'k> {
    /// A loader for one stream.
    pub fn new(keyspace: &'k Keyspace, clock: AccessClock) -> Self {
        let (freed, carried) = (Freed::new(), Vec::new());
        Loader { keyspace, clock, freed, slot: None, carried, keys: 0 }
    }

    /// Loads the next piece.
    ///
    /// # Errors
    /// See [`LoadError`]. The keyspace then holds part of the stream.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), LoadError> {
        if self.carried.is_empty() {
            let rest = self.load(piece)?;
            self.carried = rest.to_vec();
            return Ok(());
        }
        let mut carried = std::mem::take(&mut self.carried);
        carried.extend_from_slice(piece);
        let rest_len = self.load(&carried)?.len();
        carried.drain(..carried.len() - rest_len);
        self.carried = carried;
        Ok(())
    }

    /// Ends the stream; returns the number of keys that it has made.
    ///
    /// # Errors
    /// [`LoadError::CutShort`].
    pub fn finish(self) -> Result<u64, LoadError> {
        match self.carried.is_empty() {
            true => Ok(self.keys),
            false => Err(LoadError::CutShort(self.slot.unwrap_or(SlotId::FIRST))),
        }
    }

    /// Loads everything except an incomplete head, row or effect at the end, which it returns.
    fn load<'p>(&mut self, mut rest: &'p [u8]) -> Result<&'p [u8], LoadError> {
        let limits = self.keyspace.rules().limits;
        let mut filling = None;
        while let Some(&first) = rest.first() {
            if first == HEAD {
                let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() else { break };
                drop(filling.take());
                filling = Some(Filling::new(self.enter(head, after.len())?));
                rest = after;
                continue;
            }
            let slot = self.slot.ok_or(LoadError::NoSlot)?;
            let keyspace = self.keyspace;
            let filling = filling.get_or_insert_with(|| Filling::new(keyspace.lock(slot)));
            let loaded = match first {
                row::MARK => {
                    Row::decode_next(&mut rest).map(|row| self.add_row(filling, slot, &row, &limits))
                }
                _ => Effect::decode_next(&mut rest).map(|effect| {
                    let effect = effect.expect("there is a byte at least");
                    filling.with_guard(|guard| self.apply(guard, &effect))
                }),
            };
            match loaded {
                Ok(loaded) => loaded?,
                Err(EffectError::Truncated) => break,
                Err(reason) => return Err(LoadError::Effect { slot, reason }),
            }
        }
        Ok(rest)
    }

    #[inline]
    fn add_row(
        &mut self,
        filling: &mut Filling<'_>,
        slot: SlotId,
        row: &Row<'_>,
        limits: &PackedLimits,
    ) -> Result<(), LoadError> {
        match row.verify(limits).ok_or(LoadError::Payload(slot))? {
            Fit::Packed => {
                let hash = self.hash(row.key, slot)?;
                if !filling.add(row.db, &hash, row.entry(self.clock.initial())) {
                    return Err(LoadError::KeyInUse(slot));
                }
                self.keys += 1;
                Ok(())
            }
            Fit::Big => {
                let hash = self.hash(row.key, slot)?;
                let (value, expire_at_ms) = row.value();
                let mut applied = Ok(());
                filling.with_guard(|guard| {
                    if guard.get_raw(row.db, &hash, row.key).is_some() {
                        applied = Err(LoadError::KeyInUse(slot));
                    }
                    value.for_each_effect(row.db, row.key, expire_at_ms, |effect| {
                        if applied.is_ok() {
                            applied = self.apply(guard, effect);
                        }
                    });
                });
                applied
            }
        }
    }

    fn apply(&mut self, guard: &mut SlotGuard<'_>, effect: &Effect<'_>) -> Result<(), LoadError> {
        let slot = guard.slot();
        let Scope::Slot(key) = effect.scope() else { return Err(LoadError::ForeignKey(slot)) };
        let hash = self.hash(key, slot)?;
        let applied = guard.apply_hashed(effect, &hash, self.clock, &mut self.freed);
        if applied.wrong_type {
            return Err(LoadError::Payload(slot));
        }
        self.keys += u64::from(applied.key_created);
        if slot == LIBRARIES_SLOT && effect.key().is_none() {
            guard.publish_libraries();
            guard.publish_data_settings();
        }
        Ok(())
    }

    /// The hash of a key that must be of this slot.
    #[inline]
    fn hash(&self, key: &[u8], slot: SlotId) -> Result<KeyHash, LoadError> {
        let hash = self.keyspace.hash(key);
        if hash.slot() == slot { Ok(hash) } else { Err(LoadError::ForeignKey(slot)) }
    }

    /// Locks the slot that a head names, sets its LSN and makes room for its keys. `bytes` is the number of
    /// bytes after the head in the piece that is loaded now.
    fn enter(&mut self, head: &[u8; HEAD_BYTES], bytes: usize) -> Result<SlotGuard<'k>, LoadError> {
        let [_, slot @ .., k0, k1, k2, k3] = head;
        let (number, lsn) = slot.split_at(2);
        let number = u16::from_le_bytes([number[0], number[1]]);
        let lsn = Lsn::new(u64::from_le_bytes(lsn.try_into().expect("eight bytes")));
        let slot = SlotId::new(number).ok_or(LoadError::UnknownSlot(number))?;
        let mut guard = self.keyspace.lock(slot);
        if !guard.is_empty() || guard.last_lsn() != Lsn::ZERO {
            return Err(LoadError::SlotInUse(slot));
        }
        guard.set_last_lsn(lsn);
        // Whatever number the head claims, room is made for no more keys than the bytes can hold.
        let keys = u32::from_le_bytes([*k0, *k1, *k2, *k3]) as usize;
        guard.reserve(DbId::ZERO, keys.min(bytes / row::BYTES_MIN));
        self.slot = Some(slot);
        Ok(guard)
    }
}
