//! A small table of commands for the tests of this crate.

use std::sync::LazyLock;

use super::{CommandTable, Family, Flags, Keys, Needs, Row, Treatment};

const ROW: Row = Row {
    name: "",
    arity: -2,
    flags: Flags::READONLY,
    keys: Keys::None,
    family: Family::String,
    since: "1.0.0",
    complexity: "O(1)",
    summary: "A sample.",
    syntax: "",
    handler: |_, _| Ok(()),
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

static ROWS: &[Row] = &[
    Row { name: "get", ..ROW },
    Row { name: "mset", ..ROW },
    Row {
        name: "client",
        flags: Flags::CONTAINER,
        subcommands: &[Row { name: "client|list", ..ROW }],
        ..ROW
    },
];

static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(&[ROWS]));

/// A table with GET, MSET and CLIENT LIST.
pub fn table() -> &'static CommandTable {
    &TABLE
}
