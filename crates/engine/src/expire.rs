//! Active expiry: removing what has expired and is not looked at any more, each slot with one logged record.
//!
//! A key that has expired is invisible at once, whether or not it has been removed; this only frees its memory. While another
//! server is copied here (CLIENT IMPORT-SOURCE), nothing is removed: that server says what has expired.

use keyspace::SlotId;
use storage::Admission;

use crate::{Executor, Host, observe::LatencyEvent};

/// Keys removed under one slot's lock at most.
const KEYS_PER_SLOT_MAX: usize = 64;

impl Executor {
    /// Removes expired keys from the slots `from..=to`, at most about `keys_max`. Returns how many; stops early when the
    /// log cannot take more.
    pub fn expire_due(&mut self, from: SlotId, to: SlotId, keys_max: usize, host: &dyn Host) -> usize {
        // A replica is told by its leader what is removed.
        if self.read_only || host.clients().has_import_source() {
            return 0;
        }
        let keyspace = self.keyspace().clone();
        let (now_ms, started_us) = (self.now_ms(), host.monotonic_us());
        let mut removed = 0;
        for slot in keyspace.due_slots(now_ms, from, to) {
            if removed >= keys_max || self.admit(0) != Admission::Go {
                break;
            }
            // The slot of a script has its turn when the script has ended.
            let _ = self.run_on_slot(slot, host, |unit| removed += unit.bury_due(KEYS_PER_SLOT_MAX));
        }
        self.stats().expired(removed as u64);
        let usec = host.monotonic_us().saturating_sub(started_us);
        host.observer().latency.took(LatencyEvent::ExpireCycle, usec, now_ms);
        removed
    }
}
