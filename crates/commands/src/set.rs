//! Sets: unordered members at one key.
//!
//! The memory layout of sets is in `keyspace`.

mod algebra;
mod combine;
mod member;
mod random;
mod rows;

use engine::CommandError;
use keyspace::{EntryRef, SetView, View};
pub(crate) use rows::ROWS;

/// The set at a key; `None` if the key is absent.
///
/// # Errors
/// The key holds another type.
#[inline]
fn set(entry: Option<EntryRef<'_>>) -> Result<Option<SetView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Set(set)) => Ok(Some(set)),
        Some(_) => Err(CommandError::WrongType),
    }
}
