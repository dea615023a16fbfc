//! The command families: each module holds the rows of its commands and their handlers.

mod bitmap;
mod channels;
mod connection;
mod database;
mod deadline;
mod documents;
mod expiry_condition;
mod expiry_option;
mod generic;
mod geo;
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
mod server;
mod set;
mod sort;
mod stream;
mod string;
mod timeout;
mod transactions;
mod zset;

pub(crate) use channels::tell;
pub(crate) use documents::named as named_document;
pub use generic::{encode_value, stream_effect};
use keyspace::Items;
use smallvec::SmallVec;
pub(crate) use stream::write_entry;
use wire::Args;

use crate::Row;

/// Arguments that are passed on to an effect; up to 16 need no allocation.
type Slices<'a> = SmallVec<[&'a [u8]; 16]>;

/// Gathers arguments for an effect in the caller's `slices`: moving an array of this size costs as much as
/// using it.
#[inline]
fn gather<'s, 'a>(args: Args<'a>, slices: &'s mut Slices<'a>) -> Items<'s> {
    // Not pushed one by one: each push would wait for the length that the previous one has stored.
    slices.extend(args.iter());
    Items::Slices(slices)
}

/// The Redis version that clients see: commands and error texts are compatible with it.
pub const REDIS_VERSION: &str = "7.2.4";

/// The rows of every family.
pub(crate) const TABLES: &[&[Row]] = &[
    bitmap::ROWS,
    channels::ROWS,
    connection::ROWS,
    documents::ROWS,
    generic::ROWS,
    geo::ROWS,
    hash::ROWS,
    hyperloglog::ROWS,
    idempotence::ROWS,
    lease::ROWS,
    list::ROWS,
    list::BLOCKING_ROWS,
    replication::ROWS,
    scripts::ROWS,
    server::ROWS,
    set::ROWS,
    sort::ROWS,
    stream::ROWS,
    string::ROWS,
    transactions::ROWS,
    zset::ROWS,
    zset::BLOCKING_ROWS,
];
