//! A topic (a channel, a shard channel, a durable channel or a pattern) as one shared allocation.
//!
//! Invariants
//! - Two topics are the same only if they are the same allocation, because a name may have a retired topic
//!   and a newer one.

use std::{fmt, ptr};

use triomphe::ThinArc;

use crate::presence::Presence;

/// A name with its hash, computed once per command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u32,
}

#[derive(Debug)]
struct Head {
    presence: Presence,
    hash: u32,
}

/// A name and its presence. A `Topic` takes 8 bytes; a clone counts a reference.
#[derive(Clone)]
pub(crate) struct Topic(ThinArc<Head, u8>);

impl Topic {
    pub(crate) fn new(name: Name<'_>) -> Topic {
        Topic(ThinArc::from_header_and_slice(Head { presence: Presence::new(), hash: name.hash }, name.bytes))
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.0.slice
    }

    /// The workers with subscribers, and the counts.
    pub(crate) fn presence(&self) -> &Presence {
        &self.0.header.header.presence
    }

    /// The 64-bit hash for tables.
    pub(crate) fn hash(&self) -> u64 {
        spread(self.0.header.header.hash)
    }

    /// The hash of its [`Name`].
    pub(crate) fn half_hash(&self) -> u32 {
        self.0.header.header.hash
    }

    pub(crate) fn has_name(&self, name: &Name<'_>) -> bool {
        self.0.header.header.hash == name.hash && self.name() == name.bytes
    }

    /// The address of the topic in memory, which identifies it.
    pub(crate) fn address(&self) -> usize {
        self.0.ptr().addr()
    }

    /// Whether both are the same allocation.
    pub(crate) fn is(&self, other: &Topic) -> bool {
        ptr::eq(self.0.ptr(), other.0.ptr())
    }
}

impl Name<'_> {
    /// The 64-bit hash for tables.
    pub(crate) fn hash(&self) -> u64 {
        spread(self.hash)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({})", self.name().escape_ascii())
    }
}

/// Spreads a 32-bit hash to 64 bits. 32 bits distinguish names well enough, but tables also use the upper
/// bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
