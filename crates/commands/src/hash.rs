//! Hashes: fields with values at one key.
//!
//! The memory layout of hashes is in `keyspace`.
//!
//! Invariants
//! - An expired field is absent for the commands here, whether or not it has been removed, unless the client
//!   is an import source (CLIENT IMPORT-SOURCE). The exception is HLEN, which counts an expired field until
//!   the field is removed.

mod expiry;
mod get;
mod number;
mod rows;
mod set;
mod walk;

use engine::CommandError;
use keyspace::{EntryRef, HashView, View};
pub(crate) use rows::ROWS;

/// The hash at a key; `None` if the key is absent.
///
/// # Errors
/// The key holds another type.
#[inline]
fn hash(entry: Option<EntryRef<'_>>) -> Result<Option<HashView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(CommandError::WrongType),
    }
}
