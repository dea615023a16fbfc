//! The identity of a replica, independent of its address: 16 random bytes, kept in its data directory.

use std::fmt;

use crate::digits;

/// The id of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId([u8; 16]);

impl ReplicaId {
    /// An id from its bytes.
    pub const fn new(bytes: [u8; 16]) -> ReplicaId {
        ReplicaId(bytes)
    }

    /// Parses the output of [`Display`](fmt::Display); `None` if it is invalid.
    pub fn parse(text: &[u8]) -> Option<ReplicaId> {
        digits::parse_bytes(text).map(ReplicaId)
    }

    /// The bytes of the id.
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}
