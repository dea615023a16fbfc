//! What a replica calls itself, wherever it connects from: 16 random bytes, kept in its directory.

use std::fmt;

use crate::hex;

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId([u8; 16]);

impl ReplicaId {
    /// The id of these bytes.
    pub const fn new(bytes: [u8; 16]) -> ReplicaId {
        ReplicaId(bytes)
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &[u8]) -> Option<ReplicaId> {
        hex::parse_bytes(text).map(ReplicaId)
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::of_bytes(&self.0))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}
