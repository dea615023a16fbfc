//! The identity of a replica, independent of its address: 16 random bytes, kept in its data directory. The
//! process of a replica has an identity as well, which a restart changes.

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

/// The id of a process: a random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(u64);

impl ProcessId {
    /// The id with this number, which the server draws at random when its process starts.
    pub const fn new(number: u64) -> ProcessId {
        ProcessId(number)
    }

    /// Parses the output of [`Display`](fmt::Display); `None` if it is invalid.
    pub fn parse(text: &[u8]) -> Option<ProcessId> {
        digits::parse_u64(text).map(ProcessId)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&digits::of_u64(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_shown_as_it_is_parsed() {
        let id = ReplicaId::new(std::array::from_fn(|index| index as u8 * 17));
        let text = id.to_string();
        assert_eq!(text, "00112233445566778899aabbccddeeff");
        assert_eq!(ReplicaId::parse(text.as_bytes()), Some(id));
        assert_eq!(ReplicaId::parse(&text.as_bytes()[1..]), None);
        assert_eq!(format!("{id:?}"), format!("ReplicaId({text})"));
    }
}
