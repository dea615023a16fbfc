//! Leases: keys that a connection holds until it releases them, their deadline passes, something else changes
//! them, or the connection closes.
//!
//! ```text
//! LEASE:    lock slot  -> free or own? -> put -> watch -> record -> unlock     token: position + reign
//! on close: lock slots -> unchanged?   -> delete       -> record -> unlock
//! ```
//!
//! This module has the leases of a session, and their release when the connection has closed. The commands
//! are in `commands::lease`.
//! A leased key is an ordinary string, whose value is the owner, with a deadline. Snapshots, replicas and
//! expiry know nothing of leases.
//!
//! Invariants
//! - A key is released only if it has not changed since this connection leased it last: the lease watches the
//!   key as WATCH does. Another client that renews the lease, sets the key, or removes it has taken the key
//!   over.
//! - The token is the position of the record that grants the lease plus the reign of the log
//!   (`storage::Log::token`). So the token is greater than the tokens that earlier records of this log grant,
//!   and differs from a token that another leader grants at the same position.
//! - The leases of a server that crashes, or loses the lead, end at their deadlines, also on the server that
//!   leads next.

use std::collections::BTreeMap;

use keyspace::{DbId, KeyOp, slot_of};

use crate::{CommandError, EventClass, Unit, Watches, unit::Slots};

/// The maximum number of leases of one connection: they are released as one record, with all their slots
/// locked.
pub const LEASES_MAX: usize = 1024;

/// The placeholder of a token in a reply.
pub const NO_TOKEN: &[u8] = b":0\r\n";

/// The leases of a session, each with a watch that detects changes of its key.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<(DbId, Box<[u8]>), Watches>,
}

impl Leases {
    /// Checks that one more key can be leased. If there are too many leases, drops those whose keys have
    /// changed.
    ///
    /// # Errors
    /// There are [`LEASES_MAX`] leases on keys of which no change was reported.
    pub fn require_room(&mut self, db: DbId, key: &[u8]) -> Result<(), CommandError> {
        if self.held.len() < LEASES_MAX || self.held.contains_key(&(db, key.into())) {
            return Ok(());
        }
        self.held.retain(|_, watch| !watch.is_told());
        if self.held.len() < LEASES_MAX {
            return Ok(());
        }
        Err(CommandError::Text("ERR this connection holds too many leases"))
    }

    /// Adds a lease on a key, whose slot `unit` has locked.
    pub fn hold(&mut self, unit: &Unit<'_>, db: DbId, key: &[u8]) {
        let mut watch = Watches::default();
        watch.add(unit, db, key);
        self.held.insert((db, key.into()), watch);
    }

    /// Removes the lease on a key.
    pub fn forget(&mut self, db: DbId, key: &[u8]) {
        self.held.remove(&(db, key.into()));
    }

    /// Whether the session holds no lease.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Forgets all leases: their keys stay until their deadlines.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }

    pub(crate) fn slots(&self) -> Slots {
        self.held.keys().map(|(_, key)| slot_of(key)).collect()
    }

    /// Deletes the keys whose leases are still unbroken. The slots of all these keys must be locked.
    pub(crate) fn release(&mut self, unit: &mut Unit<'_>) {
        for ((db, key), watch) in std::mem::take(&mut self.held) {
            if !watch.is_broken(unit) {
                unit.apply(&KeyOp::Delete.on(db, &key));
                unit.notify(EventClass::GENERIC, "leaselost", db, &key);
            }
        }
    }
}
