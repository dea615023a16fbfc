//! The rows of the commands on lists.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{edit, get, pop, push, transfer};

/// Flags of commands that write and are not refused when memory is scarce.
const SHRINK: Flags = Flags::WRITE;
const SHRINK_FAST: Flags = SHRINK.or(Flags::FAST);
const GROW: Flags = Flags::WRITE.or(Flags::DENYOOM);
const GROW_FAST: Flags = GROW.or(Flags::FAST);
const READ: Flags = Flags::READONLY;

/// Shared fields of the rows.
pub(super) const ROW: Row = Row {
    name: "",
    arity: 4,
    flags: READ,
    keys: Keys::First,
    family: Family::List,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: get::llen,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

/// Shared fields of the rows that push.
const PUSH: Row = Row {
    arity: -3,
    flags: GROW_FAST,
    complexity: "O(N) where N is the number of elements given.",
    syntax: "key element [element ...]",
    ..ROW
};

/// Shared fields of the rows that pop.
const POP: Row = Row {
    arity: -2,
    flags: SHRINK_FAST,
    complexity: "O(N) where N is the number of elements returned.",
    syntax: "key [count]",
    ..ROW
};

/// Shared fields of the rows that move an element. The flag COPIES is not needed, because the record holds
/// one element of the list, for which the handler asks for room.
const MOVE: Row =
    Row { flags: GROW.or(Flags::BRIEF), keys: Keys::Range { first: 1, last: 2, step: 1 }, ..ROW };

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "lpush",
        needs: Needs::each(KeyUsage::INSERT),
        summary: "Adds elements to the head of a list.",
        handler: push::lpush,
        ..PUSH
    },
    Row {
        name: "rpush",
        needs: Needs::each(KeyUsage::INSERT),
        summary: "Adds elements to the tail of a list.",
        handler: push::rpush,
        ..PUSH
    },
    Row {
        name: "lpushx",
        needs: Needs::each(KeyUsage::INSERT),
        since: "2.2.0",
        summary: "Adds elements to the head of a list that exists.",
        handler: push::lpushx,
        ..PUSH
    },
    Row {
        name: "rpushx",
        needs: Needs::each(KeyUsage::INSERT),
        since: "2.2.0",
        summary: "Adds elements to the tail of a list that exists.",
        handler: push::rpushx,
        ..PUSH
    },
    Row {
        name: "lpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes elements from the head of a list.",
        handler: pop::lpop,
        ..POP
    },
    Row {
        name: "rpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        summary: "Removes elements from the tail of a list.",
        handler: pop::rpop,
        ..POP
    },
    Row {
        name: "lmpop",
        needs: Needs::each(KeyUsage::READ_DELETE),
        arity: -4,
        flags: SHRINK,
        keys: Keys::Counted { at: 1, before: None },
        since: "7.0.0",
        complexity: "O(N+M) where N is the number of keys and M the number of elements returned.",
        summary: "Removes elements from an end of the first list that exists.",
        syntax: "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
        handler: pop::lmpop,
        ..ROW
    },
    Row {
        name: "lmove",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::INSERT),
        arity: 5,
        since: "6.2.0",
        summary: "Moves an element from an end of a list to an end of another one.",
        syntax: "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
        handler: transfer::lmove,
        ..MOVE
    },
    Row {
        name: "rpoplpush",
        needs: Needs::first_and_others(KeyUsage::READ_DELETE, KeyUsage::INSERT),
        arity: 3,
        since: "1.2.0",
        summary: "Moves the last element of a list to the head of another one.",
        syntax: "source destination",
        handler: transfer::rpoplpush,
        ..MOVE
    },
    Row {
        name: "llen",
        needs: Needs::each(KeyUsage::EXISTENCE),
        arity: 2,
        flags: READ.or(Flags::FAST),
        summary: "Replies with the number of elements.",
        syntax: "key",
        handler: get::llen,
        ..ROW
    },
    Row {
        name: "lrange",
        complexity: "O(N+M) where N is the distance of the range from the nearer end and M the length of the range.",
        summary: "Replies with a range of elements.",
        syntax: "key start stop",
        handler: get::lrange,
        ..ROW
    },
    Row {
        name: "lindex",
        arity: 3,
        complexity: "O(N) where N is the distance of the element from the nearer end.",
        summary: "Replies with the element at an index.",
        syntax: "key index",
        handler: get::lindex,
        ..ROW
    },
    Row {
        name: "lpos",
        flags: ROW.flags.or(Flags::WALKS),
        arity: -3,
        since: "6.0.6",
        complexity: "O(N) where N is the number of elements.",
        summary: "Replies with the indices of elements that match.",
        syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        handler: get::lpos,
        ..ROW
    },
    Row {
        name: "lset",
        needs: Needs::each(KeyUsage::UPDATE),
        flags: GROW,
        complexity: "O(N) where N is the distance of the element from the nearer end.",
        summary: "Replaces the element at an index.",
        syntax: "key index element",
        handler: edit::lset,
        ..ROW
    },
    Row {
        name: "linsert",
        needs: Needs::each(KeyUsage::INSERT),
        arity: 5,
        flags: GROW.or(Flags::WALKS),
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements up to the pivot.",
        summary: "Adds an element before or after another one.",
        syntax: "key <BEFORE | AFTER> pivot element",
        handler: edit::linsert,
        ..ROW
    },
    Row {
        name: "lrem",
        needs: Needs::each(KeyUsage::DELETE),
        flags: SHRINK.or(Flags::WALKS),
        complexity: "O(N) where N is the number of elements.",
        summary: "Removes elements that match.",
        syntax: "key count element",
        handler: edit::lrem,
        ..ROW
    },
    Row {
        name: "ltrim",
        needs: Needs::each(KeyUsage::DELETE),
        flags: SHRINK,
        complexity: "O(N) where N is the number of elements removed.",
        summary: "Removes elements from both ends and keeps a range.",
        syntax: "key start stop",
        handler: edit::ltrim,
        ..ROW
    },
];
