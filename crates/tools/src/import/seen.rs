//! The keys of a file so far, to notice a key that comes twice.
//!
//! Invariants
//! - A key takes 20 to 40 bytes, whatever its name: a fraction of the memory that the server then needs for
//!   the key.
//! - Names are compared by 128 bits of hashes: even among a quadrillion keys no two are likely to be taken
//!   for one.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Default)]
pub(super) struct Seen {
    names: HashSet<[u64; 2]>,
}

impl Seen {
    /// Adds a name in a database; returns whether the name is new there.
    pub(super) fn add(&mut self, db: u64, name: &[u8]) -> bool {
        let half = |number: u64| {
            let mut hasher = DefaultHasher::new();
            (number, db, name).hash(&mut hasher);
            hasher.finish()
        };
        self.names.insert([half(0), half(1)])
    }
}
