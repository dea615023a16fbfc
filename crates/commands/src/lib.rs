//! The commands of Redis and of Sheaf: each family is a module, with the handlers of its commands and one row
//! of the table per command.
//!
//! ```text
//! args -> row (TABLE) -> the engine checks and locks -> handler: validate, apply effects, write the reply
//!      -> the engine logs
//! ```
//!
//! What it is: the meaning of each command.
//! What it is not: how commands are locked, logged and answered; `engine` does that with the [`table`] that
//! it is given. The crate owns no socket, thread, clock or file.
//!
//! Invariants
//! - A handler that returns an error has changed no data. The exception is a script that fails: its changes
//!   may stay ([`engine::CommandError::Replied`]).
//! - A handler changes keys by effects only ([`engine::Unit::apply`]).

#![forbid(unsafe_code)]

mod acl;
mod bitmap;
mod channels;
mod cluster;
mod connection;
mod database;
mod deadline;
mod documents;
mod expiry_condition;
mod expiry_option;
mod generic;
mod geo;
mod group;
mod hash;
mod help;
mod hyperloglog;
mod idempotence;
mod lease;
mod list;
mod replication;
mod sample;
mod scan;
mod scripts;
mod sentinel;
mod server;
mod set;
mod sort;
mod stream;
mod string;
mod timeout;
mod transactions;
mod zset;

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod testing;

use std::sync::LazyLock;

use engine::{
    CommandError, Row,
    row::{CommandTable, ResolvedCommand},
};
use keyspace::Items;
use smallvec::SmallVec;
use wire::Args;

pub use generic::{encode_value, stream_effect};
pub use sentinel::{SentinelEvent, SentinelEvents};

/// Arguments that are passed on to an effect; up to 16 need no allocation.
type Slices<'a> = SmallVec<[&'a [u8]; 16]>;

/// Gathers arguments for an effect. The caller provides `slices`, because a returned array of this size would
/// be moved, which would cost as much as its use.
#[inline]
fn gather<'s, 'a>(args: Args<'a>, slices: &'s mut Slices<'a>) -> Items<'s> {
    // Pushing the arguments one by one would take longer: each push waits for the length that the previous
    // push has stored.
    slices.extend(args.iter());
    Items::Slices(slices)
}

/// An upper bound of the bytes that one effect takes in a record if it consists of these arguments: a key,
/// and names or values.
fn effect_bytes_max(args: Args<'_>) -> u64 {
    /// The opcode, the database, a deadline.
    const HEADER_BYTES: usize = 16;
    /// The maximum bytes of the number that gives the length of an element.
    const LENGTH_BYTES: usize = 5;
    (HEADER_BYTES + args.size_bytes() + (args.len() + 1) * LENGTH_BYTES) as u64
}

/// The Redis version that clients see: commands and error texts are compatible with this version.
pub const REDIS_VERSION: &str = "7.2.4";

/// The rows of every family.
const FAMILIES: &[&[Row]] = &[
    acl::ROWS,
    bitmap::ROWS,
    channels::ROWS,
    cluster::ROWS,
    connection::ROWS,
    documents::ROWS,
    generic::ROWS,
    geo::ROWS,
    group::ROWS,
    hash::ROWS,
    hyperloglog::ROWS,
    idempotence::ROWS,
    lease::ROWS,
    list::ROWS,
    list::BLOCKING_ROWS,
    replication::ROWS,
    scripts::ROWS,
    sentinel::ROWS,
    server::ROWS,
    set::ROWS,
    sort::ROWS,
    stream::ROWS,
    string::ROWS,
    transactions::ROWS,
    zset::ROWS,
    zset::BLOCKING_ROWS,
];

static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(FAMILIES));

/// The table of all commands.
pub fn table() -> &'static CommandTable {
    &TABLE
}

/// All rows, subcommands directly after their container.
pub fn rows() -> &'static [&'static Row] {
    table().rows()
}

/// The row of the top-level command with this name, in upper or lower case.
pub fn resolve(name: &[u8]) -> Option<&'static Row> {
    table().resolve(name)
}

/// Whether `args[index]` is a secret of an inner call: `args` are those of a command that runs another one,
/// whose name is `args[start]`.
fn is_secret_of_call(args: Args<'_>, start: usize, index: usize) -> bool {
    let Some(inner) = index.checked_sub(start).filter(|_| index < args.len()) else { return false };
    let call = args.skip(start);
    resolve_call(call).is_ok_and(|found| (found.row.treatment.is_secret)(call, inner))
}

/// See [`CommandTable::resolve_call`].
pub(crate) fn resolve_call(args: Args<'_>) -> Result<ResolvedCommand, CommandError> {
    table().resolve_call(args)
}

/// See [`engine::row::wrapped()`].
pub(crate) fn wrapped(args: Args<'_>) -> Result<(ResolvedCommand, Args<'_>), CommandError> {
    engine::row::wrapped(table(), args)
}
