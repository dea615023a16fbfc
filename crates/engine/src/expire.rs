//! Active expiry: removes keys, and fields of hashes, whose time is over, with one record per slot.
//!
//! An expired key is invisible at once, whether or not it has been removed; active expiry frees its memory
//! and reports the event. While a client imports another server's data (CLIENT IMPORT-SOURCE), that client
//! still sees expired keys and nothing is removed: the other server decides which keys have expired. While
//! clients are paused (CLIENT PAUSE), nothing is removed either.

use keyspace::SlotId;
use storage::Admission;

use crate::{Executor, Host, observe::LatencyEvent};

/// About the maximum number of keys, and of fields, removed under one slot's lock.
const KEYS_PER_SLOT_MAX: usize = 64;

impl Executor {
    /// Removes expired keys and fields from the slots `from..=to`, at most about `keys_max` keys. Returns how
    /// many keys. Stops early when the log cannot take more.
    pub fn expire_due(&mut self, from: SlotId, to: SlotId, keys_max: usize, host: &Host) -> usize {
        // On a replica, the leader's log removes expired keys.
        if self.rules.keeps_all() || host.clients.has_import_source() || self.rules.pause.is_some() {
            return 0;
        }
        let keyspace = self.keyspace().clone();
        let (now_ms, started_us) = (self.now_ms(), host.monotonic_us());
        let mut removed = 0;
        for slot in keyspace.due_slots(now_ms, from, to) {
            if removed >= keys_max || self.admit(0) != Admission::Go {
                break;
            }
            // A slot that a long unit holds is skipped; a later cycle handles it.
            let _ = self.run_on_slot(slot, host, |unit| removed += unit.remove_due(KEYS_PER_SLOT_MAX));
        }
        let usec = host.monotonic_us().saturating_sub(started_us);
        host.observer.latency.took(LatencyEvent::ExpireCycle, usec, now_ms);
        removed
    }
}
