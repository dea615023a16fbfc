//! Leases: keys that a connection holds until it gives them back, their time is over, or it closes.
//!
//! ```text
//! LEASE:                 lock slot  -> free, or the owner's? -> put -> watch -> record -> unlock     token: position + reign
//! the connection closes: lock slots -> unchanged since then? -> delete      -> record -> unlock
//! ```
//!
//! What it is: what a session holds, and its release when the connection has gone. The commands are in `families::lease`.
//! What it is not: the key, which is an ordinary string, the owner, with a deadline. Snapshots, replicas and expiry know
//! nothing of leases.
//!
//! Invariants
//! - A key is released only if nothing has happened to it since this connection leased it last: it watches the key as WATCH
//!   does. Whoever renews the lease, sets the key, or removes it has taken it over.
//! - The token is the position of the record that grants the lease plus the reign of the log (`storage::Log::token`), so it is greater
//!   than every token of the key before, and not the same as one that another leader grants at the same position.
//! - Connections end with the server that has them. What they held ends at its deadline, also on a replica that takes over.

use std::collections::BTreeMap;

use keyspace::{DbId, Effect, slot_of};

use crate::{
    CommandError, EventClass, Executor, Host, Session, Unit, Watches,
    unit::{Locks, Patience, Slots},
};

/// Leases of one connection. They are released as one record, with the slots of all of them locked.
pub const LEASES_MAX: usize = 1024;

/// A reply that holds the place of a token.
pub const NO_TOKEN: &[u8] = b":0\r\n";

/// The leases that a session holds, each with what tells whether its key has changed.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<(DbId, Box<[u8]>), Watches>,
}

impl Leases {
    /// Whether one more can be held.
    ///
    /// # Errors
    /// There are too many.
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

    /// Holds a key from now on, whose slot `unit` has locked.
    pub fn hold(&mut self, unit: &Unit<'_>, db: DbId, key: &[u8]) {
        let mut watch = Watches::default();
        watch.add(unit, db, key);
        self.held.insert((db, key.into()), watch);
    }

    /// Holds a key no longer.
    pub fn forget(&mut self, db: DbId, key: &[u8]) {
        self.held.remove(&(db, key.into()));
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn slots(&self) -> Slots {
        self.held.keys().map(|(_, key)| slot_of(key)).collect()
    }

    /// Deletes the keys that are held still. The slots of all of them are locked.
    fn release(&mut self, unit: &mut Unit<'_>) {
        for ((db, key), watch) in std::mem::take(&mut self.held) {
            if !watch.is_broken(unit) {
                unit.apply(&Effect::Delete { db, key: &key });
                unit.notify(EventClass::GENERIC, "leaselost", db, &key);
            }
        }
    }
}

impl Executor {
    /// A client has gone: releases the leases that it holds still, as one record, within a round. Returns whether this is done;
    /// if not, the log or a slot cannot be had for the moment.
    pub fn release_leases(&mut self, session: &mut Session, host: &dyn Host) -> bool {
        if !session.holds_leases() {
            return true;
        }
        match self.admit_write(0) {
            Ok(true) if !self.read_only => {}
            Ok(false) => return false,
            // A replica by now, or a log that takes nothing: the deadlines end what is left.
            Ok(true) | Err(_) => {
                session.leases.held.clear();
                return true;
            }
        }
        let slots = session.leases.slots();
        let released = self.run_own(
            |keyspace| Locks::slots(keyspace, slots, Patience(host)),
            |unit| session.leases.release(unit),
        );
        released.is_ok()
    }
}
