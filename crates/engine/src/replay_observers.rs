//! The clients that WATCH or cache keys while the changes of another server are applied.
//!
//! This module does, for the replay of records, the part of a unit of commands that reports changes to
//! interested clients. It is not for clients that wait for elements: a replica has none, as they would take
//! them. Nor is it for keyspace events: their names belong to commands, which a record does not hold.

use std::sync::Arc;

use keyspace::{Effect, slot_of};
use lsn::Lsn;

use crate::{
    Host,
    interest::{Change, Interests},
    tracking::{BY_SERVER, Invalidations},
};

/// Reports applied effects to the clients that watch or cache keys.
pub struct ReplayObservers {
    interests: Arc<Interests>,
    invalidations: Invalidations,
}

impl ReplayObservers {
    /// For the workers that share these interests.
    pub fn new(interests: Arc<Interests>) -> ReplayObservers {
        ReplayObservers { interests, invalidations: Invalidations::default() }
    }

    /// Reports an applied effect. Called under the locks of its slots.
    #[inline]
    pub fn saw(&mut self, effect: &Effect<'_>) {
        if self.interests.any() {
            self.note(effect);
        }
    }

    #[cold]
    fn note(&mut self, effect: &Effect<'_>) {
        let tracking = self.interests.tracking();
        let keys = match (*effect, effect.target()) {
            (Effect::Move { db, key, to_db, to_key }, _) => [Some((db, key)), Some((to_db, to_key))],
            (_, Some(target)) => [Some(target), None],
            (_, None) => {
                self.interests.report_all();
                return tracking.all_changed(&mut self.invalidations);
            }
        };
        for (db, key) in keys.into_iter().flatten() {
            let slot = slot_of(key);
            self.interests.report(slot, db, key, Change::Value);
            tracking.changed(slot, key, &mut self.invalidations);
        }
    }

    /// Pushes the gathered invalidations to the clients that cache keys.
    pub fn tell(&mut self, host: &Host) {
        if !self.invalidations.is_empty() {
            let mut invalidations = std::mem::take(&mut self.invalidations);
            // Applied records are durable already.
            invalidations.sign(BY_SERVER, Lsn::ZERO);
            invalidations.publish(self.interests.tracking(), &host.clients);
        }
    }
}
