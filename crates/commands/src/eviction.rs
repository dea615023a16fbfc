//! Making room under `maxmemory`: evicting sampled keys, each with a logged delete.
//!
//! Eviction is not expiry: it removes live keys because memory is short. Commands that only free memory
//! never come here.

use keyspace::{Effect, EvictionPolicy};

use crate::{CommandError, EventClass, Executor, Host, observe::LatencyEvent};

/// Keys evicted for one command at most: a command frees more than it adds, without stopping the worker for long.
const EVICTIONS_MAX: usize = 64;

impl Executor {
    /// Evicts until the data fits the limit, or says that it cannot.
    #[inline]
    pub(crate) fn make_room(&mut self, host: &dyn Host) -> Result<(), CommandError> {
        let limits = self.limits;
        if limits.memory_bytes_max == 0 || self.keyspace().bytes() <= limits.memory_bytes_max {
            return Ok(());
        }
        let started_us = host.monotonic_us();
        let made = self.evict_some();
        let usec = host.monotonic_us().saturating_sub(started_us);
        host.observer().latency.took(LatencyEvent::EvictionCycle, usec, self.now_ms());
        made
    }

    fn evict_some(&mut self) -> Result<(), CommandError> {
        let limits = self.limits;
        for _ in 0..EVICTIONS_MAX {
            if limits.policy == EvictionPolicy::NoEviction || !self.evict_one(limits.policy, limits.samples) {
                return Err(CommandError::OutOfMemory);
            }
            if self.keyspace().bytes() <= limits.memory_bytes_max {
                return Ok(());
            }
        }
        Err(CommandError::OutOfMemory)
    }

    fn evict_one(&mut self, policy: EvictionPolicy, samples: usize) -> bool {
        let keyspace = self.keyspace().clone();
        let clock = self.next_clock();
        let seed = u64::from(clock.random);
        let Some(victim) = keyspace.sample_for_eviction(seed, samples, policy, clock.now_ms) else {
            return false;
        };
        self.run_on_slot(keyspace::slot_of(&victim.key), |unit| {
            unit.apply(&Effect::Delete { db: victim.db, key: &victim.key });
            unit.notify(EventClass::EVICTED, "evicted", victim.db, &victim.key);
        });
        self.stats().evicted();
        true
    }
}
