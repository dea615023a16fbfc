//! The rows of the commands on sets.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{combine, member, random};

/// Flags of commands that write and are not refused when memory is scarce.
const SHRINK_FAST: Flags = Flags::WRITE.or(Flags::FAST);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 2,
    flags: Flags::READONLY.or(Flags::FAST),
    keys: Keys::First,
    family: Family::Set,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "key",
    handler: member::scard,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the rows that reply with a combination of sets.
const COMBINING: Row = Row {
    arity: -2,
    flags: Flags::READONLY.or(Flags::WALKS),
    keys: Keys::Range { first: 1, last: -1, step: 1 },
    complexity: "O(N) where N is the number of members of all sets.",
    syntax: "key [key ...]",
    ..ROW
};

/// Shared fields of the rows that store a combination of sets.
const STORING: Row = Row {
    arity: -3,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::COPIES).or(Flags::WALKS),
    syntax: "destination key [key ...]",
    ..COMBINING
};

/// The complexity of an intersection.
const INTERSECTION: &str = "O(N*M) where N is the size of the smallest set and M the number of sets.";

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "sadd",
        needs: Needs::each(KeyUsage::INSERT),
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        complexity: "O(N) where N is the number of members given.",
        summary: "Adds members to a set and replies with how many are new.",
        syntax: "key member [member ...]",
        handler: member::sadd,
        ..ROW
    },
    Row {
        name: "srem",
        needs: Needs::each(KeyUsage::DELETE),
        treatment: Treatment::of_member(2),
        arity: -3,
        flags: SHRINK_FAST,
        complexity: "O(N) where N is the number of members given.",
        summary: "Removes members from a set.",
        syntax: "key member [member ...]",
        handler: member::srem,
        ..ROW
    },
    Row {
        name: "smove",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::INSERT),
        arity: 4,
        flags: SHRINK_FAST,
        keys: Keys::Range { first: 1, last: 2, step: 1 },
        summary: "Moves a member from one set to another.",
        syntax: "source destination member",
        handler: member::smove,
        ..ROW
    },
    Row {
        name: "sismember",
        needs: Needs::each(KeyUsage::EXISTENCE),
        treatment: Treatment::of_member(2),
        arity: 3,
        summary: "Tells whether a set has a member.",
        syntax: "key member",
        handler: member::sismember,
        ..ROW
    },
    Row {
        name: "smismember",
        treatment: Treatment::of_member(2),
        arity: -3,
        since: "6.2.0",
        complexity: "O(N) where N is the number of members given.",
        summary: "Tells of each of several members whether a set has it.",
        syntax: "key member [member ...]",
        handler: member::smismember,
        ..ROW
    },
    Row {
        name: "scard",
        needs: Needs::each(KeyUsage::EXISTENCE),
        summary: "Replies with the number of members.",
        handler: member::scard,
        ..ROW
    },
    Row {
        name: "smembers",
        flags: Flags::READONLY.or(Flags::WALKS),
        complexity: "O(N) where N is the size of the set.",
        summary: "Replies with all members.",
        handler: member::smembers,
        ..ROW
    },
    Row {
        name: "sscan",
        arity: -3,
        flags: Flags::READONLY,
        since: "2.8.0",
        complexity: "O(1) for every call, O(N) for a whole walk where N is the size of the set.",
        summary: "Walks over the members of a set bit by bit.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        handler: member::sscan,
        ..ROW
    },
    Row {
        name: "spop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -2,
        // The flag COPIES is not needed: the record holds the chosen members, usually a small part of the
        // set.
        flags: SHRINK_FAST,
        complexity: "O(N) where N is the number of members removed.",
        summary: "Removes random members from a set and replies with them.",
        syntax: "key [count]",
        handler: random::spop,
        ..ROW
    },
    Row {
        name: "srandmember",
        arity: -2,
        flags: Flags::READONLY,
        complexity: "O(N) where N is the absolute value of the count.",
        summary: "Replies with random members of a set.",
        syntax: "key [count]",
        handler: random::srandmember,
        ..ROW
    },
    Row {
        name: "sinter",
        complexity: INTERSECTION,
        summary: "Replies with the members that all of several sets have.",
        handler: combine::sinter,
        ..COMBINING
    },
    Row {
        name: "sunion",
        summary: "Replies with the members that any of several sets has.",
        handler: combine::sunion,
        ..COMBINING
    },
    Row {
        name: "sdiff",
        summary: "Replies with the members of the first set that no other set has.",
        handler: combine::sdiff,
        ..COMBINING
    },
    Row {
        name: "sintercard",
        arity: -3,
        keys: Keys::Counted { at: 1, before: None },
        since: "7.0.0",
        complexity: INTERSECTION,
        summary: "Replies with how many members all of several sets have.",
        syntax: "numkeys key [key ...] [LIMIT limit]",
        handler: combine::sintercard,
        ..COMBINING
    },
    Row {
        name: "sinterstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        complexity: INTERSECTION,
        summary: "Stores the members that all of several sets have.",
        handler: combine::sinterstore,
        ..STORING
    },
    Row {
        name: "sunionstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        summary: "Stores the members that any of several sets has.",
        handler: combine::sunionstore,
        ..STORING
    },
    Row {
        name: "sdiffstore",
        needs: Needs::first_and_others(KeyUsage::OVERWRITE, KeyUsage::READ),
        summary: "Stores the members of the first set that no other set has.",
        handler: combine::sdiffstore,
        ..STORING
    },
];
