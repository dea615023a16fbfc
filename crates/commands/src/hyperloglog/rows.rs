//! The rows of the commands on HyperLogLogs.

use engine::{Family, Flags, KeyUsage, Keys, Needs, Row, Treatment};

use super::{add, count, debug, merge};

const WRITE: Flags = Flags::WRITE.or(Flags::DENYOOM);

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: -2,
    flags: WRITE,
    keys: Keys::Range { first: 1, last: -1, step: 1 },
    family: Family::Hyperloglog,
    since: "2.8.9",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: add::pfadd,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "pfadd",
        needs: Needs::each(KeyUsage::INSERT),
        flags: WRITE.or(Flags::FAST),
        keys: Keys::First,
        complexity: "O(1) for each element.",
        summary: "Adds elements to a HyperLogLog and replies whether its estimate may have changed.",
        syntax: "key [element [element ...]]",
        handler: add::pfadd,
        ..ROW
    },
    Row {
        name: "pfcount",
        needs: Needs::each(KeyUsage::READ_CACHE),
        flags: Flags::READONLY,
        complexity: "O(N) where N is the number of keys.",
        summary: "Estimates how many different elements were added to some HyperLogLogs.",
        syntax: "key [key ...]",
        handler: count::pfcount,
        ..ROW
    },
    Row {
        name: "pfdebug",
        needs: Needs::each(KeyUsage::READ_CACHE),
        arity: 3,
        flags: WRITE.or(Flags::ADMIN),
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        complexity: "O(N) where N is the length of the string.",
        summary: "Shows the registers of a HyperLogLog, or changes its encoding.",
        syntax: "subcommand key",
        handler: debug::pfdebug,
        ..ROW
    },
    Row {
        name: "pfselftest",
        arity: 1,
        flags: Flags::ADMIN,
        keys: Keys::None,
        complexity: "O(N) where N is the number of elements that are added.",
        summary: "Tests the estimates of HyperLogLogs.",
        handler: debug::pfselftest,
        ..ROW
    },
    Row {
        name: "pfmerge",
        needs: Needs::first_and_others(KeyUsage::READ_INSERT, KeyUsage::READ),
        complexity: "O(N) where N is the number of keys.",
        summary: "Adds all elements of some HyperLogLogs to another one.",
        syntax: "destkey [sourcekey [sourcekey ...]]",
        handler: merge::pfmerge,
        ..ROW
    },
];
