//! What units are made with: the buffers of a worker, which its units use one after the other, and how a unit reads.
//!
//! Invariants
//! - A unit begins with no effects: [`Scratch::seal`] has taken those of the one before.

use std::sync::Arc;

use keyspace::{AccessClock, Freed};
use lsn::Lsn;

use super::undo::Undo;
use crate::{
    Interests, Session, event::Events, long_units::HeldSlots, stats::WorkerStats, tracking::Invalidations,
};

/// Effects buffers above this are given back after the unit that needed them.
const EFFECTS_BYTES_KEPT: usize = 1 << 20;

/// What the units of one worker work with, one after the other.
pub(crate) struct Scratch {
    pub(super) effects: Vec<u8>,
    /// What was detached.
    pub freed: Freed,
    /// The memory of an undo that has ended.
    pub(super) undo: Option<Box<Undo>>,
    /// Counts hits and misses.
    pub stats: Arc<WorkerStats>,
    /// Learn of changes.
    pub interests: Arc<Interests>,
    /// What clients that track must be told.
    pub(crate) invalidations: Invalidations,
    /// Takes the events.
    pub events: Events,
    /// Where its units show which slots they hold, if others are to see that.
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

    /// A unit has ended: what it tells others is told once `shown` is durable, in the name of this client.
    #[inline]
    pub(crate) fn seal(&mut self, client_id: u64, shown: Lsn) {
        self.effects.clear();
        if self.effects.capacity() > EFFECTS_BYTES_KEPT {
            self.effects = Vec::new();
        }
        self.events.seal(shown);
        if !self.invalidations.is_empty() {
            self.invalidations.sign(client_id, shown);
        }
    }
}

/// When a unit runs, and what its reads do.
pub(crate) struct UnitAccess {
    pub clock: AccessClock,
    /// See [`Unit::as_of_ms`](crate::Unit::as_of_ms).
    pub as_of_ms: u64,
    /// Whether reads renew access stamps.
    pub(crate) touches: bool,
}

impl UnitAccess {
    /// Of a unit of the server's own.
    pub fn own(clock: AccessClock) -> UnitAccess {
        UnitAccess { as_of_ms: clock.now_ms, clock, touches: false }
    }

    /// Of a unit of this client.
    #[inline]
    pub fn of(session: &Session, clock: AccessClock) -> UnitAccess {
        let touches = !session.no_touch && !session.is_import_source;
        UnitAccess { as_of_ms: session.as_of_ms(clock.now_ms), clock, touches }
    }
}
