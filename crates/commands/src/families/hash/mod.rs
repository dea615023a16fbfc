//! Hashes: fields with values at one key.
//!
//! What it is: the commands on values of type hash. What it is not: how hashes lie in memory (see `keyspace`).
//!
//! Invariants
//! - A field that has expired is absent for every command, whether or not it has been removed.

mod get;
mod number;
mod set;

use keyspace::{EntryRef, HashView, View};

use crate::{CommandError, Family, Flags, Keys, Row};

/// The hash at a key, if there is one.
///
/// # Errors
/// If the key holds another type.
#[inline]
fn hash(entry: Option<EntryRef<'_>>) -> Result<Option<HashView<'_>>, CommandError> {
    match entry.map(|entry| entry.view()) {
        None => Ok(None),
        Some(View::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(CommandError::WrongType),
    }
}

const WRITE_FAST: Flags = Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST);
/// Changes a hash without making it larger.
const SHRINK_FAST: Flags = Flags::WRITE.or(Flags::FAST);

/// What most commands on one hash have in common.
const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: Flags::READONLY.or(Flags::FAST),
    keys: Keys::First,
    family: Family::Hash,
    since: "2.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: get::hget,
    subcommands: &[],
};

/// What commands that reply with a whole hash have in common.
const WHOLE: Row = Row { flags: Flags::READONLY, complexity: "O(N) where N is the size of the hash.", ..ROW };

/// The commands.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "hset",
        arity: -4,
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of fields given.",
        summary: "Sets fields of a hash and replies with how many are new.",
        syntax: "key field value [field value ...]",
        handler: set::hset,
        ..ROW
    },
    Row {
        name: "hmset",
        arity: -4,
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of fields given.",
        summary: "Sets fields of a hash.",
        syntax: "key field value [field value ...]",
        handler: set::hmset,
        ..ROW
    },
    Row {
        name: "hsetnx",
        arity: 4,
        flags: WRITE_FAST,
        summary: "Sets a field of a hash unless it exists.",
        syntax: "key field value",
        handler: set::hsetnx,
        ..ROW
    },
    Row {
        name: "hdel",
        arity: -3,
        flags: SHRINK_FAST,
        complexity: "O(N) where N is the number of fields given.",
        summary: "Removes fields from a hash.",
        syntax: "key field [field ...]",
        handler: set::hdel,
        ..ROW
    },
    Row {
        name: "hget",
        arity: 3,
        summary: "Replies with the value of a field.",
        syntax: "key field",
        handler: get::hget,
        ..ROW
    },
    Row {
        name: "hmget",
        arity: -3,
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the values of fields.",
        syntax: "key field [field ...]",
        handler: get::hmget,
        ..ROW
    },
    Row {
        name: "hexists",
        arity: 3,
        summary: "Tells whether a hash has a field.",
        syntax: "key field",
        handler: get::hexists,
        ..ROW
    },
    Row {
        name: "hstrlen",
        arity: 3,
        since: "3.2.0",
        summary: "Replies with the length of the value of a field, in bytes.",
        syntax: "key field",
        handler: get::hstrlen,
        ..ROW
    },
    Row { name: "hlen", summary: "Replies with the number of fields.", handler: get::hlen, ..ROW },
    Row { name: "hgetall", summary: "Replies with all fields and values.", handler: get::hgetall, ..WHOLE },
    Row { name: "hkeys", summary: "Replies with all fields.", handler: get::hkeys, ..WHOLE },
    Row { name: "hvals", summary: "Replies with all values.", handler: get::hvals, ..WHOLE },
    Row {
        name: "hincrby",
        arity: 4,
        flags: WRITE_FAST,
        summary: "Adds to the integer in a field, which is 0 if it does not exist.",
        syntax: "key field increment",
        handler: number::hincrby,
        ..ROW
    },
    Row {
        name: "hincrbyfloat",
        arity: 4,
        flags: WRITE_FAST,
        since: "2.6.0",
        summary: "Adds to the number in a field, which is 0 if it does not exist.",
        syntax: "key field increment",
        handler: number::hincrbyfloat,
        ..ROW
    },
];
