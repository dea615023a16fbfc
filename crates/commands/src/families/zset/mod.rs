//! Sorted sets: members ordered by score at one key.
//!
//! What it is: the commands on values of type zset. What it is not: how sorted sets lie in memory (see `keyspace`).
//!
//! Invariants
//! - No score is NaN: what gives none is refused, or is 0 where Redis says so.
//! - Members that are removed by where they are, and those that are popped, are logged as ranks.

mod add;
mod get;
mod pop;
mod random;
mod range;
mod remove;
mod reply;
mod rows;
mod scan;
mod span;
mod store;

use keyspace::{EntryRef, View, ZsetView};
use wire::Args;

use crate::{CommandError, row::counted_keys};

pub(crate) use rows::ROWS;

/// The sorted set at a key, if there is one.
///
/// # Errors
/// If the key holds another type.
#[inline]
fn zset(entry: Option<EntryRef<'_>>) -> Result<Option<ZsetView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Zset(zset)) => Ok(Some(zset)),
        Some(_) => Err(CommandError::WrongType),
    }
}

/// The keys that the number at `at` counts, and what follows them; `None` if there are not so many.
fn counted(args: Args<'_>, at: usize) -> Option<(Args<'_>, Args<'_>)> {
    let keys = counted_keys(args, at)?;
    Some((args.skip(keys.start).take(keys.len()), args.skip(keys.end)))
}
