//! Strings: bytes, counters and parts of strings.
//!
//! Commands on keys of any type are in `generic`.
//!
//! Invariants
//! - A command that replaces a value logs a Put, which also states the expiry.
//! - APPEND and SETRANGE lengthen no string beyond `bulk_bytes_max`.

mod compare;
mod get;
mod lcs;
mod many;
mod number;
mod range;
mod rows;
mod set;

use engine::CommandError;
use keyspace::EntryRef;
pub(crate) use rows::ROWS;

/// The string in an entry.
///
/// # Errors
/// The entry holds another type.
#[inline]
pub(super) fn string(entry: EntryRef<'_>) -> Result<&[u8], CommandError> {
    entry.string().ok_or(CommandError::WrongType)
}
