//! Loading: slots made of what was captured.

use lsn::Lsn;

use super::{HEAD, HEAD_BYTES};
use crate::access::AccessClock;
use crate::effect::{Effect, EffectError};
use crate::freed::Freed;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::slot::SlotGuard;

/// Why a stream cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// Not an effect.
    #[error("what follows slot {slot} is not a change of data: {reason}")]
    Effect {
        /// The slot it should be of.
        slot: SlotId,
        /// What is wrong with it.
        reason: EffectError,
    },
    /// The first byte of the stream belongs to no slot.
    #[error("it does not begin with a slot")]
    NoSlot,
    /// There is no slot of this number.
    #[error("slot {0} does not exist")]
    UnknownSlot(u16),
    /// A slot comes twice, or something was there before.
    #[error("slot {0} is in use already")]
    SlotInUse(SlotId),
    /// An effect on a key of another slot, or on all slots.
    #[error("a key that follows slot {0} belongs to another one")]
    ForeignKey(SlotId),
    /// The stream ends inside an effect or a head.
    #[error("it ends in the middle of slot {0}")]
    CutShort(SlotId),
}

/// Loads one stream, piece by piece. The slots in it are empty before.
pub struct Loader<'k> {
    keyspace: &'k Keyspace,
    clock: AccessClock,
    freed: Freed,
    slot: Option<(SlotId, Lsn)>,
    /// The beginning of something that the last piece has cut.
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
    /// See [`LoadError`]. The keyspace then holds part of the stream, and is of no use.
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

    /// Ends the stream; returns how many keys it has made.
    ///
    /// # Errors
    /// [`LoadError::CutShort`].
    pub fn finish(self) -> Result<u64, LoadError> {
        match self.carried.is_empty() {
            true => Ok(self.keys),
            false => Err(LoadError::CutShort(self.slot.map_or(SlotId::FIRST, |(slot, _)| slot))),
        }
    }

    /// Loads all but what is cut at the end, which it returns.
    fn load<'p>(&mut self, mut rest: &'p [u8]) -> Result<&'p [u8], LoadError> {
        let mut guard = None;
        loop {
            match rest.first() {
                None => return Ok(rest),
                Some(&HEAD) => {
                    let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(rest) };
                    drop(guard.take());
                    guard = Some(self.enter(head, after.len())?);
                    rest = after;
                }
                Some(_) => {
                    let (slot, lsn) = self.slot.ok_or(LoadError::NoSlot)?;
                    let keyspace = self.keyspace;
                    let guard = guard.get_or_insert_with(|| keyspace.lock(slot));
                    let mut after = rest;
                    let effect = match Effect::decode_next(&mut after) {
                        Ok(Some(effect)) => effect,
                        Ok(None) | Err(EffectError::Truncated) => return Ok(rest),
                        Err(reason) => return Err(LoadError::Effect { slot, reason }),
                    };
                    let hash = effect.key().map(|key| keyspace.hash(key)).filter(|hash| hash.slot() == slot);
                    let hash = hash.ok_or(LoadError::ForeignKey(slot))?;
                    let applied = guard.apply_hashed(&effect, &hash, self.clock, &mut self.freed);
                    self.keys += u64::from(applied.key_created);
                    guard.set_last_lsn(lsn);
                    rest = after;
                }
            }
        }
    }

    /// Begins a slot, of which at most so many bytes are here.
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
        // However many the head claims: room is made for no more than the bytes can hold.
        let keys = u32::from_le_bytes([*k0, *k1, *k2, *k3]) as usize;
        guard.reserve(DbId::ZERO, keys.min(bytes / PUT_BYTES_MIN));
        self.slot = Some((slot, lsn));
        Ok(guard)
    }
}

/// The shortest effect that makes a key: opcode, database, lengths of key and value.
const PUT_BYTES_MIN: usize = 4;
