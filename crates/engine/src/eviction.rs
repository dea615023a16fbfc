//! Making room under `maxmemory`: evicting sampled keys, each with a logged delete.
//!
//! Eviction is not expiry: it removes live keys because memory is short. Data above a lowered limit is
//! evicted without waiting for a command ([`Executor::evict_excess`]).

use keyspace::{Candidate, EvictionPolicy, KeyOp};
use storage::Admission;

use crate::{CommandError, EventClass, Executor, Host, observe::LatencyEvent, unit::LockPolicy};

/// The maximum number of keys evicted in one go: enough to free more than most commands add, without stopping
/// the worker for long.
const EVICTIONS_MAX: usize = 64;

impl Executor {
    /// Evicts some keys if the data exceeds the limit. Returns whether to call again at once: the data has
    /// become smaller, and still exceeds the limit. `false` also if the log takes nothing now, or no key
    /// could be evicted; a later call tries again.
    pub fn evict_excess(&mut self, host: &Host) -> bool {
        let (limits, bytes) = (self.rules.limits, self.keyspace().bytes());
        let is_idle = limits.memory_bytes_max == 0 || bytes <= limits.memory_bytes_max;
        if is_idle || limits.policy == EvictionPolicy::NoEviction || !self.may_evict() {
            return false;
        }
        self.make_room(host).is_err() && self.keyspace().bytes() < bytes
    }

    /// Whether the log takes the removal of a key now.
    fn may_evict(&self) -> bool {
        !self.rules.keeps_all() && self.admit(0) == Admission::Go
    }

    /// Evicts until the data fits the limit. Fails if no key may or can be evicted (always with `noeviction`,
    /// and while the log takes no removal), if the data does not fit after [`EVICTIONS_MAX`] evictions, or if
    /// a long unit holds a candidate's slot.
    #[inline]
    pub fn make_room(&mut self, host: &Host) -> Result<(), CommandError> {
        let limits = self.rules.limits;
        if limits.memory_bytes_max == 0 || self.keyspace().bytes() <= limits.memory_bytes_max {
            return Ok(());
        }
        let started_us = host.monotonic_us();
        let made = self.evict_some(host);
        let usec = host.monotonic_us().saturating_sub(started_us);
        host.observer.latency.took(LatencyEvent::EvictionCycle, usec, self.now_ms());
        made
    }

    fn evict_some(&mut self, host: &Host) -> Result<(), CommandError> {
        let limits = self.rules.limits;
        for _ in 0..EVICTIONS_MAX {
            let evicts = limits.policy != EvictionPolicy::NoEviction && self.may_evict();
            if !evicts || !self.evict_one(limits.policy, limits.samples, host)? {
                return Err(CommandError::OutOfMemory);
            }
            if self.keyspace().bytes() <= limits.memory_bytes_max {
                return Ok(());
            }
        }
        Err(CommandError::OutOfMemory)
    }

    /// Evicts a key, unless another worker removes it first; `false`: no key can be evicted. Fails if a long
    /// unit holds a slot that is needed.
    fn evict_one(
        &mut self,
        policy: EvictionPolicy,
        samples: usize,
        host: &Host,
    ) -> Result<bool, CommandError> {
        let keyspace = self.keyspace().clone();
        let clock = self.next_clock();
        let seed = u64::from(clock.random);
        let lock = |slot| LockPolicy(host).lock(&keyspace, slot);
        let Some(victim) = keyspace.sample_for_eviction(lock, seed, samples, policy, clock.now_ms)? else {
            return Ok(false);
        };
        self.evict(&victim, host).map(|_| true)
    }

    /// Evicts a key that was sampled. Returns `false` if the key is gone by now, because the slot was
    /// unlocked meanwhile. An expired key counts as expired, not as evicted.
    ///
    /// # Errors
    /// A long unit holds the slot.
    pub fn evict(&mut self, victim: &Candidate, host: &Host) -> Result<bool, CommandError> {
        let mut is_evicted = false;
        self.run_on_slot(keyspace::slot_of(&victim.key), host, |unit| {
            is_evicted = unit.exists(victim.db, &victim.key);
            unit.apply(&KeyOp::Delete.on(victim.db, &victim.key));
            if is_evicted {
                unit.notify(EventClass::EVICTED, "evicted", victim.db, &victim.key);
            }
        })?;
        if is_evicted {
            self.stats().evicted();
        }
        Ok(is_evicted)
    }
}
