//! The rows of the commands on strings.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{compare, get, lcs, many, number, range, set};

const READ: Flags = Flags::READONLY;
const READ_FAST: Flags = Flags::READONLY.or(Flags::FAST);
const WRITE: Flags = Flags::WRITE.or(Flags::DENYOOM);
const WRITE_BRIEF: Flags = WRITE.or(Flags::BRIEF);
const WRITE_FAST: Flags = WRITE.or(Flags::FAST);
/// Flags of commands that write and are not refused when memory is scarce.
const SHRINK_FAST: Flags = Flags::WRITE.or(Flags::FAST);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: READ_FAST,
    keys: Keys::First,
    family: Family::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: get::get,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

const KEYS_TO_THE_END: Keys = Keys::Range { first: 1, last: -1, step: 1 };

const PAIRS_TO_THE_END: Keys = Keys::Range { first: 1, last: -1, step: 2 };

pub(crate) const ROWS: &[Row] = &[
    Row { name: "get", summary: "Replies with the string at a key.", ..ROW },
    Row {
        name: "set",
        needs: Needs::found(set::usage),
        arity: -3,
        flags: WRITE_BRIEF,
        summary: "Sets a key to a string, replacing a value of any type, with optional conditions and expiry.",
        syntax: "key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
                 unix-time-milliseconds | KEEPTTL]",
        handler: set::set,
        ..ROW
    },
    Row {
        name: "setnx",
        needs: Needs::each(KeyUsage::CREATE),
        arity: 3,
        flags: WRITE_FAST,
        summary: "Sets a key to a string unless the key exists.",
        syntax: "key value",
        handler: set::setnx,
        ..ROW
    },
    Row {
        name: "setex",
        needs: Needs::each(KeyUsage::OVERWRITE),
        arity: 4,
        flags: WRITE_BRIEF,
        since: "2.0.0",
        summary: "Sets a key to a string that expires after some seconds.",
        syntax: "key seconds value",
        handler: set::setex,
        ..ROW
    },
    Row {
        name: "psetex",
        needs: Needs::each(KeyUsage::OVERWRITE),
        arity: 4,
        flags: WRITE_BRIEF,
        since: "2.6.0",
        summary: "Sets a key to a string that expires after some milliseconds.",
        syntax: "key milliseconds value",
        handler: set::psetex,
        ..ROW
    },
    Row {
        name: "getset",
        arity: 3,
        flags: WRITE_FAST,
        summary: "Sets a key to a string and replies with the string that was there.",
        syntax: "key value",
        handler: set::getset,
        ..ROW
    },
    Row {
        name: "getdel",
        needs: Needs::each(KeyUsage::READ_DELETE),
        flags: SHRINK_FAST,
        since: "6.2.0",
        summary: "Replies with the value of a string and removes the key.",
        handler: get::getdel,
        ..ROW
    },
    Row {
        name: "getex",
        arity: -2,
        flags: SHRINK_FAST,
        since: "6.2.0",
        summary: "Replies with the string at a key and sets or removes the expiry of the key.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        handler: get::getex,
        ..ROW
    },
    Row {
        name: "mget",
        arity: -2,
        keys: KEYS_TO_THE_END,
        complexity: "O(N) where N is the number of keys.",
        summary: "Replies with the strings at several keys.",
        syntax: "key [key ...]",
        handler: many::mget,
        ..ROW
    },
    Row {
        name: "mset",
        needs: Needs::each(KeyUsage::OVERWRITE),
        arity: -3,
        flags: WRITE,
        keys: PAIRS_TO_THE_END,
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys.",
        summary: "Sets several keys to strings, all at once.",
        syntax: "key value [key value ...]",
        handler: many::mset,
        ..ROW
    },
    Row {
        name: "msetnx",
        needs: Needs::each(KeyUsage::CREATE),
        arity: -3,
        flags: WRITE,
        keys: PAIRS_TO_THE_END,
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys.",
        summary: "Sets several keys to strings, all at once, unless one of them exists.",
        syntax: "key value [key value ...]",
        handler: many::msetnx,
        ..ROW
    },
    Row {
        name: "msetex",
        needs: Needs::each(KeyUsage::OVERWRITE),
        arity: -4,
        flags: WRITE,
        keys: Keys::Computed { first: None, find: many::keys_of_msetex, reads_others: |_| false },
        since: "8.4.0",
        complexity: "O(N) where N is the number of keys.",
        summary: "Sets several keys to strings, all at once, with optional conditions and expiry.",
        syntax: "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                 PXAT unix-time-milliseconds | KEEPTTL]",
        handler: many::msetex,
        ..ROW
    },
    Row {
        name: "delex",
        needs: Needs::each(KeyUsage::REMOVE),
        arity: -2,
        flags: SHRINK_FAST,
        since: "8.4.0",
        summary: "Removes a key, if its string is as expected.",
        syntax: "key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
        handler: compare::delex,
        ..ROW
    },
    Row {
        name: "delifeq",
        needs: Needs::each(KeyUsage::REMOVE),
        arity: 3,
        flags: SHRINK_FAST,
        since: "9.0.0",
        summary: "Removes a key if it holds this string.",
        syntax: "key value",
        handler: compare::delifeq,
        ..ROW
    },
    Row {
        name: "digest",
        since: "8.4.0",
        complexity: "O(N) where N is the length of the string.",
        summary: "Replies with a hash of the string at a key.",
        handler: compare::digest,
        ..ROW
    },
    Row {
        name: "incr",
        flags: WRITE_FAST,
        summary: "Adds one to the integer at a key; a missing key counts as 0.",
        handler: number::incr,
        ..ROW
    },
    Row {
        name: "decr",
        flags: WRITE_FAST,
        summary: "Subtracts one from the integer at a key; a missing key counts as 0.",
        handler: number::decr,
        ..ROW
    },
    Row {
        name: "incrby",
        arity: 3,
        flags: WRITE_FAST,
        summary: "Adds an integer to the integer at a key; a missing key counts as 0.",
        syntax: "key increment",
        handler: number::incrby,
        ..ROW
    },
    Row {
        name: "decrby",
        arity: 3,
        flags: WRITE_FAST,
        summary: "Subtracts an integer from the integer at a key; a missing key counts as 0.",
        syntax: "key decrement",
        handler: number::decrby,
        ..ROW
    },
    Row {
        name: "incrbyfloat",
        arity: 3,
        flags: WRITE_FAST,
        since: "2.6.0",
        summary: "Adds a decimal number to the one at a key; a missing key counts as 0.",
        syntax: "key increment",
        handler: number::incrbyfloat,
        ..ROW
    },
    Row {
        name: "append",
        needs: Needs::each(KeyUsage::INSERT),
        arity: 3,
        flags: WRITE_FAST,
        since: "2.0.0",
        complexity: "O(N) where N is the length of the addition; memory grows in ever larger steps.",
        summary: "Adds bytes to the end of the string at a key; a missing key counts as empty.",
        syntax: "key value",
        handler: range::append,
        ..ROW
    },
    Row {
        name: "strlen",
        needs: Needs::each(KeyUsage::EXISTENCE),
        since: "2.2.0",
        summary: "Replies with the length of the string at a key.",
        handler: range::strlen,
        ..ROW
    },
    Row {
        name: "getrange",
        arity: 4,
        flags: READ,
        since: "2.4.0",
        complexity: "O(N) where N is the length of the reply.",
        summary: "Replies with a part of the string at a key.",
        syntax: "key start end",
        handler: range::getrange,
        ..ROW
    },
    Row {
        name: "substr",
        arity: 4,
        flags: READ,
        complexity: "O(N) where N is the length of the reply.",
        summary: "Replies with a part of the string at a key; the old name of GETRANGE.",
        syntax: "key start end",
        handler: range::getrange,
        ..ROW
    },
    Row {
        name: "setrange",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: 4,
        flags: WRITE,
        since: "2.2.0",
        complexity: "O(N) where N is the number of bytes written, padding included.",
        summary: "Overwrites a part of the string at a key, padded with zero bytes if it is shorter.",
        syntax: "key offset value",
        handler: range::setrange,
        ..ROW
    },
    Row {
        name: "lcs",
        arity: -3,
        flags: READ.or(Flags::WALKS),
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        since: "7.0.0",
        complexity: "O(N*M) where N and M are the lengths of the strings, 64 pairs of bytes at a time.",
        summary: "Finds the longest common subsequence of the strings at two keys.",
        syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        handler: lcs::lcs,
        ..ROW
    },
];
