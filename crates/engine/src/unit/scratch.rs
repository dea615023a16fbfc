//! The buffers of a worker, which its units use one after the other; and the time of a unit with the effect
//! of its reads (`UnitAccess`).
//!
//! Invariants
//! - A unit begins with no effects: [`Scratch::seal`] has cleared the effects of the unit before.

use std::sync::Arc;

use keyspace::{AccessClock, Freed};

use super::undo::Undo;
use crate::{
    Interests,
    event::{Events, NoticeGates},
    long_units::HeldSlots,
    stats::WorkerStats,
    tracking::Invalidations,
};

/// Effects buffers above this size are freed after the unit that needed them.
const EFFECTS_BYTES_KEPT: usize = 1 << 20;

/// The buffers and registries of one worker's units.
pub(crate) struct Scratch {
    pub(super) effects: Vec<u8>,
    /// Memory that commands have detached.
    pub freed: Freed,
    /// The buffers of an ended undo, for reuse.
    pub(super) undo: Option<Box<Undo>>,
    /// The counters of the worker.
    pub stats: Arc<WorkerStats>,
    /// The clients that watch, await or track keys.
    pub interests: Arc<Interests>,
    pub(crate) invalidations: Invalidations,
    /// The notices of the units.
    pub events: Events,
    /// On a thread for long units: shows other threads the slots that the unit holds.
    pub(crate) held_slots: Option<Arc<HeldSlots>>,
}

impl Scratch {
    pub fn new(stats: Arc<WorkerStats>, interests: Arc<Interests>) -> Scratch {
        Scratch {
            effects: Vec::new(),
            freed: Freed::new(),
            undo: None,
            stats,
            interests,
            invalidations: Invalidations::default(),
            events: Events::default(),
            held_slots: None,
        }
    }

    /// Ends a unit: sets the gates of its notices and invalidations, and notes that this client made its
    /// changes.
    #[inline]
    pub(crate) fn seal(&mut self, client_id: u64, gates: NoticeGates) {
        self.effects.clear();
        if self.effects.capacity() > EFFECTS_BYTES_KEPT {
            self.effects = Vec::new();
        }
        self.events.seal(gates);
        if !self.invalidations.is_empty() {
            self.invalidations.sign(client_id, gates.shown);
        }
    }
}

/// The time of a unit, and the effect of its reads.
pub(crate) struct UnitAccess {
    pub clock: AccessClock,
    /// Deadlines up to this time count as expired; see [`Unit::as_of_ms`](crate::Unit::as_of_ms).
    pub as_of_ms: u64,
    pub(crate) touches: bool,
}

impl UnitAccess {
    /// The access of the server's own units.
    pub fn own(clock: AccessClock) -> UnitAccess {
        UnitAccess { as_of_ms: clock.now_ms, clock, touches: false }
    }
}
