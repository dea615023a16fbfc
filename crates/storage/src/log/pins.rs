//! Pins: from where on the log is kept for whoever copies its files, together with the snapshot that begins there.
//!
//! Beside them a floor: from where on the log is kept whatever its records are needed for ([`Log::retain_from`]), without a
//! snapshot.
//!
//! What it is not: known to the disk. A server that starts again has forgotten all pins.
//!
//! Invariants
//! - What is pinned is neither removed nor recycled while the pin lives: whoever removes anything holds the pins locked from
//!   the question to the deed.

use std::sync::Arc;

use lsn::Lsn;
use parking_lot::MutexGuard;

use super::{Log, Shared};

/// Keeps the log from a position on until it is dropped.
pub struct Pin {
    shared: Arc<Shared>,
    position: Lsn,
}

/// The positions that are pinned.
#[derive(Default)]
pub(crate) struct Pins {
    positions: Vec<Lsn>,
    floor: Option<Lsn>,
}

impl Pins {
    /// The first position that must be kept.
    pub(crate) fn lowest(&self) -> Option<Lsn> {
        self.positions.iter().copied().chain(self.floor).min()
    }

    /// Whether the snapshot that begins here must be kept.
    pub(crate) fn contains(&self, begin_lsn: Lsn) -> bool {
        self.positions.contains(&begin_lsn)
    }
}

impl Log {
    /// Keeps the log from `begin_lsn` on, and the snapshot that begins there, until the pin is dropped. `None` if that much
    /// of the log is forgotten already. Whether there is such a snapshot is to be looked at afterwards.
    pub fn pin(&self, begin_lsn: Lsn) -> Option<Pin> {
        let mut pins = self.pins();
        if begin_lsn < self.start_lsn() {
            return None;
        }
        pins.positions.push(begin_lsn);
        Some(Pin { shared: self.shared.clone(), position: begin_lsn })
    }

    /// Keeps the log from `floor` on, a batch boundary, till this is called again; `None`: no more of it than others need.
    /// What is removed already stays so. Returns the floor before.
    ///
    /// # Panics
    /// If the floor is not durable.
    pub fn retain_from(&self, floor: Option<Lsn>) -> Option<Lsn> {
        assert!(floor.is_none_or(|floor| floor <= self.durable_lsn()));
        std::mem::replace(&mut self.pins().floor, floor)
    }

    /// Nobody pins or lets go meanwhile.
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
