//! The rows of the commands on hashes.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{expiry, get, number, set, walk};

const WRITE_FAST: Flags = Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST);
/// Flags of commands that write and are not refused when memory is scarce.
const SHRINK_FAST: Flags = Flags::WRITE.or(Flags::FAST);

/// Shared fields of the rows.
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
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the rows of commands that reply with all fields of a hash.
const WHOLE: Row = Row {
    flags: Flags::READONLY.or(Flags::WALKS),
    complexity: "O(N) where N is the size of the hash.",
    ..ROW
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "hset",
        needs: Needs::each(KeyUsage::UPDATE),
        treatment: Treatment::of_member(2),
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
        needs: Needs::each(KeyUsage::UPDATE),
        treatment: Treatment::of_member(2),
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
        needs: Needs::each(KeyUsage::INSERT),
        treatment: Treatment::of_member(2),
        arity: 4,
        flags: WRITE_FAST,
        summary: "Sets a field of a hash unless it exists.",
        syntax: "key field value",
        handler: set::hsetnx,
        ..ROW
    },
    Row {
        name: "hdel",
        needs: Needs::each(KeyUsage::DELETE),
        treatment: Treatment::of_member(2),
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
        treatment: Treatment::of_member(2),
        arity: 3,
        summary: "Replies with the value of a field.",
        syntax: "key field",
        handler: get::hget,
        ..ROW
    },
    Row {
        name: "hmget",
        treatment: Treatment::of_member(2),
        arity: -3,
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the values of fields.",
        syntax: "key field [field ...]",
        handler: get::hmget,
        ..ROW
    },
    Row {
        name: "hexists",
        needs: Needs::each(KeyUsage::EXISTENCE),
        treatment: Treatment::of_member(2),
        arity: 3,
        summary: "Tells whether a hash has a field.",
        syntax: "key field",
        handler: get::hexists,
        ..ROW
    },
    Row {
        name: "hstrlen",
        needs: Needs::each(KeyUsage::EXISTENCE),
        treatment: Treatment::of_member(2),
        arity: 3,
        since: "3.2.0",
        summary: "Replies with the length of the value of a field, in bytes.",
        syntax: "key field",
        handler: get::hstrlen,
        ..ROW
    },
    Row {
        name: "hlen",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Replies with the number of fields.",
        handler: get::hlen,
        ..ROW
    },
    Row { name: "hgetall", summary: "Replies with all fields and values.", handler: get::hgetall, ..WHOLE },
    Row { name: "hkeys", summary: "Replies with all fields.", handler: get::hkeys, ..WHOLE },
    Row { name: "hvals", summary: "Replies with all values.", handler: get::hvals, ..WHOLE },
    Row {
        name: "hincrby",
        treatment: Treatment::of_member(2),
        arity: 4,
        flags: WRITE_FAST,
        summary: "Adds to the integer in a field, which is 0 if it does not exist.",
        syntax: "key field increment",
        handler: number::hincrby,
        ..ROW
    },
    Row {
        name: "hincrbyfloat",
        treatment: Treatment::of_member(2),
        arity: 4,
        flags: WRITE_FAST,
        since: "2.6.0",
        summary: "Adds to the number in a field, which is 0 if it does not exist.",
        syntax: "key field increment",
        handler: number::hincrbyfloat,
        ..ROW
    },
    Row {
        name: "hexpire",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: SHRINK_FAST,
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Makes fields of a hash expire after some seconds.",
        syntax: "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: expiry::hexpire,
        ..ROW
    },
    Row {
        name: "hpexpire",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: SHRINK_FAST,
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Makes fields of a hash expire after some milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: expiry::hpexpire,
        ..ROW
    },
    Row {
        name: "hexpireat",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: SHRINK_FAST,
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Makes fields of a hash expire at a second of Unix time.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: expiry::hexpireat,
        ..ROW
    },
    Row {
        name: "hpexpireat",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: SHRINK_FAST,
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Makes fields of a hash expire at a millisecond of Unix time.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: expiry::hpexpireat,
        ..ROW
    },
    Row {
        name: "httl",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the seconds until fields expire.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::httl,
        ..ROW
    },
    Row {
        name: "hpttl",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the milliseconds until fields expire.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::hpttl,
        ..ROW
    },
    Row {
        name: "hexpiretime",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the Unix time in seconds at which fields expire.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::hexpiretime,
        ..ROW
    },
    Row {
        name: "hpexpiretime",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the Unix time in milliseconds at which fields expire.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::hpexpiretime,
        ..ROW
    },
    Row {
        name: "hpersist",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -5,
        flags: SHRINK_FAST,
        since: "7.4.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Removes the expiry of fields.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::hpersist,
        ..ROW
    },
    Row {
        name: "hgetdel",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -5,
        flags: SHRINK_FAST,
        since: "8.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the values of fields and removes them.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: expiry::hgetdel,
        ..ROW
    },
    Row {
        name: "hgetex",
        arity: -5,
        flags: SHRINK_FAST,
        since: "8.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Replies with the values of fields and sets or removes their expiry.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
        handler: expiry::hgetex,
        ..ROW
    },
    Row {
        name: "hsetex",
        needs: Needs::each(KeyUsage::UPDATE),
        arity: -6,
        flags: WRITE_FAST,
        since: "8.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Sets fields with an expiry, with conditions if wanted.",
        syntax: "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
        handler: expiry::hsetex,
        ..ROW
    },
    Row {
        name: "hrandfield",
        arity: -2,
        flags: Flags::READONLY,
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields in the reply.",
        summary: "Replies with random fields of a hash.",
        syntax: "key [count [WITHVALUES]]",
        handler: walk::hrandfield,
        ..ROW
    },
    Row {
        name: "hscan",
        arity: -3,
        flags: Flags::READONLY,
        since: "2.8.0",
        complexity: "O(1) for every call. O(N) for a complete iteration.",
        summary: "Walks over the fields of a hash bit by bit.",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        handler: walk::hscan,
        ..ROW
    },
];
