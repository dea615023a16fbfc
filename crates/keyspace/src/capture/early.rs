//! Slots whose moment is taken before the walk reaches them, because a value moves from them to a slot that
//! is captured already.
//!
//! What it is: the moment of a slot, and the slots whose moment was taken early. What it is not: the capture
//! itself, which is the same as for other slots (see `slot`).
//!
//! Invariants
//! - A slot whose moment was taken early keeps its capture until the walk takes the capture over or the
//!   snapshot ends. The next snapshot finds no slot with such a capture.
//! - The set may be locked under the lock of a slot, but no slot is locked under the lock of the set.

use std::collections::BTreeSet;
use std::sync::Arc;

use lsn::Lsn;
use parking_lot::Mutex;

use super::SlotCapture;
use crate::data_settings::DataSettings;
use crate::id::{DbId, SlotId};
use crate::keyspace::Keyspace;
use crate::libraries::{LIBRARIES_SLOT, Libraries};
use crate::locked::LockedSlots;
use crate::slot::SlotGuard;

/// The state of a slot that a capture keeps besides its entries, as of the moment of the slot.
pub(crate) struct Moment {
    pub(super) lsn: Lsn,
    pub(super) keys: u32,
    pub(super) libraries: Option<Arc<Libraries>>,
    pub(super) settings: Option<Arc<DataSettings>>,
}

impl Moment {
    pub(super) fn of(guard: &SlotGuard<'_>) -> Moment {
        let has_more = guard.slot() == LIBRARIES_SLOT;
        let keys: usize = DbId::all().map(|db| guard.len(db)).sum();
        Moment {
            lsn: guard.last_lsn(),
            keys: keys as u32,
            libraries: has_more.then(|| guard.libraries()),
            settings: has_more.then(|| guard.data_settings()),
        }
    }
}

/// The slots whose moment was taken early.
#[derive(Default)]
pub(crate) struct EarlySlots(Mutex<BTreeSet<SlotId>>);

impl Keyspace {
    /// The early moment of a slot and the slot's capture, which the walk takes over; `None` if the moment was
    /// not taken early.
    pub(super) fn take_early(&self, guard: &mut SlotGuard<'_>) -> Option<Box<(Moment, Box<SlotCapture>)>> {
        let slot = guard.slot();
        let extra = guard.state.extra.as_mut()?;
        // A capture without a moment belongs to the slot in which the walk is.
        let moment = extra.capture.as_mut()?.moment.take()?;
        self.early.0.lock().remove(&slot);
        Some(Box::new((*moment, extra.capture.take()?)))
    }

    /// Forgets which slots are captured, because a snapshot has ended or is about to begin.
    pub fn forget_captured(&self) {
        let mut early = self.early.0.lock();
        self.captured.clear();
        let forgotten = std::mem::take(&mut *early);
        drop(early);
        for slot in forgotten {
            let mut guard = self.lock(slot);
            let abandoned = guard.state.extra.as_mut().and_then(|extra| extra.capture.take());
            if let Some(capture) = &abandoned {
                capture.abandon(&mut guard);
            }
            // Detached memory can take long to free: not under the lock.
            drop(guard);
            drop(abandoned);
        }
    }
}

impl LockedSlots<'_> {
    /// Prepares the capture for a record with these Moves, each from one slot to another. Must be called
    /// before the record is applied.
    ///
    /// If the destination is captured already and the source is not, this call takes the moment of the
    /// source. Otherwise neither slot would have the value in the snapshot. The value may then be copied for
    /// the snapshot before it moves, which takes time in proportion to its size. Only a server that must
    /// apply the Moves of a leader calls this; other callers ask [`Keyspace::may_move`].
    ///
    /// # Panics
    /// If the source of a Move is not locked.
    pub fn capture_before_moves(&mut self, moves: &[(SlotId, SlotId)]) {
        // A slot that is captured now may be the destination of another Move.
        while moves.iter().fold(false, |any, &(from, to)| {
            let from = self.get_mut(from).expect("the slots of the effects are locked");
            from.capture_before_move(to) || any
        }) {}
    }
}

impl SlotGuard<'_> {
    /// Takes the moment of this slot now if a Move to `to` may otherwise not be applied. Returns whether the
    /// moment was taken.
    fn capture_before_move(&mut self, to: SlotId) -> bool {
        let (keyspace, slot) = (self.keyspace, self.slot());
        let mut early = keyspace.early.0.lock();
        // `may_move` is asked under this lock, so that a snapshot that ends meanwhile forgets this slot, too.
        if keyspace.may_move(slot, to) {
            return false;
        }
        keyspace.captured.set(slot, true);
        early.insert(slot);
        drop(early);
        let mut capture = SlotCapture::new();
        capture.moment = Some(Box::new(Moment::of(self)));
        self.state.extra.get_or_insert_default().capture = Some(Box::new(capture));
        true
    }
}
