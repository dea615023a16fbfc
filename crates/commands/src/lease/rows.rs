//! The rows of the commands on leases.

use engine::{
    Family, Flags, KeyUsage, Keys, Needs, Row, Treatment,
    row::{ConnectionNeed, Mobility},
};

use super::{lease, unlease};

/// Shared fields of the rows.
const ROW: Row = Row {
    name: "",
    arity: 4,
    flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST).or(Flags::NOSCRIPT),
    // `Keys::First` would allow pipelined commands to be merged into one unit, but each token is the position
    // of its own record.
    keys: Keys::Range { first: 1, last: 1, step: 1 },
    family: Family::Connection,
    since: "7.2.4",
    complexity: "O(1)",
    summary: "",
    syntax: "",
    handler: lease,
    subcommands: &[],
    treatment: Treatment::DEFAULT,
    needs: Needs::BY_FLAGS,
};

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "lease",
        needs: Needs::each(KeyUsage::READ_UPDATE),
        treatment: Treatment {
            mobility: Some(Mobility::BeforeItBegins),
            ..Treatment::of_connection(ConnectionNeed::State)
        },
        summary: "Takes or renews a key for an owner and this connection; gives a token that rises, or null if it is taken.",
        syntax: "key milliseconds owner",
        ..ROW
    },
    Row {
        name: "unlease",
        needs: Needs::each(KeyUsage::READ_UPDATE),
        treatment: Treatment::of_mobility(Mobility::BeforeItBegins),
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST).or(Flags::NOSCRIPT),
        summary: "Gives a leased key back, if it is this owner's.",
        syntax: "key owner",
        handler: unlease,
        ..ROW
    },
];
