//! The changes that a worker makes by itself, without a client, such as expiry and eviction.

use engine::Executor;
use keyspace::SlotId;

use super::Worker;

/// The maximum number of keys removed per run of active expiry, so that a tick stays short.
const EXPIRED_KEYS_MAX: usize = 2048;

impl Worker {
    /// Removes expired keys of the slots `from..=to`, about [`EXPIRED_KEYS_MAX`] at most, and expired fields
    /// of their hashes.
    pub(super) fn expire(&self, from: SlotId, to: SlotId) {
        if self.log.get().is_some() {
            self.run_own(|executor| executor.expire_due(from, to, EXPIRED_KEYS_MAX, &self.host));
        }
    }

    /// Evicts keys while the data exceeds `maxmemory` and keys can be evicted. Connections are served between
    /// the steps.
    pub(super) async fn evict_excess(&self) {
        while self.log.get().is_some() && self.run_own(|executor| executor.evict_excess(&self.host)) {
            tokio::task::yield_now().await;
        }
    }

    /// Runs changes of the server's own as one round.
    pub(super) fn run_own<R>(&self, run: impl FnOnce(&mut Executor) -> R) -> R {
        let mut executor = self.executor.borrow_mut();
        executor.begin_round(
            self.parts.clock.unix_ms(),
            &self.host,
            self.parts.config.hot().bulk_bytes_max(),
        );
        let outcome = run(&mut executor);
        executor.end_round(&self.host);
        // If no connection runs a round, no other code would pass these values to the reaper.
        self.reap(&mut executor);
        if self.tick.borrow_mut().after_own_changes(&mut executor) {
            self.wake_up.notify_one();
        }
        outcome
    }

    /// Passes detached values to the reaper, which frees them on its own thread.
    pub(super) fn reap(&self, executor: &mut Executor) {
        if let Some(freed) = executor.take_freed() {
            self.reaper.free(freed);
        }
    }
}
