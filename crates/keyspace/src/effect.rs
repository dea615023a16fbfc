//! Effects: the only way data changes, and what a log record carries.
//!
//! What it is: deterministic changes (after-images or operations on one key, absolute expiry times) and their
//! compact encoding. Applying the same effects in the same order gives the same data: live, in recovery, on a
//! replica.
//! What it is not: a command. Conditions (NX, XX, types, limits) were decided before an effect was made.
//!
//! Invariants
//! - An effect touches one slot (`Scope::Slot`) or all of them (`Scope::Global`).
//! - Applying never fails. `Delete` and `SetExpiry` on an absent key do nothing; `Append` and `SetRange` on
//!   an absent key create it. An expired but not yet deleted key is present for all of them: whoever makes an
//!   effect that relies on the key's absence deletes it first.
//! - Decoding arbitrary bytes never panics and never reads past them; every value has exactly one encoding.
//!
//! # Encoding
//! An effect is an opcode byte followed by the fields below; `db` is one byte 0..=15, numbers are LEB128
//! (shortest form), `bytes` is a length (LEB128) and that many bytes. A SET of a small value costs 4 bytes
//! over key and value.
//!
//! | opcode | effect | fields |
//! |--------|--------|--------|
//! | 0x00 | never used: zeroed memory does not decode | |
//! | 0x01 | Delete | db, key bytes |
//! | 0x02 | SetExpiry, to none | db, key bytes |
//! | 0x03 | SetExpiry | db, key bytes, deadline in Unix ms |
//! | 0x10 | Put of a string that never expires | db, key bytes, value bytes |
//! | 0x11 | Put of a string | db, key bytes, value bytes, deadline in Unix ms |
//! | 0x12 | Append | db, key bytes, suffix bytes |
//! | 0x13 | SetRange | db, key bytes, offset, bytes |
//! | 0x20..=0x6f | reserved: 0x20 lists, 0x30 sets, 0x40 sorted sets, 0x50 hashes, 0x60 streams | |
//! | 0xf0 | FlushDb | db |
//! | 0xf1 | FlushAll | |
//! | 0xf2 | SwapDb | db, db |

mod codec;

use crate::id::DbId;
use crate::value::Value;

/// One deterministic change. See the module documentation for what applying does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<'a> {
    /// Creates the key or replaces it whatever its type, with its expiry.
    Put {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: Value<'a>,
        /// Unix time in milliseconds at which the key expires; `None` for never.
        expire_at_ms: Option<u64>,
    },
    /// Removes the key.
    Delete {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
    },
    /// Sets or removes the deadline of the key.
    SetExpiry {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// Unix time in milliseconds at which the key expires; `None` for never.
        expire_at_ms: Option<u64>,
    },
    /// Adds bytes to the end of a string. Keeps the expiry.
    Append {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// What is added.
        suffix: &'a [u8],
    },
    /// Overwrites part of a string, padded with zero bytes up to `offset`. Keeps the expiry.
    SetRange {
        /// Database of the key.
        db: DbId,
        /// The key.
        key: &'a [u8],
        /// Where the bytes go, in bytes from the start of the value.
        offset: u64,
        /// What is written.
        bytes: &'a [u8],
    },
    /// Removes every key of a database.
    FlushDb {
        /// The database.
        db: DbId,
    },
    /// Removes every key.
    FlushAll,
    /// Exchanges the content of two databases.
    SwapDb {
        /// One database.
        a: DbId,
        /// The other one.
        b: DbId,
    },
}

/// What an effect touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope<'a> {
    /// The slot of this key.
    Slot(&'a [u8]),
    /// Every slot.
    Global,
}

impl<'a> Effect<'a> {
    /// What the effect touches.
    #[inline]
    pub const fn scope(&self) -> Scope<'a> {
        match self {
            Effect::Put { key, .. }
            | Effect::Delete { key, .. }
            | Effect::SetExpiry { key, .. }
            | Effect::Append { key, .. }
            | Effect::SetRange { key, .. } => Scope::Slot(key),
            Effect::FlushDb { .. } | Effect::FlushAll | Effect::SwapDb { .. } => Scope::Global,
        }
    }

    /// The database of an effect on one key.
    #[inline]
    pub const fn db(&self) -> Option<DbId> {
        match *self {
            Effect::Put { db, .. }
            | Effect::Delete { db, .. }
            | Effect::SetExpiry { db, .. }
            | Effect::Append { db, .. }
            | Effect::SetRange { db, .. } => Some(db),
            Effect::FlushDb { .. } | Effect::FlushAll | Effect::SwapDb { .. } => None,
        }
    }

    /// The key of an effect on one key.
    #[inline]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self.scope() {
            Scope::Slot(key) => Some(key),
            Scope::Global => None,
        }
    }
}

/// Why bytes are not an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EffectError {
    /// The bytes end inside an effect.
    #[error("effect is cut short")]
    Truncated,
    /// No effect has this opcode.
    #[error("unknown effect opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The database number is not 0..=15.
    #[error("effect names database {0}, which does not exist")]
    UnknownDb(u8),
    /// A number is longer than it has to be or does not fit 64 bits.
    #[error("effect holds a malformed number")]
    MalformedNumber,
}

#[cfg(test)]
mod tests;
