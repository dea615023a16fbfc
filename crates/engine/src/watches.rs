//! The keys that one client watches (WATCH, LEASE), from the side of the client. The registry of all clients
//! is in `interest`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use keyspace::DbId;

use crate::{
    CommandError, Unit,
    interest::{Interest, Interests},
};

const WATCHED_KEYS_MAX: usize = 1 << 16;

/// The keys that a client watches (WATCH), or the key of one lease. Dropping this value ends the watches.
#[derive(Debug, Default)]
pub struct Watches {
    watching: Option<Box<Watching>>,
}

#[derive(Debug)]
struct Watching {
    interests: Arc<Interests>,
    broken: Arc<AtomicBool>,
    /// Whether each key existed when it began to be watched.
    keys: BTreeMap<(DbId, Box<[u8]>), bool>,
}

impl Watches {
    /// Checks that this many more keys can be watched.
    ///
    /// # Errors
    /// There would be more than [`WATCHED_KEYS_MAX`].
    pub fn require_room(&self, more: usize) -> Result<(), CommandError> {
        if self.len() + more > WATCHED_KEYS_MAX {
            return Err(CommandError::Text("ERR too many watched keys"));
        }
        Ok(())
    }

    /// Watches a key, whose slot `unit` has locked; no effect if it is already watched.
    pub fn add(&mut self, unit: &Unit<'_>, db: DbId, key: &[u8]) {
        let watching = self.watching.get_or_insert_with(|| {
            Box::new(Watching {
                interests: unit.interests().clone(),
                broken: Arc::default(),
                keys: BTreeMap::new(),
            })
        });
        let id = (db, key.into());
        if watching.keys.contains_key(&id) {
            return;
        }
        let seen_alive = unit.exists(db, key);
        watching.interests.register(key, Interest { db, seen_alive, broken: watching.broken.clone() });
        watching.keys.insert(id, seen_alive);
    }

    /// The watched keys, without their databases.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.watching.iter().flat_map(|watching| watching.keys.keys()).map(|(_, key)| &**key)
    }

    /// Whether a change of a watched key was reported. Does not notice keys that have expired but are not
    /// removed.
    pub fn is_told(&self) -> bool {
        self.watching.as_ref().is_some_and(|watching| watching.broken.load(Relaxed))
    }

    /// Whether a watched key has changed or expired. `unit` has locked the slots of all watched keys.
    pub fn is_broken(&self, unit: &Unit<'_>) -> bool {
        self.watching.as_ref().is_some_and(|watching| {
            let mut seen_alive = watching.keys.iter().filter(|(_, seen_alive)| **seen_alive);
            watching.broken.load(Relaxed) || seen_alive.any(|((db, key), _)| !unit.exists(*db, key))
        })
    }

    /// Notes a watch on a key that cannot be read now: EXEC will fail as if the key had changed.
    pub(crate) fn add_unseen(&mut self, interests: &Arc<Interests>) {
        let new = || Watching { interests: interests.clone(), broken: Arc::default(), keys: BTreeMap::new() };
        let watching = self.watching.get_or_insert_with(|| Box::new(new()));
        watching.broken.store(true, Relaxed);
    }

    /// The number of watched keys.
    pub fn len(&self) -> usize {
        self.watching.as_ref().map_or(0, |watching| watching.keys.len())
    }

    /// Whether no key is watched and no watch is broken.
    pub fn is_empty(&self) -> bool {
        self.watching.is_none()
    }

    /// Ends all watches, also those that are broken.
    pub fn clear(&mut self) {
        self.watching = None;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        for (db, key) in self.keys.keys() {
            self.interests.withdraw(*db, key, &self.broken);
        }
    }
}
