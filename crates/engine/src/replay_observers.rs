//! The clients that wait for, WATCH or cache keys while the changes of another server are applied.
//!
//! ```text
//! record of the leader: lock slots -> apply -> saw -> unlock -> after_record: serve XREAD -> next record
//! ```
//!
//! This module does, for the replay of records, the part of a unit of commands that reports changes to
//! interested clients. A replica's waiting clients only read (XREAD): a demotion ends all waits, and only
//! reads begin new ones. This module is not for keyspace events: their names belong to commands, which a
//! record does not hold.
//!
//! Invariants
//! - A waiter is served before a later record is applied: an entry that the leader removes at once is read
//!   all the same, as on the leader.
//! - An invalidation waits at the same gate as a reply that shows the same keys, under the server's
//!   durability.

use keyspace::{Effect, KeyOp, slot_of};
use lsn::Lsn;

use crate::{
    Executor, Host,
    execute::gate,
    interest::Change,
    tracking::{BY_SERVER, Invalidations},
    unit::{ReadyKeys, note_ready},
};

/// Reports applied effects to the clients that wait for, watch or cache keys.
pub struct ReplayObservers {
    /// Serves the waiters; it appends nothing to the log.
    executor: Executor,
    ready: ReadyKeys,
    invalidations: Invalidations,
    /// The position of the last applied record.
    applied: Lsn,
}

impl ReplayObservers {
    /// Observers for the workers that share the interests and the log of this executor.
    pub fn new(executor: Executor) -> ReplayObservers {
        let (ready, invalidations) = (ReadyKeys::new(), Invalidations::default());
        ReplayObservers { executor, ready, invalidations, applied: Lsn::ZERO }
    }

    /// Reports an applied effect, under the locks of its slots.
    #[inline]
    pub fn saw(&mut self, effect: &Effect<'_>) {
        if self.executor.interests().any() {
            self.note(effect);
        }
    }

    #[cold]
    fn note(&mut self, effect: &Effect<'_>) {
        let interests = self.executor.interests();
        let tracking = interests.tracking();
        interests.made_ready(effect, |db, key| note_ready(&mut self.ready, db, key));
        // A StreamPutGroup keeps the entries, but may have created the key: that is a change for watching
        // clients.
        let makes_key = matches!(effect, Effect::Key { op: KeyOp::StreamPutGroup { .. }, .. });
        if effect.keeps_entries() && !makes_key {
            return;
        }
        let keys = match (*effect, effect.target()) {
            (Effect::Move { db, key, to_db, to_key }, _) => [Some((db, key)), Some((to_db, to_key))],
            (_, Some(target)) => [Some(target), None],
            (_, None) => {
                interests.report_all();
                return tracking.all_changed(&mut self.invalidations);
            }
        };
        for (db, key) in keys.into_iter().flatten() {
            let slot = slot_of(key);
            interests.report(slot, db, key, Change::Value);
            tracking.changed(slot, key, &mut self.invalidations);
        }
    }

    /// Serves the waiters of the keys that a record has filled. The record ends at `lsn` and is applied, its
    /// slots are unlocked, and no later record is applied yet.
    #[inline]
    pub fn after_record(&mut self, lsn: Lsn, host: &Host) {
        self.applied = lsn;
        if !self.ready.is_empty() {
            self.serve(host);
        }
    }

    #[cold]
    fn serve(&mut self, host: &Host) {
        self.executor.begin_round(host.clock.unix_ms(), host, self.executor.bulk_bytes_max);
        while let Some((db, key)) = self.ready.pop_front() {
            self.executor.serve_applied(db, &key, host);
        }
        self.executor.end_round(host);
    }

    /// Pushes the gathered invalidations to the clients that cache keys.
    pub fn tell(&mut self, host: &Host) {
        if !self.invalidations.is_empty() {
            let mut invalidations = std::mem::take(&mut self.invalidations);
            invalidations.sign(BY_SERVER, gate(self.executor.durability(), false, self.applied));
            invalidations.publish(self.executor.interests().tracking(), &host.clients);
        }
    }
}
