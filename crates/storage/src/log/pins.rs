//! Pins: each keeps the log from a position on, together with the snapshot that begins there, while files are
//! copied or a replica needs them.
//!
//! A *floor* keeps the log from a position on, without a snapshot, for other readers of the log
//! ([`Log::retain_from`]).
//!
//! Pins and the floor are not saved: a restart forgets them.
//!
//! Invariants
//! - When the log is forgotten or old snapshots are removed, pinned files are kept: the lock of the pins is
//!   held from the check to the removal.

use std::sync::Arc;

use lsn::Lsn;
use parking_lot::MutexGuard;

use super::{Log, LogState};

/// Keeps the log from a position on until it is dropped.
pub struct Pin {
    shared: Arc<LogState>,
    position: Lsn,
}

/// The pinned positions.
#[derive(Default)]
pub(crate) struct Pins {
    positions: Vec<Lsn>,
    floor: Option<Lsn>,
}

impl Pins {
    /// The first position that must be kept; `None` if nothing is pinned and there is no floor.
    pub(crate) fn lowest(&self) -> Option<Lsn> {
        self.positions.iter().copied().chain(self.floor).min()
    }

    /// Whether the snapshot that begins at `begin_lsn` is pinned.
    pub(crate) fn contains(&self, begin_lsn: Lsn) -> bool {
        self.positions.contains(&begin_lsn)
    }
}

impl Log {
    /// Keeps the log from `begin_lsn` on, and the snapshot that begins there, until the pin is dropped. Any
    /// position is allowed: the log is kept from the last batch boundary at or before it. `None` if that part
    /// of the log is already forgotten. A caller that needs the snapshot must check afterwards that it
    /// exists.
    pub fn pin(&self, begin_lsn: Lsn) -> Option<Pin> {
        let mut pins = self.pins();
        if begin_lsn < self.start_lsn() {
            return None;
        }
        pins.positions.push(begin_lsn);
        Some(Pin { shared: self.shared.clone(), position: begin_lsn })
    }

    /// Keeps the log from `floor` on, a batch boundary, until the next call; `None` removes the floor. Parts
    /// of the log that are already removed stay removed. Returns the previous floor.
    ///
    /// # Panics
    /// If the floor is not durable.
    pub fn retain_from(&self, floor: Option<Lsn>) -> Option<Lsn> {
        assert!(floor.is_none_or(|floor| floor <= self.durable_lsn()));
        std::mem::replace(&mut self.pins().floor, floor)
    }

    /// Locks the pins, so that none is added or released while the guard lives.
    pub(crate) fn pins(&self) -> MutexGuard<'_, Pins> {
        self.shared.pins.lock()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.shared.pins.lock();
        if let Some(index) = pins.positions.iter().position(|&position| position == self.position) {
            pins.positions.swap_remove(index);
        }
    }
}
